package ingest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// some is a request of those spans of td whose position is in at.
func some(td ptrace.Traces, at []int) ptrace.Traces {
	out := ptrace.NewTraces()
	i := 0
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if slices.Contains(at, i) {
					span.CopyTo(likeScope(out, rs, ss).AppendEmpty())
				}
				i++
			}
		}
	}
	return out
}

// An answer gets lost after the store took the rows, and another one after the collector
// took the spans, whose sender tries again: the same batch, half of it in another batch,
// and 3 % of all again later, through two collectors that share the store. Every span
// counts once.
func TestAnswersThatGetLostCountNothingTwice(t *testing.T) {
	s := realStore(t)
	const spans = 1000
	td := request(0, names(spans)...)
	random := rand.New(rand.NewPCG(1, 2))
	for _, folder := range []string{s.dir, t.TempDir()} { // one collector after the other, each with its journal
		own := &testStore{conn: s.conn, dir: folder}
		cfg := defaultConfig()
		cfg.Journal.MinFreeDiskMiB = 0
		cfg.Writer.RetryInitialInterval, cfg.Writer.RetryMaxInterval = time.Millisecond, time.Millisecond
		cfg.Writer.BatchRows = 300
		e, err := newExporter(settings(), cfg)
		require.NoError(t, err)
		e.inserter = &halfDead{storeInserter{own, rand.Uint64}, 4}
		require.NoError(t, e.start(t.Context(), hostOf(own)))
		order := random.Perm(spans)
		for _, at := range [][]int{order, order, order[:spans/2], order[spans/4 : 3*spans/4], order[:spans*3/100]} {
			require.NoError(t, e.consume(t.Context(), some(td, at)))
		}
		require.NoError(t, e.shutdown(t.Context()))
	}
	check := func() {
		_, distinct := stored(t, s)
		require.EqualValues(t, spans, distinct)
		var final uint64
		require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&final))
		require.EqualValues(t, spans, final)
	}
	check()
	require.NoError(t, s.conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	check()
}
