package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/gates"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/cli"
	"github.com/retryledger/retryledger/schema"
)

var gateNow = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// alertsServer serves the real handlers over a cache of 412 operations of v2, 9 of which
// failed, and 4000 of v1, of which 3 did, and as many requests to openai, and of 1.8.0,
// the release of the docs.
func alertsServer(t *testing.T) process {
	t.Helper()
	now := func() time.Time { return gateNow }
	settings := breakers.DefaultSettings()
	keep := gates.Keep(time.Hour)
	for signal, window := range settings.Keep() {
		keep[signal] = max(keep[signal], window)
	}
	cache := signals.NewCache(keep, signals.Limits{})
	cache.Advance(gateNow.UnixMicro())
	for id, release := range []struct {
		version       string
		failed, total int
		asks          bool
	}{{"v2", 9, 412, true}, {"v1", 3, 4000, true}, {"v0\x1b[2J", 1, 412, true}, {"1.8.0", 9, 412, false}} {
		row := &schema.LedgerRow{
			TraceID: schema.TraceID{byte(id)}, LastReceivedNs: gateNow.UnixNano(),
			Runs: []schema.RunRow{{Service: "checkout", Version: release.version}},
		}
		for i := range release.total {
			o := schema.OperationRow{Step: "resolve", Grain: "execution", Outcome: "succeeded_first_try", Settled: true, EndNs: gateNow.UnixNano() - 1e9}
			a := schema.AttemptRow{Step: "resolve", Grain: "call", Provider: "openai", Request: true, Ending: "succeeded", EndNs: o.EndNs}
			if i < release.failed {
				o.Outcome = "failed_after_retry"
			}
			if i%4 == 0 {
				a.Ending, a.HTTPStatus = "failed", 503
			}
			row.Operations = append(row.Operations, o)
			if release.asks {
				row.Attempts = append(row.Attempts, a)
			}
		}
		cache.Put(schema.BriefOf(row))
	}
	set, err := breakers.New(settings, "test")
	require.NoError(t, err)
	_, err = set.Evaluate(t.Context(), cache, gateNow, gateNow)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(gates.Path, gates.NewHandler(gates.HandlerSettings{
		Reader: cache, UpTo: now, Now: now, MaxWindow: time.Hour, StaleAfter: gates.DefaultStaleAfter,
	}))
	handler := breakers.NewHandler(breakers.HandlerSettings{Set: set, Now: now, MaxSubscribers: 1})
	mux.Handle(breakers.Path, handler)
	mux.Handle(breakers.Path+"/", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return process{variables: map[string]string{"RETRYLEDGER_SERVER": server.URL}}
}

func TestGateSaysByItsExitCode(t *testing.T) {
	t.Parallel()
	p := alertsServer(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--version", "v1"}, cli.ExitOK, "pass: operation_error_ratio of v1 over 3m is 0.075 % (3 of 4000), not above 1 %."},
		{[]string{"--version", "v2"}, cli.ExitFail, "fail: operation_error_ratio of v2 over 3m is 2.18 % (9 of 412), above 1 %."},
		{[]string{"--version", "v2", "--threshold", "3 %"}, cli.ExitOK, "pass: "},
		{[]string{"--version", "v2", "--threshold", "3 %", "--baseline", "v1"}, cli.ExitFail, "against 0.075 % (3 of 4000) of v1"},
		{[]string{"--version", "v2", "--min-samples", "413"}, cli.ExitInconclusive, "inconclusive: "},
		{[]string{"--version", "v3"}, cli.ExitInconclusive, "nothing of checkout ended in 3m"},
	} {
		out, stderr, code := p.run(t, append([]string{"gate", "--service", "checkout"}, c.args...)...)
		assert.Equal(t, c.code, code, stderr)
		assert.Contains(t, out, c.want)
		assert.Equal(t, code == cli.ExitOK, stderr == "", stderr)
	}
	golden(t, "gate_baseline", p.must(t, "gate", "--service", "checkout", "--version", "v1", "--baseline", "v2", "--margin", "2%", "--window", "5m"))

	var found gates.Answer
	out, _, code := p.run(t, "gate", "--service", "checkout", "--version", "v2", "--format", "json")
	require.Equal(t, cli.ExitFail, code)
	require.NoError(t, json.Unmarshal([]byte(out), &found), "the output is JSON alone")
	require.EqualValues(t, 412, found.Canary.Total)

	out = p.must(t, "gate", "--service", "checkout", "--version", "v0\x1b[2J")
	require.NotContains(t, out, "\x1b")
}

func TestAGateThatCannotBeAskedDoesNotFailARelease(t *testing.T) {
	t.Parallel()
	p := alertsServer(t)
	for _, args := range [][]string{
		{"--version", "v2"},
		{"--service", "checkout"},
		{"--service", "checkout", "--version", "v2", "--threshold", "1"},
		{"--service", "checkout", "--version", "v2", "--window", "3"},
		{"--service", "checkout", "--version", "v2", "--format", "csv"},
		{"--service", "checkout", "--version", "v2", "extra"},
	} {
		_, stderr, code := p.run(t, append([]string{"gate"}, args...)...)
		assert.Equal(t, cli.ExitUsage, code, args)
		assert.NotEmpty(t, stderr)
	}
	for name, p := range map[string]process{
		"an older collector": serve(t, http.StatusNotFound, answer.Failure{Error: "there is nothing here"}, nil),
		"a conflict":         serve(t, http.StatusConflict, answer.Failure{Error: "several"}, nil),
		"no decision":        serve(t, http.StatusOK, answer.Failure{}, nil),
		"a newer decision":   serve(t, http.StatusOK, gates.Answer{Decision: "perhaps"}, nil),
		"nobody":             {variables: map[string]string{"RETRYLEDGER_SERVER": "http://127.0.0.1:1"}},
	} {
		_, stderr, code := p.run(t, "gate", "--service", "checkout", "--version", "v2")
		assert.Equal(t, cli.ExitUnreachable, code, name)
		assert.NotEmpty(t, stderr)
	}
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	p := alertsServer(t)
	golden(t, "breakers", p.must(t, "breakers"))
	golden(t, "breakers_one", p.must(t, "breakers", "openai"))
	require.Contains(t, p.must(t, "breakers", "nobody/at all"), "nobody/at all was not seen: no request to a provider of this name is known")
	var views breakers.Views
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "breakers", "--format", "json")), &views))
	require.Equal(t, breakers.Open, views.Breakers[0].State)
	var view breakers.View
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "breakers", "openai", "--format", "json")), &view))
	require.EqualValues(t, 1, view.Trips)
	for _, args := range [][]string{{"a", "b"}, {""}, {"--format", "csv"}} {
		_, _, code := p.run(t, append([]string{"breakers"}, args...)...)
		require.Equal(t, cli.ExitUsage, code)
	}
	require.Contains(t, serve(t, http.StatusOK, breakers.Views{Stale: true}, nil).must(t, "breakers"), "all breakers are closed")
	hostile := breakers.Views{Breakers: []breakers.View{{Provider: hostileName, State: hostileName}}}
	require.NotContains(t, serve(t, http.StatusOK, hostile, nil).must(t, "breakers"), "\x1b")
}
