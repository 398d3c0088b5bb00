package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const deadLettersName = "dead-letters.jsonl"

// deadLetter is what is kept of something that could not be kept: who it was
// and why, none of its text. A row that the store refused is there whole, as
// journal.DecodeRows reads it, for it holds no text either.
type deadLetter struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Reason  string    `json:"reason"`
	TraceID string    `json:"trace_id,omitempty"`
	SpanID  string    `json:"span_id,omitempty"`
	Service string    `json:"service,omitempty"`
	Count   int       `json:"count,omitempty"` // spans, where they cannot be told apart
	Segment string    `json:"segment,omitempty"`
	Offset  int64     `json:"offset,omitempty"`
	Length  int64     `json:"length,omitempty"` // bytes
	Row     []byte    `json:"row,omitempty"`
}

// maxReason bounds a reason, in bytes: an error of the store may quote a value.
const maxReason = 500

// deadLetterFile appends dead letters as JSON lines. At half of its bound it
// becomes the predecessor, in place of the one before.
type deadLetterFile struct {
	mu    sync.Mutex
	path  string
	bound int64
	file  *os.File
	size  int64
}

func newDeadLetterFile(dir string, bound int64) *deadLetterFile {
	return &deadLetterFile{path: filepath.Join(dir, deadLettersName), bound: bound}
}

// add writes letters and syncs them. The file is created with the first.
func (d *deadLetterFile) add(letters ...deadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	var lines []byte
	for _, l := range letters {
		if len(l.Reason) > maxReason {
			l.Reason = l.Reason[:maxReason] + "…"
		}
		line, err := json.Marshal(l)
		if err != nil {
			return fmt.Errorf("encode a dead letter: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.write(lines); err != nil {
		return fmt.Errorf("write to %s: %w", d.path, err)
	}
	return nil
}

func (d *deadLetterFile) write(lines []byte) error {
	if d.file != nil && d.size > 0 && d.size+int64(len(lines)) > d.bound/2 {
		err := errors.Join(d.file.Close(), os.Rename(d.path, d.path+".1"))
		d.file = nil
		if err != nil {
			return err
		}
	}
	if d.file == nil {
		f, err := os.OpenFile(d.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		d.file, d.size = f, info.Size()
		if d.size > 0 && d.size+int64(len(lines)) > d.bound/2 {
			return d.write(lines) // an earlier run left it full
		}
	}
	n, err := d.file.Write(lines)
	d.size += int64(n)
	if err != nil {
		return err
	}
	return d.file.Sync()
}

func (d *deadLetterFile) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	d.file = nil
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
