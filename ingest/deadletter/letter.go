// Package deadletter keeps what the collector could not keep as a span: a bounded file
// of JSON lines in the journal's folder, each with who it was and why, and without any
// text that the store would not hold.
//
// A letter that holds a row can be replayed: an operator asks for it by a file beside the
// letters (RequestReplay), the collector that owns the folder puts the rows into its
// journal, and answers. The journal and the store know a row by its span's identity, so
// that a span that is replayed twice, or was delivered again meanwhile, counts once.
package deadletter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Name is the file's name. Its predecessor has Name + ".1".
const Name = "dead-letters.jsonl"

// Kind says what could not be kept.
type Kind string

// The kinds.
const (
	KindSpan    Kind = "span"    // a span that could not be read
	KindRow     Kind = "row"     // a row that the store refuses
	KindJournal Kind = "journal" // a damaged stretch of the journal
)

// Cause is why, in a word that can be counted by.
type Cause string

// The causes.
const (
	CauseNoTraceID     Cause = "no_trace_id"
	CauseNoSpanID      Cause = "no_span_id"
	CauseDialectFailed Cause = "dialect_failed" // the code that reads spans failed on it
	CauseRowTooLarge   Cause = "row_too_large"
	CauseStoreRefused  Cause = "store_refused"
	CauseDamage        Cause = "journal_damaged"
	CauseOther         Cause = "other"
)

// Letter is what is kept of something that could not be kept: who it was and why. Row is
// there where it can be replayed: the span's row as the store would have it, or, where
// reading its attributes failed, what it says without them; journal.DecodeRows reads it.
type Letter struct {
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Cause   Cause     `json:"cause,omitempty"` // empty in letters of earlier releases
	Reason  string    `json:"reason"`          // a sentence
	TraceID string    `json:"trace_id,omitempty"`
	SpanID  string    `json:"span_id,omitempty"`
	Service string    `json:"service,omitempty"`
	Count   int       `json:"count,omitempty"` // spans, where one letter stands for several
	Segment string    `json:"segment,omitempty"`
	Offset  int64     `json:"offset,omitempty"`
	Length  int64     `json:"length,omitempty"` // bytes
	Row     []byte    `json:"row,omitempty"`
}

// Items is how many spans, rows or stretches the letter stands for.
func (l *Letter) Items() int { return max(1, l.Count) }

// maxReason bounds a reason, in bytes: an error of the store may quote a value.
const maxReason = 500

// encode appends letters to lines.
func encode(lines []byte, letters []Letter) ([]byte, error) {
	for _, l := range letters {
		if len(l.Reason) > maxReason {
			l.Reason = l.Reason[:maxReason] + "…"
		}
		line, err := json.Marshal(l)
		if err != nil {
			return lines, fmt.Errorf("encode a dead letter: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}

func decode(line []byte) (l Letter, ok bool) {
	err := json.Unmarshal(line, &l)
	return l, err == nil
}

// Read hands the letters in dir to each, the oldest first. A collector may be writing
// them meanwhile. A line that is no letter is passed over: a power cut can leave one.
func Read(dir string, each func(Letter) error) error {
	path := filepath.Join(dir, Name)
	for _, path := range []string{path + ".1", path} {
		err := eachLine(path, func(line []byte) error {
			if l, ok := decode(line); ok {
				return each(l)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachLine reads a file line by line; one that is not there has none.
func eachLine(path string, each func([]byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the dead letters of %s: %w", path, err)
		}
	}
}
