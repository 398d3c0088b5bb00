package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRule14FallbacksAreNeverMarked(t *testing.T) {
	wrapper := chain(2, 1, "RunnableWithFallbacks", 2, 100, false)
	used := theStep(t, runOf(t, scopeOI, ask(wrapper, badLLM(3, 2, 3, 10, "a"), llm(4, 2, 20, 30, "b"))...), "ask")
	assert.Equal(t, 1, used.Fallbacks)
	unused := theStep(t, runOf(t, scopeOI, ask(wrapper, llm(3, 2, 3, 10, "a"))...), "ask")
	assert.Equal(t, 0, unused.Fallbacks)
	bare := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "b"))...), "ask")
	assert.Equal(t, 1, bare.Fallbacks, "another model after a failure")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(bare))
	traceloop := func(id, parent int, name, kind string, from, to int64, failed bool, more attrs) sent {
		a := attrs{"gen_ai.task.status": map[bool]string{true: "failure", false: "success"}[failed], "traceloop.association.properties.langgraph_node": "ask", "traceloop.association.properties.langgraph_checkpoint_ns": "ask:1"}
		if kind != "" {
			a["traceloop.span.kind"], a["traceloop.entity.name"] = kind, name
		}
		for k, v := range more {
			a[k] = v
		}
		return sent{id: id, parent: parent, name: name, from: from, to: to, failed: failed, message: map[bool]string{true: "429 x"}[failed], attrs: a}
	}
	chat := func(m string) attrs { return attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": m} }
	named := theStep(t, runOf(t, scopeLLMetry, traceloop(0, -1, "LangGraph", "workflow", 0, 1000, false, nil), traceloop(1, 0, "ask", "task", 1, 900, false, nil),
		traceloop(2, 1, "RunnableWithFallbacks", "task", 2, 100, false, nil),
		traceloop(3, 2, "ChatModel.chat", "", 3, 10, true, chat("a")), traceloop(4, 2, "ChatModel.chat", "", 20, 30, false, chat("a"))), "ask")
	assert.Equal(t, 1, named.Fallbacks, "one model twice: the wrapper's name tells")
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

func TestRule43RequestedModelsAreCompared(t *testing.T) {
	good := llm(4, 2, 20, 30, "gpt-4o-mini")
	good.attrs["llm.model_name"] = "gpt-4o-mini-2024-07-18"
	bad := badLLM(3, 2, 3, 10, "gpt-4o-mini")
	bad.attrs["llm.model_name"] = "gpt-4o-mini"
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 100, false), bad, good)...), "ask")
	assert.Equal(t, 0, s.Fallbacks)
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
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
