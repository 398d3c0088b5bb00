package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

func TestRule10ControlFlowIsNoFailure(t *testing.T) {
	for _, test := range []struct{ scope, message string }{
		{scopeOIjs, "[\n {}\n]\n\nGraphInterrupt: [\n {}\n]\n    at x"},
		{scopeOI, "ParentCommand(Command(goto='x'))Traceback (most recent call last):"},
		{scopeOI, "GraphInterrupt((Interrupt(value=1),))Traceback (most recent call last):"},
		{scopeOI, "GraphBubbleUp()Traceback (most recent call last):"},
		{scopeOI, "GraphDrained()Traceback (most recent call last):"},
		{scopeOI, "NodeInterrupt('x')Traceback (most recent call last):"},
	} {
		row := rowsOf(t, test.scope, sent{id: 1, parent: -1, to: 1, failed: true, message: test.message, attrs: oi("CHAIN", "a", "a:1", 1)})[0]
		assert.False(t, row.Failed, test.message)
		assert.NotEqual(t, schema.FlowNone, row.Flow, test.message)
	}
	quiet := rowsOf(t, scopeOI, sent{id: 1, parent: -1, to: 1, ok: true, attrs: oi("CHAIN", "a", "a:1", 1), events: []happened{raised("langgraph.errors.GraphInterrupt", "(Interrupt(value=1),)")}})[0]
	assert.Equal(t, schema.FlowInterrupt, quiet.Flow, "OpenInference for Python says OK, and has an event all the same")
	for name, s := range map[string]sent{
		"OpenLLMetry":             {scope: scopeLLMetry, failed: true, message: "GraphInterrupt((Interrupt(value=1),))", attrs: attrs{"traceloop.span.kind": "task", "gen_ai.task.status": "failure", "error.type": "GraphInterrupt"}},
		"Langfuse for JavaScript": {scope: scopeLangfuse, attrs: lf("chain", "a", "a:1", "", attrs{"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "GraphInterrupt: [\n {}\n]"})},
		"pydantic-ai's deferral":  {scope: "pydantic-ai", failed: true, message: "CallDeferred", attrs: attrs{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x", "pydantic_ai.tool.deferral.name": "CallDeferred"}},
	} {
		s.id, s.parent, s.to = 1, -1, 1
		row := rowsOf(t, scopeApp, s)[0]
		assert.False(t, row.Failed, name)
		assert.Equal(t, schema.FlowInterrupt, row.Flow, name)
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
		"Temporal's event":       {scope: "temporal-sdk-go", attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r", "temporalActivityID": "5"}, name: "RunActivity:Resolve", failed: true, events: []happened{raised("*errors.errorString", "x")}},
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
	assert.Equal(t, "ValueError", class(sent{attrs: attrs{"error.type": "_OTHER"}, message: "ValueError('x')"}))
	for _, code := range []string{"rate_limit_exceeded", "429", "Error", "Exception"} {
		assert.Equal(t, "APIError", class(sent{events: []happened{raised(code, "APIError: boom")}}), "%s is no class", code)
	}
	assert.Equal(t, "RateLimitError", class(sent{events: []happened{raised("openai.RateLimitError", "x")}, message: "Other: x"}), "the event's type before a text")
	assert.Equal(t, "ValueError", class(sent{message: "ValueError('x')Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'y'"}), "what follows the traceback is another error's")
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

func TestRule27OKAfterExhaustion(t *testing.T) {
	spans := ask(badLLM(3, 1, 3, 10, "a"), badLLM(4, 1, 20, 30, "a"))
	spans[1].attrs["output.value"] = `[{"graph": null, "update": {"messages": [{"data": {"content": "Model call failed after 2 attempts with RateLimitError: x"}}]}, "goto": []}]`
	run := runOf(t, scopeOI, spans...)
	assert.Equal(t, attribution.OutcomeHandled, theStep(t, run, "ask").Outcome)
	assert.Equal(t, "handled_error", run.Outcome)
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(theStep(t, run, "ask")))
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

func TestRule42AnAbandonedStreamIsNoFailedCall(t *testing.T) {
	gone := llm(3, 1, 3, 10, "a")
	gone.ok, gone.failed, gone.message = false, true, "GeneratorExit()Traceback (most recent call last):"
	s := theStep(t, runOf(t, scopeOI, ask(gone)...), "ask")
	assert.Equal(t, 0, s.CallsFailed)
	root := ask(llm(3, 1, 3, 10, "a"))
	root[0].ok, root[0].failed, root[0].message = false, true, "GeneratorExit()Traceback"
	assert.Equal(t, "cancelled", runOf(t, scopeOI, root...).Completion)
}

func TestAStepThatStatesTheClassOfItsError(t *testing.T) {
	for text, class := range map[string]string{"BadDraft": "BadDraft", "app.errors.BadDraft": "BadDraft", "it did not work": ""} {
		rows := rowsOf(t, scopeApp, sent{id: 1, parent: -1, name: "draft", to: 1, attrs: attrs{"step": "draft", "step.failed": true, "step.error": text}})
		assert.Equal(t, class, rows[0].ErrorClass, text)
	}
}
