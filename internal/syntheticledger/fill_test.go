package syntheticledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/internal/syntheticledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNumbersAgree: what the steps say is what their attempts and operations add up to,
// and a filling of a higher version replaces.
func TestNumbersAgree(t *testing.T) {
	store := storetest.Empty(t)
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	options := syntheticledger.Options{Seed: "a", Traces: 3000, From: to.Add(-24 * time.Hour), To: to}
	require.NoError(t, syntheticledger.Fill(t.Context(), store.Conn, options))
	options.Version = 1
	require.NoError(t, syntheticledger.Fill(t.Context(), store.Conn, options))

	var traces, attempts, early, late uint64
	require.NoError(t, store.Conn.QueryRow(t.Context(),
		"SELECT uniqExact(trace_key), count(), countIf(ended_at < ?), countIf(ended_at >= ?) FROM attempts", options.From, to).Scan(&traces, &attempts, &early, &late))
	require.EqualValues(t, 3000, traces)
	require.Greater(t, attempts, uint64(27_000))
	require.Zero(t, early+late)

	var wrong, retried, fellBack, failed uint64
	require.NoError(t, store.Conn.QueryRow(t.Context(), `
SELECT countIf((retries_total, executions, s.calls, calls_failed, fallbacks, operations, wasted_input, wasted_time_ms, wasted_wait_ms)
        != (a.retries, a.executed, a.called, a.failed, a.fell_back, o.wanted, a.input, a.ms, a.waited)
        OR retries_call != a.of_calls OR retries_node != a.of_nodes OR a.bad_parents > 0),
    countIf(retries_total > 0), countIf(fallbacks > 0), countIf(outcome = 'handled')
FROM steps AS s
JOIN (SELECT trace_key, step, countIf(charge NOT IN ('', 'fallback')) AS retries, countIf(charge = 'call') AS of_calls, countIf(charge = 'node') AS of_nodes,
        countIf(grain = 'execution') AS executed, countIf(grain = 'call') AS called, countIf(grain = 'call' AND ending = 'failed') AS failed,
        countIf(charge = 'fallback') AS fell_back, sumIf(input_tokens, wasted) AS input, sum(wasted_ms) AS ms, sum(wait_ms) AS waited,
        countIf((grain = 'execution') != (parent = -1) OR parent >= toInt64(`+"`index`"+`)) AS bad_parents
    FROM attempts GROUP BY trace_key, step) AS a USING (trace_key, step)
JOIN (SELECT trace_key, step, countIf(counts_in_step) AS wanted FROM operations GROUP BY trace_key, step) AS o USING (trace_key, step)`).
		Scan(&wrong, &retried, &fellBack, &failed))
	require.Zero(t, wrong, "steps whose numbers are not those of their attempts and operations")
	require.NotZero(t, retried)
	require.NotZero(t, fellBack)
	require.NotZero(t, failed)
}
