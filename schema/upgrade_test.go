package schema

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

// beforeAlerts is the newest version of the schema without what alerts need.
const beforeAlerts = 3

// statementsFrom are the statements of the migrations after a version and up to another.
func statementsFrom(t *testing.T, after, until int) []string {
	t.Helper()
	list, err := migrations()
	require.NoError(t, err)
	fill := strings.NewReplacer("{spans_days}", "30", "{ledger_days}", "400")
	var found []string
	for _, m := range list {
		if m.version > after && m.version <= until {
			found = append(found, statements(fill.Replace(m.text))...)
		}
	}
	return found
}

// insertBeforeAlerts writes rows as a release without alerts does.
func insertBeforeAlerts(t *testing.T, conn driver.Conn, rows ...LedgerRow) {
	t.Helper()
	added := []string{"operations.settled", "attempts.request", "attempts.midway", "attempts.violated", "attempts.hidden", "attempts.shows", "operations.shows", "runs.warnings", "runs.sampled", "reached_ns"}
	columns := slices.DeleteFunc(slices.Clone(ledgerColumns), func(c column[LedgerRow]) bool { return slices.Contains(added, c.name) })
	require.Len(t, columns, len(ledgerColumns)-len(added))
	require.NoError(t, insert(t.Context(), conn, "ledger", columns, rows))
}

// A store of an earlier release, with rows in it, is brought up to date, wherever an
// earlier try was cut short, and collectors of the earlier release may go on writing.
func TestUpgradeOfAStoreWithoutAlerts(t *testing.T) {
	for cut := range len(statementsFrom(t, beforeAlerts, beforeAlerts+1)) + 1 {
		t.Run(fmt.Sprint("cut after ", cut), func(t *testing.T) {
			db := enginetest.Database(t)
			for _, s := range append(statementsFrom(t, 0, beforeAlerts), createMigrations) {
				require.NoError(t, db.Conn.Exec(t.Context(), s))
			}
			require.NoError(t, db.Conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (?, 'before')", uint32(beforeAlerts)))
			received := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
			row := func(trace int) LedgerRow {
				r := ledgerRow(trace, received.UnixNano(), 3)
				r.LastReceivedNs = received.UnixNano()
				r.Operations = []OperationRow{{Run: 1, Step: "resolve", Outcome: "failed_without_retry", EndNs: r.LastEndNs}, {Run: 1}}
				return r
			}
			insertBeforeAlerts(t, db.Conn, row(1))
			for _, s := range statementsFrom(t, beforeAlerts, beforeAlerts+1)[:cut] {
				require.NoError(t, db.Conn.Exec(t.Context(), s))
			}
			require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}))

			insertBeforeAlerts(t, db.Conn, row(2))
			newer := row(3)
			newer.Operations[0].Settled, newer.Attempts[2].Request = true, true
			require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{newer}))
			var failures, settled, attempts, requests uint64
			require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count(), countIf(settled) FROM operations").Scan(&failures, &settled))
			require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count(), countIf(request) FROM attempts WHERE NOT midway AND NOT violated").Scan(&attempts, &requests))
			assert.Equal(t, []uint64{6, 1, 9, 1}, []uint64{failures, settled, attempts, requests})

			age := func(trace int) time.Duration {
				id := row(trace).TraceID
				var at time.Time
				require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT written_at FROM ledger WHERE trace_id = unhex(?)", id.String()).Scan(&at))
				return time.Since(at)
			}
			assert.InDelta(t, time.Hour, age(1), float64(10*time.Minute), "an old row is as old as its spans, and not new by every read")
			assert.Less(t, age(2), 10*time.Minute)
			assert.Less(t, age(3), 10*time.Minute)
			var brief []string
			require.NoError(t, LedgerSince(t.Context(), db.Conn, received.Add(-time.Minute), func(r *Brief) error {
				brief = append(brief, fmt.Sprintf("%d %s %s %t %d", r.TraceID[1], r.Runs[1].Service.Value(), r.Operations[0].Outcome.Value(), r.Operations[0].Settled, len(r.Attempts)))
				return nil
			}))
			assert.ElementsMatch(t, []string{"1 shop failed_without_retry false 3", "2 shop failed_without_retry false 3", "3 shop failed_without_retry true 3"}, brief)

			var plan []string
			rows, err := db.Conn.Query(t.Context(), "EXPLAIN indexes = 1 SELECT count(spans) FROM ledger WHERE written_at > now64() - toIntervalMinute(30) SETTINGS use_statistics_for_part_pruning = 0")
			require.NoError(t, err)
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var line string
				require.NoError(t, rows.Scan(&line))
				plan = append(plan, line)
			}
			require.NoError(t, rows.Err())
			assert.Regexp(t, `(?s)Name: written_range.*?Parts: 2/3`, strings.Join(plan, "\n"), "the old part is skipped by its index")
		})
	}
}

// The names of inserts that a store of an earlier release has stay as they are, for its
// ledger remembers them, and its collectors may go on writing while others are newer.
func TestUpgradeKeepsTheNamesOfInserts(t *testing.T) {
	const before = 14
	db := enginetest.Database(t)
	for _, s := range append(statementsFrom(t, 0, before), createMigrations) {
		require.NoError(t, db.Conn.Exec(t.Context(), s))
	}
	require.NoError(t, db.Conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (?, 'before')", uint32(before)))
	received := time.Now().UnixNano() // or their retention would end
	span := func(n int) []Span {
		s := plainSpan(n)
		s.ReceivedNs = received
		return []Span{s}
	}
	columns := columnsOf(t, db.Conn, "spans", spanColumns)
	old := func(n int) {
		require.NoError(t, insert(t.Context(), db.Conn, "run_keys", keyColumns, keysOf(span(n))))
		require.NoError(t, insert(t.Context(), db.Conn, "spans", columns, span(n)))
	}
	old(1)
	id := plainSpan(1).TraceID
	first := tokensOf(t, db.Conn, id)
	require.Len(t, first, 1)
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}))
	assert.Equal(t, first, tokensOf(t, db.Conn, id))
	old(2)
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, span(3)))
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	after := tokensOf(t, db.Conn, id)
	assert.Len(t, after, 3)
	assert.Contains(t, after, first[0])
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{id}, 10)
	require.NoError(t, err)
	assert.Len(t, found[id].Spans, 3)
	assert.Len(t, found[id].Inserts, 3)
}

// columnsOf are those of the columns that a table of an earlier version has.
func columnsOf[R any](t *testing.T, conn driver.Conn, table string, columns []column[R]) []column[R] {
	t.Helper()
	var names []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT groupArray(name) FROM system.columns WHERE database = currentDatabase() AND table = ?", table).Scan(&names))
	return slices.DeleteFunc(slices.Clone(columns), func(c column[R]) bool { return !slices.Contains(names, c.name) })
}

// answers are hashes of what the views say, by view, but for when it was written.
func answers(t *testing.T, conn driver.Conn) map[string]string {
	t.Helper()
	said := map[string]string{}
	for name := range views() {
		var rows, hash uint64
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(), groupBitXor(cityHash64(formatRow('JSONEachRow', *))) FROM "+name).Scan(&rows, &hash))
		said[name] = fmt.Sprint(rows, " rows ", hash)
	}
	return said
}

// A store of every earlier version of the schema, with rows in it, is brought up to date
// by two collectors that start at once, and then answers what a new one answers.
func TestUpgradeFromEveryVersion(t *testing.T) {
	received := time.Now().Add(-time.Hour).Truncate(time.Second).UnixNano()
	row := func(trace int) LedgerRow {
		r := ledgerRow(trace, received-int64(time.Minute), 3)
		r.LastReceivedNs = received
		r.Operations = []OperationRow{{Run: 1, Index: 4, Step: "resolve", Outcome: "failed_without_retry", Limit: 3, EndNs: r.LastEndNs, CountsInStep: true}}
		r.Violations = []ViolationRow{{Run: 1, Node: "rank", Key: "k", Direction: "input", Count: 2, TimeNs: r.LastEndNs}}
		return r
	}
	rows := []LedgerRow{row(1), row(2)}
	span := plainSpan(1)
	span.ReceivedNs, span.CostUSD = received, 0.5 // not a number equals nothing
	fresh := enginetest.Database(t)
	require.NoError(t, Migrate(t.Context(), fresh.Conn, MigrateOptions{}))
	require.NoError(t, InsertLedger(t.Context(), fresh.Conn, rows))
	want := answers(t, fresh.Conn)
	require.Len(t, want, 5)
	wantTraces, err := LedgerOfTraces(t.Context(), fresh.Conn, []TraceID{rows[0].TraceID, rows[1].TraceID})
	require.NoError(t, err)

	for version := 1; version < Version(); version++ {
		if collectortest.RaceDetector && version > 1 && version < Version()-1 {
			continue // nearly all of it is the engine's work, where the detector sees nothing
		}
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			db := enginetest.Database(t)
			require.NoError(t, db.Conn.Exec(t.Context(), createMigrations))
			for _, s := range statementsFrom(t, 0, version) {
				require.NoError(t, db.Conn.Exec(t.Context(), s))
			}
			for v := 1; v <= version; v++ {
				require.NoError(t, db.Conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (?, 'earlier')", uint32(v)))
			}
			require.NoError(t, insert(t.Context(), db.Conn, "run_keys", keyColumns, keysOf([]Span{span})))
			require.NoError(t, insert(t.Context(), db.Conn, "spans", columnsOf(t, db.Conn, "spans", spanColumns), []Span{span}))
			if version >= 2 {
				require.NoError(t, insert(t.Context(), db.Conn, "ledger", columnsOf(t, db.Conn, "ledger", ledgerColumns), rows))
			}

			errs := make(chan error, 2)
			for range 2 {
				conn, err := clickhouse.Open(db.Options)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				go func() { errs <- Migrate(t.Context(), conn, MigrateOptions{}) }()
			}
			require.NoError(t, <-errs)
			require.NoError(t, <-errs)

			found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{span.TraceID}, 10)
			require.NoError(t, err)
			require.Equal(t, []Span{span}, found[span.TraceID].Spans)
			if version >= 2 {
				require.Equal(t, want, answers(t, db.Conn))
				traces, err := LedgerOfTraces(t.Context(), db.Conn, []TraceID{rows[0].TraceID, rows[1].TraceID})
				require.NoError(t, err)
				require.Equal(t, wantTraces, traces)
			}
		})
	}
}
