package delivery

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	saveInterval = time.Second
	saveSpacing  = 100 * time.Millisecond
)

// saver keeps a snapshot of silences, or of who was told of what, on disk. It writes when the content changed, so that
// looking every second costs nothing while nothing happens.
type saver struct {
	path    string
	state   snapshotter
	logger  *slog.Logger
	changed chan struct{}

	saved  uint64
	exists bool
}

type snapshotter interface {
	GC() (int, error)
	Snapshot(w io.Writer) (int64, error)
}

func newSaver(path string, state snapshotter, logger *slog.Logger) *saver {
	return &saver{path: path, state: state, logger: logger, changed: make(chan struct{}, 1)}
}

// mark says that something changed. It does not block.
func (s *saver) mark() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run saves at once what was marked as changed, but not more often than saveSpacing, looks for what has expired each
// saveInterval, and saves at the end.
func (s *saver) run(stop <-chan struct{}) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	spacing := time.NewTimer(0)
	defer spacing.Stop()
	for ended := false; !ended; {
		select {
		case <-stop:
			ended = true
		case <-tick.C:
		case <-s.changed:
		}
		if err := s.save(); err != nil {
			s.logger.Error("silences or notifications cannot be saved; what is not saved is told again after a restart", "file", s.path, "err", err)
		}
		spacing.Reset(saveSpacing)
		select {
		case <-stop:
		case <-spacing.C:
		}
	}
}

// save forgets what is past its retention, and writes what is left.
func (s *saver) save() error {
	if _, err := s.state.GC(); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := s.state.Snapshot(&b); err != nil {
		return err
	}
	content := unordered(b.Bytes())
	if s.exists && content == s.saved {
		return nil
	}
	if err := replace(s.path, b.Bytes()); err != nil {
		return err
	}
	s.saved, s.exists = content, true
	return nil
}

// unordered is a hash of the messages of a snapshot, each behind its length, in whatever order a map gave them.
func unordered(b []byte) uint64 {
	sum := uint64(len(b))
	for len(b) > 0 {
		n, width := binary.Uvarint(b)
		if width <= 0 || n > uint64(len(b)-width) {
			return sum + xxhash.Sum64(b)
		}
		sum += xxhash.Sum64(b[:width+int(n)])
		b = b[width+int(n):]
	}
	return sum
}

// replace writes a file as a whole: after a crash there is the old one or the new one.
func replace(path string, content []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, failed := f.Write(content)
	if err := errors.Join(failed, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// setAside moves a snapshot away that load cannot read, so that a damaged file costs a repeated notification, or the
// silences, and not the alerts.
func setAside(path string, load func() error) (cause, err error) {
	cause = load()
	if cause == nil {
		return nil, nil
	}
	if err := os.Rename(path, path+".damaged"); err != nil {
		return nil, fmt.Errorf("cannot read %s (%w), nor set it aside: %w", path, cause, err)
	}
	return cause, nil
}
