//go:build linux || darwin

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is one process of the engine.
type child struct {
	proc  *os.Process
	stdin io.Closer     // its end tells the host to end
	ended chan struct{} // closed when the process has been waited for
	state error         // of the exit; read after ended
	logAt int64         // where this process's part of the host log begins
	log   string
}

const hostLogBytes = 1 << 20

// launch starts the host with the lock's descriptor handed on to it.
func launch(d layout, lock *os.File) (*child, error) {
	exe, err := selfExecutable()
	if err != nil {
		return nil, fmt.Errorf("engine: find this program's own file: %w", err)
	}
	if st, err := os.Stat(d.hostLog); err == nil && st.Size() > hostLogBytes {
		_ = os.Rename(d.hostLog, d.hostLog+".1")
	}
	out, err := os.OpenFile(d.hostLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("engine: open the host log: %w", err)
	}
	defer out.Close()
	at, _ := out.Seek(0, io.SeekEnd)

	cmd := exec.Command(exe, HostCommand, d.hostJSON) //nolint:noctx // it is ended in steps, not killed by a context
	cmd.Args[0] = "retryledger"
	cmd.Dir = d.store
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{lock} // lockFD
	// A group of its own: Ctrl-C goes to the collector, which ends the engine
	// after whatever still writes to it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("engine: pipe to the host: %w", err)
	}
	c := &child{stdin: stdin, ended: make(chan struct{}), log: d.hostLog, logAt: at}
	started := make(chan error, 1)
	go func() {
		// The kernel's "parent" that dieWithParent watches is the thread that
		// forked, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.proc = cmd.Process
		started <- nil
		c.state = cmd.Wait()
		close(c.ended)
	}()
	if err := <-started; err != nil {
		stdin.Close()
		return nil, fmt.Errorf("engine: start the engine's process: %w", err)
	}
	return c, nil
}

func (c *child) id() int                 { return c.proc.Pid }
func (c *child) exited() <-chan struct{} { return c.ended }

// end ends the child: asked first, then told by SIGTERM, then killed.
func (c *child) end() {
	c.stdin.Close()
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{
		{hostGrace + time.Second, func() { _ = c.proc.Signal(syscall.SIGTERM) }},
		{time.Second, c.kill},
	} {
		t := time.NewTimer(step.after)
		select {
		case <-c.ended:
			t.Stop()
			return
		case <-t.C:
			step.do()
		}
	}
	<-c.ended
}

// kill is harmless on a child that has been waited for: os.Process knows.
func (c *child) kill() { _ = c.proc.Kill() } // it may have ended by itself

// reason says why the child ended: how it exited, and what it wrote of it.
func (c *child) reason() error {
	state := c.state
	if state == nil {
		state = errors.New("exit status 0")
	}
	if s := c.complaint(); s != "" {
		return fmt.Errorf("%w: %s", state, s)
	}
	return state
}

// complaints begin the lines of the host log that say what went wrong: the
// host's own, ClickHouse's exceptions, and those of the Go runtime.
var complaints = []string{hostSays, "Code: ", "SIG", "panic: ", "fatal error: "}

// complaint returns the first lines of trouble of this child, if any.
func (c *child) complaint() string {
	f, err := os.Open(c.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, c.logAt, 64<<10))
	var said []string
	for line := range bytes.Lines(b) {
		s := strings.TrimSpace(string(line))
		if _, after, ok := strings.Cut(s, ":) "); ok { // the engine's prompt
			s = after
		}
		for _, p := range complaints {
			if strings.HasPrefix(s, p) && len(said) < 3 {
				said = append(said, strings.TrimPrefix(s, hostSays))
				break
			}
		}
	}
	return strings.Join(said, "; ")
}
