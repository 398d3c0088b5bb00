package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/zap"
)

const (
	// Version of the npm package that carries ClickHouse.
	Version = "26.7.3-stable.1"
	// LibraryEnv names a libchdb.so to use instead of the fetched one.
	LibraryEnv = "RETRYLEDGER_CLICKHOUSE_LIB"

	packageScope = "@chdb/lib-"
	libraryName  = "libchdb.so" // on macOS too
	markerName   = "retryledger.json"
	serverHint   = "give the address of a ClickHouse server 26.3 or newer as endpoint: instead of the embedded engine"
)

// packages are the platforms that have an engine, with what is known of each.
// The integrity (sha512, as npm writes it) of linux-x64-gnu is pinned from the
// package itself. The other three could not be had where this was written, so
// theirs is taken from the registry at the time of the fetch: that still
// catches a damaged download, but not a registry that was tampered with.
var packages = map[string]pack{
	"linux-x64-gnu": {
		integrity: "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==",
		packed:    177_817_999, unpacked: 566_330_096,
	},
	"linux-arm64-gnu": {packed: 170 << 20, unpacked: 560 << 20},
	"darwin-arm64":    {packed: 170 << 20, unpacked: 560 << 20},
	"darwin-x64":      {packed: 170 << 20, unpacked: 560 << 20},
}

// pack is an npm package: its integrity if pinned, and its size in bytes
// (about, if not pinned).
type pack struct {
	integrity        string
	packed, unpacked int64
}

// Progress is how far a fetch has come.
type Progress struct {
	Step    string // "waiting", "downloading", "checking", "unpacking" or "done"
	Bytes   int64  // of this step so far
	Total   int64  // of this step, about; 0 if unknown
	Elapsed time.Duration
}

// String is one line for a terminal or a log.
func (p Progress) String() string {
	s := fmt.Sprintf("ClickHouse %s: %s", Version, p.Step)
	if p.Total > 0 && p.Step != "done" {
		s += fmt.Sprintf(", %d of about %d MB", p.Bytes/1e6, p.Total/1e6)
	}
	return s + fmt.Sprintf(", %.0f s", p.Elapsed.Seconds())
}

// Library returns the path of the ClickHouse library and fetches it at first.
// The environment variable LibraryEnv comes before everything. cacheDir is
// retryledger/engine in the user's cache folder if empty; progress and log may
// be nil. Of several processes that call it at once one fetches.
func Library(ctx context.Context, cacheDir string, progress func(Progress), log *zap.Logger) (string, error) {
	if path := os.Getenv(LibraryEnv); path != "" {
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return "", fmt.Errorf("engine: %s names %q, which is no file: give it the path of a %s, or unset it", LibraryEnv, path, libraryName)
		}
		// The host runs in another folder.
		if path, err = filepath.Abs(path); err != nil {
			return "", fmt.Errorf("engine: %s: %w", LibraryEnv, err)
		}
		return path, nil
	}
	platform, err := platformOf(runtime.GOOS, runtime.GOARCH, "/")
	if err != nil {
		return "", err
	}
	if cacheDir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("engine: no cache folder for the ClickHouse library (set HOME or XDG_CACHE_HOME, or give cache_dir): %w", err)
		}
		cacheDir = filepath.Join(base, "retryledger", "engine")
	}
	if cacheDir, err = filepath.Abs(cacheDir); err != nil {
		return "", fmt.Errorf("engine: cache_dir: %w", err)
	}
	if log == nil {
		log = zap.NewNop()
	}
	if progress == nil {
		progress = logProgress(log)
	}
	f := fetcher{dir: cacheDir, platform: platform, pack: packages[platform], progress: progress, free: freeBytes, begin: time.Now()}
	return f.library(ctx)
}

// logProgress logs a new step at once and a running one every five seconds.
func logProgress(log *zap.Logger) func(Progress) {
	var step string
	var next time.Duration
	return func(p Progress) {
		if p.Step != step || p.Elapsed >= next {
			step, next = p.Step, p.Elapsed+5*time.Second
			log.Info(p.String())
		}
	}
}

// platformOf names the npm platform for an operating system and architecture
// in Go's words; root is "/" but in tests.
func platformOf(goos, goarch, root string) (string, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[goarch]
	p := goos + "-" + arch
	if goos == "linux" {
		p += "-gnu"
	}
	if _, ok := packages[p]; !ok {
		return "", fmt.Errorf("engine: the embedded ClickHouse does not exist for %s/%s, only for Linux (glibc) and macOS on x64 and arm64: %s", goos, goarch, serverHint)
	}
	if goos == "linux" {
		musl, _ := filepath.Glob(filepath.Join(root, "lib", "ld-musl-*"))
		var glibc []string
		for _, dir := range []string{"lib64", "lib"} {
			m, _ := filepath.Glob(filepath.Join(root, dir, "ld-linux-*"))
			glibc = append(glibc, m...)
		}
		if len(musl) > 0 && len(glibc) == 0 {
			return "", fmt.Errorf("engine: the embedded ClickHouse needs glibc, and this system has musl (Alpine): use an image with glibc, or %s", serverHint)
		}
	}
	return p, nil
}

// fetcher brings one package into its cache folder.
type fetcher struct {
	dir, platform string
	pack          pack
	progress      func(Progress)
	free          func(dir string) (int64, error) // bytes free on dir's disk
	begin         time.Time
}

func (f *fetcher) home() string { return filepath.Join(f.dir, Version+"-"+f.platform) }
func (f *fetcher) spec() string { return packageScope + f.platform + "@" + Version }

func (f *fetcher) tell(step string, n, total int64) {
	f.progress(Progress{Step: step, Bytes: n, Total: total, Elapsed: time.Since(f.begin)})
}

const tempPrefix = ".fetch-"

// library returns the path of a whole library in the cache.
func (f *fetcher) library(ctx context.Context) (string, error) {
	lib := filepath.Join(f.home(), libraryName)
	if intact(f.home()) {
		return lib, nil
	}
	if err := os.MkdirAll(f.dir, 0o750); err != nil {
		return "", fmt.Errorf("engine: create the cache folder of the ClickHouse library (give cache_dir a folder that this user may write): %w", err)
	}
	lock := flock.New(filepath.Join(f.dir, "lock"))
	for {
		ok, err := lock.TryLock()
		if err != nil {
			return "", fmt.Errorf("engine: lock the cache folder %s: %w", f.dir, err)
		}
		if ok {
			break
		}
		f.tell("waiting", 0, 0) // for the process that fetches it now
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("engine: waiting for another process that fetches ClickHouse into %s: %w", f.dir, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	defer lock.Close()
	if intact(f.home()) {
		return lib, nil
	}
	// Nobody else fetches, so every temporary folder is one of a dead process.
	stale, _ := filepath.Glob(filepath.Join(f.dir, tempPrefix+"*"))
	for _, dir := range stale {
		os.RemoveAll(dir)
	}
	tmp, err := os.MkdirTemp(f.dir, tempPrefix)
	if err != nil {
		return "", f.explain("create a folder", err)
	}
	defer os.RemoveAll(tmp)
	if err := f.fetchInto(ctx, tmp); err != nil {
		return "", err
	}
	f.tell("done", 0, 0)
	return lib, nil
}

// fetchInto downloads, checks and unpacks within tmp and puts the result in
// its place by rename.
func (f *fetcher) fetchInto(ctx context.Context, tmp string) error {
	// The tarball lies in npm's cache and beside it while it is unpacked.
	need := 2*f.pack.packed + f.pack.unpacked
	if free, err := f.free(tmp); err == nil && free < need {
		return fmt.Errorf("engine: fetching ClickHouse takes %d MB of disk for a while and %s has %d MB free: make room, or give cache_dir a folder on a larger disk",
			need/1e6, f.dir, free/1e6)
	}
	tgz, err := f.download(ctx, tmp)
	if err != nil {
		return err
	}
	want := f.pack.integrity
	if want == "" {
		if want, err = f.registryIntegrity(ctx, tmp); err != nil {
			return err
		}
	}
	if err := f.check(ctx, tgz, want); err != nil {
		return err
	}
	os.RemoveAll(filepath.Join(tmp, npmCacheName)) // make room for the library
	out := filepath.Join(tmp, "out")
	if err := f.unpack(ctx, tgz, out, want); err != nil {
		return err
	}
	// A broken one may be open in a running engine: moved, it stays so.
	if err := os.Rename(f.home(), filepath.Join(tmp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("engine: put the broken ClickHouse library aside: %w", err)
	}
	if err := os.Rename(out, f.home()); err != nil {
		return fmt.Errorf("engine: put the ClickHouse library in its place: %w", err)
	}
	return nil
}

// explain wraps an error of writing to the cache and names the full disk.
func (f *fetcher) explain(what string, err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("engine: the disk of %s is full (%s): make room (about 1 GB for a while, 600 MB to stay), or give cache_dir a folder on a larger disk: %w", f.dir, what, err)
	}
	return fmt.Errorf("engine: %s in %s: %w", what, f.dir, err)
}

// oneLine is the beginning of what npm said, short enough for an error.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, "npm error", "")), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
