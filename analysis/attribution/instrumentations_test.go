package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Shapes of single instrumentations, found in real applications.

// A client that states one name puts the response's versioned name on good calls and
// the requested one on failed calls: OpenInference for Google's and Amazon's clients.
func TestAResponsesVersionIsNoOtherModel(t *testing.T) {
	ask := func(id int, from int64, model string, failed bool) sent {
		return completion(0, id, 1, from, from+5, failed, attrs{"llm.invocation_parameters": "", "llm.model_name": model})
	}
	s := theStep(t, runOf(t, scopeApp, work("ask", ask(2, 2, "gemini-2.0-flash", true), ask(3, 10, "gemini-2.0-flash", true), ask(4, 20, "gemini-2.0-flash-001", false))...), "ask")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 0, s.Fallbacks)

	other := theStep(t, runOf(t, scopeApp, work("ask", ask(2, 2, "gemini-2.0-flash", true), ask(3, 10, "gemini-2.0-pro-001", false))...), "ask")
	assert.Equal(t, 1, other.Fallbacks, "another model is another, whatever its version")

	stated := completion(0, 3, 1, 10, 20, false, attrs{"llm.invocation_parameters": `{"model":"m-2024-08-06"}`, "llm.model_name": "m"})
	dated := theStep(t, runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 5, true, nil), stated)...), "ask")
	assert.Equal(t, 1, dated.Fallbacks, "a request for a version is what the application asked for")
}

// Traceloop's @workflow and @task mark an application's own functions.
func TestTasksOfTraceloopAreSteps(t *testing.T) {
	task := func(id, parent int, name, input string, from, to int64, failed bool) sent {
		return sent{id: id, parent: parent, name: name + ".task", scope: "traceloop.tracer", from: from, to: to, failed: failed, message: map[bool]string{true: lost429}[failed],
			attrs: attrs{"traceloop.span.kind": "task", "traceloop.entity.name": name, "traceloop.entity.input": input}}
	}
	flow := func(inside ...sent) []sent {
		return append([]sent{{id: 0, parent: -1, name: "flow.workflow", scope: "traceloop.tracer", to: 500, attrs: attrs{"traceloop.span.kind": "workflow", "traceloop.entity.name": "flow"}}}, inside...)
	}
	const input = `{"args":[],"kwargs":{}}`
	run := runOf(t, scopeApp, flow(
		task(1, 0, "judge", input, 1, 50, true), completion(0, 2, 1, 2, 40, true, nil),
		task(3, 0, "judge", input, 60, 100, false), completion(0, 4, 3, 61, 70, true, nil), completion(0, 5, 3, 72, 80, false, nil),
		task(6, 0, "publish", input, 110, 120, false))...)
	require.Len(t, run.Steps, 2)
	s := theStep(t, run, "judge")
	assert.Equal(t, 2, s.Executions)
	assert.Equal(t, 3, s.Calls)
	assert.Equal(t, layers{-1, 1, 0, 1, 0}, layersOf(s))

	items := theStep(t, runOf(t, scopeApp, flow(task(1, 0, "judge", `{"args":["a"]}`, 1, 50, true), task(2, 0, "judge", `{"args":["b"]}`, 60, 70, false))...), "judge")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(items), "another item is no repeat")

	beside := runOf(t, scopeApp, append(flow(task(1, 0, "chain", input, 1, 50, false)), sent{id: 2, parent: 1, name: "judge", from: 2, to: 40, attrs: attrs{"step": "judge"}})...)
	require.Len(t, beside.Steps, 1, "beside steps that the application names, a task is none")
	assert.Equal(t, "judge", beside.Steps[0].Step)
}
