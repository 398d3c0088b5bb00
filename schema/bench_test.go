package schema

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// graphSpan is span n of a LangGraph run as OpenInference writes it.
func graphSpan(n int) Span {
	s := plainSpan(n)
	s.Service, s.Scope, s.Dialect = "capture-app", "@arizeai/openinference-instrumentation-langchain", "openinference"
	s.Node, s.ThreadID = fmt.Sprintf("node%d", n%12), fmt.Sprintf("thread-%d", n/100)
	s.TaskKey = fmt.Sprintf("%s:%016x", s.Node, uint64(n/5)*0x9e3779b97f4a7c15)
	s.GraphStep = int32(n % 12)
	if n%3 == 0 {
		s.Role, s.Model, s.Provider, s.InputTokens, s.OutputTokens = RoleModel, "gpt-4o-mini", "openai", int64(100+n%77), int64(n%311)
	}
	if n%7 == 0 {
		s.Failed, s.ErrorClass, s.HTTPStatus = true, "RateLimitError", 429
		s.RetryEvents = []RetryEvent{{TimeNs: s.StartNs, Attempt: 2, ErrorClass: "RateLimitError", HTTPStatus: 429}}
	}
	s.ContentHash = s.Hash()
	return s
}

func BenchmarkInsertSpans(b *testing.B) {
	db := migrated(b)
	const batch = 20_000
	spans := make([]Span, batch)
	sent := 0
	for b.Loop() {
		b.StopTimer()
		for i := range spans {
			spans[i] = graphSpan(sent + i)
		}
		b.StartTimer()
		require.NoError(b, InsertSpans(b.Context(), db.Conn, rand.Uint64, spans))
		sent += batch
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "spans/s")
	require.NoError(b, db.Conn.Exec(b.Context(), "OPTIMIZE TABLE spans FINAL"))
	for _, table := range []string{"spans", "run_keys"} {
		var bytes uint64
		require.NoError(b, db.Conn.QueryRow(b.Context(), "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = ? AND table = ?", db.Name, table).Scan(&bytes))
		b.ReportMetric(float64(bytes)/float64(sent), table+"-bytes/span")
	}
}

func BenchmarkReadLargeTrace(b *testing.B) {
	db := migrated(b)
	const n = 100_000
	spans := make([]Span, n)
	for i := range spans {
		spans[i] = graphSpan(i)
		spans[i].TraceID = spans[0].TraceID
	}
	require.NoError(b, InsertSpans(b.Context(), db.Conn, rand.Uint64, spans))
	for b.Loop() {
		found, err := SpansOfTraces(b.Context(), db.Conn, []TraceID{spans[0].TraceID}, n)
		require.NoError(b, err)
		require.Len(b, found[spans[0].TraceID].Spans, n)
	}
}

// BenchmarkReadBrief is one row with three steps as it is read for the signals of alerts.
func BenchmarkReadBrief(b *testing.B) {
	db := migrated(b)
	row := ledgerRow(1, noon, 6)
	for i := range 6 {
		row.Operations = append(row.Operations, OperationRow{Run: 1, Step: fmt.Sprint("step-", i/2), Grain: []string{"execution", "call"}[i%2], Outcome: "succeeded_first_try", EndNs: noon})
		row.Attempts[i].Grain, row.Attempts[i].Ending, row.Attempts[i].Step = row.Operations[i].Grain, "succeeded", row.Operations[i].Step
	}
	require.NoError(b, InsertLedger(b.Context(), db.Conn, []LedgerRow{row}))
	var text string
	require.NoError(b, db.Conn.QueryRow(b.Context(), "SELECT brief FROM ledger").Scan(&text))
	var r briefReader
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, r.UnmarshalBinary([]byte(text)))
	}
}
