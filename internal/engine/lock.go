package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// holder is what the owner of a data folder writes into its lock file.
type holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Addr    string    `json:"addr"`
	Started time.Time `json:"started"`
}

// dirLock is the lock of a data folder. The file is handed on to the engine's
// process, so it is free only when that one is gone as well.
type dirLock struct{ file *os.File }

// LockedError says that another process has the data folder.
type LockedError struct {
	DataDir string
	PID     int    // of the process that started the engine there
	Host    string // name of the machine it runs on
	Addr    string // where its engine listens
	Waited  time.Duration
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s (engine at %s)", e.PID, e.Host, e.Addr)
	}
	msg := fmt.Sprintf("engine: data_dir %s is in use by %s", e.DataDir, who)
	if e.Waited > 0 {
		msg += fmt.Sprintf(", which is not there any more, but its engine still ran after %s", e.Waited.Round(time.Second))
	}
	return msg + ": stop it, choose another data_dir, or share one engine: run the engine subcommand once and give its address as endpoint to every collector"
}

// lockDir takes the lock of the data folder of d. If its holder is dead, its
// engine is about to end, and that is waited for up to wait.
func lockDir(ctx context.Context, d layout, wait time.Duration) (*dirLock, error) {
	f, err := os.OpenFile(d.lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("engine: open the lock of data_dir %s: %w", d.dir, err)
	}
	start := time.Now()
	for {
		err := lockFile(f)
		if err == nil {
			return &dirLock{f}, nil
		}
		if !isLocked(err) {
			f.Close()
			return nil, fmt.Errorf("engine: lock data_dir %s (it must be on a file system with locks): %w", d.dir, err)
		}
		var h holder
		if b, err := io.ReadAll(io.NewSectionReader(f, 0, 4096)); err == nil {
			_ = json.Unmarshal(b, &h) // a torn record names nobody, which is said
		}
		locked := &LockedError{DataDir: d.dir, PID: h.PID, Host: h.Host, Addr: h.Addr}
		if alive(h.PID) {
			f.Close()
			return nil, locked
		}
		if locked.Waited = time.Since(start); locked.Waited > wait {
			f.Close()
			return nil, locked
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w (%w)", locked, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// record writes who holds the lock and where its engine listens.
func (l *dirLock) record(addr string) error {
	host, _ := os.Hostname()
	b, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Addr: addr, Started: time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(b, '\n'), 0)
	return err
}

func (l *dirLock) release() error { return l.file.Close() }
