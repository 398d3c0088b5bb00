package attribution_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// A person who sends an approval twice has the rest of the graph executed twice, with
// the same ids of the first tasks, in two traces: both are paid. Two handlers that begin
// traces of their own look the same, so that both count and the run says so.
func TestOneTaskInTwoTracesAtOnce(t *testing.T) {
	const atOnce = "1 task is shown twice at the same time, and counts twice: the run was delivered, resumed or forked while it was running, or a callback handler is registered twice"
	resumed := func(trace int, from, took int64) []sent {
		id := 100 * trace
		md := attrs{"langfuse.observation.metadata.thread_id": "t1"}
		attempt := func(n int, from, to int64, failed bool) []sent {
			call := vote(id+n+1, id+n, from+5, to-5)
			call.trace = trace
			return []sent{{trace: trace, id: id + n, parent: id, name: "vote", from: from, to: to, failed: failed, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`, md)}, call}
		}
		return slices.Concat([]sent{{trace: trace, id: id, parent: -1, name: "LangGraph", from: from, to: from + 2*took + 20, attrs: lf("span", "", "", "", md)}},
			attempt(1, from+5, from+took, true), attempt(3, from+took+10, from+2*took, false))
	}
	for name, second := range map[string][]sent{
		"a moment later":   resumed(2, 30, 500),
		"at once, slower":  resumed(2, 0, 520),
		"at once, quicker": resumed(2, 0, 480),
	} {
		run := runOf(t, scopeLangfuse, append(resumed(1, 0, 500), second...)...)
		s := theStep(t, run, "vote")
		assert.Equal(t, 4, s.Calls, name)
		assert.Equal(t, int64(480), s.Tokens.Input, name)
		assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s), "%s: each goes on from its own attempt", name)
		assert.Equal(t, 2, run.Deliveries, name)
		assert.Equal(t, []string{atOnce}, run.Warnings, name)
	}
	apart := runOf(t, scopeLangfuse, append(resumed(1, 0, 500), resumed(2, 1200, 500)...)...)
	assert.Equal(t, 4, theStep(t, apart, "vote").Calls)
	assert.Empty(t, apart.Warnings, "one after the other is a resume")
}

// Deliveries at once may end differently: the last one tells how the step ended.
func TestTheLastOfTwoDeliveriesAtOnceTells(t *testing.T) {
	delivery := func(trace int, from, end int64, well bool) []sent {
		id := 100 * trace
		return []sent{
			{trace: trace, id: id, parent: -1, name: "LangGraph", from: from, to: end + 5, failed: !well, attrs: lf("span", "", "", "", attrs{"langfuse.observation.metadata.thread_id": "t1"})},
			{trace: trace, id: id + 1, parent: id, name: "vote", from: from + 2, to: from + 97, failed: true, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
			{trace: trace, id: id + 2, parent: id, name: "vote", from: from + 107, to: end, failed: !well, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
		}
	}
	for _, c := range []struct {
		first, second bool
		step          attribution.Outcome
		run           string
	}{
		{true, true, attribution.OutcomeAfterRetry, "ok"},
		{false, true, attribution.OutcomeAfterRetry, "ok"},
		{true, false, attribution.OutcomeFailedAfterRetry, "error"},
		{false, false, attribution.OutcomeFailedAfterRetry, "error"},
	} {
		run := runOf(t, scopeLangfuse, append(delivery(1, 0, 197, c.first), delivery(2, 45, 897, c.second)...)...)
		s := theStep(t, run, "vote")
		assert.Equal(t, c.step, s.Outcome, "%v", c)
		assert.Equal(t, c.run, string(run.Outcome), "%v", c)
		assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s), "%v", c)
		assert.Equal(t, 2, s.Visits, "%v", c)
	}
}

// A worker that takes a run up again when another has failed has a clock of its own.
func TestARedeliveryByAClockThatIsBehindIsNotAtOnce(t *testing.T) {
	delivery := func(trace int, from, end int64, failed bool) []sent {
		id := 100 * trace
		return []sent{
			{trace: trace, id: id, parent: -1, name: "LangGraph", from: from, to: end + 5, failed: failed, attrs: lf("span", "", "", "", attrs{"langfuse.observation.metadata.thread_id": "t1"})},
			{trace: trace, id: id + 1, parent: id, name: "vote", from: from + 2, to: end, failed: failed, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
		}
	}
	run := runOf(t, scopeLangfuse, append(delivery(1, 0, 1000, true), delivery(2, 950, 2000, false)...)...)
	assert.Empty(t, run.Warnings)
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(theStep(t, run, "vote")))
}
