package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/capturetest"
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
