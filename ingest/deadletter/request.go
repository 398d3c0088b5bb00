package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	requestName = "dead-letters.replay"
	answerName  = "dead-letters.replayed"
)

// Answer is what became of a replay.
type Answer struct {
	ID       string    `json:"id"` // of the request
	Time     time.Time `json:"time"`
	Replayed int       `json:"replayed"` // rows that are in the journal now
	Kept     int       `json:"kept"`     // lines that hold nothing to replay: letters without a row, and what cannot be read
	Error    string    `json:"error,omitempty"`
}

// request is the file by which a replay is asked for.
type request struct {
	ID string `json:"id"`
}

// ErrNotTaken is returned when no collector took a request in time. It stays: the next
// collector that uses the folder takes it.
var ErrNotTaken = errors.New("no collector has taken the request")

// RequestReplay asks the collector whose journal is in dir to replay its letters, and
// waits until it has or ctx ends. id names the request. One request at a time: a later
// one takes the place of an earlier one.
func RequestReplay(ctx context.Context, dir, id string) (Answer, error) {
	path := filepath.Join(dir, requestName)
	if err := writeJSON(path, request{id}); err != nil {
		return Answer{}, fmt.Errorf("ask for a replay: %w", err)
	}
	const look = 100 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		var a Answer
		if raw, err := os.ReadFile(filepath.Join(dir, answerName)); err == nil && json.Unmarshal(raw, &a) == nil && a.ID == id {
			return a, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("%w: %w", ErrNotTaken, ctx.Err())
		}
	}
}

// Requested tells whether a replay is asked for in dir, and the request's id.
func Requested(dir string) (id string, asked bool) {
	f, err := os.Open(filepath.Join(dir, requestName))
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	var r request
	// Whatever else the file says, somebody who may write here wants a replay.
	_ = json.NewDecoder(io.LimitReader(f, 4096)).Decode(&r)
	return r.ID, true
}

// Respond answers the request and drops it. Killed before it the collector replays again.
func Respond(dir string, a Answer) error {
	if err := writeJSON(filepath.Join(dir, answerName), a); err != nil {
		return fmt.Errorf("answer a replay: %w", err)
	}
	if id, asked := Requested(dir); !asked || id != a.ID {
		return nil // another request came meanwhile
	}
	if err := os.Remove(filepath.Join(dir, requestName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop an answered request: %w", err)
	}
	return nil
}

// writeJSON makes a file appear whole.
func writeJSON(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
