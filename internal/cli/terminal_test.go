package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/cli"
)

// TestNoLineIsWiderThanTheTerminal, whatever the capture and the width.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	for i, capture := range capturetest.All(t) {
		for _, width := range []int{30 + i%17, 60 + i%11, 80, 100, 120 + i%31} {
			out := process{width: width}.must(t, append([]string{"account", "--ladder"}, capture.Files...)...)
			for line := range strings.Lines(out) {
				if got := text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\n")); got > width && strings.Contains(strings.TrimSpace(line), " ") {
					t.Fatalf("%s: a line of %d cells on a terminal of %d:\n%s", capture.Cell(), got, width, line)
				}
			}
		}
	}
}

func TestColourOnATerminalOnly(t *testing.T) {
	t.Parallel()
	args := append([]string{"account", "--ladder"}, files(t, "openinference/c_nested_9")...)
	plain := process{variables: map[string]string{"COLUMNS": "120"}}.must(t, args...)
	require.NotContains(t, plain, "\x1b")
	coloured := process{width: 120}.must(t, args...)
	require.Contains(t, coloured, "\x1b[31m")
	require.Equal(t, plain, text.StripEscape(coloured), "colours change nothing else")
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		require.Equal(t, plain, process{width: 120, variables: map[string]string{name: value}}.must(t, args...), name)
	}
}

// hostile are answers whose texts come from spans that mean harm.
const hostileName = "re\x1b[2Jsolve\n\u202e,\"x\"\t;=1+1"

func hostile() answer.Top {
	three := 3
	top := answer.NewTop(answer.Filter{})
	top.Runs, top.Completion = 2, map[string]int{"complete": 1, "unflagged": 1}
	top.Steps = []answer.TopStep{
		{
			Service: "a", Step: hostileName, Retries: attribution.Retries{Node: &three}, Runs: 2, RunsOverBudget: 1, Executions: 5,
			Wasted: attribution.Wasted{Input: 123456, UnknownCalls: 1, TimeMs: 61000}, PartlyHidden: []attribution.Layer{attribution.LayerNode},
			Errors: []attribution.ErrorCount{{Class: "Rate\x07Limit", HTTPStatus: 429, Count: 3}},
		},
		{Service: "b", Step: "hidden", Runs: 1},
	}
	top.Finish(0)
	return top
}

// serve answers every question with one value, and tells what was asked.
func serve(t *testing.T, status int, value any, asked *http.Request) process {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked != nil {
			*asked = *r
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return process{variables: map[string]string{"RETRYLEDGER_SERVER": server.URL}}
}

func TestTopAsksForTheWindow(t *testing.T) {
	t.Parallel()
	var asked http.Request
	p := serve(t, http.StatusOK, hostile(), &asked)
	p.must(t, "top")
	require.Equal(t, "/api/v1/top", asked.URL.Path)
	require.Equal(t, "2026-03-01T12:00:00Z", asked.URL.Query().Get("since"), "the last 24 hours")
	require.False(t, asked.URL.Query().Has("until"))
	p.must(t, "top", "--since", "7d", "--until", "2026-03-02T00:00:00Z", "--service", "a b&c", "--limit", "0")
	require.Equal(t, map[string][]string{
		"since": {"2026-02-23T12:00:00Z"}, "until": {"2026-03-02T00:00:00Z"}, "service": {"a b&c"}, "limit": {"0"},
	}, map[string][]string(asked.URL.Query()))
}

func TestTopTableAndCSV(t *testing.T) {
	t.Parallel()
	p := serve(t, http.StatusOK, hostile(), nil)
	golden(t, "top_hostile", p.must(t, "top"))
	out := p.must(t, "top", "--format", "csv")
	golden(t, "top_hostile_csv", out)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, hostileName, rows[1][1], "CSV keeps a name as it is")
	require.Empty(t, rows[2][2], "what is not observable is empty, not 0")

	var same answer.Top
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "top", "--format", "json")), &same))
	require.Equal(t, hostile(), same)
}

// TestATerminalObeysNoSpan: no control character of a span reaches the terminal.
func TestATerminalObeysNoSpan(t *testing.T) {
	t.Parallel()
	run := answer.Run{Run: attribution.Run{
		RunID: hostileName, ThreadID: hostileName, Service: hostileName, Completion: hostileName, Outcome: hostileName,
		UnfinishedSteps: []string{hostileName}, ContractViolations: []attribution.ContractViolation{{Node: hostileName, Key: hostileName, Count: 1}},
		Steps: []attribution.Step{{Step: hostileName, Outcome: hostileName}},
	}, Attempts: []answer.Attempt{
		{Name: hostileName, Step: hostileName, Grain: attribution.GrainCall, Charge: hostileName, Ending: hostileName, ErrorClass: hostileName,
			Model: hostileName, FallbackFrom: hostileName, Parent: -1},
		{Name: hostileName, Charge: attribution.ChargeFallback, FallbackFrom: hostileName, Ending: attribution.EndingFailed, ErrorClass: hostileName, Parent: 0},
	}}
	for _, out := range []string{
		serve(t, http.StatusOK, hostile(), nil).must(t, "top"),
		serve(t, http.StatusOK, run, nil).must(t, "run", "x"),
		refusal(t, http.StatusConflict, answer.Failure{Error: hostileName, Candidates: []answer.Candidate{{RunID: hostileName, Service: hostileName, TraceID: hostileName}}}),
	} {
		require.True(t, utf8.ValidString(out))
		for _, bad := range []string{"\x1b", "\u202e", "\t", "\x07"} {
			require.NotContains(t, out, bad)
		}
	}
}

func refusal(t *testing.T, status int, failure answer.Failure) string {
	t.Helper()
	_, stderr, code := serve(t, status, failure, nil).run(t, "run", "x")
	require.NotEqual(t, cli.ExitOK, code)
	return stderr
}

func TestTheAPIsSentencesAndCodes(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		http.StatusNotFound: cli.ExitNoAnswer, http.StatusConflict: cli.ExitNoAnswer, http.StatusBadRequest: cli.ExitUsage,
		http.StatusServiceUnavailable: cli.ExitUnreachable, http.StatusBadGateway: cli.ExitUnreachable,
	} {
		_, stderr, code := serve(t, status, answer.Failure{Error: "why it is so"}, nil).run(t, "run", "x")
		require.Equal(t, want, code, status)
		require.Contains(t, stderr, "why it is so")
	}
	_, stderr, code := serve(t, http.StatusTeapot, "no API", nil).run(t, "top")
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "is it a retryledger API?")
	_, stderr, code = serve(t, http.StatusOK, "no object", nil).run(t, "top")
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "is no retryledger API")
	_, stderr, code = serve(t, http.StatusUnauthorized, nil, nil).run(t, "top")
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "RETRYLEDGER_TOKEN")
}

func TestARunThatWasNotThere(t *testing.T) {
	t.Parallel()
	empty := answer.NewTop(answer.Filter{})
	require.Contains(t, serve(t, http.StatusOK, empty, nil).must(t, "top"), "No attempt ended")
	golden(t, "ambiguous", refusal(t, http.StatusConflict, answer.Failure{Error: `"5b" fits 2 runs; give one's trace id, or more of its run id`,
		Candidates: []answer.Candidate{{RunID: "5b28", TraceID: "t1", Service: "a"}, {RunID: "5b29", TraceID: "t2", Service: "b"}}}))
}

// TestALongLadderIsCut and says so.
func TestALongLadderIsCut(t *testing.T) {
	t.Parallel()
	var run answer.Run
	for i := range 300 {
		run.Attempts = append(run.Attempts, answer.Attempt{Step: fmt.Sprint("step ", i), Grain: attribution.GrainExecution, Parent: i - 1, Ending: attribution.EndingSucceeded})
	}
	run.Attempts[0].Parent = 299 // a circle, as no collector sends it
	p := serve(t, http.StatusOK, run, nil)
	require.Contains(t, p.must(t, "run", "x"), "no attempt is known", "all of them are in the circle")
	run.Attempts[0].Parent = -1
	p = serve(t, http.StatusOK, run, nil)
	require.Contains(t, p.must(t, "run", "x"), "100 later attempts not shown; --limit 0 shows all")
	require.NotContains(t, p.must(t, "run", "x", "--limit", "0"), "not shown")
}

// TestTopNamesTheServiceOfALimitedAnswer: steps that are not shown may be others'.
func TestTopNamesTheServiceOfALimitedAnswer(t *testing.T) {
	t.Parallel()
	top := answer.NewTop(answer.Filter{})
	top.Runs = 2
	top.Steps = []answer.TopStep{{Service: "shop", Step: "pay", Runs: 1}}
	require.NotContains(t, serve(t, http.StatusOK, top, nil).must(t, "top"), "shop", "one service needs no column")
	top.StepsLeftOff = 1
	require.Contains(t, serve(t, http.StatusOK, top, nil).must(t, "top", "--limit", "1"), "shop")
	top.Service = "shop"
	require.Equal(t, 1, strings.Count(serve(t, http.StatusOK, top, nil).must(t, "top", "--limit", "1", "--service", "shop"), "shop"), "only in the heading")
}

func TestRuns(t *testing.T) {
	t.Parallel()
	ended := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	since := time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)
	runs := answer.Runs{Since: &since, RunsLeftOff: 3, Runs: []answer.RunSummary{
		{
			RunID: "order-4711", Service: "shop", Completion: "complete", Outcome: "ok", Spans: 17, StartedAt: ended.Add(-1500 * time.Millisecond), EndedAt: ended,
			Budget: attribution.Budget{RunLimit: 12, Retries: 6}, StepsOverBudget: []string{"pay"},
		},
		{RunID: hostileName, Service: hostileName, Completion: hostileName, Outcome: hostileName, StartedAt: ended, EndedAt: ended},
	}}
	var asked http.Request
	p := serve(t, http.StatusOK, runs, &asked)
	golden(t, "runs_hostile", p.must(t, "runs"))
	require.Equal(t, "/api/v1/runs", asked.URL.Path)
	require.Equal(t, map[string][]string{"since": {"2026-03-01T12:00:00Z"}, "limit": {"20"}}, map[string][]string(asked.URL.Query()))
	p.must(t, "runs", "--completion", "incomplete", "--quarantined", "--over-budget", "--service", "a&b", "--until", "1h", "--limit", "0")
	require.Equal(t, map[string][]string{
		"since": {"2026-03-01T12:00:00Z"}, "until": {"2026-03-02T11:00:00Z"}, "service": {"a&b"}, "completion": {"incomplete"},
		"quarantined": {"true"}, "over_budget": {"true"}, "limit": {"0"},
	}, map[string][]string(asked.URL.Query()))

	var same answer.Runs
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "runs", "--format", "json")), &same))
	require.Equal(t, runs, same)
	require.Contains(t, serve(t, http.StatusOK, answer.Runs{Runs: []answer.RunSummary{}}, nil).must(t, "runs"), "No such run ended")
	for _, args := range [][]string{{"runs", "--format", "csv"}, {"runs", "--limit", "-1"}, {"runs", "x"}, {"runs", "--since", "soon"}} {
		_, stderr, code := p.run(t, args...)
		require.Equal(t, cli.ExitUsage, code, args)
		require.NotEmpty(t, stderr)
	}
}
