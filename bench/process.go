//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retryledger/retryledger/internal/procfs"
)

// readyWithin bounds a start; the first on a machine fetches the engine.
const readyWithin = 5 * time.Minute

// process is a program under measurement.
type process struct {
	name   string
	cmd    *exec.Cmd
	out    output
	exited chan struct{}
}

// output keeps what a process wrote.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs a program until ready says that it is up.
func start(ctx context.Context, name, program string, args, env []string, ready func(*process) bool) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), exited: make(chan struct{})} //nolint:noctx // it ends by stop
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	for deadline := time.Now().Add(readyWithin); !ready(p); {
		select {
		case <-p.exited:
			return nil, fmt.Errorf("start %s: %w; it wrote:\n%s", name, errEnded, &p.out)
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start %s: %w", name, ctx.Err()), p.stop())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("start %s: %w after %v; it wrote:\n%s", name, errNotUp, readyWithin, &p.out), p.stop())
		}
	}
	return p, nil
}

var (
	errEnded = errors.New("it ended")
	errNotUp = errors.New("it is not up")
)

// wrote tells whether the process has written text.
func wrote(text string) func(*process) bool {
	return func(p *process) bool { return strings.Contains(p.out.String(), text) }
}

// listens tells whether somebody takes connections at address.
func listens(ctx context.Context, address string) func(*process) bool {
	return func(*process) bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}
}

// stop ends the process and all that it started.
func (p *process) stop() error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	select {
	case <-p.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		return fmt.Errorf("stop %s: %w", p.name, errStays)
	}
}

var errStays = errors.New("it did not end within 30 s and was killed")

// usage is what a process and its children have used of the machine.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes of memory at the most
}

// ticksPerSecond is the unit of /proc/PID/stat on every Linux that Go runs on.
const ticksPerSecond = 100

func (p *process) usage() usage { return usageOf(p.cmd.Process.Pid) }

func usageOf(pid int) usage {
	var u usage
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		// The name, in brackets, may hold spaces.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		u.cpu = time.Duration(user+system) * time.Second / ticksPerSecond
	}
	u.peak, _ = procfs.Memory(pid, procfs.Peak) // 0 of one that has ended
	for _, child := range procfs.Children(pid) {
		of := usageOf(child)
		u.cpu += of.cpu
		u.peak += of.peak
	}
	return u
}
