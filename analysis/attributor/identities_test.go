package attributor

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/schema"
)

func TestNumbersThatContradictEachOtherAreCountedAndWritten(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	r.account = func(spans []schema.Span, opts attribution.Options) attribution.Ledger {
		account := attribution.Account(spans, opts)
		for i := range account.Runs {
			if account.Runs[i].RunID == "wrong" {
				account.Runs[i].Steps[0].Executions++
			}
		}
		return account
	}
	s.insert(s.span(1, 1, runID("right")), s.span(2, 1, runID("wrong")))
	result := s.pass(r, s.now())
	assert.Equal(t, map[attribution.Identity]int{attribution.IdentityExecutions: 1, attribution.IdentityCounts: 1}, result.Broken)
	assert.Zero(t, result.Failed)
	logged := s.logs.FilterMessageSnippet("contradict each other").All()
	require.Len(t, logged, 1)
	assert.Equal(t, "wrong", logged[0].ContextMap()["run_id"])
	assert.Len(t, ledger.Runs(s.rows()), 2, "the ledger goes on")
}

func TestTwoContentsOfOneSpanAreCounted(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	r.account = attribution.Account
	one := s.span(1, 2)
	s.insert(one, s.span(1, 1))
	assert.Zero(t, s.pass(r, s.now()).Conflicts)
	s.insert(one)
	assert.Zero(t, s.pass(r, s.now()).Conflicts, "delivered again it is the same")

	// Of one end, the content that says more.
	more := s.span(1, 2, func(span *schema.Span) { span.Provider, span.Model, span.InputTokens = "p", "m", 7 })
	s.insert(more)
	assert.Equal(t, 1, s.pass(r, s.now()).Conflicts)
	tokens := func() (n int64) {
		for _, run := range ledger.Runs(s.rows()) {
			n += run.Steps[0].Tokens.Input
		}
		return n
	}
	assert.Equal(t, int64(7), tokens())
	require.NoError(t, s.conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	s.insert(s.span(1, 3))
	s.pass(r, s.now())
	assert.Equal(t, int64(7), tokens(), "and the store's merge keeps the same one")
}

// A run that grows span by span is accounted for again and again, but all that work
// together stays within a small factor of its size.
func TestWorkOnAGrowingRunStaysProportional(t *testing.T) {
	const (
		size  = 200_000
		batch = 500
		every = 50 * time.Millisecond // a pass, and a batch of spans
	)
	s := newStore(t)
	r := s.runner(func(c *Config) { c.MaxSpansPerRun = 2 * size })
	work, passes, have := 0, 0, 0
	now := s.now()
	for have < size {
		have += batch
		now = now.Add(every)
		clockUs := now.UnixMicro()
		if r.mustRest(schema.DirtyTrace{TraceID: traceID(1), FirstInsertedUs: clockUs, LastInsertedUs: clockUs}, clockUs, now) {
			continue
		}
		p := pass{Runner: r, now: now, done: make(map[schema.TraceID]struct{}), result: &Result{}}
		p.finish(group{traces: []*schema.TraceSpans{{TraceID: traceID(1)}}, spans: have})
		work += have
		passes++
	}
	factor := float64(work) / size
	t.Logf("%d spans in %d batches: %d accounts of %d spans together, %.1f times the run", size, size/batch, passes, work, factor)
	assert.Greater(t, passes, 5, "it is not left alone until it ends")
	quadratic := float64(size/batch+1) / 2 // every batch at once
	assert.Less(t, factor, quadratic/5)

	// Cost may be at most the share of time that the rests leave: the sum of the
	// accounts' cost is bounded by the time that the run took, divided by restGrowing.
	took := time.Duration(size/batch) * every
	cost := time.Duration(work) * costPerSpan
	assert.LessOrEqual(t, cost, took/restGrowing+time.Duration(size)*costPerSpan+time.Duration(math.Ceil(float64(cheap/costPerSpan)))*costPerSpan*time.Duration(passes))
}

// The same through the store: spans that attribution read over all passes against
// spans that the run has.
func TestWorkOnAGrowingRunThroughTheStore(t *testing.T) {
	s := newStore(t)
	r := s.runner(func(c *Config) { c.Interval = time.Minute })
	work := 0
	r.account = func(spans []schema.Span, opts attribution.Options) attribution.Ledger {
		work += len(spans)
		return attribution.Account(spans, opts)
	}
	const batches, batch = 20, 2_000
	now := s.now()
	for i := range batches {
		spans := make([]schema.Span, 0, batch)
		for n := range batch {
			spans = append(spans, s.span(1, 2+i*batch+n))
		}
		s.insert(spans...)
		s.pass(r, now)
		now = now.Add(200 * time.Millisecond)
	}
	s.insert(s.span(1, 1))
	s.pass(r, now.Add(time.Hour))
	total := batches*batch + 1
	t.Logf("%d spans read for a run of %d", work, total)
	assert.Less(t, work, 6*total, "every batch at once would read it %d times", batches/2)
	runs := ledger.Runs(s.rows())
	require.Len(t, runs, 1)
	assert.Equal(t, total, runs[0].Spans)
	assert.True(t, slices.Contains(runs[0].TraceIDs, traceID(1).String()))
}
