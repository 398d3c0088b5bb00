package apps

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
)

const (
	// startWithin bounds a start; the first on a machine fetches the engine.
	startWithin = 5 * time.Minute
	readyText   = "retryledger is ready."
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

// collector is a running collector.
type collector struct {
	otlp, langfuse, api string // URLs
	client              *http.Client
}

// startCollector runs the collector with its default configuration, on free ports.
func startCollector(t *testing.T) *collector {
	t.Helper()
	ports := freePorts(t, 4)
	cmd := exec.Command(collectorBinary,
		"--set=receivers.otlp.protocols.grpc.endpoint="+ports[0],
		"--set=receivers.otlp.protocols.http.endpoint="+ports[1],
		"--set=receivers.otlp/langfuse.protocols.http.endpoint="+ports[2],
		"--set=receivers.otlp/langfuse.protocols.http.traces_url_path=/api/public/otel/v1/traces",
		"--set=service.pipelines.traces.receivers=[otlp, otlp/langfuse]",
		"--set=extensions.retryledger_api.endpoint="+ports[3],
	)
	out := &terminal{}
	cmd.Env = append(os.Environ(), "RETRYLEDGER_DATA_DIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-exited:
		case <-time.After(15 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("the collector wrote:\n%s", out)
		}
	})
	for deadline := time.Now().Add(startWithin); !strings.Contains(out.String(), readyText); {
		select {
		case <-exited:
			require.Contains(t, out.String(), readyText, "the collector ended")
		case <-time.After(20 * time.Millisecond):
			require.True(t, time.Now().Before(deadline), "the collector is not ready:\n%s", out)
		}
	}
	c := &collector{otlp: "http://" + ports[1], langfuse: "http://" + ports[2], api: "http://" + ports[3], client: &http.Client{}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// freePorts are addresses on loopback that nothing listens on.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	var held []net.Listener // until all are found, so that they differ
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		held = append(held, l)
		addresses[i] = l.Addr().String()
	}
	for _, l := range held {
		require.NoError(t, l.Close())
	}
	return addresses
}

// get asks the API and decodes the answer into out.
func (c *collector) get(ctx context.Context, path string, out any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.api+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s: %s", path, response.Status, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	return nil
}
