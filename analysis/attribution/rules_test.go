package attribution_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// One test for each rule of docs/dialects.md, "What reading real spans takes", by the
// rule's number: spans as instrumentations write them, read by their dialects.

const lost429 = `RateLimitError("Error code: 429 - {'error': 1}")Traceback (most recent call last):`

// ask is a graph with one node around the given spans, in OpenInference's words.
func ask(inside ...sent) []sent {
	return append([]sent{
		{id: 0, parent: -1, name: "LangGraph", from: 0, to: 1000, ok: true, attrs: oi("CHAIN", "", "", 0)},
		{id: 1, parent: 0, name: "ask", from: 1, to: 900, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)},
	}, inside...)
}

func llm(id, parent int, from, to int64, model string, more ...attrs) sent {
	return sent{id: id, parent: parent, name: "ChatModel", from: from, to: to, ok: true, attrs: oi("LLM", "ask", "ask:1", 1, append(more, attrs{"model": model, "llm.token_count.prompt": 120, "llm.token_count.completion": 35})...)}
}

func badLLM(id, parent int, from, to int64, model string) sent {
	return sent{id: id, parent: parent, name: "ChatModel", from: from, to: to, failed: true, message: lost429, attrs: oi("LLM", "ask", "ask:1", 1, attrs{"model": model})}
}

func chain(id, parent int, name string, from, to int64, failed bool) sent {
	return sent{id: id, parent: parent, name: name, from: from, to: to, ok: !failed, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "ask", "ask:1", 1)}
}

func TestRule01OnlyRepeatsAreTagged(t *testing.T) {
	s := theStep(t, runOf(t, scopeLangfuse,
		sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("span", "", "", "")},
		sent{id: 1, parent: 0, name: "ask", from: 1, to: 90, attrs: lf("span", "ask", "ask:1", `["graph:step:1"]`)},
		sent{id: 2, parent: 1, name: "M", from: 2, to: 80, attrs: lf("span", "ask", "ask:1", "")},
		sent{id: 3, parent: 2, name: "M", from: 3, to: 10, attrs: lf("generation", "ask", "ask:1", "", attrs{"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "RateLimitError: 429"})},
		sent{id: 4, parent: 2, name: "M", from: 20, to: 30, attrs: lf("generation", "ask", "ask:1", `["retry:attempt:2"]`)}), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s), "attempt 2 is the first retry")
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceTag}, s.Evidence)
}

func TestRule02TheLargestNumberIsALowerBound(t *testing.T) {
	s := theStep(t, runOf(t, scopeLangfuse,
		sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("span", "", "", "")},
		sent{id: 1, parent: 0, name: "ask", from: 1, to: 90, attrs: lf("span", "ask", "ask:1", "")},
		sent{id: 2, parent: 1, name: "M", from: 2, to: 80, attrs: lf("span", "ask", "ask:1", "")},
		sent{id: 4, parent: 2, name: "M", from: 20, to: 30, attrs: lf("generation", "ask", "ask:1", `["retry:attempt:4"]`)}), "ask")
	assert.Equal(t, layers{-1, 3, 0, 0, 0}, layersOf(s), "the spans of attempts 1 to 3 never came")
	assert.Equal(t, 1, s.Calls, "calls are what the spans show")
}

func TestRule03RepeatsWithoutTagsAreInferred(t *testing.T) {
	wrapped := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 100, false), badLLM(3, 2, 3, 10, "a"), llm(4, 2, 20, 30, "a"))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(wrapped))
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceStructure}, wrapped.Evidence)
	bare := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 10, "a"), badLLM(4, 1, 20, 30, "a"), llm(5, 1, 40, 50, "a"))...), "ask")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(bare))
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceInferred}, bare.Evidence)
	assert.Equal(t, attribution.OutcomeAfterRetry, bare.Outcome)
	assert.Equal(t, 1, bare.Operations, "one operation, three attempts")
	overlapping := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 30, "a"), llm(4, 1, 20, 40, "a"))...), "ask")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(overlapping))
}

func TestRule04TagsInAllTheirKeysAndForms(t *testing.T) {
	for name, test := range map[string]struct {
		scope string
		attrs attrs
	}{
		"array":            {scopeApp, attrs{"tags": []any{"prod", "retry:attempt:2"}}},
		"LangSmith":        {scopeSmith, attrs{"langsmith.span.kind": "chain", "langsmith.span.tags": "tenant:7, retry:attempt:2, prod"}},
		"Langfuse":         {scopeLangfuse, lf("span", "", "", `["retry:attempt:2","prod"]`)},
		"Langfuse joined":  {scopeLangfuse, lf("span", "", "", `retry:attempt:2, prod`)},
		"OpenLLMetry":      {scopeLLMetry, attrs{"traceloop.span.kind": "task", "gen_ai.task.status": "success", "traceloop.entity.input": `{"inputs":{},"tags":["seq:step:1","retry:attempt:2"]}`}},
		"context's":        {scopeOI, attrs{"openinference.span.kind": "CHAIN", "tag.tags": []any{"retry:attempt:2"}}},
		"encoded as JSON":  {scopeApp, attrs{"tags": `["retry:attempt:2"]`}},
		"a Python list":    {scopeApp, attrs{"tags": `['retry:attempt:2']`}},
		"a text by itself": {scopeApp, attrs{"tags": "retry:attempt:2"}},
	} {
		rows := rowsOf(t, test.scope, sent{id: 1, parent: -1, name: "x", to: 1, attrs: test.attrs})
		assert.Equal(t, int32(2), rows[0].Attempt, name)
	}
	assert.Zero(t, rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: attrs{"langfuse.observation.type": "span", "langfuse.trace.tags": []any{"retry:attempt:2"}}})[0].Attempt,
		"the tags of a trace are not those of each of its spans")
}

func TestRule05TheTagSitsOnTheWrappersChild(t *testing.T) {
	failedSequence := attrs{"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "OutputParserException: no JSON"}
	s := theStep(t, runOf(t, scopeLangfuse,
		sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("span", "", "", "")},
		sent{id: 1, parent: 0, name: "ask", from: 1, to: 90, attrs: lf("span", "ask", "ask:1", "")},
		sent{id: 2, parent: 1, name: "RunnableSequence", from: 2, to: 80, attrs: lf("span", "ask", "ask:1", "")},
		sent{id: 3, parent: 2, name: "RunnableSequence", from: 3, to: 10, attrs: lf("span", "ask", "ask:1", "", failedSequence)},
		sent{id: 4, parent: 3, name: "M", from: 4, to: 9, attrs: lf("generation", "ask", "ask:1", "", attrs{"langfuse.observation.usage_details": `{"input":10,"output":5}`})},
		sent{id: 5, parent: 2, name: "RunnableSequence", from: 20, to: 30, attrs: lf("span", "ask", "ask:1", `["retry:attempt:2"]`)},
		sent{id: 6, parent: 5, name: "M", from: 21, to: 29, attrs: lf("generation", "ask", "ask:1", "", attrs{"langfuse.observation.usage_details": `{"input":10,"output":5}`})}), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
	assert.Equal(t, int64(10), s.Wasted.Input, "the tokens below the rejected attempt were spent for nothing")
	assert.Equal(t, int64(20), s.Tokens.Input)
}

func TestRule06NodeRunsAreGroupedByTheirTask(t *testing.T) {
	node := func(id int, task string, from, to int64, failed bool) sent {
		return sent{id: id, parent: 0, name: "score", from: from, to: to, failed: failed, message: lost429, attrs: oi("CHAIN", "score", task, 2)}
	}
	s := theStep(t, runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: oi("CHAIN", "", "", 0)},
		node(1, "score:a", 1, 5, false), node(2, "score:b", 1, 5, true), node(3, "score:c", 6, 9, false), node(4, "score:b", 10, 15, false)), "score")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s), "one name and one step, three tasks")
	assert.Equal(t, 3, s.Visits)
}

func TestRule07ANodesRunIsToldFromWhatInheritsItsMetadata(t *testing.T) {
	run := runOf(t, scopeOI, ask(
		sent{id: 2, parent: 1, name: "ask", from: 2, to: 100, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)}, // a wrapper given the node's name
		sent{id: 3, parent: 2, name: "ask", from: 3, to: 90, ok: true, attrs: oi("LLM", "ask", "ask:1", 1)},
		sent{id: 4, parent: 1, name: "LangGraph", from: 110, to: 200, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)}, // a subgraph's root
	)...)
	require.Len(t, run.Steps, 1)
	assert.Equal(t, 1, run.Steps[0].Executions)
	assert.Equal(t, 1, run.Steps[0].Calls)
}

func TestRule08NestedRetriesMultiply(t *testing.T) {
	spans := []sent{{id: 0, parent: -1, name: "LangGraph", to: 1000, failed: true, message: lost429, attrs: oi("CHAIN", "", "", 0)}}
	for i := range 3 {
		at := int64(100*i + 10)
		spans = append(spans, sent{id: 10 * (i + 1), parent: 0, name: "ask", from: at, to: at + 60, failed: true, message: lost429, attrs: oi("CHAIN", "ask", "ask:1", 1)},
			chain(10*(i+1)+1, 10*(i+1), "ChatModel", at+1, at+59, true))
		for j := range 3 {
			spans = append(spans, badLLM(10*(i+1)+2+j, 10*(i+1)+1, at+int64(10*j)+2, at+int64(10*j)+6, "a"))
		}
	}
	s := theStep(t, runOf(t, scopeOI, spans...), "ask")
	assert.Equal(t, layers{-1, 6, 2, 0, 0}, layersOf(s))
	assert.Equal(t, 9, s.Calls)
	assert.Equal(t, "3×3", s.Factorisation)
}

func TestRule09ATaskInALaterTraceIsAResume(t *testing.T) {
	thread := attrs{"thread": "t1"}
	spans := []sent{
		{trace: 1, id: 0, parent: -1, name: "LangGraph", to: 50, failed: true, message: lost429, attrs: oi("CHAIN", "", "", 0, thread)},
		{trace: 1, id: 1, parent: 0, name: "ask", from: 1, to: 40, failed: true, message: lost429, attrs: oi("CHAIN", "ask", "ask:1", 1, thread)},
		{trace: 2, id: 10, parent: -1, name: "LangGraph", from: 100, to: 150, ok: true, attrs: oi("CHAIN", "", "", 0, thread)},
		{trace: 2, id: 11, parent: 10, name: "ask", from: 101, to: 140, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1, thread)},
	}
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(theStep(t, runOf(t, scopeOI, spans...), "ask")), "after a failure the worker's repeat")
	spans[1].failed, spans[1].message = true, "[\n {}\n]\n\nGraphInterrupt: [\n {}\n]\n    at x"
	spans[0].failed, spans[0].message = false, ""
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, runOf(t, scopeOI, spans...), "ask")), "after an interrupt no retry at all")
}

func TestRule10ControlFlowIsNoFailure(t *testing.T) {
	for _, test := range []struct{ scope, message string }{
		{scopeOIjs, "[\n {}\n]\n\nGraphInterrupt: [\n {}\n]\n    at x"},
		{scopeOI, "ParentCommand(Command(goto='x'))Traceback (most recent call last):"},
		{scopeOI, "NodeInterrupt('x')Traceback (most recent call last):"},
	} {
		row := rowsOf(t, test.scope, sent{id: 1, parent: -1, to: 1, failed: true, message: test.message, attrs: oi("CHAIN", "a", "a:1", 1)})[0]
		assert.False(t, row.Failed, test.message)
		assert.NotEqual(t, schema.FlowNone, row.Flow, test.message)
	}
	smith := rowsOf(t, scopeSmith, sent{id: 1, parent: -1, to: 1, ok: true, attrs: attrs{"langsmith.span.kind": "chain"}, events: []happened{raised("Exception", "GraphInterrupt((Interrupt(value=1),))Traceback")}})[0]
	assert.Equal(t, schema.FlowInterrupt, smith.Flow)
	python := rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: lf("chain", "a", "a:1", "", attrs{"langfuse.observation.level": "DEFAULT", "langfuse.observation.status_message": "(Interrupt(value=1),)"})})[0]
	assert.Equal(t, schema.FlowInterrupt, python.Flow)
}

func TestRule11FailureInEachDialectsWords(t *testing.T) {
	for name, s := range map[string]sent{
		"status":                 {failed: true, attrs: oi("CHAIN", "", "", 0)},
		"Langfuse's level":       {scope: scopeLangfuse, attrs: lf("generation", "", "", "", attrs{"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "APIError: 503"})},
		"LangSmith's event":      {scope: scopeSmith, ok: true, attrs: attrs{"langsmith.span.kind": "llm"}, events: []happened{raised("Exception", `APIError("503")Traceback`)}},
		"AI SDK's finish reason": {scope: "ai", attrs: attrs{"ai.operationId": "ai.streamText.doStream", "ai.response.finishReason": "error"}},
		"Mastra's finish reason": {scope: "@mastra/otel-exporter", ok: true, attrs: attrs{"mastra.span.type": "model_inference", "gen_ai.response.finish_reasons": `["error"]`}},
		"the application's word": {attrs: attrs{"step": "x", "step.failed": true}},
	} {
		s.id, s.parent, s.to = 1, -1, 1
		row := rowsOf(t, scopeApp, s)[0]
		assert.True(t, row.Failed || row.StepFailed == schema.FlagYes, name)
	}
}

func TestRule12ErrorClassesAreResolvedInOrder(t *testing.T) {
	class := func(s sent) string {
		s.id, s.parent, s.to, s.failed = 1, -1, 1, true
		return rowsOf(t, scopeApp, s)[0].ErrorClass
	}
	assert.Equal(t, "RateLimitError", class(sent{attrs: attrs{"error.type": "openai.RateLimitError"}, events: []happened{raised("Other", "")}}))
	assert.Equal(t, "RateLimitError", class(sent{events: []happened{{name: "exception", attrs: attrs{"exception.type": "20", "exception.stacktrace": "RateLimitError: x\n  at y"}}}}))
	assert.Equal(t, "RateLimitError", class(sent{events: []happened{raised("Exception", `RateLimitError("x")Traceback`)}}))
	assert.Equal(t, "RateLimitError", class(sent{message: "RateLimitError: 429"}))
	assert.Equal(t, "ValueError", class(sent{attrs: attrs{"error.type": "unknown"}, message: "ValueError('x')"}))
}

func TestRule13TheStatusOutOfTheMessage(t *testing.T) {
	status := func(message string, a attrs) int32 {
		return rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, failed: true, message: message, attrs: a})[0].HTTPStatus
	}
	assert.Equal(t, int32(429), status("429 Rate limit reached", nil))
	assert.Equal(t, int32(503), status(`InternalServerError("Error code: 503 - x")`, nil))
	assert.Equal(t, int32(502), status("429 x", attrs{"http.response.status_code": 502}))
	assert.Equal(t, int32(0), status("no number here", nil))
}

func TestRule14FallbacksAreNeverMarked(t *testing.T) {
	wrapper := chain(2, 1, "RunnableWithFallbacks", 2, 100, false)
	used := theStep(t, runOf(t, scopeOI, ask(wrapper, badLLM(3, 2, 3, 10, "a"), llm(4, 2, 20, 30, "b"))...), "ask")
	assert.Equal(t, 1, used.Fallbacks)
	unused := theStep(t, runOf(t, scopeOI, ask(wrapper, llm(3, 2, 3, 10, "a"))...), "ask")
	assert.Equal(t, 0, unused.Fallbacks)
	bare := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "b"))...), "ask")
	assert.Equal(t, 1, bare.Fallbacks, "another model after a failure")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(bare))
}

func TestRule15AChildlessWrapperHasItsCandidatesBesideIt(t *testing.T) {
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "RunnableWithFallbacks", 2, 100, false), badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "a"))...), "ask")
	assert.Equal(t, 1, s.Fallbacks, "the same model twice: only the wrapper tells a fallback from a retry")
	assert.Equal(t, 2, s.Calls, "a childless wrapper is no call, and no missing one")
}

func TestRule16FirstErrorAndLastError(t *testing.T) {
	second := badLLM(4, 2, 20, 30, "b")
	second.message = `InternalServerError("Error code: 503 - x")Traceback`
	run := runOf(t, scopeOI, ask(chain(2, 1, "RunnableWithFallbacks", 2, 100, true), badLLM(3, 2, 3, 10, "a"), second)...)
	require.NotEmpty(t, run.Operations)
	assert.Equal(t, "RateLimitError", run.Operations[0].FirstError)
	assert.Equal(t, "InternalServerError", run.Operations[0].LastError)
}

func TestRule17AWrapperNamedAfterWhatItWrapsIsNoCall(t *testing.T) {
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 100, false), llm(3, 2, 3, 10, "a"))...), "ask")
	assert.Equal(t, 1, s.Calls)
}

func TestRule18TokensAreCountedOnLeavesOnly(t *testing.T) {
	aiSDK := runOf(t, "ai", sent{id: 1, parent: -1, name: "ai.generateText", to: 100, attrs: attrs{"ai.operationId": "ai.generateText", "ai.telemetry.functionId": "ask", "ai.usage.inputTokens": 10, "gen_ai.usage.input_tokens": 10}},
		sent{id: 2, parent: 1, name: "ai.generateText.doGenerate", from: 1, to: 90, attrs: attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.telemetry.functionId": "ask", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}})
	assert.Equal(t, int64(10), theStep(t, aiSDK, "ask").Tokens.Input)
	twice := theStep(t, runOf(t, scopeOI, ask(llm(2, 1, 3, 50, "a"),
		sent{id: 3, parent: 2, name: "ChatCompletion", scope: "openinference.instrumentation.openai", from: 4, to: 40, ok: true, attrs: attrs{"openinference.span.kind": "LLM", "llm.token_count.prompt": 120, "llm.token_count.completion": 35}})...), "ask")
	assert.Equal(t, 1, twice.Calls, "two instrumentations of one request: one call")
	assert.Equal(t, int64(120), twice.Tokens.Input)
}

func TestRule19UnknownIsNotZero(t *testing.T) {
	row := rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: lf("generation", "", "", "", attrs{"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "E: x", "langfuse.observation.cost_details": `{"total": 0}`})})[0]
	assert.Equal(t, schema.Unknown, row.InputTokens)
	assert.True(t, math.IsNaN(row.CostUSD), "a cost of nothing on an error is unknown")
	s := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "a"))...), "ask")
	assert.Equal(t, attribution.Tokens{Input: 120, Output: 35, UnknownCalls: 1}, s.Tokens)
}

func TestRule20ChildrenComeBeforeParents(t *testing.T) {
	spans := ask(chain(2, 1, "ChatModel", 2, 100, false), badLLM(3, 2, 3, 10, "a"), llm(4, 2, 20, 30, "a"))
	for n := range spans { // the last n spans have come, children first
		ledger := ledgerOf(t, scopeOI, spans[len(spans)-1-n:]...)
		require.Len(t, ledger.Runs, 1)
		assert.Empty(t, ledger.Runs[0].BrokenIdentities())
		s := theStep(t, ledger.Runs[0], "ask")
		assert.Equal(t, 1, s.Executions, "known by its orphans before its own span comes")
		if n < len(spans)-1 {
			assert.Equal(t, "running", ledger.Runs[0].Completion)
		}
	}
}

func TestRule21ParentsThatNeverCome(t *testing.T) {
	run := runOf(t, scopeSmith, sent{id: 1, parent: 99, name: "LangGraph", to: 100, ok: true, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.ls_integration": "langgraph"}},
		sent{id: 2, parent: 1, name: "ask", from: 1, to: 90, ok: true, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.langgraph_node": "ask", "langsmith.metadata.langgraph_checkpoint_ns": "ask:1"}})
	assert.Equal(t, "unflagged", run.Completion, "a graph's root is the run's, whatever parent it names")
	pending := rowsOf(t, "logfire", sent{id: 1, parent: 2, name: "ask", to: 0, attrs: attrs{"logfire.span_type": "pending_span", "step": "ask"}})[0]
	assert.True(t, pending.Hidden)
	assert.Empty(t, pending.Step, "a pending span repeats one that is to come")
}

func TestRule22NoHierarchyIsNotObservable(t *testing.T) {
	js := runOf(t, "@traceloop/instrumentation-langchain", sent{id: 1, parent: -1, name: "workflow RunnableRetry", to: 100, attrs: attrs{"traceloop.span.kind": "workflow", "gen_ai.operation.name": "workflow"}},
		sent{id: 2, parent: 1, name: "chat m", from: 1, to: 10, client: true, failed: true, message: "429", attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}},
		sent{id: 3, parent: 1, name: "chat m", from: 20, to: 30, client: true, attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}})
	for _, s := range js.Steps {
		assert.Equal(t, layers{-1, -1, -1, -1, -1}, layersOf(s))
		assert.Nil(t, s.RetriesTotal)
	}
	assert.Equal(t, "langsmith-js", rowsOf(t, scopeSmith, sent{id: 1, parent: -1, name: "resolve", to: 1, attrs: attrs{"langsmith.trace.name": "ChatModel", "langsmith.span.kind": "llm"}})[0].Dialect)
}

func TestRule23ABatchCountsPerInput(t *testing.T) {
	s := theStep(t, runOf(t, scopeOIjs, ask(
		chain(2, 1, "ChatModel", 2, 100, false), chain(3, 1, "ChatModel", 2, 100, false),
		llm(4, 2, 3, 10, "a"), badLLM(5, 3, 3, 10, "a"), llm(6, 3, 40, 50, "a"))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.Operations)
}

func TestRule24MetadataInAllItsForms(t *testing.T) {
	for name, s := range map[string]sent{
		"JSON text":         {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": `{"langgraph_node":"a","langgraph_step":2,"langgraph_checkpoint_ns":"a:1"}`}},
		"encoded twice":     {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": `"{\"langgraph_node\":\"a\",\"langgraph_step\":2,\"langgraph_checkpoint_ns\":\"a:1\"}"`}},
		"texts for numbers": {scope: scopeSmith, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.langgraph_node": "a", "langsmith.metadata.langgraph_step": "2", "langsmith.metadata.langgraph_checkpoint_ns": "a:1"}},
		"numbers":           {scope: scopeLLMetry, attrs: attrs{"traceloop.span.kind": "task", "gen_ai.task.status": "success", "traceloop.association.properties.langgraph_node": "a", "traceloop.association.properties.langgraph_step": 2, "traceloop.association.properties.langgraph_checkpoint_ns": "a:1"}},
		"quoted":            {scope: scopeLangfuse, attrs: attrs{"langfuse.observation.type": "chain", "langfuse.observation.metadata.langgraph_node": `"a"`, "langfuse.observation.metadata.langgraph_step": "2", "langfuse.observation.metadata.langgraph_checkpoint_ns": `"a:1"`}},
		"MLflow":            {scope: scopeMLflow, attrs: attrs{"mlflow.spanType": `"CHAIN"`, "metadata": `{"langgraph_node": "a", "langgraph_step": 2, "langgraph_checkpoint_ns": "a:1"}`}},
	} {
		s.id, s.parent, s.to = 1, -1, 1
		row := rowsOf(t, scopeApp, s)[0]
		assert.Equal(t, "a", row.Node, name)
		assert.Equal(t, "a:1", row.TaskKey, name)
		assert.Equal(t, int32(2), row.GraphStep, name)
	}
}

func TestRule25NumbersOfDifferentBases(t *testing.T) {
	attempt := func(scope, name string, a attrs) int32 {
		return rowsOf(t, scope, sent{id: 1, parent: -1, name: name, to: 1, attrs: a})[0].Attempt
	}
	assert.Equal(t, int32(1), attempt("grpc-go", "Attempt.s.M", attrs{"previous-rpc-attempts": 0}))
	assert.Equal(t, int32(3), attempt("github.com/aws/aws-sdk-go-v2/service/x", "Attempt", attrs{"operation.attempt": 3}))
	assert.Equal(t, int32(2), attempt(scopeApp, "x", attrs{"tags": "retry:attempt:2"}))
	assert.Equal(t, int32(2), rowsOf(t, "opentelemetry.instrumentation.botocore.bedrock-runtime", sent{id: 1, parent: -1, to: 1, client: true, attrs: attrs{"retry_attempts": 2}})[0].RetryCount)
	limits := rowsOf(t, "ai", sent{id: 1, parent: -1, to: 1, attrs: attrs{"ai.operationId": "ai.generateText", "ai.settings.maxRetries": 2}})
	assert.Equal(t, int32(3), limits[0].AttemptLimit, "max_retries leaves the first try out, max_attempts counts it")
	assert.Equal(t, int32(3), rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: attrs{"retry.max_attempts": 3}})[0].AttemptLimit)
}

func TestRule26HiddenRetriesAreNullOrWhatATextSays(t *testing.T) {
	chat := func(message string) attribution.Step {
		return theStep(t, runOf(t, "gen_ai", sent{id: 1, parent: -1, name: "invoke_agent m", to: 100, failed: message != "", message: message, attrs: attrs{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ask"}},
			sent{id: 2, parent: 1, name: "chat m", from: 1, to: 90, client: true, failed: message != "", message: message, attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}}), "ask")
	}
	assert.Equal(t, layers{-1, -1, 0, 0, 0}, layersOf(chat("")))
	said := chat("Failed after 3 attempts. Last error: x")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(said))
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceMessage}, said.Evidence)
	assert.Equal(t, 1, said.Calls)
}

func TestRule27OKAfterExhaustion(t *testing.T) {
	spans := ask(badLLM(3, 1, 3, 10, "a"), badLLM(4, 1, 20, 30, "a"))
	spans[1].attrs["output.value"] = `[{"graph": null, "update": {"messages": [{"data": {"content": "Model call failed after 2 attempts with RateLimitError: x"}}]}, "goto": []}]`
	run := runOf(t, scopeOI, spans...)
	assert.Equal(t, attribution.OutcomeHandled, theStep(t, run, "ask").Outcome)
	assert.Equal(t, "handled_error", run.Outcome)
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(theStep(t, run, "ask")))
}

func TestRule28InternalsAreNoSteps(t *testing.T) {
	run := runOf(t, scopeOIjs, append(ask(
		sent{id: 5, parent: 1, name: "RunnableLambda", from: 800, to: 801, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)}),
		sent{id: 6, parent: 0, name: "__start__", from: 0, to: 1, ok: true, attrs: oi("CHAIN", "__start__", "__start__:1", 0)},
		sent{id: 7, parent: 0, name: "flaky", from: 901, to: 910, failed: true, message: lost429, attrs: oi("CHAIN", "flaky", "flaky:1", 2)},
		sent{id: 8, parent: 0, name: "__error_handler__flaky", from: 911, to: 920, ok: true, attrs: oi("CHAIN", "__error_handler__flaky", "flaky:1|__error_handler__flaky:2", 2)})...)
	require.Len(t, run.Steps, 2)
	assert.Equal(t, attribution.OutcomeHandled, theStep(t, run, "flaky").Outcome)
}

func TestRule29RevisitsAreRetriesOnlyAfterFailure(t *testing.T) {
	visit := func(id int, task string, step int, from int64, output string) sent {
		return sent{id: id, parent: 0, name: "plan", from: from, to: from + 5, ok: true, attrs: oi("CHAIN", "plan", task, step, attrs{"output.value": output})}
	}
	root := sent{id: 0, parent: -1, name: "LangGraph", to: 100, ok: true, attrs: oi("CHAIN", "", "", 0)}
	loop := theStep(t, runOf(t, scopeOI, root, visit(1, "plan:1", 1, 10, `{"turns":1}`), visit(2, "plan:2", 3, 30, `{"turns":2}`)), "plan")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(loop))
	recovery := theStep(t, runOf(t, scopeOI, root, visit(1, "plan:1", 1, 10, `{"status":"error"}`), visit(2, "plan:2", 3, 30, `{"status":"ok"}`)), "plan")
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(recovery))
}

func TestRule30ResentAndReplayedSpansCountOnce(t *testing.T) {
	spans := ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "a"))
	assert.Equal(t, written(t, ledgerOf(t, scopeOI, spans...)), written(t, ledgerOf(t, scopeOI, append(spans, spans...)...)))
	activity := func(id, parent int, from int64, failed bool) sent {
		return sent{id: id, parent: parent, name: "RunActivity:Resolve", from: from, to: from + 5, failed: failed, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r", "temporalActivityID": "5"}}
	}
	workflow := func(id int, from, to int64) sent {
		return sent{id: id, parent: 0, name: "RunWorkflow:P", from: from, to: to, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r"}}
	}
	s := theStep(t, runOf(t, "temporal-sdk-go", sent{id: 0, parent: -1, name: "StartWorkflow:P", to: 5, attrs: attrs{"temporalWorkflowID": "w"}},
		workflow(1, 1, 100), workflow(2, 1, 90), // replayed under a new span id
		sent{id: 3, parent: 1, name: "StartActivity:Resolve", from: 2, to: 2, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r"}},
		activity(4, 3, 10, true), activity(5, 3, 30, false)), "Resolve")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s))
}

func TestRule31ARunawayLoopIsTheRootsErrorAlone(t *testing.T) {
	run := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, failed: true, message: "GraphRecursionError('Recursion limit of 6')Traceback", attrs: oi("CHAIN", "", "", 0)},
		sent{id: 1, parent: 0, name: "plan", from: 1, to: 5, ok: true, attrs: oi("CHAIN", "plan", "plan:1", 1)}, sent{id: 2, parent: 0, name: "plan", from: 10, to: 15, ok: true, attrs: oi("CHAIN", "plan", "plan:2", 3)})
	assert.Equal(t, "error", run.Outcome)
	assert.Equal(t, attribution.OutcomeFirstTry, theStep(t, run, "plan").Outcome)
	assert.Zero(t, run.Budget.Retries)
}

func TestRule32AChildMayOutliveItsParent(t *testing.T) {
	abort := "This operation was aborted\n\nAbortError: This operation was aborted\n    at x"
	late := sent{id: 2, parent: 1, name: "ChatModel", from: 2, to: 60, ok: true, attrs: oi("LLM", "slow", "slow:1", 1, attrs{"llm.token_count.prompt": 7, "llm.token_count.completion": 3})}
	s := theStep(t, runOf(t, scopeOIjs, sent{id: 0, parent: -1, name: "LangGraph", to: 100, ok: true, attrs: oi("CHAIN", "", "", 0)},
		sent{id: 1, parent: 0, name: "slow", from: 1, to: 15, failed: true, message: abort, attrs: oi("CHAIN", "slow", "slow:1", 1)}, late,
		sent{id: 3, parent: 0, name: "slow", from: 30, to: 40, ok: true, attrs: oi("CHAIN", "slow", "slow:1", 1)}), "slow")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s))
	assert.Equal(t, int64(7), s.Wasted.Input, "the abandoned attempt's tokens were spent all the same")
}

func TestRule33MastrasLeavesLookWell(t *testing.T) {
	row := rowsOf(t, "@mastra/otel-exporter", sent{id: 1, parent: -1, name: "chat m", to: 1, ok: true, client: true, attrs: attrs{"mastra.span.type": "model_inference", "gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": `["error"]`}})[0]
	assert.True(t, row.Failed)
	s := theStep(t, runOf(t, "@mastra/otel-exporter", sent{id: 1, parent: -1, name: "invoke_workflow p", to: 10, ok: true, attrs: attrs{"mastra.span.type": "workflow_run"}},
		sent{id: 2, parent: 1, name: "workflow_step resolve", from: 1, to: 9, ok: true, attrs: attrs{"mastra.span.type": "workflow_step", "mastra.workflow_step.step_id": "resolve"}}), "resolve")
	assert.Equal(t, layers{-1, -1, -1, 0, 0}, layersOf(s), "its repeats hide in one span")
}

func TestRule34LoopsOfCallsAreNoRetries(t *testing.T) {
	tool := func(id int, from int64, failed bool, input string) sent {
		return sent{id: id, parent: 1, name: "search", from: from, to: from + 5, failed: failed, ok: !failed, attrs: oi("TOOL", "ask", "ask:1", 1, attrs{"input.value": input})}
	}
	s := theStep(t, runOf(t, scopeOI, ask(llm(3, 1, 3, 10, "a"), tool(4, 20, true, "x"), llm(5, 1, 30, 40, "a"), tool(6, 50, false, "y"), llm(7, 1, 60, 70, "a"))...), "ask")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.ToolCalls)
	again := theStep(t, runOf(t, scopeOI, ask(tool(4, 20, true, "x"), tool(6, 50, false, "x"))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(again), "the same tool for the same input, after it failed")
}

func TestRule35TheUsersOwnTagsAndMetadata(t *testing.T) {
	row := rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: lf("generation", "a", "a:1", `["retry:attempt:2","prod","tenant:7"]`, attrs{"langfuse.observation.metadata.run_id": "mine"})})[0]
	assert.Equal(t, int32(2), row.Attempt)
	assert.Empty(t, row.RunID, "a user's run_id may mean anything")
}

func TestRule36IdsThatAreNone(t *testing.T) {
	spans := []sent{
		{trace: 1, id: 1, parent: -1, name: "LangGraph.workflow", to: 10, attrs: attrs{"traceloop.span.kind": "workflow", "gen_ai.task.id": "x", "gen_ai.task.status": "success", "gen_ai.agent.id": "u1", "step": "a"}},
		{trace: 2, id: 2, parent: -1, name: "LangGraph.workflow", from: 20, to: 30, attrs: attrs{"traceloop.span.kind": "workflow", "gen_ai.task.id": "x", "gen_ai.task.status": "success", "gen_ai.agent.id": "u1", "step": "a"}},
	}
	assert.Len(t, ledgerOf(t, scopeLLMetry, spans...).Runs, 2)
	assert.Empty(t, rowsOf(t, scopeSmith, sent{id: 1, parent: -1, to: 1, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.trace.session_name": "project"}})[0].ThreadID)
}

func TestRule37FailureToldInTheOutput(t *testing.T) {
	for name, s := range map[string]sent{
		"OpenInference": {scope: scopeOI, attrs: oi("CHAIN", "a", "a:1", 1, attrs{"output.value": `{"status":"error","x":1}`})},
		"its bare word": {scope: scopeOI, attrs: oi("CHAIN", "a", "a:1", 1, attrs{"output.value": `error`})},
		"Langfuse":      {scope: scopeLangfuse, attrs: lf("span", "a", "a:1", "", attrs{"langfuse.observation.output": `{"errors":["x"]}`})},
		"OpenLLMetry":   {scope: scopeLLMetry, attrs: attrs{"traceloop.span.kind": "task", "traceloop.entity.output": `{"outputs": {"status": "failed"}, "kwargs": {}}`}},
		"LangSmith":     {scope: scopeSmith, attrs: attrs{"langsmith.span.kind": "chain", "gen_ai.completion": `{"error":"x"}`}},
		"MLflow":        {scope: scopeMLflow, attrs: attrs{"mlflow.spanType": `"CHAIN"`, "mlflow.spanOutputs": `{"state": "failure"}`}},
	} {
		s.id, s.parent, s.to = 1, -1, 1
		assert.True(t, rowsOf(t, scopeApp, s)[0].OutputFailed, name)
	}
	run := runOf(t, scopeOI, append(ask(), sent{id: 5, parent: 1, name: "inner", from: 10, to: 20, ok: true, attrs: oi("CHAIN", "inner", "ask:1|inner:1", 1)})...)
	assert.Equal(t, attribution.OutcomeFirstTry, theStep(t, run, "ask").Outcome)
	container := ask(sent{id: 5, parent: 1, name: "inner", from: 10, to: 20, ok: true, attrs: oi("CHAIN", "inner", "ask:1|inner:1", 1)})
	container[1].attrs["output.value"] = `{"errors":["accumulated"]}`
	assert.Equal(t, attribution.OutcomeFirstTry, theStep(t, runOf(t, scopeOI, container...), "ask").Outcome, "a container's output is the accumulated state")
}

func TestRule38TwoMillisecondsOfOverlapAreTheClocks(t *testing.T) {
	s := theStep(t, runOf(t, scopeOIjs, ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 9, 30, "a"))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
	s = theStep(t, runOf(t, scopeOIjs, ask(badLLM(3, 1, 3, 13, "a"), llm(4, 1, 9, 30, "a"))...), "ask")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
}

func TestRule39OneDecisionOneCharge(t *testing.T) {
	entry := func(n int, from int64, failed bool) []sent {
		outer, inner := "out:"+string(rune('a'+n)), "out:"+string(rune('a'+n))+"|in:1"
		return []sent{
			{id: 10*n + 1, parent: 0, name: "out", from: from, to: from + 20, ok: true, attrs: oi("CHAIN", "out", outer, n+1)},
			{id: 10*n + 2, parent: 10*n + 1, name: "in", from: from + 1, to: from + 9, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "in", inner, 1)},
		}
	}
	spans := append([]sent{{id: 0, parent: -1, name: "LangGraph", to: 100, ok: true, attrs: oi("CHAIN", "", "", 0)}}, entry(1, 10, true)...)
	run := runOf(t, scopeOI, append(spans, entry(2, 40, false)...)...)
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, run, "in")))
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "out")))
}

func TestRule40APythonBatchHangsOffTheNode(t *testing.T) {
	input := func(s sent, text string) sent { s.attrs["input.value"] = text; return s }
	s := theStep(t, runOf(t, scopeOI, ask(
		chain(2, 1, "ChatModel", 2, 100, false), chain(3, 1, "ChatModel", 2, 100, false), chain(4, 1, "ChatModel", 2, 100, false),
		input(llm(5, 1, 3, 10, "a"), "x"), input(badLLM(6, 1, 3, 10, "a"), "y"), input(badLLM(7, 1, 4, 11, "a"), "z"),
		input(llm(8, 1, 40, 50, "a"), "z"), input(llm(9, 1, 40, 51, "a"), "y"))...), "ask")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s), "leaves less wrappers")
	assert.Equal(t, 3, s.Operations)
}

func TestRule41ACancelledAttemptThatIsRepeatedWasLost(t *testing.T) {
	cancelled := "CancelledError()Traceback (most recent call last):"
	node := func(id int, name, task string, from int64, message string) sent {
		return sent{id: id, parent: 0, name: name, from: from, to: from + 5, failed: message != "", message: message, attrs: oi("CHAIN", name, task, 2)}
	}
	root := sent{id: 0, parent: -1, name: "LangGraph", to: 100, ok: true, attrs: oi("CHAIN", "", "", 0)}
	timeout := theStep(t, runOf(t, scopeOI, root, node(1, "slow", "slow:1", 1, cancelled), node(2, "slow", "slow:1", 20, "")), "slow")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(timeout))
	run := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, failed: true, message: lost429, attrs: oi("CHAIN", "", "", 0)},
		node(1, "bad", "bad:1", 1, lost429), node(2, "good", "good:1", 1, cancelled))
	assert.Equal(t, attribution.OutcomeCancelled, theStep(t, run, "good").Outcome, "an innocent neighbour")
	assert.Empty(t, theStep(t, run, "good").Errors)
}

func TestRule42AnAbandonedStreamIsNoFailedCall(t *testing.T) {
	gone := llm(3, 1, 3, 10, "a")
	gone.ok, gone.failed, gone.message = false, true, "GeneratorExit()Traceback (most recent call last):"
	s := theStep(t, runOf(t, scopeOI, ask(gone)...), "ask")
	assert.Equal(t, 0, s.CallsFailed)
	root := ask(llm(3, 1, 3, 10, "a"))
	root[0].ok, root[0].failed, root[0].message = false, true, "GeneratorExit()Traceback"
	assert.Equal(t, "cancelled", runOf(t, scopeOI, root...).Completion)
}

func TestRule43RequestedModelsAreCompared(t *testing.T) {
	good := llm(4, 2, 20, 30, "gpt-4o-mini")
	good.attrs["llm.model_name"] = "gpt-4o-mini-2024-07-18"
	bad := badLLM(3, 2, 3, 10, "gpt-4o-mini")
	bad.attrs["llm.model_name"] = "gpt-4o-mini"
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 100, false), bad, good)...), "ask")
	assert.Equal(t, 0, s.Fallbacks)
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
}

func TestRule44AnExecutionIsKnownThroughItsOrphans(t *testing.T) {
	run := runOf(t, scopeOI, sent{id: 5, parent: 4, name: "ChatModel", from: 1, to: 5, ok: true, attrs: oi("LLM", "in", "out:1|in:1", 1)})
	assert.Equal(t, 1, theStep(t, run, "in").Executions)
	assert.Equal(t, attribution.OutcomeUnknown, theStep(t, run, "in").Outcome)
	assert.Equal(t, 1, theStep(t, run, "out").Executions, "its namespace names the task around it")
	assert.Equal(t, "killed_or_running", run.Outcome)
}

func TestRule45TwoViewsOfOneThing(t *testing.T) {
	own := func(id int, from, to int64, failed bool, a attrs) sent {
		a["step"] = "ask"
		return sent{id: id, parent: 50, name: "ask.attempt", scope: scopeApp, from: from, to: to, failed: failed, message: map[bool]string{true: "E: x"}[failed], attrs: a}
	}
	graph := ask(llm(3, 1, 30, 35, "a"))
	graph[0].parent = 50
	spans := slices.Clone(graph)
	spans = append(spans, sent{id: 50, parent: -1, name: "run", scope: scopeApp, to: 1001, attrs: attrs{}},
		own(51, 2, 10, true, attrs{}), own(52, 20, 40, false, attrs{"retry.attempt": 2}))
	s := theStep(t, runOf(t, scopeOI, spans...), "ask")
	assert.Equal(t, 2, s.Executions, "the node's run is the container of the application's executions")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s))
	assert.Equal(t, 1, s.Calls)
	both := append(ask(llm(3, 1, 30, 35, "a")), sent{id: 60, parent: 1, name: "llm.call", scope: scopeApp, from: 29, to: 36, attrs: attrs{"gen_ai.request.model": "a", "gen_ai.usage.input_tokens": 120}})
	assert.Equal(t, 1, theStep(t, runOf(t, scopeOI, both...), "ask").Calls, "one call in two views")
}

func TestRule46TheStatedLayerOverrules(t *testing.T) {
	step := func(id int, from int64, failed bool, a attrs) sent {
		a["step"] = "x"
		return sent{id: id, parent: 0, name: "x", from: from, to: from + 5, failed: failed, message: map[bool]string{true: "E: x"}[failed], attrs: a}
	}
	root := sent{id: 0, parent: -1, name: "run", to: 100}
	s := theStep(t, runOf(t, scopeApp, root, step(1, 1, true, attrs{}), step(2, 10, true, attrs{"retry.layer": "node"}), step(3, 20, false, attrs{"retry.layer": "worker"})), "x")
	assert.Equal(t, layers{-1, 0, 1, 0, 1}, layersOf(s))
	s = theStep(t, runOf(t, scopeApp, root, step(1, 1, true, attrs{}), step(2, 10, true, attrs{"tags": "retry:attempt:2"}), step(3, 20, false, attrs{})), "x")
	assert.Equal(t, layers{-1, 0, 1, 1, 0}, layersOf(s), "a number is a policy's, none a re-entry's")
}

func TestRule47ARunNameLeaksToTheCandidates(t *testing.T) {
	named := func(s sent) sent { s.name = "resolve_llm"; return s }
	s := theStep(t, runOf(t, scopeOI, ask(named(chain(2, 1, "", 2, 100, false)), named(badLLM(3, 1, 3, 10, "a")), named(llm(4, 1, 20, 30, "b")),
		sent{id: 5, parent: 1, name: "ask", from: 850, to: 851, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)})...), "ask") // a conditional edge named like the node
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, 1, s.Executions)
}

func TestRule48ALaterCallIsNoCandidate(t *testing.T) {
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "RunnableWithFallbacks", 2, 40, false), badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 39, "b"), llm(5, 1, 50, 60, "b"))...), "ask")
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, 2, s.Operations)
}

func TestRule49AStepBelowAUnitOfWorkNamesIt(t *testing.T) {
	activity := func(id int, from int64, failed bool) []sent {
		return []sent{
			{id: id, parent: 0, name: "RunActivity:Resolve", from: from, to: from + 9, failed: failed, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r", "temporalActivityID": "5"}},
			{id: id + 1, parent: id, name: "resolve", scope: scopeApp, from: from + 1, to: from + 8, failed: failed, attrs: attrs{"step": "resolve"}},
		}
	}
	run := runOf(t, "temporal-sdk-go", append(append(activity(1, 1, true), activity(3, 20, false)...), sent{id: 0, parent: -1, name: "StartActivity:Resolve", to: 0})...)
	require.Len(t, run.Steps, 1)
	s := theStep(t, run, "resolve")
	assert.Equal(t, 2, s.Executions)
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s))
}

func TestRule50NamesThatDifferInANumberAreOne(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "run", to: 100}, sent{id: 1, parent: 0, name: "resolve", from: 1, to: 90, attrs: attrs{"step": "resolve"}},
		sent{id: 2, parent: 1, name: "resolve attempt 1", from: 2, to: 10, failed: true, message: "E: x"}, sent{id: 3, parent: 1, name: "resolve attempt 2", from: 20, to: 30}), "resolve")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
}

func TestRule51QuotedTwiceAndHooks(t *testing.T) {
	run := runOf(t, scopeLangfuse, sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("chain", "", "", "")},
		sent{id: 1, parent: 0, name: "resolve", from: 1, to: 9, attrs: lf("chain", `"resolve"`, `"resolve:1"`, "")},
		sent{id: 2, parent: 0, name: "ModelRetryMiddleware.before_model", from: 10, to: 11, attrs: lf("chain", `"ModelRetryMiddleware.before_model"`, `"ModelRetryMiddleware.before_model:1"`, "")})
	require.Len(t, run.Steps, 1)
	assert.Equal(t, "resolve", run.Steps[0].Step)
}
