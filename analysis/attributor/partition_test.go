package attributor

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// partitioned are captures whose spans hang together in many ways: over several traces
// by task, run id and thread, by node and by call, with flags, and with spans that
// never came.
var partitioned = []string{
	"openinference/c_nested_9", "openinference/d_orchestrator_7", "openinference/i2_incomplete", "openinference/i3_killed",
	"openinference/j2_interrupt_resume", "openinference/j4_resume_after_failure", "openinference/l8_many_runs", "langfuse/e4_retry_then_fallback",
	"plain-go/retrygo_step", "plain/k2_plain_variants",
}

// Spans that come in any batches and any order, some of them twice, and are accounted
// for after every single batch, leave the ledger of all of them at once.
func TestAnyPartitionLeavesTheSameLedger(t *testing.T) {
	s := newStore(t)
	var spans []schema.Span
	used := 0
	for _, c := range capturetest.All(t) {
		if !slices.Contains(partitioned, c.Cell()) {
			continue
		}
		used++
		for _, span := range capturedRows(t, c) {
			span.Service, span.ReceivedNs = c.Cell(), s.base.UnixNano() // apart from the others, and within their retention
			span.ContentHash = span.Hash()
			spans = append(spans, span)
		}
	}
	require.GreaterOrEqual(t, used, 7)
	now := s.base
	ids := make(map[schema.TraceID]struct{})
	for i := range spans {
		ids[spans[i].TraceID] = struct{}{}
		now = time.Unix(0, max(now.UnixNano(), spans[i].EndNs))
	}
	now = now.Add(time.Hour).Truncate(time.Second)
	config := defaultConfig()
	r := NewRunner(config, func(context.Context) (driver.Conn, error) { return s.conn, nil }, zap.NewNop())

	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	for rest := spans; len(rest) > 0; {
		n := min(len(rest), 1+random.IntN(len(spans)/6))
		batch := slices.Clone(rest[:n])
		for range 3 { // again, from any earlier batch or this one
			batch = append(batch, spans[random.IntN(len(spans)-len(rest)+n)])
		}
		s.insert(batch...)
		rest = rest[n:]
		require.Zero(t, s.pass(r, now).Failed)
	}
	s.pass(r, now.Add(time.Minute)) // whatever rested after a costly account

	rows, err := schema.LedgerOfTraces(t.Context(), s.conn, keys(ids))
	require.NoError(t, err)
	want := attribution.Account(spans, config.options(now.Add(time.Minute)))
	require.True(t, slices.ContainsFunc(want.Runs, func(r attribution.Run) bool { return len(r.TraceIDs) > 1 }), "some runs have several traces")
	require.Equal(t, runsByID(t, want.Runs), runsByID(t, ledger.Runs(rows)))
}

func keys(ids map[schema.TraceID]struct{}) []schema.TraceID {
	list := make([]schema.TraceID, 0, len(ids))
	for id := range ids {
		list = append(list, id)
	}
	return list
}

// runsByID writes runs with all their rows, in one order.
func runsByID(t *testing.T, runs []attribution.Run) string {
	t.Helper()
	answers := make([]answer.Run, len(runs))
	for i, run := range runs {
		answers[i] = answer.RunOf(run)
	}
	slices.SortFunc(answers, func(a, b answer.Run) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.RunID, b.RunID), a.StartedAt.Compare(b.StartedAt))
	})
	text, err := json.MarshalIndent(answers, "", " ")
	require.NoError(t, err)
	return string(text)
}

func capturedRows(t *testing.T, c capturetest.Capture) (spans []schema.Span) {
	t.Helper()
	for _, name := range c.Files {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
			rows, _ := dialect.Normalise(td, 1)
			spans = append(spans, rows...)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	return spans
}
