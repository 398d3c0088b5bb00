package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLedgerVersionsOrderAsTheStoreDoes(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) LedgerVersion {
		return LedgerVersion{rapid.Int64Range(0, 4).Draw(t, "us"), rapid.Uint32Range(0, 3).Draw(t, "spans"), rapid.Uint32().Draw(t, "s")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		require.Equal(t, a.Compare(b), a.big().Cmp(b.big()))
	})
}

// ledgerRow is a row of one run with n attempts of the step, the last ending at endNs.
func ledgerRow(trace int, endNs int64, n int) LedgerRow {
	r := LedgerRow{
		TraceID: TraceID{byte(trace >> 8), byte(trace)}, State: StateAttributed, Spans: uint32(n), Version: LedgerVersion{InsertedUs: 1, Spans: uint32(n)},
		FirstEndNs: endNs - int64(n)*1e6, LastEndNs: endNs, LastReceivedNs: time.Now().UnixNano(),
	}
	r.Runs = []RunRow{
		{RunID: "other"},
		{RunID: fmt.Sprint("run-", trace), Service: "shop", Version: "1.2", Environment: "prod", Completion: "complete", Anchor: true, TraceIDs: []TraceID{r.TraceID}, EndNs: endNs},
	}
	r.Steps = []StepRow{{Run: 1, Step: "resolve", Executions: 1, EndNs: endNs}}
	for i := range n {
		r.Attempts = append(r.Attempts, AttemptRow{Run: 1, Index: uint32(i), Grain: "call", Step: "resolve", Parent: -1, Operation: -1, EndNs: endNs - int64(i)*1e6})
	}
	return r
}

func TestViewsShowTheLatestAccount(t *testing.T) {
	db := migrated(t)
	row := ledgerRow(1, noon, 3)
	newer := ledgerRow(1, noon+1e9, 4)
	for _, r := range []LedgerRow{newer, row} { // the older arrives later
		require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{r}))
	}
	var n uint64
	var run, service, version, trace, span string
	require.NoError(t, db.Conn.QueryRow(t.Context(),
		"SELECT count(), any(run_id), any(service), any(version), any(trace_id), any(span_id) FROM attempts").Scan(&n, &run, &service, &version, &trace, &span))
	assert.EqualValues(t, 4, n)
	assert.Equal(t, []string{"run-1", "shop", "1.2", row.TraceID.String(), ""}, []string{run, service, version, trace, span})
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count(), any(run_id) FROM runs").Scan(&n, &run))
	assert.EqualValues(t, 1, n, "a run is shown once, by its first trace")
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM steps WHERE run_id = 'run-1' AND end_ns = ?", noon+1e9).Scan(&n))
	assert.EqualValues(t, 1, n)
}

// A window must not read the whole ledger: the condition on trace_end_ns reaches
// the index below the view.
func TestWindowSkipsWhatIsOlder(t *testing.T) {
	db := migrated(t)
	var rows []LedgerRow
	for trace := range 5000 {
		rows = append(rows, ledgerRow(trace, noon+int64(trace)*1e9, 2))
	}
	require.NoError(t, db.Conn.Exec(t.Context(), "SYSTEM STOP MERGES ledger"))
	for len(rows) > 0 { // as they come: a part holds traces of one time
		require.NoError(t, InsertLedger(t.Context(), db.Conn, rows[:500]))
		rows = rows[500:]
	}
	plan := func(query string) string {
		found, err := db.Conn.Query(t.Context(), "EXPLAIN indexes = 1 "+query)
		require.NoError(t, err)
		defer func() { _ = found.Close() }()
		var text strings.Builder
		for found.Next() {
			var line string
			require.NoError(t, found.Scan(&line))
			text.WriteString(line + "\n")
		}
		require.NoError(t, found.Err())
		return text.String()
	}
	since := noon + 4990*int64(1e9)
	query := fmt.Sprintf("SELECT step, count() FROM attempts WHERE end_bounded_ns >= %d AND trace_end_ns >= %d GROUP BY step", since, since)
	assert.Regexp(t, `(?s)Name: last_end_range.*?Parts: 1/([2-9]|10)\s`, plan(query))
	var step string
	var n uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), query).Scan(&step, &n))
	assert.EqualValues(t, 19, n, "two attempts of ten traces, the first of which ended before")
}

func TestLedgerOfRun(t *testing.T) {
	db := migrated(t)
	own := ledgerRow(1, noon, 1)
	own.Runs[1].RunID = own.TraceID.String()
	spreadRow, second := ledgerRow(2, noon, 1), ledgerRow(3, noon, 1)
	spreadRow.Runs[1].TraceIDs = append(spreadRow.Runs[1].TraceIDs, second.TraceID)
	second.Runs[1] = RunRow{RunID: "run-2"}
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{own, spreadRow, second}))
	for id, want := range map[string]int{own.TraceID.String(): 1, "run-2": 2, "nothing": 0, TraceID{7}.String(): 0} {
		rows, err := LedgerOfRun(t.Context(), db.Conn, id)
		require.NoError(t, err)
		assert.Len(t, rows, want, id)
	}
}

func TestWatermarkNeverGoesBack(t *testing.T) {
	db := migrated(t)
	us, err := Watermark(t.Context(), db.Conn)
	require.NoError(t, err)
	assert.Zero(t, us)
	for _, set := range []int64{noon / 1000, noon/1000 - 5} {
		require.NoError(t, SetWatermark(t.Context(), db.Conn, set))
	}
	us, err = Watermark(t.Context(), db.Conn)
	require.NoError(t, err)
	assert.Equal(t, noon/1000, us)
}
