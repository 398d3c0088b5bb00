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

func TestRule17AWrapperNamedAfterWhatItWrapsIsNoCall(t *testing.T) {
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 100, false), llm(3, 2, 3, 10, "a"))...), "ask")
	assert.Equal(t, 1, s.Calls)
}

func TestRule18TokensAreCountedOnLeavesOnly(t *testing.T) {
	aiSDK := runOf(t, "ai", sent{id: 1, parent: -1, name: "ai.generateText", to: 100, attrs: attrs{"ai.operationId": "ai.generateText", "ai.telemetry.functionId": "ask", "ai.usage.inputTokens": 10, "gen_ai.usage.input_tokens": 10}},
		sent{id: 2, parent: 1, name: "ai.generateText.doGenerate", from: 1, to: 90, attrs: attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.telemetry.functionId": "ask", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}})
	assert.Equal(t, int64(10), theStep(t, aiSDK, "ask").Tokens.Input)
	aggregated := runOf(t, "pydantic-ai", sent{id: 1, parent: -1, name: "invoke_agent ask", to: 100, attrs: attrs{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ask", "gen_ai.aggregated_usage.input_tokens": 10, "gen_ai.usage.input_tokens": 10}},
		sent{id: 2, parent: 1, name: "chat m", from: 1, to: 90, client: true, attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}})
	assert.Equal(t, attribution.Tokens{Input: 10, Output: 5}, theStep(t, aggregated, "ask").Tokens)
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

func TestRule24MetadataInAllItsForms(t *testing.T) {
	for name, s := range map[string]sent{
		"JSON text":         {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": `{"langgraph_node":"a","langgraph_step":2,"langgraph_checkpoint_ns":"a:1"}`}},
		"encoded twice":     {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": `"{\"langgraph_node\":\"a\",\"langgraph_step\":2,\"langgraph_checkpoint_ns\":\"a:1\"}"`}},
		"texts for numbers": {scope: scopeSmith, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.langgraph_node": "a", "langsmith.metadata.langgraph_step": "2", "langsmith.metadata.langgraph_checkpoint_ns": "a:1"}},
		"numbers":           {scope: scopeLLMetry, attrs: attrs{"traceloop.span.kind": "task", "gen_ai.task.status": "success", "traceloop.association.properties.langgraph_node": "a", "traceloop.association.properties.langgraph_step": 2, "traceloop.association.properties.langgraph_checkpoint_ns": "a:1"}},
		"quoted":            {scope: scopeLangfuse, attrs: attrs{"langfuse.observation.type": "chain", "langfuse.observation.metadata.langgraph_node": `"a"`, "langfuse.observation.metadata.langgraph_step": "2", "langfuse.observation.metadata.langgraph_checkpoint_ns": `"a:1"`}},
		"a Python dict":     {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": `{'langgraph_node': 'a', 'langgraph_step': 2, 'langgraph_checkpoint_ns': 'a:1', 'note': "it's \\'x\\'", 'flag': True, 'none': None}`}},
		"a map":             {scope: scopeOI, attrs: attrs{"openinference.span.kind": "CHAIN", "metadata": map[string]any{"langgraph_node": "a", "langgraph_step": 2, "langgraph_checkpoint_ns": "a:1"}}},
		"MLflow":            {scope: scopeMLflow, attrs: attrs{"mlflow.spanType": `"CHAIN"`, "metadata": `{"langgraph_node": "a", "langgraph_step": 2, "langgraph_checkpoint_ns": "a:1"}`}},
	} {
		s.id, s.parent, s.to = 1, -1, 1
		row := rowsOf(t, scopeApp, s)[0]
		assert.Equal(t, "a", row.Node, name)
		assert.Equal(t, "a:1", row.TaskKey, name)
		assert.Equal(t, int32(2), row.GraphStep, name)
	}
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

func TestRule28InternalsAreNoSteps(t *testing.T) {
	run := runOf(t, scopeOIjs, append(ask(
		sent{id: 5, parent: 1, name: "RunnableLambda", from: 800, to: 801, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)}),
		sent{id: 6, parent: 0, name: "__start__", from: 0, to: 1, ok: true, attrs: oi("CHAIN", "__start__", "__start__:1", 0)},
		sent{id: 7, parent: 0, name: "flaky", from: 901, to: 910, failed: true, message: lost429, attrs: oi("CHAIN", "flaky", "flaky:1", 2)},
		sent{id: 8, parent: 0, name: "__error_handler__flaky", from: 911, to: 920, ok: true, attrs: oi("CHAIN", "__error_handler__flaky", "flaky:1|__error_handler__flaky:2", 2)})...)
	hidden := rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: lf("chain", "a", "a:1", `["langsmith:hidden"]`)})[0]
	assert.True(t, hidden.Hidden)
	require.Len(t, run.Steps, 2)
	assert.Equal(t, attribution.OutcomeHandled, theStep(t, run, "flaky").Outcome)
}

func TestRule35TheUsersOwnTagsAndMetadata(t *testing.T) {
	row := rowsOf(t, scopeLangfuse, sent{id: 1, parent: -1, to: 1, attrs: lf("generation", "a", "a:1", `["retry:attempt:2","prod","tenant:7"]`, attrs{"langfuse.observation.metadata.run_id": "mine"})})[0]
	assert.Equal(t, int32(2), row.Attempt)
	assert.Empty(t, row.RunID, "a user's run_id may mean anything")
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

	tool := func(id, parent int, name string, from, to int64) sent {
		return sent{id: id, parent: parent, name: name, scope: scopeApp, from: from, to: to, attrs: attrs{"gen_ai.operation.name": "execute_tool"}}
	}
	other := func(id, parent int, name string, from, to int64) sent {
		s := tool(id, parent, name, from, to)
		s.scope = "another.instrumentation"
		return s
	}
	for name, views := range map[string][]sent{
		"beside":         {tool(70, 1, "search", 2, 9), other(71, 1, "execute_tool search", 3, 8), tool(72, 1, "search", 12, 19), other(73, 1, "execute_tool search", 13, 18)},
		"below":          {tool(70, 1, "search", 2, 9), other(71, 70, "search.tool", 3, 8), tool(72, 1, "search", 12, 19), other(73, 72, "search.tool", 13, 18)},
		"side by side":   {tool(70, 1, "search", 2, 9), other(71, 1, "execute_tool search", 3, 8), tool(72, 1, "search", 3, 10), other(73, 1, "execute_tool search", 4, 9)},
		"of one library": {tool(70, 1, "search", 2, 9), tool(71, 1, "search", 3, 8)},
		"another tool":   {tool(70, 1, "search", 2, 9), other(71, 1, "execute_tool research", 3, 8)},
	} {
		spans := append(ask(llm(3, 1, 30, 35, "a")), views...)
		assert.Equal(t, 2, theStep(t, runOf(t, scopeOI, spans...), "ask").ToolCalls, name)
	}
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

func TestRule51QuotedTwiceAndHooks(t *testing.T) {
	run := runOf(t, scopeLangfuse, sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("chain", "", "", "")},
		sent{id: 1, parent: 0, name: "resolve", from: 1, to: 9, attrs: lf("chain", `"resolve"`, `"resolve:1"`, "")},
		sent{id: 2, parent: 0, name: "ModelRetryMiddleware.before_model", from: 10, to: 11, attrs: lf("chain", `"ModelRetryMiddleware.before_model"`, `"ModelRetryMiddleware.before_model:1"`, "")})
	require.Len(t, run.Steps, 1)
	assert.Equal(t, "resolve", run.Steps[0].Step)
}

func TestARunOfASampledSourceSaysSo(t *testing.T) {
	spans := func(state string) []sent {
		return ask(llm(2, 1, 3, 50, "a"), sent{id: 3, parent: 1, name: "lookup", from: 60, to: 70, ok: true, attrs: attrs{"sampling.rate": state}})
	}
	whole, sampled := runOf(t, scopeOI, spans("1")...), runOf(t, scopeOI, spans("4")...)
	assert.False(t, whole.Sampled)
	assert.Empty(t, whole.Warnings)
	assert.True(t, sampled.Sampled)
	assert.Equal(t, []string{"sampled: counts are lower bounds"}, sampled.Warnings)
	assert.Equal(t, whole.Steps, sampled.Steps, "nothing is extrapolated")
}
