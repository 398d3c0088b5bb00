package query_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

func some(t *testing.T) stored {
	t.Helper()
	return store(t, []capturetest.Capture{
		capturetest.One(t, "py-openinference/n13_seven_of_three"), // a run id of its own
		capturetest.One(t, "openinference/c_nested_9"),            // named by its trace
		capturetest.One(t, "openinference/j4_resume_after_failure"),
		capturetest.One(t, "openinference/i2_incomplete"),
		capturetest.One(t, "plain-py/batch50"),
	})
}

// TestRunReadsBackWhatAttributionSaid asks for every run by its run id, and by each
// trace id where that names one run only.
func TestRunReadsBackWhatAttributionSaid(t *testing.T) {
	t.Parallel()
	s := some(t)
	runsOf := map[string]int{}
	for _, run := range s.ledger.Runs {
		for _, trace := range run.TraceIDs {
			runsOf[trace]++
		}
	}
	joined := 0
	for _, run := range s.ledger.Runs {
		want := asJSON(t, answer.RunOf(run))
		ids := []string{run.RunID}
		for _, trace := range run.TraceIDs {
			if runsOf[trace] == 1 {
				ids = append(ids, trace, strings.ToUpper(trace), trace[:12])
			}
		}
		if len(run.TraceIDs) > 1 {
			joined++
		}
		for _, id := range ids {
			got := ask(t, func(ctx context.Context) (attribution.Run, error) { return s.asker.Run(ctx, id) })
			require.Equal(t, want, asJSON(t, answer.RunOf(got)), id)
		}
	}
	require.Positive(t, joined, "no run has several traces: the test is weaker than it says")
}

func TestAnIDThatNamesNoRunOrSeveral(t *testing.T) {
	t.Parallel()
	s := some(t)
	for _, id := range []string{"nobody", "'; DROP TABLE spans --", "%", "{id:String}", strings.Repeat("0", 32), strings.Repeat("x", 32)} {
		_, err := s.asker.Run(context.Background(), id)
		require.ErrorIs(t, err, query.ErrNotFound, id)
	}
	_, err := s.asker.Run(context.Background(), "")
	var ambiguous *query.AmbiguousError
	require.ErrorAs(t, err, &ambiguous, "every run begins with nothing")
	require.LessOrEqual(t, len(ambiguous.Candidates), 10)
	require.NotEmpty(t, ambiguous.Candidates[0].TraceID)
	require.False(t, ambiguous.Candidates[0].EndedAt.Before(ambiguous.Candidates[1].EndedAt), "the last to end comes first")
}

func TestRunsFiltersAndCounts(t *testing.T) {
	t.Parallel()
	s := some(t)
	runs := func(f answer.RunFilter) answer.Runs {
		return ask(t, func(ctx context.Context) (answer.Runs, error) { return s.asker.Runs(ctx, f) })
	}
	all := runs(answer.RunFilter{})
	require.Len(t, all.Runs, len(s.ledger.Runs))
	require.Zero(t, all.RunsLeftOff)
	byID := map[string]attribution.Run{}
	for _, run := range s.ledger.Runs {
		byID[run.RunID+run.TraceIDs[0]] = run
	}
	for i, got := range all.Runs {
		want := byID[got.RunID+got.TraceIDs[0]]
		over := []string{}
		for _, step := range want.Steps {
			if step.OverBudget {
				over = append(over, step.Step)
			}
		}
		require.Equal(t, over, got.StepsOverBudget)
		require.Equal(t, want.Budget, got.Budget)
		require.Equal(t, []any{want.Completion, want.Outcome, want.Spans, want.TraceIDs, want.Quarantined, want.Service},
			[]any{got.Completion, got.Outcome, got.Spans, got.TraceIDs, got.Quarantined, got.Service})
		require.True(t, i == 0 || !got.EndedAt.After(all.Runs[i-1].EndedAt), "the last to end comes first")
	}
	count := func(keep func(answer.RunSummary) bool) int {
		n := 0
		for _, run := range all.Runs {
			if keep(run) {
				n++
			}
		}
		require.NotZero(t, n)
		require.NotEqual(t, len(all.Runs), n)
		return n
	}
	require.Len(t, runs(answer.RunFilter{Completion: "incomplete"}).Runs,
		count(func(r answer.RunSummary) bool { return r.Completion == "incomplete" }))
	require.Len(t, runs(answer.RunFilter{Quarantined: true}).Runs, count(func(r answer.RunSummary) bool { return r.Quarantined }))
	require.Len(t, runs(answer.RunFilter{OverBudget: true}).Runs,
		count(func(r answer.RunSummary) bool { return r.Budget.Exhausted || len(r.StepsOverBudget) > 0 }))
	require.Len(t, runs(answer.RunFilter{Filter: answer.Filter{Service: "billing"}}).Runs,
		count(func(r answer.RunSummary) bool { return r.Service == "billing" }))
	cut := all.Runs[1].EndedAt
	require.Len(t, runs(answer.RunFilter{Filter: answer.Filter{Since: cut}}).Runs, 2)
	require.Len(t, runs(answer.RunFilter{Filter: answer.Filter{Until: cut}}).Runs, len(all.Runs)-2)

	two := runs(answer.RunFilter{Filter: answer.Filter{Limit: 2}})
	require.Equal(t, all.Runs[:2], two.Runs)
	require.Equal(t, len(all.Runs)-2, two.RunsLeftOff)
}

func TestStatusSaysWhatIsStoredAndWhatWaits(t *testing.T) {
	t.Parallel()
	db := enginetest.Database(t)
	ctx := context.Background()
	require.NoError(t, schema.Migrate(ctx, db.Conn, schema.MigrateOptions{}))
	asker := query.New(db.Conn, query.Limits{})
	require.Equal(t, answer.Status{Completion: map[string]int{}}, ask(t, asker.Status))

	received := time.Now().Add(-time.Second)
	spans := []schema.Span{
		{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{1}, EndNs: received.UnixNano() - 5e9, ReceivedNs: received.UnixNano()},
		{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{2}, EndNs: received.UnixNano() - 9e9, ReceivedNs: received.UnixNano()},
	}
	require.NoError(t, schema.InsertSpans(ctx, db.Conn, rand.Uint64, spans))
	waiting := ask(t, asker.Status)
	require.Zero(t, waiting.Spans, "spans count when they are in the ledger")
	require.Positive(t, waiting.LedgerLagMs)
	require.GreaterOrEqual(t, waiting.IngestLagMs, 1000.0)
	require.Nil(t, waiting.AttributedThrough)

	row := schema.LedgerRow{
		TraceID: schema.TraceID{1}, State: schema.StateUnattributed, Spans: 2, UnattributedSpans: 2, Version: schema.LedgerVersion{InsertedUs: 1},
		FirstEndNs: spans[1].EndNs, LastEndNs: spans[0].EndNs, LastReceivedNs: received.UnixNano(),
	}
	require.NoError(t, schema.InsertLedger(ctx, db.Conn, []schema.LedgerRow{row}))
	clock, err := schema.Clock(ctx, db.Conn)
	require.NoError(t, err)
	require.NoError(t, db.Conn.Exec(ctx, "INSERT INTO attribution_progress SELECT 'ledger', fromUnixTimestamp64Micro(?, 'UTC')", clock))
	done := ask(t, asker.Status)
	require.Equal(t, []int64{2, 1, 0, 2, 0}, []int64{done.Spans, done.Traces, done.Runs, done.UnattributedSpans, done.FailedTraces})
	require.Zero(t, done.LedgerLagMs)
	require.Equal(t, clock, done.AttributedThrough.UnixMicro())
	require.Equal(t, spans[1].EndNs, done.OldestEnd.UnixNano())
	require.Equal(t, spans[0].EndNs, done.NewestEnd.UnixNano())
	require.Equal(t, received.UnixNano(), done.LastReceived.UnixNano())
}

// TestLimitsHold: a question ends when its asker leaves, its time is over or its
// answer is too long.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(context.Background(), db.Conn, schema.MigrateOptions{}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := query.New(db.Conn, query.Limits{}).Top(ctx, answer.Filter{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = query.New(db.Conn, query.Limits{Timeout: time.Nanosecond}).Status(context.Background())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s := some(t)
	_, err = query.New(s.conn, query.Limits{MaxRows: 1}).Top(context.Background(), answer.Filter{})
	require.ErrorContains(t, err, "steps by retry consumption")
}
