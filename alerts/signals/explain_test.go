package signals_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/schema"
)

// Real applications, each moved to end now.
func TestExplanationsOfRealApplications(t *testing.T) {
	db := migrated(t)
	now := clock(t, db.Conn)*1000 - second
	insert := func(cell, service string) {
		_, rows := captured(t, capturetest.One(t, cell))
		last := int64(0)
		for i := range rows {
			last = max(last, rows[i].LastReceivedNs)
		}
		for i := range rows {
			moved(&rows[i], now-last)
			for j := range rows[i].Runs {
				rows[i].Runs[j].Service, rows[i].Runs[j].RunID = service, cell
			}
		}
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
	}
	insert("py-openinference/a_client_retry", "retry")
	insert("py-openinference/e3_fallback_all_fail", "fallback")
	insert("py-openinference/h1_contract_with_root", "contract")
	insert("py-openinference/n12_shared_budget", "budget")
	insert("ai-sdk-6/g2_stream_midway", "stream")
	insert("otelhttp-go/exhausted", "send")
	insert("openinference/c_nested_9", "nested")
	for _, c := range []struct {
		signal  signals.Signal
		service string
		err     string
		count   int64
		run     string
	}{
		{signals.OperationErrorRatio, "budget", "InternalServerError", 1, "py-openinference/n12_shared_budget"},
		{signals.CallOperationErrorRatio, "fallback", "InternalServerError", 1, "py-openinference/e3_fallback_all_fail"},
		{signals.AttemptErrorRatio, "fallback", "InternalServerError 500", 1, "py-openinference/e3_fallback_all_fail"},
		{signals.ServerErrorRatio, "send", "503", 4, "otelhttp-go/exhausted"},
		{signals.ThrottledRatio, "retry", "RateLimitError 429", 1, "py-openinference/a_client_retry"},
		{signals.RetryRatio, "retry", "InternalServerError 503", 1, "py-openinference/a_client_retry"}, // and one for RateLimitError 429
		// What the attempts met that were repeated, of one operation: no more than its retries.
		{signals.RetryRatio, "send", "503", 3, "otelhttp-go/exhausted"},
		{signals.RetryRatio, "nested", "RateLimitError 429", 8, "openinference/c_nested_9"},
		{signals.FallbackRatio, "fallback", "RateLimitError", 1, "py-openinference/e3_fallback_all_fail"},
		{signals.ContractViolationRatio, "contract", "missing input: deduplicated", 1, "py-openinference/h1_contract_with_root"},
		{signals.IncompleteRunRatio, "budget", "unfinished: rank, resolve", 1, "py-openinference/n12_shared_budget"},
		{signals.BudgetExhaustedRatio, "budget", "exhausted, as the application says", 1, "py-openinference/n12_shared_budget"},
		{signals.WastedTokenRatio, "contract", "", 0, "py-openinference/h1_contract_with_root"},
		{signals.StreamMidwayFailureRatio, "stream", "", 0, "ai-sdk-6/g2_stream_midway"},
	} {
		q := signals.Query{Signal: c.signal, ToNs: now, WindowNs: 300 * second, GroupBy: []signals.Dimension{signals.Service}}
		got, err := signals.Explain(t.Context(), db.Conn, q, signals.Labels{Service: c.service})
		require.NoError(t, err, c.signal)
		assert.Equal(t, signals.Explanation{TopError: c.err, TopErrorCount: c.count, Runs: []string{c.run}}, got, "%s of %s", c.signal, c.service)
		q.Where = map[signals.Dimension]signals.Matcher{signals.Service: value("other")}
		got, err = signals.Explain(t.Context(), db.Conn, q, signals.Labels{Service: c.service})
		require.NoError(t, err, c.signal)
		assert.Equal(t, signals.Explanation{}, got)
	}
	_, err := signals.Explain(t.Context(), db.Conn, signals.Query{Signal: "error_ratio"}, signals.Labels{})
	require.ErrorContains(t, err, "no such signal")
}

// The most frequent error decides over all groups that the query joins, and its runs
// are shown first.
func TestExplanationOfManyRuns(t *testing.T) {
	db := migrated(t)
	us := clock(t, db.Conn)
	var rows []schema.LedgerRow
	for i := range 20 {
		row := oneVisit(byte(i), us, us*1000-second, "handled", true)
		row.FirstEndNs, row.LastEndNs = us*1000-second, us*1000-second
		row.Runs = []schema.RunRow{{RunID: fmt.Sprintf("run-%02d", i), Service: "shop"}}
		row.Operations[0].LastError = []string{"Rare", "Often", "Often", ""}[i%4]
		row.Operations[0].Step = fmt.Sprint("step ", i%5)
		rows = append(rows, row)
	}
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
	q := signals.Query{Signal: signals.OperationErrorRatio, ToNs: us * 1000, WindowNs: 60 * second}
	x, err := signals.Explain(t.Context(), db.Conn, q, signals.Labels{})
	require.NoError(t, err)
	assert.Equal(t, "Often", x.TopError)
	assert.EqualValues(t, 10, x.TopErrorCount)
	require.Len(t, x.Runs, 3)
	assert.True(t, slices.IsSorted(x.Runs))
	for _, run := range x.Runs {
		assert.Contains(t, []string{"run-01", "run-02", "run-05", "run-06", "run-09", "run-10", "run-13", "run-14", "run-17", "run-18"}, run)
	}
	q.GroupBy = []signals.Dimension{signals.Step}
	x, err = signals.Explain(t.Context(), db.Conn, q, signals.Labels{Step: "step 3"})
	require.NoError(t, err)
	assert.Equal(t, signals.Explanation{TopError: "Often", TopErrorCount: 2, Runs: []string{"run-13", "run-18", "run-08"}}, x)
}
