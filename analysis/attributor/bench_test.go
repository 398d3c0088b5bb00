package attributor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// BenchmarkPassLargeTrace is one pass over one run of 100,000 spans: find, read,
// account, write.
func BenchmarkPassLargeTrace(b *testing.B) {
	for _, account := range []struct {
		name string
		f    func([]schema.Span, attribution.Options) attribution.Ledger
	}{{"simple", simpleAccount}, {"real", attribution.Account}} {
		b.Run(account.name, func(b *testing.B) {
			s := newStore(b)
			const n = 100_000
			spans := make([]schema.Span, n)
			for i := range spans {
				spans[i] = s.span(1, i+1, func(span *schema.Span) {
					span.StartNs = s.base.UnixNano() + int64(i)*1e6
					span.EndNs = span.StartNs + 5e5
				})
			}
			s.insert(spans...)
			for b.Loop() {
				r := s.runner()
				r.account = account.f
				b.StopTimer()
				require.NoError(b, s.conn.Exec(b.Context(), "TRUNCATE TABLE ledger"))
				b.StartTimer()
				require.Equal(b, 1, s.pass(r, s.now()).Traces)
			}
		})
	}
}

// BenchmarkPassManyTraces is one pass over 1,000 runs of 20 spans each, in a store
// that holds 200,000 spans of others.
func BenchmarkPassManyTraces(b *testing.B) {
	s := newStore(b)
	batch := func(first, traces int) (spans []schema.Span) {
		for t := range traces {
			for n := range 20 {
				spans = append(spans, s.span(first+t, n+1, runID(fmt.Sprint("run-", first+t))))
			}
		}
		return spans
	}
	const traces = 1000
	next := 1
	for range 10 {
		s.insert(batch(next, traces)...)
		next += traces
	}
	r := s.runner()
	s.pass(r, s.now())
	for b.Loop() {
		b.StopTimer()
		s.insert(batch(next, traces)...)
		next += traces
		b.StartTimer()
		require.Equal(b, traces, s.pass(r, s.now()).Traces)
	}
	b.ReportMetric(float64(traces*b.N)/b.Elapsed().Seconds(), "runs/s")
}
