package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/capturetest"
)

// apart are the spans of requests, each in a request of its own.
func apart(requests []ptrace.Traces) (singles []ptrace.Traces) {
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					one := ptrace.NewTraces()
					r := one.ResourceSpans().AppendEmpty()
					rs.Resource().CopyTo(r.Resource())
					s := r.ScopeSpans().AppendEmpty()
					ss.Scope().CopyTo(s.Scope())
					span.CopyTo(s.Spans().AppendEmpty())
					singles = append(singles, one)
				}
			}
		}
	}
	return singles
}

// joined are several requests as one.
func joined(requests []ptrace.Traces) ptrace.Traces {
	all := ptrace.NewTraces()
	for _, td := range requests {
		own := ptrace.NewTraces()
		td.CopyTo(own)
		own.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	return all
}

// Senders that are not sure send again: whole, cut into other batches, one span at a
// time, through another collector, while the engine merges nothing. Each span of a run
// may come through another collector. Calls, tokens, costs and retries stay what they
// are, and are the same when everything is merged.
func TestWhatIsSentAgainCountsOnce(t *testing.T) {
	shared, join, store := sharedEngine(t)
	collectors := []daemon{start(t, newPlace(t), join...), start(t, newPlace(t), join...)}
	for _, table := range []string{"spans", "run_keys", "ledger"} {
		require.NoError(t, store.Exec(t.Context(), "SYSTEM STOP MERGES "+table))
	}
	send := func(to int, td ptrace.Traces) {
		t.Helper()
		require.NoError(t, collectors[to%2].sender(ways[to%len(ways)]).Send(t.Context(), td))
	}
	total := 0
	var whole attribution.Ledger
	var requests []ptrace.Traces
	for _, c := range capturetest.All(t) {
		if !slices.Contains([]string{"openinference/d_orchestrator_7", "openinference/l8_many_runs", "langfuse/e4_retry_then_fallback", "plain/k2_plain_variants"}, c.Cell()) {
			continue
		}
		own := rewritten(t, c, c.Cell())
		requests = append(requests, own...)
		total += spansOf(own)
		whole.Runs = append(whole.Runs, answer.Complete(accountOf(own)).Runs...)
	}
	require.NotEmpty(t, requests)
	want := asJSON(t, answer.TopOf(whole, answer.Filter{}))
	check := func(when string) {
		t.Helper()
		for _, d := range collectors {
			d.waitForSpans(t, total)
			var top answer.Top
			require.NoError(t, d.Get(t.Context(), "/api/v1/top?limit=10000", &top))
			assert.Equal(t, want, asJSON(t, top), when)
		}
	}
	arrived := func() (rows uint64) {
		require.NoError(t, store.QueryRow(t.Context(), "SELECT count() FROM spans").Scan(&rows))
		return rows
	}
	for i, one := range apart(requests) { // every other span through the other collector
		send(i%2, one)
	}
	check("once")
	once := arrived()

	all := joined(requests)
	send(2, all)
	send(3, all)
	singles := apart(requests)
	slices.Reverse(singles)
	send(4, joined(singles[:len(singles)/2]))
	send(5, joined(singles[len(singles)/3:]))
	eventually(t, appearWithin, func() error { // copies of one insert are one row
		if rows := arrived(); rows < once+uint64(total)*2 {
			return fmt.Errorf("%d rows", rows)
		}
		return nil
	})
	eventually(t, appearWithin, func() error {
		var status answer.Status
		if err := collectors[0].Get(t.Context(), "/api/v1/status", &status); err != nil {
			return err
		}
		if status.Spans != int64(total) {
			return fmt.Errorf("%d spans instead of %d", status.Spans, total)
		}
		if status.LedgerLagMs > 0 {
			return errors.New("attribution is behind")
		}
		return nil
	})
	check("many times, unmerged")

	for _, table := range []string{"spans", "run_keys", "ledger"} {
		require.NoError(t, store.Exec(t.Context(), "SYSTEM START MERGES "+table))
		require.NoError(t, store.Exec(t.Context(), "OPTIMIZE TABLE "+table+" FINAL"))
	}
	assert.EqualValues(t, total, arrived())
	check("merged")
	for _, d := range collectors {
		d.Stop()
	}
	shared.Stop()
}
