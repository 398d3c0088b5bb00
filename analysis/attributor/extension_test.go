package attributor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/ledgerstore"
	"github.com/retryledger/retryledger/schema"
)

// host holds a store that is ready when the test says so.
type host struct {
	component.Host
	store *lateStore
}

func (h host) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.NewID(ledgerstore.Type): h.store}
}

type lateStore struct {
	component.Component
	ledgerstore.Store
	conn  driver.Conn
	ready chan struct{}
}

func (s *lateStore) Conn(ctx context.Context) (driver.Conn, error) {
	select {
	case <-s.ready:
		return s.conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func started(t *testing.T, s *lateStore) *attributor {
	t.Helper()
	config := defaultConfig()
	config.Interval = 50 * time.Millisecond
	ext, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(Type), config)
	require.NoError(t, err)
	attr, ok := ext.(*attributor)
	require.True(t, ok)
	assert.Equal(t, []component.ID{component.NewID(ledgerstore.Type)}, attr.Dependencies())
	require.NoError(t, ext.Start(t.Context(), host{store: s}))
	t.Cleanup(func() { assert.NoError(t, ext.Shutdown(context.Background())) })
	return attr
}

func TestExtensionFollowsTheStore(t *testing.T) {
	s := newStore(t)
	late := &lateStore{conn: s.conn, ready: make(chan struct{})}
	ext := started(t, late)
	s.insert(s.span(1, 1))
	assert.Empty(t, s.rows())
	close(late.ready)
	require.Eventually(t, func() bool { return len(s.rows()) == 1 }, time.Minute, 20*time.Millisecond)
	s.insert(s.span(1, 2))
	require.Eventually(t, func() bool { return s.rows()[0].Spans == 2 }, time.Minute, 20*time.Millisecond)
	var delays uint64
	var longest float64
	require.Eventually(t, func() bool {
		require.NoError(t, ext.metrics.kept.Write(t.Context(), s.conn))
		require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT sum(times), max(largest) FROM self_metrics WHERE name = ?", schema.MetricAttributionDelay).Scan(&delays, &longest))
		return delays == 2 // one for each account
	}, time.Minute, 20*time.Millisecond)
	assert.InDelta(t, time.Since(s.base).Seconds(), longest, 120)
	require.NoError(t, ext.Shutdown(t.Context()))
	require.NoError(t, ext.Shutdown(t.Context()))
	s.insert(s.span(1, 3))
	assert.EqualValues(t, 2, s.rows()[0].Spans)
}

func TestExtensionOutlivesAnErrorOfTheStore(t *testing.T) {
	s := newStore(t)
	ready := make(chan struct{})
	close(ready)
	require.NoError(t, s.conn.Exec(t.Context(), "RENAME TABLE ledger TO hidden"))
	started(t, &lateStore{conn: s.conn, ready: ready})
	s.insert(s.span(1, 1))
	require.NoError(t, s.conn.Exec(t.Context(), "RENAME TABLE hidden TO ledger"))
	require.Eventually(t, func() bool { return len(s.rows()) == 1 }, time.Minute, 20*time.Millisecond)
}

func TestExtensionEndsWhileTheStoreIsAway(t *testing.T) {
	ext := started(t, &lateStore{ready: make(chan struct{})})
	require.NoError(t, ext.Shutdown(t.Context()))
}

func TestExtensionNeedsAStore(t *testing.T) {
	ext, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(Type), createDefaultConfig())
	require.NoError(t, err)
	err = ext.Start(t.Context(), componenttest.NewNopHost())
	require.ErrorContains(t, err, "service::extensions")
	require.NoError(t, ext.Shutdown(t.Context()))
}

func TestMetricsCount(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	m, err := newMetrics(telemetry.NewTelemetrySettings().MeterProvider)
	require.NoError(t, err)
	now := time.Now()
	m.add(t.Context(), Result{Traces: 3, Runs: 2, Failed: 1, Received: []int64{now.Add(-3 * time.Second).UnixNano(), now.Add(time.Hour).UnixNano()}}, nil, now)
	m.add(t.Context(), Result{Traces: 4}, errors.New("away"), now)
	for name, want := range map[string]int64{
		"retryledger_attribution_traces": 7, "retryledger_attribution_failed_traces": 1, "retryledger_attribution_store_errors": 1,
	} {
		got, err := telemetry.GetMetric(name)
		require.NoError(t, err)
		assert.Equal(t, want, sumOf(t, got), name)
	}
	m.add(t.Context(), Result{Conflicts: 2, Broken: map[attribution.Identity]int{attribution.IdentityTokens: 3}}, nil, now)
	got, err := telemetry.GetMetric("retryledger_attribution_conflicting_spans")
	require.NoError(t, err)
	assert.Equal(t, int64(2), sumOf(t, got))
	got, err = telemetry.GetMetric("retryledger_attribution_broken_identities")
	require.NoError(t, err)
	assert.Equal(t, int64(3), sumOf(t, got))
	sum, ok := got.Data.(metricdata.Sum[int64])
	require.True(t, ok)
	name, ok := sum.DataPoints[0].Attributes.Value("identity")
	require.True(t, ok)
	assert.Equal(t, "tokens", name.AsString())
	got, err = telemetry.GetMetric("retryledger_attribution_delay")
	require.NoError(t, err)
	delays, ok := got.Data.(metricdata.Histogram[float64])
	require.True(t, ok)
	assert.EqualValues(t, 2, delays.DataPoints[0].Count)
	assert.InDelta(t, 3, delays.DataPoints[0].Sum, 1e-9, "a clock ahead is no delay")
	require.NoError(t, telemetry.Shutdown(t.Context()))
}

func sumOf(t *testing.T, m metricdata.Metrics) int64 {
	t.Helper()
	sum, ok := m.Data.(metricdata.Sum[int64])
	require.True(t, ok)
	require.Len(t, sum.DataPoints, 1)
	return sum.DataPoints[0].Value
}
