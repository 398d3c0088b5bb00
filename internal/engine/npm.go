package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const npmCacheName = "npm-cache"

// npm runs npm in tmp. Its cache lies in tmp as well: the size of that shows
// how far a download is (npm itself prints nothing), no second copy of the
// package stays behind, and a cache that npm once wrote as root is no trouble.
func (f *fetcher) npm(ctx context.Context, tmp string, args ...string) (string, error) {
	exe, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("engine: ClickHouse comes as an npm package and there is no npm in PATH: install Node.js, or set %s to a %s that you have, or %s", LibraryEnv, libraryName, serverHint)
	}
	cmd := exec.CommandContext(ctx, exe, append(args, "--cache", filepath.Join(tmp, npmCacheName),
		"--loglevel", "error", "--no-update-notifier", "--logs-max", "0",
		// npm's own waits between tries add up to more than a minute, in which
		// somebody without a network would see nothing.
		"--fetch-retry-mintimeout", "1000", "--fetch-retry-maxtimeout", "10000")...)
	cmd.Dir = tmp
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("engine: fetching ClickHouse was interrupted; the next start begins it again: %w", ctx.Err())
		}
		return "", f.npmError(err, errs.String()+out.String())
	}
	return out.String(), nil
}

var (
	npmNetwork   = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET|network request|socket hang up|CERT_|SELF_SIGNED`)
	npmFull      = regexp.MustCompile(`ENOSPC|EDQUOT|no space left|EFBIG`)
	npmMissing   = regexp.MustCompile(`E404|ETARGET`)
	npmDenied    = regexp.MustCompile(`E401|E403|ENEEDAUTH`)
	npmIntegrity = regexp.MustCompile(`EINTEGRITY`)
)

// npmError turns what npm said into what to do.
func (f *fetcher) npmError(err error, said string) error {
	detail := fmt.Errorf("npm: %w: %s", err, oneLine(said))
	switch {
	case npmFull.MatchString(said):
		return f.explain("download", fmt.Errorf("%w: %w", errDiskFull, detail))
	case npmIntegrity.MatchString(said):
		return fmt.Errorf("engine: the download of %s was damaged (a proxy may have changed it): start again, or set %s to a %s that you have: %w", f.spec(), LibraryEnv, libraryName, detail)
	case npmNetwork.MatchString(said):
		return fmt.Errorf("engine: npm cannot reach its registry to fetch %s: check the network and npm's registry and proxy settings, or set %s to a %s that you have, or %s: %w", f.spec(), LibraryEnv, libraryName, serverHint, detail)
	case npmMissing.MatchString(said):
		return fmt.Errorf("engine: npm's registry has no %s: if npm is set to a mirror, let the mirror have it, or set %s to a %s that you have: %w", f.spec(), LibraryEnv, libraryName, detail)
	case npmDenied.MatchString(said):
		return fmt.Errorf("engine: npm's registry refused %s: log npm in to the registry it is set to, or set %s to a %s that you have: %w", f.spec(), LibraryEnv, libraryName, detail)
	}
	return fmt.Errorf("engine: npm could not fetch %s: run npm pack %s by hand to see why, or set %s to a %s that you have: %w", f.spec(), f.spec(), LibraryEnv, libraryName, detail)
}

var errDiskFull = errors.New("disk full")

// download lets npm fetch the package and returns the path of the tarball.
func (f *fetcher) download(ctx context.Context, tmp string) (string, error) {
	f.tell("downloading", 0, f.pack.packed)
	watch, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-watch.Done():
				return
			case <-t.C:
				// What lies there twice, in the cache and beside it, is done.
				f.tell("downloading", min(folderSize(tmp), f.pack.packed), f.pack.packed)
			}
		}
	}()
	_, err := f.npm(ctx, tmp, "pack", f.spec(), "--pack-destination", tmp)
	stop()
	<-watched
	if err != nil {
		return "", err
	}
	found, _ := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if len(found) != 1 {
		return "", fmt.Errorf("engine: npm pack %s left %d packages where one was to be: run it by hand to see why, or set %s to a %s that you have", f.spec(), len(found), LibraryEnv, libraryName)
	}
	return found[0], nil
}

func folderSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil // what vanishes under the walk counts nothing
	})
	return n
}

// registryIntegrity asks the registry for the integrity of the package.
func (f *fetcher) registryIntegrity(ctx context.Context, tmp string) (string, error) {
	out, err := f.npm(ctx, tmp, "view", f.spec(), "dist.integrity")
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(out)
	if !strings.HasPrefix(s, "sha512-") {
		return "", fmt.Errorf("engine: npm view %s dist.integrity says %q, not a sha512: set %s to a %s that you have", f.spec(), oneLine(s), LibraryEnv, libraryName)
	}
	return s, nil
}

// check compares the tarball with its integrity.
func (f *fetcher) check(ctx context.Context, tgz, want string) error {
	file, err := os.Open(tgz)
	if err != nil {
		return f.explain("open the package", err)
	}
	defer file.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f.follow(ctx, "checking", file, f.pack.packed)); err != nil {
		return f.explain("read the package", err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("engine: the downloaded %s is not the one this version was made for (integrity %s, expected %s); it was deleted: start again, and if it happens again check the registry or proxy that npm is set to", f.spec(), got, want)
	}
	return nil
}

// marker says what a folder of the cache must hold.
type marker struct {
	Size      int64  `json:"size"` // of the library
	Integrity string `json:"integrity"`
}

// intact says, without reading all of it, whether a folder of the cache holds
// a whole library: it is renamed into place complete and on disk, so a wrong
// size is what damage there can be.
func intact(home string) bool {
	b, err := os.ReadFile(filepath.Join(home, markerName))
	if err != nil {
		return false
	}
	var m marker
	st, err := os.Stat(filepath.Join(home, libraryName))
	return json.Unmarshal(b, &m) == nil && err == nil && m.Size > 0 && st.Size() == m.Size
}

// unpack writes the library out of the tarball into the folder out, with its
// marker, all of it on disk when it returns. The tarball is deleted.
func (f *fetcher) unpack(ctx context.Context, tgz, out, integrity string) error {
	file, err := os.Open(tgz)
	if err != nil {
		return f.explain("open the package", err)
	}
	defer file.Close()
	// Unlinked now, its room is free the moment it is closed, come what may.
	os.Remove(tgz)
	z, err := gzip.NewReader(file)
	if err != nil {
		return f.explain("unpack "+f.spec(), err)
	}
	if err := os.Mkdir(out, 0o750); err != nil {
		return f.explain("create a folder", err)
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("engine: the package %s holds no %s: set %s to one that you have", f.spec(), libraryName, LibraryEnv)
		}
		if err != nil {
			return f.explain("unpack "+f.spec(), err)
		}
		if h.Typeflag != tar.TypeReg || h.Name != "package/"+libraryName {
			continue
		}
		if err := writeSynced(filepath.Join(out, libraryName), f.follow(ctx, "unpacking", t, h.Size), 0o755); err != nil {
			return f.explain("unpack "+f.spec(), err)
		}
		b, err := json.Marshal(marker{Size: h.Size, Integrity: integrity})
		if err != nil {
			return err
		}
		if err := writeSynced(filepath.Join(out, markerName), bytes.NewReader(b), 0o644); err != nil {
			return f.explain("write the marker", err)
		}
		return nil
	}
}

func writeSynced(path string, r io.Reader, mode fs.FileMode) error {
	w, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err == nil {
		err = w.Sync()
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return err
}

// follow reports what is read of r and ends reading when ctx ends.
func (f *fetcher) follow(ctx context.Context, step string, r io.Reader, total int64) io.Reader {
	return &followed{ctx: ctx, f: f, step: step, r: r, total: total}
}

type followed struct {
	ctx      context.Context //nolint:containedctx // of one fetch, which this describes
	f        *fetcher
	step     string
	r        io.Reader
	n, total int64
	told     time.Time
}

func (w *followed) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.r.Read(p)
	w.n += int64(n)
	if time.Since(w.told) > 200*time.Millisecond {
		w.told = time.Now()
		w.f.tell(w.step, w.n, w.total)
	}
	return n, err
}
