package apps

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/retryledger/retryledger/internal/collectortest"
)

// lossy stands between applications and a collector, and loses every second span of a
// model call, as an exporter whose queue is full or a sampler of single spans does.
type lossy struct {
	collector collector

	mu   sync.Mutex
	seen map[string]int // model calls by service
}

// startLossy returns the address to send to.
func startLossy(t *testing.T, c collector) string {
	t.Helper()
	server := httptest.NewServer(&lossy{collector: c, seen: map[string]int{}})
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := l.forward(r); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable) // to be sent again
	}
}

func (l *lossy) forward(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil // someone who looks whether a collector listens
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return fmt.Errorf("unpack a request: %w", err)
		}
		body = unpacked
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read a request: %w", err)
	}
	request := ptraceotlp.NewExportRequest()
	read := request.UnmarshalProto
	if r.Header.Get("Content-Type") == "application/json" {
		read = request.UnmarshalJSON
	}
	if err := read(content); err != nil {
		return fmt.Errorf("read a request: %w", err)
	}
	l.lose(request.Traces())
	content, err = request.MarshalProto()
	if err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	sent, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+l.collector.HTTP+"/v1/traces", bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("pass a request on: %w", err)
	}
	sent.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(sent)
	if err != nil {
		return fmt.Errorf("pass a request on: %w", err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("pass a request on: %s %w", response.Status, err)
	}
	return nil
}

func (l *lossy) lose(td ptrace.Traces) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rs := range td.ResourceSpans().All() {
		name, _ := rs.Resource().Attributes().Get("service.name")
		for _, ss := range rs.ScopeSpans().All() {
			ss.Spans().RemoveIf(func(span ptrace.Span) bool {
				if !isModelCall(span.Name()) {
					return false
				}
				l.seen[name.AsString()]++
				return l.seen[name.AsString()]%2 == 0
			})
		}
	}
}

// isModelCall knows the model calls of the examples by the names that the
// instrumentations give them.
func isModelCall(name string) bool {
	return strings.Contains(name, "ChatModel") || strings.HasPrefix(name, "chat ")
}

// Lost spans of calls never add to what is counted, and hide nothing of the steps.
func TestLostSpansLeaveLowerBounds(t *testing.T) {
	c := collector{collectortest.Start(t, collectortest.NewPlace(t))}
	defer c.Stop()
	to := startLossy(t, c)
	for _, e := range ecosystems {
		t.Run(e.name, func(t *testing.T) {
			e.applications = []string{"calls"}
			e.lossy = to
			c.test(t, e)
		})
	}
}
