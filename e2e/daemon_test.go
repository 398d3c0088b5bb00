package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/replay"
)

const (
	// startWithin bounds a start; the first on a machine fetches the engine.
	startWithin = 5 * time.Minute
	// stopWithin is what "ends within seconds" means on a busy machine.
	stopWithin = 15 * time.Second
	// appearWithin bounds the wait for spans to show in an answer.
	appearWithin = time.Minute
	readyText    = "retryledger is ready."
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

// place is where a collector keeps its data and listens, over its restarts.
type place struct {
	data            string
	grpc, http, api string // host:port
}

func newPlace(t *testing.T) place {
	t.Helper()
	ports := freePorts(t, 3)
	return place{data: t.TempDir(), grpc: ports[0], http: ports[1], api: ports[2]}
}

// freePorts are addresses on loopback that nothing listens on.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	held := make([]net.Listener, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		// Held until all are found, so that they differ.
		held[i] = l
		addresses[i] = l.Addr().String()
	}
	for _, l := range held {
		require.NoError(t, l.Close())
	}
	return addresses
}

// daemon is a running collector.
type daemon struct {
	place
	t      *testing.T
	cmd    *exec.Cmd
	out    terminal // standard output and standard error
	exited chan struct{}
}

// launch starts a collector without waiting for it; args come after those for the place.
func launch(t *testing.T, p place, args ...string) *daemon {
	t.Helper()
	return launchCommand(t, p, append([]string{
		"--set=receivers.otlp.protocols.grpc.endpoint=" + p.grpc,
		"--set=receivers.otlp.protocols.http.endpoint=" + p.http,
		"--set=extensions.retryledger_api.endpoint=" + p.api,
	}, args...)...)
}

func launchCommand(t *testing.T, p place, args ...string) *daemon {
	t.Helper()
	d := &daemon{place: p, t: t, exited: make(chan struct{})}
	d.cmd = exec.Command(collectorBinary, args...)
	d.cmd.Env = append(os.Environ(), "RETRYLEDGER_DATA_DIR="+p.data)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	// A group of its own: a terminal's Ctrl-C reaches the collector's group, and
	// must not reach the engine.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The engine inherits nothing of the output, so the end of the collector ends it.
	d.cmd.WaitDelay = 10 * time.Second
	require.NoError(t, d.cmd.Start())
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.exited
		if t.Failed() {
			t.Logf("the collector on %s wrote:\n%s", p.data, d.out.String())
		}
	})
	return d
}

// start runs a collector and waits until it says that it is ready.
func start(t *testing.T, p place, args ...string) *daemon {
	t.Helper()
	d := launch(t, p, args...)
	d.waitFor(readyText)
	return d
}

// waitFor waits until the collector has written text.
func (d *daemon) waitFor(text string) {
	d.t.Helper()
	deadline := time.Now().Add(startWithin)
	for !strings.Contains(d.out.String(), text) {
		select {
		case <-d.exited:
			// What it wrote last may say it.
			require.Contains(d.t, d.out.String(), text, "the collector ended")
			return
		case <-time.After(20 * time.Millisecond):
		}
		require.True(d.t, time.Now().Before(deadline), "the collector never wrote %q", text)
	}
}

// interruptGroup is a Ctrl-C at the collector's terminal.
func (d *daemon) interruptGroup() {
	d.t.Helper()
	require.NoError(d.t, syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT))
}

// stop ends the collector with Ctrl-C and requires a clean end.
func (d *daemon) stop() {
	d.t.Helper()
	d.interruptGroup()
	require.Equal(d.t, 0, d.exitCode(stopWithin))
}

// kill ends the collector, and only it, without a chance to do anything.
func (d *daemon) kill() {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Kill())
	<-d.exited
}

// exitCode waits for the end of the collector.
func (d *daemon) exitCode(within time.Duration) int {
	d.t.Helper()
	select {
	case <-d.exited:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		require.Fail(d.t, "the collector did not end", "within %v", within)
		return -1
	}
}

// sender sends spans in one of the ways that applications have.
func (d *daemon) sender(w way) replay.Sender {
	d.t.Helper()
	var s replay.Sender
	var err error
	if w.encoding == "" {
		s, err = replay.NewGRPC(d.grpc, w.gzip)
	} else {
		s, err = replay.NewHTTP("http://"+d.http, w.encoding, w.gzip)
	}
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = s.Close() })
	return s
}

// way is a protocol, an encoding ("" is gRPC) and a compression.
type way struct {
	name     string
	encoding replay.Encoding
	gzip     bool
}

var ways = []way{
	{"gRPC", "", false},
	{"gRPC gzip", "", true},
	{"HTTP protobuf", replay.Protobuf, false},
	{"HTTP protobuf gzip", replay.Protobuf, true},
	{"HTTP JSON", replay.JSON, false},
	{"HTTP JSON gzip", replay.JSON, true},
}

// errNotYet is an answer of the API that may become another.
var errNotYet = errors.New("not yet")

// get asks the API and decodes the answer into out.
func (p place) get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.api+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answered %s: %s", errNotYet, path, response.Status, body)
	}
	return json.Unmarshal(body, out)
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(deadline), "still after %v: %v", within, err)
		time.Sleep(50 * time.Millisecond)
	}
}

// retryledger runs the command line and returns what it wrote to standard output.
func (p place) retryledger(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(retryledgerBinary, args...)
	cmd.Env = append(os.Environ(), "RETRYLEDGER_SERVER=http://"+p.api)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "retryledger %s\n%s", strings.Join(args, " "), errs.String())
	return string(out)
}
