//go:build linux || darwin

package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testPlatform = "linux-x64-gnu"

// tarball is an npm package whose library has the content lib.
func tarball(t *testing.T, lib []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range map[string][]byte{"package/package.json": []byte("{}"), "package/" + libraryName: lib} {
		if content == nil {
			continue
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func integrityOf(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fakeNPM puts an npm into PATH that is a shell script. It finds the tarball
// at $TGZ, counts its runs of pack in $DIR/runs, and is told where to pack to
// as $DEST.
func fakeNPM(t *testing.T, tgz []byte, script string) (runs func() int) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tgz"), tgz, 0o600))
	body := "#!/bin/sh\nDIR='" + dir + "'\nTGZ=\"$DIR/tgz\"\nDEST=\"$4\"\n[ \"$1\" = pack ] && echo \"$2\" >> \"$DIR/runs\"\n" + script + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "npm"), []byte(body), 0o700))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return func() int {
		b, _ := os.ReadFile(filepath.Join(dir, "runs"))
		require.Equal(t, bytes.Count(b, []byte("@chdb/lib-linux-x64-gnu@"+Version+"\n")), bytes.Count(b, []byte("\n")))
		return bytes.Count(b, []byte("\n"))
	}
}

const packs = `cp "$TGZ" "$DEST/chdb-lib.tgz"; echo chdb-lib.tgz`

func newFetcher(t *testing.T, tgz []byte) *fetcher {
	t.Helper()
	return &fetcher{
		dir: filepath.Join(t.TempDir(), "cache"), platform: testPlatform,
		pack:     pack{integrity: integrityOf(tgz), packed: int64(len(tgz)), unpacked: 1},
		progress: func(Progress) {}, free: freeBytes, begin: time.Now(),
	}
}

func TestFetchesOnceChecksAndUnpacks(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	runs := fakeNPM(t, tgz, packs)
	f := newFetcher(t, tgz)
	var steps []string
	f.progress = func(p Progress) {
		if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
		require.NotEmpty(t, p.String())
	}
	lib, err := f.library(context.Background())
	require.NoError(t, err)
	require.Equal(t, filepath.Join(f.dir, Version+"-"+testPlatform, libraryName), lib)
	b, err := os.ReadFile(lib)
	require.NoError(t, err)
	require.Equal(t, "the library", string(b))
	require.Equal(t, []string{"downloading", "checking", "unpacking", "done"}, steps)

	again, err := f.library(context.Background())
	require.NoError(t, err)
	require.Equal(t, lib, again)
	require.Equal(t, 1, runs())

	var left []string
	require.NoError(t, filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, filepath.Base(path))
		}
		return err
	}))
	require.ElementsMatch(t, []string{"lock", libraryName, markerName}, left, "no tarball and no npm cache stay behind")
}

func TestTwoAtOnceFetchOnce(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	runs := fakeNPM(t, tgz, "sleep 0.3; "+packs)
	f := newFetcher(t, tgz)
	var wg sync.WaitGroup
	var waited atomic.Bool
	for range 3 {
		g := *f
		g.progress = func(p Progress) {
			if p.Step == "waiting" {
				waited.Store(true)
			}
		}
		wg.Go(func() {
			_, err := g.library(context.Background())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, 1, runs())
	require.True(t, waited.Load())
}

func TestABrokenLibraryIsFetchedAgain(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	for name, damage := range map[string]func(home string) error{
		"truncated":    func(h string) error { return os.Truncate(filepath.Join(h, libraryName), 5) },
		"gone":         func(h string) error { return os.Remove(filepath.Join(h, libraryName)) },
		"no marker":    func(h string) error { return os.Remove(filepath.Join(h, markerName)) },
		"empty marker": func(h string) error { return os.Truncate(filepath.Join(h, markerName), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			runs := fakeNPM(t, tgz, packs)
			f := newFetcher(t, tgz)
			lib, err := f.library(context.Background())
			require.NoError(t, err)
			require.NoError(t, damage(f.home()))
			_, err = f.library(context.Background())
			require.NoError(t, err)
			require.Equal(t, 2, runs())
			b, err := os.ReadFile(lib)
			require.NoError(t, err)
			require.Equal(t, "the library", string(b))
		})
	}
}

func TestWhatADeadProcessLeftIsCleanedUp(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	fakeNPM(t, tgz, packs)
	f := newFetcher(t, tgz)
	stale := filepath.Join(f.dir, tempPrefix+"dead", npmCacheName)
	require.NoError(t, os.MkdirAll(stale, 0o700))
	_, err := f.library(context.Background())
	require.NoError(t, err)
	m, err := filepath.Glob(filepath.Join(f.dir, tempPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, m)
}

func TestAFailedFetchSaysWhatToDo(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	says := func(text string) string { return "echo '" + text + "' >&2; exit 1" }
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"no network":      {says("npm error code ENOTFOUND npm error network request failed"), []string{"cannot reach its registry", "check the network", LibraryEnv, "endpoint:"}},
		"not there":       {says("npm error code ETARGET No matching version"), []string{"registry has no @chdb/lib-linux-x64-gnu@" + Version, "mirror"}},
		"not allowed":     {says("npm error code E401"), []string{"refused", "log npm in"}},
		"full disk":       {says("npm error code ENOSPC npm error nospc"), []string{"is full", "make room", "cache_dir"}},
		"damaged":         {says("npm error code EINTEGRITY"), []string{"was damaged", "start again"}},
		"anything else":   {says("npm error Something new"), []string{"run npm pack @chdb", "Something new"}},
		"other content":   {`echo other > "$DEST/x.tgz"`, []string{"is not the one this version was made for", "expected " + integrityOf(tgz), "was deleted"}},
		"cut off":         {`head -c 20 "$TGZ" > "$DEST/x.tgz"`, []string{"is not the one this version was made for"}},
		"nothing":         {"true", []string{"left 0 packages"}},
		"unknown failure": {"exit 7", []string{"exit status 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeNPM(t, tgz, c.script)
			f := newFetcher(t, tgz)
			_, err := f.library(context.Background())
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			left, gerr := filepath.Glob(filepath.Join(f.dir, tempPrefix+"*"))
			require.NoError(t, gerr)
			require.Empty(t, left)
		})
	}
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := newFetcher(t, tgz).library(context.Background())
		require.ErrorContains(t, err, "no npm in PATH: install Node.js")
	})
	t.Run("no library within", func(t *testing.T) {
		empty := tarball(t, nil)
		fakeNPM(t, empty, packs)
		_, err := newFetcher(t, empty).library(context.Background())
		require.ErrorContains(t, err, "holds no "+libraryName)
	})
	t.Run("little room", func(t *testing.T) {
		runs := fakeNPM(t, tgz, packs)
		f := newFetcher(t, tgz)
		f.pack = pack{packed: 160e6, unpacked: 560e6}
		f.free = func(string) (int64, error) { return 879e6, nil }
		_, err := f.library(context.Background())
		require.ErrorContains(t, err, "takes 880 MB of disk for a while")
		require.ErrorContains(t, err, "879 MB free: make room")
		require.Equal(t, 0, runs())
	})
	t.Run("no folder", func(t *testing.T) {
		f := newFetcher(t, tgz)
		f.dir = "/dev/null/cache"
		_, err := f.library(context.Background())
		require.ErrorContains(t, err, "give cache_dir a folder")
	})
}

// The words of the real npm, of a registry that nobody listens at.
func TestARealNPMWithoutANetwork(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	t.Setenv("npm_config_registry", "http://127.0.0.1:1/")
	t.Setenv("npm_config_fetch_retries", "0")
	f := newFetcher(t, []byte("x"))
	began := time.Now()
	_, err := f.library(context.Background())
	require.ErrorContains(t, err, "npm cannot reach its registry")
	t.Log(time.Since(began), err)
	require.Less(t, time.Since(began), time.Minute)
}

// The limit on the size of a file stands in for a full disk: it fails the
// write of the library in the middle, as that does.
func TestADiskThatFillsUpWhileUnpackingIsSaid(t *testing.T) {
	if os.Getenv(fullDiskEnv) == "" {
		// A process of its own: the limit holds for all of it.
		rerunWith(t, fullDiskEnv+"=1")
		return
	}
	lib := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB, packed far smaller
	tgz := tarball(t, lib)
	fakeNPM(t, tgz, packs)
	f := newFetcher(t, tgz)
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	limit := old
	limit.Cur = 512 << 10
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	_, err := f.library(context.Background())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))
	require.ErrorContains(t, err, "is full")
	require.ErrorContains(t, err, "give cache_dir a folder on a larger disk")
	m, gerr := filepath.Glob(filepath.Join(f.dir, "*"))
	require.NoError(t, gerr)
	require.Equal(t, []string{filepath.Join(f.dir, "lock")}, m, "nothing half done stays")
}

func TestAnInterruptedFetchEnds(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	fakeNPM(t, tgz, "exec sleep 60")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := newFetcher(t, tgz).library(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the next start begins it again")
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestAnUnpinnedPackageIsCheckedAgainstTheRegistry(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	for name, c := range map[string]struct{ view, want string }{
		"right":   {integrityOf(tgz), ""},
		"other":   {integrityOf([]byte("other")), "is not the one"},
		"no hash": {"undefined", "not a sha512"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeNPM(t, tgz, "if [ \"$1\" = view ]; then echo '"+c.view+"'; else "+packs+"; fi")
			f := newFetcher(t, tgz)
			f.pack.integrity = ""
			_, err := f.library(context.Background())
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestTheProgressOfADownloadGrows(t *testing.T) {
	tgz := tarball(t, []byte("the library"))
	// npm fills its cache while it downloads. The script goes on when the test
	// has seen the first half.
	fakeNPM(t, tgz, `mkdir -p npm-cache; head -c 1000 /dev/zero > npm-cache/part; while [ ! -e go-on ]; do sleep 0.02; done; `+packs)
	f := newFetcher(t, tgz)
	f.pack.packed = 2000
	var most int64
	f.progress = func(p Progress) {
		if p.Step != "downloading" {
			return
		}
		require.GreaterOrEqual(t, p.Bytes, most)
		require.EqualValues(t, 2000, p.Total)
		if most = p.Bytes; most >= 1000 {
			m, _ := filepath.Glob(filepath.Join(f.dir, tempPrefix+"*"))
			for _, dir := range m {
				_ = os.WriteFile(filepath.Join(dir, "go-on"), nil, 0o600)
			}
		}
	}
	_, err := f.library(context.Background())
	require.NoError(t, err)
	require.GreaterOrEqual(t, most, int64(1000))
}

func TestPlatforms(t *testing.T) {
	glibc, musl := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(glibc, "lib64"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(glibc, "lib64", "ld-linux-x86-64.so.2"), nil, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(musl, "lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(musl, "lib", "ld-musl-x86_64.so.1"), nil, 0o755))
	for in, want := range map[[3]string]string{
		{"linux", "amd64", glibc}:  "linux-x64-gnu",
		{"linux", "arm64", glibc}:  "linux-arm64-gnu",
		{"darwin", "arm64", glibc}: "darwin-arm64",
		{"darwin", "amd64", glibc}: "darwin-x64",
	} {
		got, err := platformOf(in[0], in[1], in[2])
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := platformOf("linux", "amd64", musl)
	require.ErrorContains(t, err, "needs glibc")
	require.ErrorContains(t, err, "endpoint:")
	for _, p := range [][2]string{{"windows", "amd64"}, {"linux", "riscv64"}, {"freebsd", "amd64"}} {
		_, err := platformOf(p[0], p[1], glibc)
		require.ErrorContains(t, err, fmt.Sprintf("does not exist for %s/%s", p[0], p[1]))
		require.ErrorContains(t, err, "ClickHouse server 26.3 or newer as endpoint:")
	}
}

func TestTheEnvironmentNamesTheLibrary(t *testing.T) {
	lib := filepath.Join(t.TempDir(), libraryName)
	t.Setenv(LibraryEnv, lib)
	_, err := Library(context.Background(), t.TempDir(), nil, nil)
	require.ErrorContains(t, err, "which is no file")
	require.NoError(t, os.WriteFile(lib, nil, 0o600))
	got, err := Library(context.Background(), t.TempDir(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, lib, got)

	t.Chdir(filepath.Dir(lib))
	t.Setenv(LibraryEnv, "./"+libraryName)
	got, err = Library(context.Background(), t.TempDir(), nil, nil)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(got))
}

// A real download, of 178 MB: where it is asked for.
func TestARealDownload(t *testing.T) {
	if os.Getenv("RETRYLEDGER_TEST_DOWNLOAD") != "1" {
		t.Skip("RETRYLEDGER_TEST_DOWNLOAD=1 downloads 178 MB")
	}
	t.Setenv(LibraryEnv, "")
	platform, err := platformOf(runtime.GOOS, runtime.GOARCH, "/")
	require.NoError(t, err)
	f := fetcher{dir: t.TempDir(), platform: platform, pack: packages[platform], free: freeBytes, begin: time.Now(),
		progress: func(p Progress) { t.Log(p) }}
	lib, err := f.library(context.Background())
	require.NoError(t, err)
	st, err := os.Stat(lib)
	require.NoError(t, err)
	if f.pack.integrity != "" {
		require.Equal(t, f.pack.unpacked, st.Size())
	}
}

func TestMemoryDefaults(t *testing.T) {
	require.EqualValues(t, 4<<30, defaultMemory(64<<30))
	require.EqualValues(t, 1<<30, defaultMemory(2<<30))
	require.EqualValues(t, minMemoryLimit, defaultMemory(100<<20))
	require.EqualValues(t, 4<<30, defaultMemory(0))
	require.Positive(t, PhysicalMemory())
	require.True(t, isDiskFull(fmt.Errorf("write: %w", syscall.ENOSPC)))
	require.False(t, isDiskFull(errors.New("other")))
}

const fullDiskEnv = "RETRYLEDGER_ENGINE_TEST_FULL_DISK"
