package attribution_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A person who sends an approval twice has the rest of the graph executed twice, with
// the same ids of the first tasks, in two traces: both are paid. Two handlers that begin
// traces of their own look the same, so that both count and the run says so.
func TestOneTaskInTwoTracesAtOnce(t *testing.T) {
	const atOnce = "1 task is shown in several traces at the same time, and count in each: the run was delivered twice at once, or a callback handler is registered twice"
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
		assert.Equal(t, layers{-1, 0, 2, 0, 1}, layersOf(s), "%s: each goes on from its own attempt", name)
		assert.Equal(t, 2, run.Deliveries, name)
		assert.Equal(t, []string{atOnce}, run.Warnings, name)
	}
	apart := runOf(t, scopeLangfuse, append(resumed(1, 0, 500), resumed(2, 1200, 500)...)...)
	assert.Equal(t, 4, theStep(t, apart, "vote").Calls)
	assert.Empty(t, apart.Warnings, "one after the other is a resume")
}
