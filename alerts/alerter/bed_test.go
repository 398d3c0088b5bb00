package alerter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

// patienceOfTests is how long a test waits for what must come. Nothing is measured by it.
const patienceOfTests = time.Minute

// bed is a real store whose clock stands where the test puts it.
type bed struct {
	t    testing.TB
	real driver.Conn
	hook *webhook

	mu    sync.Mutex
	at    time.Time // the store's clock
	away  error     // why the store does not answer
	fails string    // queries that hold this text fail

	traces uint64
}

// errAway is a store that does not answer.
var errAway = errors.New("the store is away")

// newBed begins ten minutes ago: Alertmanager has a clock of its own, and what resolves
// must not lie in its future.
func newBed(t testing.TB) *bed {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	b := &bed{t: t, real: db.Conn, hook: newWebhook(t)}
	b.set(time.Now().Add(-10 * time.Minute).Truncate(time.Second).Add(100 * time.Millisecond).UTC())
	return b
}

// set puts the store's clock to an instant.
func (b *bed) set(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = at
}

func (b *bed) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

func (b *bed) fail(away error, fails string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away, b.fails = away, fails
}

func (b *bed) connect(context.Context) (driver.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away != nil {
		return nil, b.away
	}
	return &standing{b.real, b}, nil
}

// standing is the store with the clock of its bed.
type standing struct {
	driver.Conn
	bed *bed
}

func (s *standing) QueryRow(ctx context.Context, query string, args ...any) driver.Row {
	clock := fmt.Sprintf("fromUnixTimestamp64Micro(%d, 'UTC')", s.bed.now().UnixMicro())
	return s.Conn.QueryRow(ctx, strings.ReplaceAll(query, "now64(6, 'UTC')", clock), args...)
}

func (s *standing) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	s.bed.mu.Lock()
	fails := s.bed.fails
	s.bed.mu.Unlock()
	if fails != "" && strings.Contains(query, fails) {
		return nil, errAway
	}
	return s.Conn.Query(ctx, query, args...)
}

func (s *standing) PrepareBatch(ctx context.Context, query string, options ...driver.PrepareBatchOption) (driver.Batch, error) {
	s.bed.mu.Lock()
	fails := s.bed.fails
	s.bed.mu.Unlock()
	if fails != "" && strings.Contains(query, fails) {
		return nil, errAway
	}
	return s.Conn.PrepareBatch(ctx, query, options...)
}

// work is what a trace did: visits of the step resolve, and requests to a provider.
type work struct {
	service        string
	visits, failed int
	requests, errs int // to openai; errs ended in 503
}

// insert writes a trace that ended now.
func (b *bed) insert(w work) {
	b.t.Helper()
	at := b.now()
	require.NoError(b.t, b.real.Exec(context.Background(),
		fmt.Sprintf("ALTER TABLE ledger MODIFY COLUMN written_at DEFAULT fromUnixTimestamp64Micro(%d, 'UTC')", at.UnixMicro())))
	require.NoError(b.t, schema.InsertLedger(context.Background(), b.real, []schema.LedgerRow{b.row(w, at)}))
}

func (b *bed) row(w work, at time.Time) schema.LedgerRow {
	b.traces++
	end := at.UnixNano()
	row := schema.LedgerRow{
		State: schema.StateAttributed, Spans: 1, Version: schema.LedgerVersion{InsertedUs: at.UnixMicro(), Spans: 1},
		FirstEndNs: end, LastEndNs: end, LastReceivedNs: end, InsertTokens: []uint64{b.traces},
	}
	copy(row.TraceID[:], fmt.Sprintf("%016d", b.traces))
	row.Runs = []schema.RunRow{{
		RunID: row.TraceID.String(), Service: w.service, Version: "1.0", Completion: "complete", Anchor: true, TraceIDs: []schema.TraceID{row.TraceID},
		JoinedBy: "trace", Outcome: "ok", RunLimit: 12, StepLimit: 3, Deliveries: 1, Spans: 1, StartNs: end - 1, EndNs: end,
	}}
	for i := range w.visits {
		visit := schema.OperationRow{
			Index: uint32(i), Step: "resolve", Grain: "execution", Outcome: "succeeded_first_try", Attempts: 1, StartNs: end - 1, EndNs: end, Settled: true, CountsInStep: true,
		}
		if i < w.failed {
			visit.Outcome, visit.FirstError, visit.LastError = "failed_without_retry", "TimeoutError", "TimeoutError"
		}
		row.Operations = append(row.Operations, visit)
	}
	for i := range w.requests {
		request := schema.AttemptRow{
			Index: uint32(i), Grain: "call", Step: "resolve", Name: "ChatOpenAI", Parent: -1, Operation: -1, Ordinal: 1, Evidence: "structure", Ending: "succeeded",
			Provider: "openai", StartNs: end - 1, EndNs: end, Counted: true, Request: true, ViewOf: -1,
		}
		if i < w.errs {
			request.Ending, request.HTTPStatus, request.ErrorClass = "failed", 503, "InternalServerError"
		}
		row.Attempts = append(row.Attempts, request)
	}
	return row
}

// transitions are those in the store, as "rule service from→to reason at".
func (b *bed) transitions() []string {
	b.t.Helper()
	rows, err := schema.AlertTransitions(context.Background(), b.real, schema.AlertFilter{})
	require.NoError(b.t, err)
	list := []string{}
	for _, r := range rows {
		list = append(list, fmt.Sprintf("%s %s %s→%s %s", r.Rule, r.Group.Service, r.From, r.To, r.Reason))
	}
	return list
}

// testRules: the windows of one signal are short, and stalls are told.
const testRules = `
default_pack: false
rules:
  - {name: failing, signal: operation_error_ratio, threshold: 2 %, window: 1m, min_samples: 50, keep_firing_for: 10s, group_by: [service, step],
     annotations: {summary: "{{ .Service }} {{ .Step }}: {{ .Failed }} of {{ .Total }}", errors: "{{ .TopError }}", runs: "{{ len .Runs }} runs", show: "{{ .Command }}"}}
  - {name: stalled, signal: evaluation_stalled, window: 30s, keep_firing_for: 10s, labels: {severity: page}}
`

// collector is a watch with a delivery, on a folder.
type collector struct {
	*watch
	bed   *bed
	dir   string
	rules string // file
	end   func()
}

// start runs a watch on a folder; an empty name makes one.
func (b *bed) start(dir, rules string) *collector {
	b.t.Helper()
	if dir == "" {
		dir = b.t.TempDir()
	}
	config := defaults()
	if rules != "" {
		config.RulesFile = filepath.Join(dir, "rules.yaml")
		write(b.t, config.RulesFile, rules)
	}
	config.Delivery.ConfigFile = filepath.Join(dir, "alertmanager.yml")
	write(b.t, config.Delivery.ConfigFile, b.hook.config())
	d, err := delivery.New(&config.Delivery, delivery.Settings{DataDir: dir, RoutePrefix: prefix, Telemetry: componenttest.NewNopTelemetrySettings()})
	require.NoError(b.t, err)
	w, err := newWatch(config, b.connect, d, dir, "http://127.0.0.1:4320", extensiontest.NewNopSettings(Type))
	require.NoError(b.t, err)
	w.clock.now, w.explainer.within = b.now, patienceOfTests
	require.NoError(b.t, d.Start(context.Background(), componenttest.NewNopHost()))
	ended := sync.OnceFunc(func() {
		w.live.abandon()
		w.explainer.end()
		w.breakers.end()
		_ = w.archive.wait()
		w.state.wait()
		require.NoError(b.t, d.Shutdown(context.Background()))
	})
	b.t.Cleanup(ended)
	return &collector{watch: w, bed: b, dir: dir, rules: config.RulesFile, end: ended}
}

// step moves the store's clock on and evaluates, each second.
func (b *bed) step(seconds int, collectors ...*collector) {
	b.t.Helper()
	for range seconds {
		b.set(b.now().Add(time.Second))
		for _, c := range collectors {
			c.pass(b.t.Context(), b.now())
		}
	}
}

// alert is the state of one rule's alert on one service, "" if there is none.
func (c *collector) alert(rule, service string) (state string, alert report.Alert) {
	for _, a := range c.alerts().Alerts {
		if a.Rule == rule && a.Group.Service == service {
			return a.State, a
		}
	}
	return "", report.Alert{}
}

// webhook is a receiver that counts what it is told.
type webhook struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string]int               // by "status alertname service"
	last map[string]map[string]string // annotations
	came chan string
}

func newWebhook(t testing.TB) *webhook {
	t.Helper()
	h := &webhook{told: map[string]int{}, last: map[string]map[string]string{}, came: make(chan string, 10_000)}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var n struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &n)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range n.Alerts {
		key := strings.TrimSpace(a.Status + " " + a.Labels["alertname"] + " " + a.Labels["service"])
		h.told[key]++
		h.last[key] = a.Annotations
		h.came <- key
	}
}

func (h *webhook) count(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[key]
}

func (h *webhook) waitFor(t testing.TB, key string) map[string]string {
	t.Helper()
	require.Eventually(t, func() bool { return h.count(key) > 0 }, patienceOfTests, 5*time.Millisecond, "not told: %s", key)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[key]
}

func (h *webhook) config() string {
	return fmt.Sprintf("route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 5s, repeat_interval: 4h}\n"+
		"receivers: [{name: hook, webhook_configs: [{url: %q}]}]\n", h.URL)
}
