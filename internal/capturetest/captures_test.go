package capturetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAccountTellsTheTruth runs the account command over every capture and compares
// its answer, number by number, with what the application itself counted.
func TestAccountTellsTheTruth(t *testing.T) {
	t.Parallel()
	for _, capture := range capturetest.All(t) {
		t.Run(capture.Cell(), func(t *testing.T) {
			t.Parallel()
			verdict := capturetest.Judge(capture, account(t, capture.Files))
			for _, wrong := range verdict.Wrong {
				t.Error(wrong)
			}
		})
	}
}

// TestJudgeSeesEveryDifference is the judge's own test: a ledger that says nothing is
// wrong wherever steps can be seen.
func TestJudgeSeesEveryDifference(t *testing.T) {
	t.Parallel()
	one, capture := 1, capturetest.One(t, "py-openinference/n13_seven_of_three")
	require.NotEmpty(t, capturetest.Judge(capture, attribution.Ledger{}).Wrong)

	zero, four, two := 0, 4, 2
	step := func(name string, executions int, node, orchestrator, total *int, outcome attribution.Outcome) attribution.Step {
		return attribution.Step{Step: name, Executions: executions, Visits: 1, Outcome: outcome, RetriesTotal: total,
			Retries: attribution.Retries{Call: &zero, Node: node, Orchestrator: orchestrator, Worker: &zero}}
	}
	six := 6
	right := func() attribution.Ledger {
		return attribution.Ledger{Runs: []attribution.Run{{Outcome: "ok", Completion: "complete", Steps: []attribution.Step{
			step("ingest", 1, &zero, &zero, &zero, attribution.OutcomeFirstTry),
			step("resolve", 7, &four, &two, &six, attribution.OutcomeAfterRetry),
			step("rank", 1, &zero, &zero, &zero, attribution.OutcomeFirstTry),
		}}}}
	}
	require.Empty(t, capturetest.Judge(capture, right()).Wrong)
	spoil := map[string]func(*attribution.Run){
		"a layer":          func(r *attribution.Run) { r.Steps[1].Retries.Node = &one },
		"a null layer":     func(r *attribution.Run) { r.Steps[1].Retries.Node = nil },
		"executions":       func(r *attribution.Run) { r.Steps[1].Executions = 3 },
		"a total":          func(r *attribution.Run) { r.Steps[1].RetriesTotal = &one },
		"a call too many":  func(r *attribution.Run) { r.Steps[2].Calls = 1 },
		"tokens":           func(r *attribution.Run) { r.Steps[2].Tokens.Input = 1 },
		"a step too many":  func(r *attribution.Run) { r.Steps = append(r.Steps, step("x", 1, &zero, &zero, &zero, "unknown")) },
		"a step less":      func(r *attribution.Run) { r.Steps = r.Steps[:2] },
		"an outcome":       func(r *attribution.Run) { r.Outcome = "error" },
		"completion":       func(r *attribution.Run) { r.Completion = "incomplete" },
		"a step's outcome": func(r *attribution.Run) { r.Steps[0].Outcome = "fine" },
		"a violation": func(r *attribution.Run) {
			r.ContractViolations = []attribution.ContractViolation{{Node: "rank", Count: 1}}
		},
	}
	for name, change := range spoil {
		ledger := right()
		change(&ledger.Runs[0])
		require.NotEmpty(t, capturetest.Judge(capture, ledger).Wrong, name)
	}
}

func account(t *testing.T, files []string) attribution.Ledger {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := cli.Environment{
		Stdin: bytes.NewReader(nil), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return time.Unix(0, 0) },
	}
	code := cli.Run(context.Background(), append([]string{"account", "--format", "json"}, files...), env)
	require.Equal(t, cli.ExitOK, code, stderr.String())
	var ledger attribution.Ledger
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &ledger))
	return ledger
}
