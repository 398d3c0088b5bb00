//go:build linux || darwin

package engine

import (
	"bytes"
	"context"
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
	pid    int
	stdin  io.Closer     // its end tells the host to end
	exited chan struct{} // closed when the process has been waited for
	state  error         // of the exit; read after exited
	logAt  int64         // where this process's part of the host log begins
	log    string
}

const hostLogBytes = 1 << 20

// launch starts the host with the lock's descriptor handed on to it.
func launch(d layout, lock *os.File) (*child, error) {
	exe, err := selfExecutable()
	if err != nil {
		return nil, fmt.Errorf("engine: find this program's own file: %w", err)
	}
	if st, err := os.Stat(d.hostLog); err == nil && st.Size() > hostLogBytes {
		os.Rename(d.hostLog, d.hostLog+".1")
	}
	out, err := os.OpenFile(d.hostLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("engine: open the host log: %w", err)
	}
	defer out.Close()
	at, _ := out.Seek(0, io.SeekEnd)

	cmd := exec.Command(exe, HostCommand, d.hostJSON)
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
	c := &child{stdin: stdin, exited: make(chan struct{}), log: d.hostLog, logAt: at}
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
		c.pid = cmd.Process.Pid
		started <- nil
		c.state = cmd.Wait()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		stdin.Close()
		return nil, fmt.Errorf("engine: start the engine's process: %w", err)
	}
	return c, nil
}

// end ends the child: asked first, then told by SIGTERM, then killed.
func (c *child) end(context.Context) {
	c.stdin.Close()
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{
		{hostGrace + time.Second, func() { syscall.Kill(c.pid, syscall.SIGTERM) }},
		{time.Second, c.kill},
	} {
		t := time.NewTimer(step.after)
		select {
		case <-c.exited:
			t.Stop()
			return
		case <-t.C:
			step.do()
		}
	}
	<-c.exited
}

func (c *child) kill() { killProcess(c.pid) }

func killProcess(pid int) { syscall.Kill(pid, syscall.SIGKILL) }

// reason says why the child ended: what it last wrote, and how it exited.
func (c *child) reason() error {
	state := c.state
	if state == nil {
		state = errors.New("exit status 0")
	}
	f, err := os.Open(c.log)
	if err != nil {
		return state
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, c.logAt, 64<<10))
	var said []string
	for line := range bytes.Lines(b) {
		s := strings.TrimSpace(string(line))
		if s != "" && !strings.HasPrefix(s, "Logging ") {
			said = append(said, s)
		}
		if len(said) == 3 {
			break
		}
	}
	if len(said) == 0 {
		return state
	}
	return fmt.Errorf("%w: %s", state, strings.Join(said, "; "))
}
