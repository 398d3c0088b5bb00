package main

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// running is a configuration as the Collector hands it out, with all defaults.
func running(changes map[string]any) *confmap.Conf {
	conf := confmap.NewFromStringMap(map[string]any{
		"receivers": map[string]any{
			"otlp": map[string]any{"protocols": map[string]any{
				"grpc": map[string]any{"endpoint": "127.0.0.1:4317"},
				"http": map[string]any{"endpoint": "127.0.0.1:4318", "traces_url_path": "/v1/traces"},
			}},
			"otlp/langfuse": map[string]any{"protocols": map[string]any{
				"http": map[string]any{"endpoint": "127.0.0.1:4321", "traces_url_path": otlpreceiver.SanitizedURLPath("/api/public/otel/v1/traces")},
			}},
		},
		"extensions": map[string]any{"retryledger_api": map[string]any{"endpoint": "127.0.0.1:4320"}},
		"service":    map[string]any{"extensions": []any{"retryledger_store", "retryledger_api", "retryledger_alerts", "retryledger_console"}},
	})
	if err := conf.Merge(confmap.NewFromStringMap(changes)); err != nil {
		panic(err)
	}
	return conf
}

func TestReadyMessage(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes map[string]any
		source  bool
		want    string
	}{
		{"installed", nil, false, `
retryledger is ready.
  send spans to   http://127.0.0.1:4317  OTLP/gRPC
  send spans to   http://127.0.0.1:4318  OTLP/HTTP, protobuf or JSON
  send spans to   http://127.0.0.1:4321  Langfuse's SDKs, as LANGFUSE_BASE_URL
  data            /data
  try it          retryledger demo
  ask             retryledger top
  alerts          retryledger alerts
  stop            Ctrl-C

`},
		{"from source, API elsewhere, no alerts", map[string]any{
			"extensions": map[string]any{"retryledger_api": map[string]any{"endpoint": "127.0.0.1:9"}},
			"receivers": map[string]any{
				"otlp":           map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": "127.0.0.1:8"}}},
				"otlp/elsewhere": map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": "127.0.0.1:7", "traces_url_path": "/otel"}}},
			},
			"service": map[string]any{"extensions": []any{"retryledger_api"}},
		}, true, `
retryledger is ready.
  send spans to   http://127.0.0.1:4317  OTLP/gRPC
  send spans to   http://127.0.0.1:8  OTLP/HTTP, protobuf or JSON
  send spans to   http://127.0.0.1:7/otel  OTLP/HTTP, to this very path
  send spans to   http://127.0.0.1:4321  Langfuse's SDKs, as LANGFUSE_BASE_URL
  data            /data
  try it          go run ./cmd/retryledger demo --server http://127.0.0.1:9 --endpoint http://127.0.0.1:8
  ask             go run ./cmd/retryledger top --server http://127.0.0.1:9
  stop            Ctrl-C

`},
		{"an encrypted API", map[string]any{
			"extensions": map[string]any{"retryledger_api": map[string]any{"tls": map[string]any{"cert_file": "x"}}},
			"receivers":  map[string]any{"otlp/langfuse": nil},
			"service":    map[string]any{"extensions": []any{"retryledger_api"}},
		}, false, `
retryledger is ready.
  send spans to   http://127.0.0.1:4317  OTLP/gRPC
  send spans to   http://127.0.0.1:4318  OTLP/HTTP, protobuf or JSON
  data            /data
  try it          retryledger demo --server https://127.0.0.1:4320 --endpoint http://127.0.0.1:4318
  ask             retryledger top --server https://127.0.0.1:4320
  stop            Ctrl-C

`},
		{"encrypted, no API", map[string]any{
			"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
				"grpc": map[string]any{"endpoint": "0.0.0.0:4317", "tls": map[string]any{"cert_file": "x"}},
				"http": nil,
			}}, "otlp/langfuse": nil},
			"service": map[string]any{"extensions": []any{"retryledger_store", "retryledger_console"}},
		}, false, `
retryledger is ready.
  send spans to   https://0.0.0.0:4317  OTLP/gRPC
  data            /data
  stop            Ctrl-C

`},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, readyMessage(running(c.changes), []line{{"data", "/data"}}, c.source))
		})
	}
}

// slowStore is a store that is reached after a while, or never.
type slowStore struct {
	component.StartFunc
	component.ShutdownFunc
	after    time.Duration
	location string
}

func (s *slowStore) Conn(ctx context.Context) (driver.Conn, error) {
	select {
	case <-time.After(s.after):
		return nil, nil
	case <-ctx.Done():
		return nil, errors.Join(errors.New("not reached"), ctx.Err())
	}
}
func (*slowStore) DataDir() string    { return "/data" }
func (*slowStore) Database() string   { return "retryledger" }
func (s *slowStore) Location() string { return s.location }

type hostWith struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h hostWith) GetExtensions() map[component.ID]component.Component { return h.extensions }

// output is a terminal that two goroutines may look at.
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

func TestConsoleWaitsForTheStore(t *testing.T) {
	for _, c := range []struct {
		name     string
		after    time.Duration
		location string
		stop     time.Duration // after Ready
		want     string        // in the message, "" for no message
		not      string
	}{
		{"at once", 0, "/data/engine", time.Hour, "data            /data\n", "  ledger "},
		{"on a server", time.Second, "database x at y", time.Hour, "ledger          database x at y\n", "not reached"},
		{"not reached", time.Hour, "database x at y", time.Hour, "database x at y, not reached yet", "---"},
		{"stopped before", time.Hour, "database x at y", time.Millisecond, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out output
				ext := create(t, newConsoleFactory(&out))
				host := hostWith{componenttest.NewNopHost(), map[component.ID]component.Component{
					component.MustNewID("retryledger_store"): &slowStore{after: c.after, location: c.location},
				}}
				require.NoError(t, ext.Start(t.Context(), host))
				configured, ok := ext.(extensioncapabilities.ConfigSnapshotWatcher)
				require.True(t, ok)
				require.NoError(t, configured.NotifyConfigSnapshot(t.Context(), extensioncapabilities.NewConfigSnapshot(running(nil), nil)))
				watcher, ok := ext.(extensioncapabilities.PipelineWatcher)
				require.True(t, ok)
				require.NoError(t, watcher.Ready())
				time.Sleep(min(c.stop, 2*storePatience))
				require.NoError(t, watcher.NotReady())
				require.NoError(t, ext.Shutdown(t.Context()))
				if c.want == "" {
					assert.Empty(t, out.String())
					return
				}
				assert.Contains(t, out.String(), "retryledger is ready.")
				assert.Contains(t, out.String(), c.want)
				assert.NotContains(t, out.String(), c.not)
			})
		})
	}
}

func TestConsoleStopsWithoutAStart(t *testing.T) {
	ext := create(t, newConsoleFactory(&output{}))
	assert.NoError(t, ext.Shutdown(t.Context()))
}

func create(t *testing.T, factory extension.Factory) extension.Extension {
	t.Helper()
	ext, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), factory.CreateDefaultConfig())
	require.NoError(t, err)
	return ext
}
