package deadletter

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// File appends letters. At half of its bound it becomes the predecessor, in place of the
// one before. One process at a time may write: the one that holds the journal.
type File struct {
	mu    sync.Mutex
	dir   string
	path  string
	bound int64
	file  *os.File
	size  int64
}

// New is the file in dir, of at most bound bytes with its predecessor. It is created
// with the first letter.
func New(dir string, bound int64) *File {
	return &File{dir: dir, path: filepath.Join(dir, Name), bound: bound}
}

// Path is where the letters are.
func (f *File) Path() string { return f.path }

// Add writes letters and syncs them. Displaced are the items of older letters that were
// given up for them, because of the bound.
func (f *File) Add(letters ...Letter) (displaced int, err error) {
	lines, err := encode(nil, letters)
	if err != nil || len(lines) == 0 {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(lines) > 0 { // what is larger than half of the bound goes by parts
		n := len(lines)
		for half := int(f.bound / 2); n > half; {
			end := bytes.LastIndexByte(lines[:n-1], '\n') + 1
			if end == 0 {
				break // a single line: the bound is too small for it, and must give
			}
			n = end
		}
		more, err := f.write(lines[:n])
		displaced += more
		if err != nil {
			return displaced, fmt.Errorf("write to %s: %w", f.path, err)
		}
		lines = lines[n:]
	}
	return displaced, nil
}

func (f *File) write(lines []byte) (displaced int, err error) {
	if err := f.open(); err != nil {
		return 0, err
	}
	if f.size > 0 && f.size+int64(len(lines)) > f.bound/2 {
		displaced = items(f.path + ".1")
		err := errors.Join(f.file.Close(), os.Rename(f.path, f.path+".1"))
		f.file = nil
		if err != nil {
			return 0, err
		}
		if err := f.open(); err != nil {
			return displaced, err
		}
	}
	_, err = f.file.Write(lines)
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		return displaced, errors.Join(err, f.undo())
	}
	f.size += int64(len(lines))
	return displaced, nil
}

// undo takes back what a failed write left: the next letter would be glued to half a one.
func (f *File) undo() error {
	if err := f.file.Truncate(f.size); err != nil {
		return errors.Join(err, f.closeFile()) // open mends the end
	}
	return nil
}

func (f *File) open() error {
	if f.file != nil {
		return nil
	}
	// Whose spans they were is nobody else's business.
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := endLastLine(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, size
	return nil
}

// endLastLine ends a line that a power cut left torn, and returns the file's size, in bytes.
func endLastLine(file *os.File) (size int64, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	size = info.Size()
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, size-1); err != nil {
		return 0, err
	}
	if last[0] == '\n' {
		return size, nil
	}
	n, err := file.WriteString("\n")
	return size + int64(n), err
}

// items counts what the letters of a file stand for.
func items(path string) (n int) {
	_ = eachLine(path, func(line []byte) error { // what cannot be read is not counted
		if l, ok := decode(line); ok {
			n += l.Items()
		}
		return nil
	})
	return n
}

// Close closes the file; Add opens it again.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closeFile()
}

func (f *File) closeFile() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// replayRows is how many rows Replay hands over at once.
const replayRows = 1000

// Replay hands the rows of all letters to take, the oldest first, and then drops these
// letters. When take fails all letters stay: rows that were taken come again with the
// next replay. It returns how many rows were taken and how many lines stay, for they are
// letters without a row that this build can read, or no letters: torn, or damaged.
func (f *File) Replay(take func([]schema.Span) error) (taken, kept int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.closeFile(); err != nil {
		return 0, 0, fmt.Errorf("close %s: %w", f.path, err)
	}
	for _, path := range []string{f.path + ".1", f.path} {
		t, k, err := replayFile(path, take)
		taken, kept = taken+t, kept+k
		if err != nil {
			return taken, kept, err
		}
	}
	return taken, kept, nil
}

func replayFile(path string, take func([]schema.Span) error) (taken, kept int, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	rest, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, 0, fmt.Errorf("keep the dead letters that cannot be replayed: %w", err)
	}
	defer func() {
		if err != nil {
			_ = rest.Close()
			_ = os.Remove(path + ".new")
		}
	}()
	var rows []schema.Span
	flush := func() error {
		if err := take(rows); err != nil {
			return fmt.Errorf("replay %d dead letters: %w", len(rows), err)
		}
		taken += len(rows)
		rows = rows[:0]
		return nil
	}
	err = eachLine(path, func(line []byte) error {
		var own []schema.Span
		if l, ok := decode(line); ok && l.Row != nil {
			own, _ = journal.DecodeRows(l.Row) // one of a newer release stays for that release
		}
		if len(own) == 0 {
			kept++
			_, err := rest.Write(append(line, '\n'))
			return err
		}
		if rows = append(rows, own...); len(rows) >= replayRows {
			return flush()
		}
		return nil
	})
	if err == nil && len(rows) > 0 {
		err = flush()
	}
	if err != nil {
		return taken, kept, err
	}
	if err = errors.Join(rest.Sync(), rest.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil && kept == 0 {
		err = os.Remove(path)
	}
	if err != nil {
		return taken, kept, fmt.Errorf("drop the dead letters that were replayed: %w", err)
	}
	return taken, kept, nil
}
