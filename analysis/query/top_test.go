package query_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// TestTopIsTheLedgersArithmetic: whatever the window, service and limit, the store
// answers the numbers that the same ledger gives in memory.
func TestTopIsTheLedgersArithmetic(t *testing.T) {
	t.Parallel()
	s := store(t, capturetest.All(t))
	top := func(f answer.Filter) string {
		return asJSON(t, ask(t, func(ctx context.Context) (answer.Top, error) { return s.asker.Top(ctx, f) }))
	}
	everything := answer.TopOf(s.ledger, answer.Filter{})
	require.Greater(t, everything.RetriesTotal, 100)
	require.Positive(t, everything.SampledRuns)
	require.Less(t, everything.SampledRuns, everything.Runs)
	require.Equal(t, []string{"sampled: counts are lower bounds"}, everything.Warnings)
	require.Equal(t, asJSON(t, everything), top(answer.Filter{}))
	require.Equal(t, asJSON(t, everything), asJSON(t, ask(t, func(ctx context.Context) (answer.Top, error) {
		return query.TopInTurn(ctx, s.asker, answer.Filter{})
	})))

	var ends []int64
	for _, run := range s.ledger.Runs {
		for _, attempt := range run.Attempts {
			ends = append(ends, attempt.EndNs)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		f := answer.Filter{
			Service: rapid.SampledFrom([]string{"", "checkout", "billing", "nobody's"}).Draw(r, "service"),
			Limit:   rapid.IntRange(0, 4).Draw(r, "limit"),
		}
		if rapid.Bool().Draw(r, "has a start") {
			f.Since = time.Unix(0, rapid.SampledFrom(ends).Draw(r, "since")).UTC()
		}
		if rapid.Bool().Draw(r, "has an end") {
			f.Until = time.Unix(0, rapid.SampledFrom(ends).Draw(r, "until")).UTC()
		}
		if want, got := asJSON(t, answer.TopOf(s.ledger, f)), top(f); want != got {
			require.Equal(t, want, got)
		}
	})
}

// TestAnAnswerIsOfOneMoment: while runs come, the numbers of one answer agree.
func TestAnAnswerIsOfOneMoment(t *testing.T) {
	t.Parallel()
	var copies []capturetest.Capture
	for _, capture := range capturetest.All(t) {
		if capture.Cell() == "py-langfuse/a_client_retry" {
			copies = slices.Repeat([]capturetest.Capture{capture}, 100)
		}
	}
	whole := storetest.Of(t, copies, "checkout")
	empty := storetest.Empty(t)
	asker := query.New(empty.Conn, query.Limits{Timeout: time.Minute})
	ended := make(chan error, 1)
	go func() {
		for i := range whole.Rows {
			if err := schema.InsertLedger(context.Background(), empty.Conn, whole.Rows[i:i+1]); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	seen := map[int]bool{}
	for done := false; !done; {
		select {
		case err := <-ended:
			require.NoError(t, err)
			done = true
		default:
		}
		top := ask(t, func(ctx context.Context) (answer.Top, error) { return asker.Top(ctx, answer.Filter{}) })
		seen[top.Runs] = true
		for _, step := range top.Steps {
			causes := 0
			for _, cause := range step.Errors {
				causes += cause.Count
			}
			require.Equal(t, [3]int{top.Runs, step.Runs, step.CallsFailed}, [3]int{step.Runs, step.Runs, causes}, "%+v", step)
		}
	}
	require.True(t, seen[len(copies)])
	require.Greater(t, len(seen), 5, "answers were asked for while runs came")
}
