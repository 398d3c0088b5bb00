package alerter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/schema"
)

// state is what a collector must not forget: where its alerts stand, and the changes that
// the store may lack. One file holds both, so that a kill at any moment leaves the changes
// that led to the state beside it.
type state struct {
	rules.Snapshot
	Transitions        []schema.AlertTransition   `json:"transitions,omitempty"` // the oldest first
	BreakerTransitions []schema.BreakerTransition `json:"breaker_transitions,omitempty"`
	Breakers           []breakers.Breaker         `json:"breakers,omitempty"` // of BreakerTransitions, after them
}

// stateFile keeps the state of the alerts over restarts. It is not safe for concurrent
// use.
type stateFile struct {
	path   string
	beside chan struct{} // closed when what is written beside is written; nil: nothing ever was
}

// read returns false where nothing was kept.
func (f *stateFile) read() (state, bool, error) {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, fmt.Errorf("read the state of the alerts: %w", err)
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return state{}, false, fmt.Errorf("read the state of the alerts of %s: %w", f.path, err)
	}
	return s, true, nil
}

// writeBeside writes while evaluations go on, unless it does already; done is told what
// came of it. Wait before the next write.
func (f *stateFile) writeBeside(s state, done func(error)) {
	if f.beside != nil {
		select {
		case <-f.beside:
		default:
			return // the disk is slow
		}
	}
	beside := make(chan struct{})
	f.beside = beside
	go func() {
		defer close(beside)
		done(f.write(s))
	}()
}

// wait lets what is written beside come to its end.
func (f *stateFile) wait() {
	if f.beside != nil {
		<-f.beside
	}
}

// write replaces the file as a whole, so that a crash leaves the old one or the new one.
func (f *stateFile) write(s state) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the state of the alerts: %w", err)
		}
	}()
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// One name, so that what a crash left is written over: the folder has one owner.
	next, err := os.OpenFile(f.path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(content)
	if err == nil {
		err = next.Sync()
	}
	if closing := next.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
