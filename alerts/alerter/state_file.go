package alerter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/retryledger/retryledger/alerts/rules"
)

// stateFile keeps the state of the alerts over restarts. It is not safe for concurrent
// use.
type stateFile struct {
	path   string
	beside chan struct{} // closed when what is written beside is written; nil: nothing ever was
}

// read returns false where nothing was kept.
func (f *stateFile) read() (rules.Snapshot, bool, error) {
	var s rules.Snapshot
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read the state of the alerts: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, false, fmt.Errorf("read the state of the alerts of %s: %w", f.path, err)
	}
	return s, true, nil
}

// writeBeside writes while evaluations go on, unless it does already; done is told what
// came of it. Wait before the next write.
func (f *stateFile) writeBeside(s rules.Snapshot, done func(error)) {
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
func (f *stateFile) write(s rules.Snapshot) (err error) {
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
