package answer_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// captured is the ledger of a capture.
func captured(t testing.TB, capture capturetest.Capture) attribution.Ledger {
	t.Helper()
	var spans []schema.Span
	opts := attribution.Defaults()
	for _, name := range capture.Files {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = otlpfile.Read(file, 0, func(td ptrace.Traces) error {
			rows, _ := dialect.Normalise(td, 0)
			spans = append(spans, rows...)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
	}
	return attribution.Account(spans, opts)
}

// TestTopOfEverythingIsTheSumOfTheSteps: without a window, the sums over attempts are
// what the accounts of the runs say, number by number.
func TestTopOfEverythingIsTheSumOfTheSteps(t *testing.T) {
	t.Parallel()
	for _, capture := range capturetest.All(t) {
		t.Run(capture.Cell(), func(t *testing.T) {
			t.Parallel()
			ledger := captured(t, capture)
			top := answer.TopOf(ledger, answer.Filter{})
			want := map[string]map[string]string{}
			for name, sum := range sumsOfSteps(ledger) {
				want[name] = numbers(sum)
			}
			got := map[string]map[string]string{}
			for _, step := range top.Steps {
				got[step.Service+"/"+step.Step] = numbers(step)
			}
			require.Equal(t, want, got)
			attempted := 0
			for _, run := range ledger.Runs {
				if len(run.Attempts) > 0 {
					attempted++
				}
			}
			require.Equal(t, attempted, top.Runs)
		})
	}
}

// sumsOfSteps adds up the runs' own accounts.
func sumsOfSteps(ledger attribution.Ledger) map[string]answer.TopStep {
	sums := map[string]answer.TopStep{}
	shown := map[string]*[5]uint64{}
	retries := map[string]*[5]uint64{}
	errors := map[string]map[attribution.ErrorCount]int{}
	for _, run := range ledger.Runs {
		for _, s := range run.Steps {
			key := run.Service + "/" + s.Step
			sum := sums[key]
			if shown[key] == nil {
				shown[key], retries[key], errors[key] = &[5]uint64{}, &[5]uint64{}, map[attribution.ErrorCount]int{}
			}
			sum.Runs++
			if s.OverBudget {
				sum.RunsOverBudget++
			}
			for i, layer := range []*int{s.Retries.Transport, s.Retries.Call, s.Retries.Node, s.Retries.Orchestrator, s.Retries.Worker} {
				if layer != nil {
					shown[key][i]++
					retries[key][i] += uint64(*layer)
				}
			}
			sum.Executions += s.Executions
			sum.Visits += s.Visits
			sum.Operations += s.Operations
			sum.Calls += s.Calls
			sum.CallsFailed += s.CallsFailed
			sum.ToolCalls += s.ToolCalls
			sum.HTTPCalls += s.HTTPCalls
			sum.Fallbacks += s.Fallbacks
			sum.FallbackOperations += s.FallbackOperations
			sum.Tokens.Input += s.Tokens.Input
			sum.Tokens.Output += s.Tokens.Output
			sum.Tokens.UnknownCalls += s.Tokens.UnknownCalls
			sum.Wasted.Input += s.Wasted.Input
			sum.Wasted.Output += s.Wasted.Output
			sum.Wasted.UnknownCalls += s.Wasted.UnknownCalls
			sum.Wasted.TimeMs += s.Wasted.TimeMs
			sum.Wasted.WaitMs += s.Wasted.WaitMs
			for _, e := range s.Errors {
				errors[key][attribution.ErrorCount{Class: e.Class, HTTPStatus: e.HTTPStatus}] += e.Count
			}
			sums[key] = sum
		}
	}
	for key, sum := range sums {
		sum.SetRetries(*retries[key], *shown[key])
		for e, n := range errors[key] {
			e.Count = n
			sum.Errors = append(sum.Errors, e)
		}
		one := answer.Top{Steps: []answer.TopStep{sum}}
		one.Finish(0)
		sums[key] = one.Steps[0]
	}
	return sums
}

// numbers are a step's numbers as text: all but its share and its name.
func numbers(s answer.TopStep) map[string]string {
	layer := func(n *int) string {
		if n == nil {
			return "null"
		}
		return fmt.Sprint(*n)
	}
	return map[string]string{
		"runs": fmt.Sprint(s.Runs, s.RunsOverBudget), "executions": fmt.Sprint(s.Executions), "visits": fmt.Sprint(s.Visits),
		"transport": layer(s.Retries.Transport), "call": layer(s.Retries.Call), "node": layer(s.Retries.Node),
		"orchestrator": layer(s.Retries.Orchestrator), "worker": layer(s.Retries.Worker), "total": layer(s.RetriesTotal),
		"partly hidden": fmt.Sprint(s.PartlyHidden), "operations": fmt.Sprint(s.Operations, s.FallbackOperations),
		"calls": fmt.Sprint(s.Calls, s.CallsFailed), "tools and sends": fmt.Sprint(s.ToolCalls, s.HTTPCalls),
		"fallbacks": fmt.Sprint(s.Fallbacks), "tokens": fmt.Sprint(s.Tokens),
		"wasted": fmt.Sprintf("%d %d %d %.3f %.3f", s.Wasted.Input, s.Wasted.Output, s.Wasted.UnknownCalls, s.Wasted.TimeMs, s.Wasted.WaitMs),
		"errors": fmt.Sprint(s.Errors),
	}
}

// TestWindowsAddUp: however time is cut into two windows, their numbers add up to
// the whole.
func TestWindowsAddUp(t *testing.T) {
	t.Parallel()
	ledgers := []attribution.Ledger{
		captured(t, capturetest.One(t, "openinference/c_nested_9")),
		captured(t, capturetest.One(t, "openinference/e4_retry_then_fallback")),
		captured(t, capturetest.One(t, "plain-py/batch50")),
		captured(t, capturetest.One(t, "openinference/l8_many_runs")),
	}
	rapid.Check(t, func(t *rapid.T) {
		ledger := rapid.SampledFrom(ledgers).Draw(t, "ledger")
		first, last := int64(0), int64(0)
		for _, run := range ledger.Runs {
			if first == 0 || run.StartNs < first {
				first = run.StartNs
			}
			last = max(last, run.EndNs)
		}
		cut := time.Unix(0, rapid.Int64Range(first, last+1).Draw(t, "cut"))
		whole := answer.TopOf(ledger, answer.Filter{})
		sum := map[string][]int{}
		for _, part := range []answer.Top{answer.TopOf(ledger, answer.Filter{Until: cut}), answer.TopOf(ledger, answer.Filter{Since: cut})} {
			for _, s := range part.Steps {
				sum[s.Step] = plus(sum[s.Step], counters(s))
			}
		}
		for _, s := range whole.Steps {
			if got, want := fmt.Sprint(sum[s.Step]), fmt.Sprint(counters(s)); got != want {
				t.Fatalf("%s: the windows before and after %s add up to %s, the whole is %s", s.Step, cut, got, want)
			}
		}
	})
}

func counters(s answer.TopStep) []int {
	total, errors := 0, 0
	if s.RetriesTotal != nil {
		total = *s.RetriesTotal
	}
	for _, e := range s.Errors {
		errors += e.Count
	}
	return []int{total, s.Executions, s.Visits, s.Operations, s.FallbackOperations, s.Calls, s.CallsFailed, s.Fallbacks,
		int(s.Tokens.Input), int(s.Wasted.Output), s.Tokens.UnknownCalls, errors}
}

func plus(a, b []int) []int {
	if a == nil {
		return b
	}
	for i := range b {
		a[i] += b[i]
	}
	return a
}
