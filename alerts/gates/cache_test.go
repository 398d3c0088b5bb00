package gates

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// trace is a row of the ledger with operations of a version, some of which failed.
func trace(id byte, version string, failed, succeeded int, settled bool) *schema.LedgerRow {
	row := &schema.LedgerRow{
		TraceID: schema.TraceID{id}, State: schema.StateAttributed, LastReceivedNs: noon.UnixNano(),
		Runs: []schema.RunRow{{RunID: string(id), Service: "checkout", Version: version, Environment: "production"}},
	}
	for i := range failed + succeeded {
		o := schema.OperationRow{
			Index: uint32(i), Step: "resolve", Grain: "execution", Outcome: "succeeded_after_retry", Settled: settled,
			EndNs: noon.Add(-5 * time.Second).UnixNano(),
		}
		if i < failed {
			o.Outcome = "failed_after_retry"
		}
		row.Operations = append(row.Operations, o)
	}
	return row
}

// TestOverTheCacheOfTheLedger asks the handler over what an evaluator really holds.
func TestOverTheCacheOfTheLedger(t *testing.T) {
	cache := signals.NewCache(Keep(time.Hour), signals.Limits{})
	cache.Advance(noon.UnixMicro())
	cache.Put(schema.BriefOf(trace(1, "v2", 9, 403, true)))
	cache.Put(schema.BriefOf(trace(2, "v1", 3, 3997, true)))
	ask := func(query string) Answer {
		var got Answer
		require.Equal(t, http.StatusOK, request(t, serve(cache), http.MethodGet, Path+"?service=checkout&version=v2"+query, "", &got))
		return got
	}
	got := ask("&baseline=v1")
	assert.Equal(t, Fail, got.Decision, got.Reason)
	assert.Equal(t, CauseWorse, got.Cause)
	assert.EqualValues(t, 9, got.Canary.Failed)
	assert.EqualValues(t, 412, got.Canary.Total)
	assert.EqualValues(t, 4000, got.Baseline.Total)
	assert.Equal(t, Fail, ask("").Decision)
	assert.Equal(t, CauseNoData, ask("&environment=staging").Cause)
	for _, signal := range Signals() {
		assert.NotEqual(t, CauseUnavailable, ask("&window=1h&signal="+string(signal)).Cause, signal)
	}

	cache.Put(schema.BriefOf(trace(3, "v3", 50, 150, false)))
	var unsettled Answer
	request(t, serve(cache), http.MethodGet, Path+"?service=checkout&version=v3", "", &unsettled)
	assert.Equal(t, Pass, unsettled.Decision, "failures that another attempt may undo do not count yet")
	assert.EqualValues(t, 150, unsettled.Canary.Total)

	short := signals.NewCache(Keep(time.Minute), signals.Limits{})
	short.Advance(noon.UnixMicro())
	var refused Answer
	request(t, serve(short), http.MethodGet, Path+"?service=checkout&version=v2", "", &refused)
	assert.Equal(t, CauseUnavailable, refused.Cause)
	assert.Contains(t, refused.Reason, "The window of operation_error_ratio cannot be answered: it is longer than 1m0s")
}
