package schema

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is deleted is in no table any more, and what is said of it in the history of alerts
// neither; all else stays.
func TestDeleteLeavesNothingOfARunAndAllOfOthers(t *testing.T) {
	db := migrated(t)
	now := time.Now().UTC().Truncate(time.Second)
	row := func(trace int, service, thread string) LedgerRow {
		r := ledgerRow(trace, now.Add(-time.Hour).UnixNano(), 2)
		r.Runs[1].Service, r.Runs[1].ThreadID = service, thread
		return r
	}
	rows := []LedgerRow{row(1, "shop", "ada"), row(2, "shop", "bob"), row(3, "bank", "ada"), row(4, "bank", "eve")}
	require.NoError(t, InsertLedger(t.Context(), db.Conn, rows))
	var spans []Span
	for i, r := range rows {
		for n := range 2 {
			s := plainSpan(100*i + n)
			s.TraceID, s.Service, s.ReceivedNs = r.TraceID, r.Runs[1].Service, now.UnixNano()
			spans = append(spans, s)
		}
	}
	spans[0].Service = "gateway"                   // a trace through several services is its run's
	loose, mixed := plainSpan(900), plainSpan(901) // of traces that are no run
	loose.TraceID, loose.Service = TraceID{9}, "shop"
	mixed.TraceID, mixed.Service = TraceID{8}, "gateway"
	spans = append(spans, loose, mixed)
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	transition := func(service string, runs ...string) AlertTransition {
		return AlertTransition{At: now, Rule: "step_errors", Group: AlertGroup{Service: service}, From: "pending", To: "firing", Labels: map[string]string{}, Runs: runs}
	}
	require.NoError(t, InsertAlertTransitions(t.Context(), db.Conn, []AlertTransition{transition("shop", "run-1"), transition("bank", "run-1", "run-4"), transition("", "run-3")}))
	require.NoError(t, InsertAlertSamples(t.Context(), db.Conn, []AlertSample{{Instant: now, Rule: "r", Group: AlertGroup{Service: "shop"}}, {Instant: now, Rule: "r", Group: AlertGroup{Service: "bank"}}}))
	counts := func() (found []uint64) {
		for _, query := range []string{"uniqExact(trace_id) FROM ledger", "uniqExact(trace_id) FROM spans", "uniqExact(trace_id) FROM run_keys", "count() FROM alert_samples", "count() FROM alert_transitions"} {
			var n uint64
			require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT "+query).Scan(&n))
			found = append(found, n)
		}
		return found
	}
	require.Equal(t, []uint64{4, 6, 6, 2, 3}, counts())

	for _, wrong := range []Doomed{{}, {Service: "a", Run: "b"}} {
		_, err := Delete(t.Context(), db.Conn, wrong)
		require.ErrorContains(t, err, "one of service, thread and run")
	}
	deleted, err := Delete(t.Context(), db.Conn, Doomed{Service: "shop"})
	require.NoError(t, err)
	assert.Equal(t, Deleted{Traces: 3, Spans: 5}, deleted)
	assert.Equal(t, []uint64{2, 3, 3, 1, 2}, counts())
	examples := func() (runs []string) {
		require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT arraySort(groupArrayArray(runs)) FROM alert_transitions FINAL").Scan(&runs))
		return runs
	}
	assert.Equal(t, []string{"run-3", "run-4"}, examples())

	deleted, err = Delete(t.Context(), db.Conn, Doomed{Thread: "ada"})
	require.NoError(t, err)
	assert.Equal(t, Deleted{Traces: 1, Spans: 2}, deleted)
	assert.Equal(t, []uint64{1, 2, 2, 1, 2}, counts())
	assert.Equal(t, []string{"run-4"}, examples())

	deleted, err = Delete(t.Context(), db.Conn, Doomed{Run: "' OR 1=1 --"})
	require.NoError(t, err)
	assert.Equal(t, Deleted{}, deleted)
	deleted, err = Delete(t.Context(), db.Conn, Doomed{Run: "run-4"})
	require.NoError(t, err)
	assert.Equal(t, Deleted{Traces: 1, Spans: 2}, deleted)
	assert.Equal(t, []uint64{0, 1, 1, 1, 2}, counts())
	var tables uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name LIKE 'doomed%'").Scan(&tables))
	assert.Zero(t, tables)
}

// A deletion that was killed leaves the ids of what it was to delete.
func TestWhatAKilledDeletionLeavesGoes(t *testing.T) {
	db := migrated(t)
	require.NoError(t, db.Conn.Exec(t.Context(), "CREATE TABLE doomed_left (run_ids Array(String)) ENGINE = MergeTree ORDER BY ()"))
	left := func() (n uint64) {
		require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM system.tables WHERE database = currentDatabase() AND startsWith(name, 'doomed_')").Scan(&n))
		return n
	}
	require.NoError(t, DropAbandoned(t.Context(), db.Conn, AbandonedAfter))
	assert.EqualValues(t, 1, left(), "its deletion may be under way")
	require.NoError(t, DropAbandoned(t.Context(), db.Conn, 0))
	assert.Zero(t, left())
}

func TestNamesOfBackups(t *testing.T) {
	for name, valid := range map[string]bool{"monday": true, "2026-11-30_store.1": true, "": false, "..": false, "a/b": false, "../a": false, "a..b": false, "it's": false, ".hidden": false, "a b": false} {
		assert.Equal(t, valid, ValidBackup(name), name)
	}
	require.ErrorContains(t, Backup(t.Context(), nil, "retryledger", "x') --", ""), "use letters")
	require.ErrorContains(t, Restore(t.Context(), nil, "retryledger", "x') --"), "use letters")
}
