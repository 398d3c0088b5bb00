package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/analysis/attribution"
)

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
		"Logfire":          {"logfire", attrs{"logfire.tags": []any{"prod", "retry:attempt:2"}}},
		"Mastra":           {"@mastra/otel-exporter", attrs{"mastra.span.type": "generic", "mastra.tags": `["retry:attempt:2"]`}},
		"a user's comma":   {scopeApp, attrs{"tags": "tenant:7,eu, retry:attempt:2, my, own"}},
		"encoded as JSON":  {scopeApp, attrs{"tags": `["retry:attempt:2"]`}},
		"a Python list":    {scopeApp, attrs{"tags": `['retry:attempt:2']`}},
		"a text by itself": {scopeApp, attrs{"tags": "retry:attempt:2"}},
	} {
		rows := rowsOf(t, test.scope, sent{id: 1, parent: -1, name: "x", to: 1, attrs: test.attrs})
		assert.Equal(t, int32(2), rows[0].Attempt, name)
	}
	for _, tag := range []string{"my-retry:attempt:2", "retry:attempt:2nd", "retry:attempt:", "no retry:attempt:2 here"} {
		assert.Zero(t, rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: attrs{"tags": []any{tag}}})[0].Attempt, "%q is another word", tag)
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

func TestRule23ABatchCountsPerInput(t *testing.T) {
	s := theStep(t, runOf(t, scopeOIjs, ask(
		chain(2, 1, "ChatModel", 2, 100, false), chain(3, 1, "ChatModel", 2, 100, false),
		llm(4, 2, 3, 10, "a"), badLLM(5, 3, 3, 10, "a"), llm(6, 3, 40, 50, "a"))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.Operations)
}

func TestRule25NumbersOfDifferentBases(t *testing.T) {
	attempt := func(scope, name string, a attrs) int32 {
		return rowsOf(t, scope, sent{id: 1, parent: -1, name: name, to: 1, attrs: a})[0].Attempt
	}
	assert.Equal(t, int32(1), attempt("grpc-go", "Attempt.s.M", attrs{"previous-rpc-attempts": 0}))
	assert.Equal(t, int32(3), attempt("grpc-go", "Attempt.s.M", attrs{"previous-rpc-attempts": 2}))
	assert.Equal(t, int32(1), attempt("github.com/aws/aws-sdk-go-v2/service/x", "Attempt", attrs{"operation.attempt": 1}))
	resent := theStep(t, runOf(t, "com.anthropic.sdk.go", work("ask", sent{id: 2, parent: 1, name: "anthropic.messages.create", from: 2, to: 9, client: true, attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "http.request.resend_count": 2}})...), "ask")
	assert.Equal(t, 2, *resent.Retries.Transport, "a count of 1 is the first re-send")
	assert.Equal(t, 1, resent.Calls)
	assert.Equal(t, int32(3), attempt("github.com/aws/aws-sdk-go-v2/service/x", "Attempt", attrs{"operation.attempt": 3}))
	assert.Equal(t, int32(2), attempt(scopeApp, "x", attrs{"tags": "retry:attempt:2"}))
	assert.Equal(t, int32(2), rowsOf(t, "opentelemetry.instrumentation.botocore.bedrock-runtime", sent{id: 1, parent: -1, to: 1, client: true, attrs: attrs{"retry_attempts": 2}})[0].RetryCount)
	limits := rowsOf(t, "ai", sent{id: 1, parent: -1, to: 1, attrs: attrs{"ai.operationId": "ai.generateText", "ai.settings.maxRetries": 2}})
	assert.Equal(t, int32(3), limits[0].AttemptLimit, "max_retries leaves the first try out, max_attempts counts it")
	assert.Equal(t, int32(3), rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: attrs{"retry.max_attempts": 3}})[0].AttemptLimit)
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

func TestRule31ARunawayLoopIsTheRootsErrorAlone(t *testing.T) {
	run := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, failed: true, message: "GraphRecursionError('Recursion limit of 6')Traceback", attrs: oi("CHAIN", "", "", 0)},
		sent{id: 1, parent: 0, name: "plan", from: 1, to: 5, ok: true, attrs: oi("CHAIN", "plan", "plan:1", 1)}, sent{id: 2, parent: 0, name: "plan", from: 10, to: 15, ok: true, attrs: oi("CHAIN", "plan", "plan:2", 3)})
	assert.Equal(t, "error", run.Outcome)
	assert.Equal(t, attribution.OutcomeFirstTry, theStep(t, run, "plan").Outcome)
	assert.Zero(t, run.Budget.Retries)
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
	gone := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, failed: true, message: cancelled, attrs: oi("CHAIN", "", "", 0)}, node(1, "slow", "slow:1", 1, cancelled))
	assert.Equal(t, "cancelled", gone.Completion, "the root is cancelled too")
	assert.Zero(t, gone.Budget.Retries)
	exhausted := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, failed: true, message: "NodeTimeoutError('slow')Traceback", attrs: oi("CHAIN", "", "", 0)},
		node(1, "slow", "slow:1", 1, cancelled), node(2, "slow", "slow:1", 20, cancelled))
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(theStep(t, exhausted, "slow")))
	assert.Equal(t, "failed", exhausted.Completion)
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

func TestRule50NamesThatDifferInANumberAreOne(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "run", to: 100}, sent{id: 1, parent: 0, name: "resolve", from: 1, to: 90, attrs: attrs{"step": "resolve"}},
		sent{id: 2, parent: 1, name: "resolve attempt 1", from: 2, to: 10, failed: true, message: "E: x"}, sent{id: 3, parent: 1, name: "resolve attempt 2", from: 20, to: 30}), "resolve")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
}
