package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// usageRow is a trace with a run of one step in it, whose attempts end in the given hours
// after noon; the run ends in the last.
func usageRow(trace byte, version uint32, step string, retries int64, hours ...int64) LedgerRow {
	row := LedgerRow{TraceID: TraceID{trace}, State: StateAttributed, Version: LedgerVersion{InsertedUs: int64(version)}, Spans: version}
	end := func(hour int64) int64 { return noon + hour*hourNs + int64(trace)*int64(time.Second) }
	for i, hour := range hours {
		charge := ""
		if i > 0 {
			charge = "call"
		}
		if i == 3 {
			charge = "fallback"
		}
		cost := float64(i)
		row.Attempts = append(row.Attempts, AttemptRow{
			Index: uint32(i), Grain: "call", Step: step, Charge: charge, Provider: "p", Ending: "failed", EndNs: end(hour), Counted: true, Wasted: i%2 == 0,
			CostUSD: &cost, WastedMs: 10, WaitMs: 5, ViewOf: -1, Shows: uint8(1 << (i % 5)),
			Request: i != 1, HTTPStatus: int64(429 + 71*(i%2)), Midway: i == 2, FallbackFrom: "m", FallbackReason: "e",
		})
		row.FirstEndNs, row.LastEndNs = end(hours[0]), end(hour)
	}
	last := row.LastEndNs
	row.LastReceivedNs = last + 1
	row.Operations = []OperationRow{{Step: step, Grain: "call", Outcome: "failed_after_retry", Attempts: int64(len(hours)), Provider: "p", EndNs: last, CountsInStep: true}}
	row.Operations = append(row.Operations, OperationRow{
		Step: step, Grain: "execution", Outcome: "handled", Settled: retries%2 == 0, EndNs: last, Index: 1,
	}, OperationRow{Step: step, Grain: "execution", Outcome: "succeeded_first_try", EndNs: end(hours[0]), Index: 2})
	if trace%2 == 0 {
		row.Violations = []ViolationRow{{Run: int64(trace%4)/2 - 1, Node: step, Key: "k", Direction: "input", Count: 2, TimeNs: last}}
	}
	row.Runs = []RunRow{{
		Deliveries: int64(trace), OrphanSpans: int64(trace % 3), Dialects: []string{"d"},
		RunID: fmt.Sprint("run ", trace), Service: "s", Anchor: true, TraceIDs: []TraceID{row.TraceID}, Completion: "complete", Outcome: "ok",
		RunLimit: 3, StepLimit: 2, Retries: retries, Exhausted: retries >= 3, EndNs: last, StartNs: end(hours[0]) - 5e6,
	}}
	row.Steps = []StepRow{{Step: step, RetriesCall: &retries, RetriesTotal: &retries, StepLimit: 2, OverBudget: retries > 2, WorstCase: 9, Factorisation: fmt.Sprint(retries)}}
	return row
}

// replace writes rows as an attributor does, which knows what it replaces.
func replace(tb testing.TB, t require.TestingT, conn driver.Conn, row LedgerRow) {
	tb.Helper()
	heads, err := LedgerHeads(tb.Context(), conn, []TraceID{row.TraceID})
	require.NoError(t, err)
	row.ReachedNs = heads[row.TraceID].ReachNs
	var left []uint32
	for _, hour := range heads[row.TraceID].Hours {
		for _, still := range row.Hours() {
			if still == hour {
				hour = 0
			}
		}
		if hour != 0 {
			left = append(left, hour)
		}
	}
	require.NoError(t, TouchHours(tb.Context(), conn, left))
	require.NoError(t, InsertLedger(tb.Context(), conn, []LedgerRow{row}))
}

// usageSums says what the views answer for a window, from hours and from the ledger alone.
func usageSums(tb testing.TB, t require.TestingT, conn driver.Conn, since, until int64) (withHours, without map[string]string) {
	tb.Helper()
	ask := func(sql, view string) string {
		var text string
		sql = fmt.Sprintf(sql, fmt.Sprintf("%s(since_ns = {since:Int64}, until_ns = {until:Int64})", view))
		require.NoError(t, conn.QueryRow(tb.Context(), sql, clickhouse.Named("since", since), clickhouse.Named("until", until)).Scan(&text), sql)
		return text
	}
	const sums = "SELECT toString(arraySort(groupArray((step, r, o, w, c, f, s, h)))) FROM (SELECT step, sum(retries_call) AS r, sum(operations) AS o, sum(wasted_ms) AS w, " +
		"sum(wasted_cost_usd) AS c, sum(failed) AS f, groupBitOr(shows) AS s, groupBitOr(hides) AS h FROM %s GROUP BY step)"
	withHours = map[string]string{
		"usage": ask(sums, "usage"),
		"runs":  ask("SELECT toString((sum(runs), sum(over_budget), sum(exhausted), sum(retries))) FROM %s", "run_counts"),
		"over":  ask("SELECT toString(arraySort(groupArray((run_id, retries, steps_over_budget, lasted_ms, end_bounded_ns)))) FROM %s", "over_budget_runs"),
		"steps": ask("SELECT toString(arraySort(groupArray((step, n, o, m, f, w)))) FROM (SELECT step, sum(runs) AS n, sum(over_budget) AS o, max(most) AS m, "+
			"argMax(toString(multiplied), most) AS f, max(worst_case) AS w FROM %s GROUP BY step)", "step_counts"),
	}
	without = map[string]string{
		"usage": ask(sums, "usage_rows"),
		"runs":  ask("SELECT toString((count(), countIf(over_budget), countIf(exhausted), sum(retries))) FROM %s", "run_usage"),
		"over":  ask("SELECT toString(arraySort(groupArray((run_id, retries, steps_over_budget, lasted_ms, end_bounded_ns)))) FROM %s WHERE over_budget", "run_usage"),
		"steps": ask("SELECT toString(arraySort(groupArray((step, n, o, m, f, w)))) FROM (SELECT step, count() AS n, countIf(over_budget) AS o, max(ifNull(retries_total, 0)) AS m, "+
			"argMax(toString(factorisation), ifNull(retries_total, 0)) AS f, max(worst_case) AS w FROM %s GROUP BY step)", "step_usage"),
	}
	const retries = "SELECT toString(arraySort(groupArray((service, step, provider, r, n, s, h)))) FROM (SELECT service, step, provider, (sum(retries_transport), sum(retries_call), " +
		"sum(retries_node), sum(retries_orchestrator), sum(retries_worker)) AS r, sum(operations) AS n, groupBitOr(shows) AS s, groupBitOr(hides) AS h FROM %s GROUP BY service, step, provider)"
	const outcomes = "SELECT toString(arraySort(groupArray((service, step, provider, n, o)))) FROM (SELECT service, step, provider, sum(operations) AS n, (sum(succeeded_first_try), " +
		"sum(succeeded_after_retry), sum(succeeded_by_fallback), sum(failed), sum(handled), sum(undecided)) AS o FROM %s GROUP BY service, step, provider HAVING n > 0)"
	withHours["retries"], without["retries"] = ask(retries, "retry_usage"), ask(retries, "usage_rows")
	withHours["outcomes"], without["outcomes"] = ask(outcomes, "outcome_usage"), ask(outcomes, "usage_rows")
	const tries = "SELECT toString(arraySort(groupArray((step, ordinal, ending, took_to_ms, n, w)))) FROM (SELECT step, ordinal, ending, took_to_ms, %s AS n, " +
		"sum(wait_ms) AS w FROM %%s GROUP BY step, ordinal, ending, took_to_ms)"
	const wanted = "SELECT toString(arraySort(groupArray((step, outcome, attempts, n)))) FROM (SELECT step, outcome, attempts, %s AS n FROM %%s GROUP BY step, outcome, attempts)"
	withHours["tries"], without["tries"] = ask(fmt.Sprintf(tries, "sum(attempts)"), "attempt_counts"), ask(fmt.Sprintf(tries, "count()"), "attempt_rows")
	var summed, rows []string
	for _, of := range [][3]string{
		{"request_usage", "request_rows", "step, http_status, error_class, sum(sent), sum(served), sum(server_errors), sum(throttled), sum(failed_otherwise), sum(ended_unknown)"},
		{"response_usage", "response_rows", "step, provider, sum(completed), sum(broke_off), sum(failed_before)"},
		{"fallback_usage", "fallback_rows", "step, from, to, after, sum(switches), sum(succeeded), sum(lost)"},
		{"visit_usage", "visit_rows", "service, step, sum(ended), sum(first_try), sum(after_retry), sum(by_fallback), sum(lost)"},
		{"step_accounts", "step_account_rows", "instrumentation, sum(steps), sum(hides_transport), sum(hides_call), sum(hides_worker)"},
		{"violation_usage", "violation_rows", "run_id, node, key, direction, count, end_bounded_ns, sum(1)"},
		{"retried_runs", "retried_rows", "run_id, trace_id, trace_ids, completion, retries, toString(steps), toString(steps_over_budget), wasted_ms, lasted_ms, end_bounded_ns, sum(1)"},
		{"noted_runs", "noted_rows", "run_id, trace_id, trace_ids, completion, toString(warnings), deliveries, over_budget, toString(unfinished_steps), lasted_ms, end_bounded_ns, sum(1)"},
		{"most_retried_runs", "ended_runs", "service, version, max((retries, end_bounded_ns, trace_key, run_id))"},
	} {
		var keys []string
		for column := range strings.SplitSeq(of[2], ", ") {
			if strings.HasPrefix(column, "sum(") || strings.HasPrefix(column, "max(") {
				break
			}
			keys = append(keys, column)
		}
		sql := "(SELECT toString(arraySort(groupArray(toString(row)))) FROM (SELECT tuple(" + of[2] + ") AS row FROM %s GROUP BY " + strings.Join(keys, ", ") + "))"
		window := "(since_ns = {since:Int64}, until_ns = {until:Int64})"
		summed, rows = append(summed, fmt.Sprintf(sql, of[0]+window)), append(rows, fmt.Sprintf(sql, of[1]+window))
	}
	all := func(parts []string) (text string) {
		sql := "SELECT toString([" + strings.Join(parts, ", ") + "])"
		require.NoError(t, conn.QueryRow(tb.Context(), sql, clickhouse.Named("since", since), clickhouse.Named("until", until)).Scan(&text), sql)
		return text
	}
	withHours["more"], without["more"] = all(summed), all(rows)
	const ended = "SELECT toString(arraySort(groupArray((deliveries, names, n, w)))) FROM (SELECT deliveries, arraySort(arrayMap(x -> toString(x), steps)) AS names, %s AS n, %s AS w " +
		"FROM %%s GROUP BY deliveries, names)"
	withHours["ended"], without["ended"] = ask(fmt.Sprintf(ended, "sum(runs)", "sum(warned)"), "run_counts"), ask(fmt.Sprintf(ended, "count()", "countIf(notEmpty(warnings))"), "ended_runs")
	withHours["wanted"], without["wanted"] = ask(fmt.Sprintf(wanted, "sum(operations)"), "operation_counts"), ask(fmt.Sprintf(wanted, "count()"), "operation_rows")
	return withHours, without
}

func cleanHours(t testing.TB, conn driver.Conn, since, until int64) (n uint64) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT toUInt64(length(clean)) FROM hours_plan(since_ns = ?, until_ns = ?)", since, until).Scan(&n))
	return n
}

func TestUsageHoursAreBuiltAndUsed(t *testing.T) {
	db := migrated(t)
	since, until := noon, noon+12*hourNs
	replace(t, t, db.Conn, usageRow(1, 1, "a", 4, 0, 1, 2))
	replace(t, t, db.Conn, usageRow(2, 1, "b", 1, 2, 5))
	assert.Zero(t, cleanHours(t, db.Conn, since, until), "nothing is built")
	built, err := BuildUsageHours(t.Context(), db.Conn, time.Hour, 100)
	require.NoError(t, err)
	assert.Zero(t, built, "what was written a moment ago has not settled")
	built, err = BuildUsageHours(t.Context(), db.Conn, 0, 3)
	require.NoError(t, err)
	assert.Equal(t, 3, built, "at most as many as asked for")
	built, err = BuildUsageHours(t.Context(), db.Conn, 0, 100)
	require.NoError(t, err)
	assert.Equal(t, 1, built)
	built, err = BuildUsageHours(t.Context(), db.Conn, 0, 100)
	require.NoError(t, err)
	assert.Zero(t, built, "all are built")
	assert.EqualValues(t, 4, cleanHours(t, db.Conn, since, until))
	assert.EqualValues(t, 3, cleanHours(t, db.Conn, since+1, until), "the first is not whole")
	assert.Zero(t, cleanHours(t, db.Conn, since, since+6*hourNs), "a short window is read from the ledger")

	var months uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT sum(retries_call) FROM usage(since_ns = ?, until_ns = ?)", since, until).Scan(&months))
	assert.EqualValues(t, 3, months)
	require.NoError(t, db.Conn.Exec(t.Context(), "ALTER TABLE usage_hours UPDATE `cells.retries_call` = arrayMap(n -> 100, `cells.retries_call`) WHERE true SETTINGS mutations_sync = 1"))
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT sum(retries_call) FROM usage(since_ns = ?, until_ns = ?)", since, until).Scan(&months))
	assert.EqualValues(t, 500, months, "the hours are what is read")

	// A row that leaves an hour and takes another.
	replace(t, t, db.Conn, usageRow(2, 2, "c", 3, 2, 3))
	withHours, without := usageSums(t, t, db.Conn, noon+2*hourNs, until)
	assert.Equal(t, without, withHours)
	assert.Contains(t, withHours["over"], "run 2")
}

// TestUsageHoursChangeNoNumber: whatever is written, replaced and built in whatever order,
// the views answer the same from hours and from the ledger alone.
func TestUsageHoursChangeNoNumber(t *testing.T) {
	db := migrated(t)
	versions := map[byte]uint32{}
	rapid.Check(t, func(r *rapid.T) {
		for range rapid.IntRange(1, 4).Draw(r, "writes") {
			trace := byte(rapid.IntRange(1, 5).Draw(r, "trace"))
			versions[trace]++
			first := rapid.Int64Range(0, 12).Draw(r, "first hour")
			hours := []int64{first}
			for range rapid.IntRange(0, 3).Draw(r, "further attempts") {
				hours = append(hours, min(first+rapid.Int64Range(0, 3).Draw(r, "later"), 14))
			}
			for i := 1; i < len(hours); i++ {
				hours[i] = max(hours[i], hours[i-1])
			}
			replace(t, r, db.Conn, usageRow(trace, versions[trace], rapid.SampledFrom([]string{"a", "b"}).Draw(r, "step"), rapid.Int64Range(0, 4).Draw(r, "retries"), hours...))
		}
		if rapid.Bool().Draw(r, "build") {
			_, err := BuildUsageHours(t.Context(), db.Conn, 0, rapid.IntRange(1, 20).Draw(r, "hours"))
			require.NoError(r, err)
		}
		since := noon + rapid.Int64Range(0, 8*2).Draw(r, "since")*hourNs/2
		until := since + rapid.Int64Range(1, 15*2).Draw(r, "length")*hourNs/2
		withHours, without := usageSums(t, r, db.Conn, since, until)
		require.Equal(r, without, withHours)
	})
}

// TestHoursOfAnEarlierReleaseAreBuiltAgain: their rows lack columns, also those that a
// collector of that release goes on building.
func TestHoursOfAnEarlierReleaseAreBuiltAgain(t *testing.T) {
	db := migrated(t)
	since, until := noon, noon+12*hourNs
	replace(t, t, db.Conn, usageRow(1, 1, "a", 4, 0, 1, 2))
	built, err := BuildUsageHours(t.Context(), db.Conn, 0, 100)
	require.NoError(t, err)
	require.Equal(t, 3, built)
	require.EqualValues(t, 3, cleanHours(t, db.Conn, since, until))
	require.NoError(t, db.Conn.Exec(t.Context(), "INSERT INTO usage_hours (hour, built_through) SELECT hour, built_through FROM usage_hours FINAL ORDER BY hour LIMIT 1"))
	assert.EqualValues(t, 2, cleanHours(t, db.Conn, since, until))
	withHours, without := usageSums(t, t, db.Conn, since, until)
	assert.Equal(t, without, withHours)
	built, err = BuildUsageHours(t.Context(), db.Conn, 0, 100)
	require.NoError(t, err)
	assert.Equal(t, 1, built)
	assert.EqualValues(t, 3, cleanHours(t, db.Conn, since, until))
}

// TestShownLayersOfEarlierRows: rows that do not say which layers are shown have it by the
// accounts beside.
func TestShownLayersOfEarlierRows(t *testing.T) {
	db := migrated(t)
	one := int64(1)
	row := usageRow(1, 1, "a", 1, 0, 0, 0)
	row.Steps[0] = StepRow{Step: "a", RetriesTransport: &one, RetriesWorker: &one}
	for i, of := range []struct{ step, charge string }{{"a", ""}, {"a", "call"}, {"b", "node"}} {
		row.Attempts[i].Step, row.Attempts[i].Charge = of.step, of.charge
	}
	row.Operations = []OperationRow{{Step: "a"}, {Step: "b"}}
	columns := slices.DeleteFunc(slices.Clone(ledgerColumns), func(c column[LedgerRow]) bool { return strings.HasSuffix(c.name, ".shows") })
	require.Len(t, columns, len(ledgerColumns)-2)
	require.NoError(t, insert(t.Context(), db.Conn, "ledger", columns, []LedgerRow{row}))
	var attempts, operations string
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT toString(`attempts.shows`), toString(`operations.shows`) FROM ledger").Scan(&attempts, &operations))
	const account = ShowsTransport | ShowsWorker
	assert.Equal(t, fmt.Sprintf("[%d,%d,%d]", account, account, ShowsNode), attempts)
	assert.Equal(t, fmt.Sprintf("[%d,0]", account), operations)
}

func TestHoursOfARow(t *testing.T) {
	db := migrated(t)
	rows := []LedgerRow{usageRow(1, 1, "a", 0, 0, 1, 1, 30), ledgerRow(2, noon, 3), {TraceID: TraceID{3}}}
	rows[0].Violations = []ViolationRow{{Run: -1, TimeNs: noon + 20*hourNs}}
	rows[0].Operations[0].EndNs = 17 // cannot be real
	require.NoError(t, InsertLedger(t.Context(), db.Conn, rows))
	for i := range rows {
		heads, err := LedgerHeads(t.Context(), db.Conn, []TraceID{rows[i].TraceID})
		require.NoError(t, err)
		assert.Equal(t, append([]uint32{}, rows[i].Hours()...), append([]uint32{}, heads[rows[i].TraceID].Hours...))
	}
	assert.Len(t, rows[0].Hours(), 4)
}
