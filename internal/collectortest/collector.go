package collectortest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// StartWithin bounds a start; the first on a machine fetches the engine.
	StartWithin = 5 * time.Minute
	// StopWithin is what "ends within seconds" means on a busy machine.
	StopWithin = 15 * time.Second
	// ReadyText is what a collector writes when it takes spans.
	ReadyText = "retryledger is ready."
)

// terminal collects what a process writes.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *terminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *terminal) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Collector is a running collector.
type Collector struct {
	Place
	PID int

	t      *testing.T
	cmd    *exec.Cmd
	out    terminal // standard output and standard error
	exited chan struct{}
}

// Launch starts a collector without waiting for it; args come after those for the place.
func Launch(t *testing.T, p Place, args ...string) *Collector {
	t.Helper()
	return LaunchCommand(t, p, append(p.Settings(), args...)...)
}

// LaunchCommand starts the collector's program with these arguments alone. The end of
// the test kills it.
func LaunchCommand(t *testing.T, p Place, args ...string) *Collector {
	t.Helper()
	c := &Collector{Place: p, t: t, exited: make(chan struct{})}
	c.cmd = exec.CommandContext(t.Context(), filepath.Join(folder, "collector"), args...)
	c.cmd.Env = append(os.Environ(), "RETRYLEDGER_DATA_DIR="+p.Data)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	// A group of its own: a terminal's Ctrl-C reaches the collector's group, and
	// must not reach the engine.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The engine inherits nothing of the output, so the end of the collector ends it.
	c.cmd.WaitDelay = 10 * time.Second
	require.NoError(t, c.cmd.Start())
	c.PID = c.cmd.Process.Pid
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		<-c.exited // killed by the end of the test's context, if it still ran
		if t.Failed() {
			t.Logf("the collector on %s wrote:\n%s", p.Data, c.Output())
		}
	})
	return c
}

// Start runs a collector and waits until it says that it is ready.
func Start(t *testing.T, p Place, args ...string) *Collector {
	t.Helper()
	c := Launch(t, p, args...)
	c.WaitFor(ReadyText)
	return c
}

// Output is what the collector has written so far.
func (c *Collector) Output() string { return c.out.String() }

// WaitFor waits until the collector has written text.
func (c *Collector) WaitFor(text string) {
	c.t.Helper()
	deadline := time.Now().Add(StartWithin)
	for !strings.Contains(c.Output(), text) {
		select {
		case <-c.exited:
			// What it wrote last may say it.
			require.Contains(c.t, c.Output(), text, "the collector ended")
			return
		case <-time.After(20 * time.Millisecond):
		}
		require.True(c.t, time.Now().Before(deadline), "the collector never wrote %q", text)
	}
}

// InterruptGroup is a Ctrl-C at the collector's terminal.
func (c *Collector) InterruptGroup() {
	c.t.Helper()
	require.NoError(c.t, syscall.Kill(-c.PID, syscall.SIGINT))
}

// Stop ends the collector with Ctrl-C and requires a clean end.
func (c *Collector) Stop() {
	c.t.Helper()
	c.InterruptGroup()
	require.Equal(c.t, 0, c.ExitCode(StopWithin))
}

// Kill ends the collector, and only it, without a chance to do anything.
func (c *Collector) Kill() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Kill())
	<-c.exited
}

// ExitCode waits for the end of the collector. As in a shell, a signal that ended it
// counts from 128.
func (c *Collector) ExitCode(within time.Duration) int {
	c.t.Helper()
	select {
	case <-c.exited:
		if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		require.Fail(c.t, "the collector did not end", "within %v", within)
		return -1
	}
}
