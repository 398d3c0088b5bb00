//go:build linux

package apptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/procfs"
)

// readyWithin bounds a start; the first on a machine fetches the engine.
const readyWithin = 3 * time.Minute

// process is one of the collectors or the engine, over its restarts.
type process struct {
	name  string
	args  []string
	env   []string
	ready string // what it writes when it is up

	mu     sync.Mutex
	cmd    *exec.Cmd
	out    *output
	exited chan struct{}
	before string // what it wrote before its last start
}

// output keeps the end of what a process wrote.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const keptOutput = 64 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() > keptOutput {
		o.text.Next(o.text.Len() - keptOutput/2)
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// launch starts the process without waiting for it.
func (p *process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(collectortest.Program("collector"), p.args...) //nolint:noctx // it lives until it is killed
	cmd.Env = append(os.Environ(), p.env...)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the %s: %w", p.name, err)
	}
	if p.out != nil {
		p.before += fmt.Sprintf("-- started again at %s\n%s", time.Now().UTC().Format("15:04:05.000"), p.out)
		p.before = p.before[max(0, len(p.before)-4*keptOutput):]
	}
	exited := make(chan struct{})
	p.cmd, p.out, p.exited = cmd, out, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// start starts the process and waits until it is up. One that ends because what it was
// killed with has not let go of its files yet is started again.
func (p *process) start(ctx context.Context) error {
	deadline := time.Now().Add(readyWithin)
	for {
		if err := p.launch(); err != nil {
			return err
		}
		for !strings.Contains(p.out.String(), p.ready) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("wait for the %s: %w", p.name, err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the %s was not up within %v; it wrote:\n%s", p.name, readyWithin, p.out)
			}
			select {
			case <-p.exited:
			case <-time.After(20 * time.Millisecond):
				continue
			}
			break
		}
		if strings.Contains(p.out.String(), p.ready) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// kill ends the process and its children with kill -9.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	for _, child := range procfs.Children(p.cmd.Process.Pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.cmd = nil
}

// signal goes to the process and its children.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	for _, child := range procfs.Children(p.cmd.Process.Pid) {
		_ = syscall.Kill(child, s)
	}
	_ = p.cmd.Process.Signal(s)
}

// errEnd is returned when a process does not end well when it is asked to.
var errEnd = errors.New("it did not end well")

// stop is Ctrl-C: the process must end well and soon.
func (p *process) stop(within time.Duration) error {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	select {
	case <-exited:
	case <-time.After(within):
		p.kill()
		return fmt.Errorf("stop the %s: %w: still there after %v", p.name, errEnd, within)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("stop the %s: %w: exit code %d, and it wrote:\n%s", p.name, errEnd, code, p.out)
	}
	return nil
}
