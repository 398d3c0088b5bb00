package attribution_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
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

// What runs right before or after a childless wrapper is no candidate of it, however
// short the gap: a prompt, a parser, a router, the call of another wrapper.
func TestRule15ANeighbourOfAChildlessWrapperIsNoCandidate(t *testing.T) {
	in := task("plan", "plan:1", 1)
	at := func(s schema.Span, fromUs, toUs int64) schema.Span {
		s.StartNs, s.EndNs = epoch+fromUs*1000, epoch+toUs*1000
		return s
	}
	chainAt := func(id int, name string, fromUs, toUs int64) schema.Span {
		return at(with(span(1, id, 1, name, 0, 0), in), fromUs, toUs)
	}
	wrapperAt := func(id int, fromUs, toUs int64) schema.Span {
		return at(with(span(1, id, 1, "RunnableWithFallbacks", 0, 0), in, func(s *schema.Span) { s.FallbackWrapper = true }), fromUs, toUs)
	}
	callAt := func(id int, fromUs, toUs int64, more ...func(*schema.Span)) schema.Span {
		return at(with(span(1, id, 1, "ChatModel", 0, 0), append([]func(*schema.Span){in, model("prim")}, more...)...), fromUs, toUs)
	}
	base := []schema.Span{at(with(span(1, 0, -1, "LangGraph", 0, 0), role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true }), 0, 100_000),
		at(with(span(1, 1, 0, "plan", 0, 0), in), 100, 90_000)}
	plan := func(spans ...schema.Span) attribution.Step {
		return theStep(t, theRun(t, account(append(slices.Clone(base), spans...)...)), "plan")
	}
	s := plan(chainAt(2, "ChatPromptTemplate", 4000, 4400), wrapperAt(3, 4700, 51_000), callAt(4, 5000, 50_900), chainAt(5, "StrOutputParser", 51_400, 51_800))
	assert.Equal(t, 0, s.Fallbacks)
	assert.Equal(t, 1, s.Operations)
	assert.Equal(t, attribution.OutcomeFirstTry, s.Outcome)

	s = plan(wrapperAt(2, 4700, 5900), callAt(3, 5000, 5800), wrapperAt(4, 6100, 7200), callAt(5, 6300, 7100))
	assert.Equal(t, 0, s.Fallbacks)
	assert.Equal(t, 2, s.Operations, "each wrapper's own")

	s = plan(wrapperAt(2, 4700, 9000), callAt(3, 5000, 5800, failed("Busy")), callAt(4, 6300, 8900, model("backup")), chainAt(5, "router", 9300, 9500))
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, 1, s.Operations)

	// A wrapper with children of its own: what follows a candidate that succeeded is none.
	s = plan(wrapperAt(2, 4700, 9000), func() schema.Span { c := callAt(3, 5000, 5800); c.ParentID = spanID(2); return c }(),
		func() schema.Span { c := chainAt(4, "StrOutputParser", 5900, 6000); c.ParentID = spanID(2); return c }())
	assert.Equal(t, 0, s.Fallbacks)
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

// OpenInference for a provider's client writes the model into the input. A fallback asks
// another model the same, and stays one where the client's own tries of a request are seen
// below the calls.
func TestRule14AFallbackWhoseInputNamesTheModel(t *testing.T) {
	ask := func(id int, from, to int64, model, question string, fails bool) []sent {
		s := completion(0, id, 1, from, to, fails, attrs{
			"llm.invocation_parameters": `{"model":"` + model + `"}`,
			"input.value":               `{"model": "` + model + `", "messages": [{"role": "user", "content": "` + question + `"}]}`,
		})
		post := func(n int, from, to, status int64) sent {
			return sent{id: id*10 + n, parent: id, name: "POST", scope: "opentelemetry.instrumentation.httpx", from: from, to: to, client: true, failed: status >= 400,
				attrs: attrs{"http.request.method": "POST", "url.full": "https://models.example/v1/chat/completions", "http.response.status_code": status}}
		}
		middle := (from + to) / 2
		if !fails {
			return []sent{s, post(0, from+1, to-1, 200)}
		}
		return []sent{s, post(0, from+1, middle-1, 503), post(1, middle+1, to-1, 503)}
	}
	step := func(calls ...[]sent) attribution.Step {
		return theStep(t, runOf(t, scopeApp, work("answer", slices.Concat(calls...)...)...), "answer")
	}
	s := step(ask(2, 10, 40, "gpt-a", "why?", true), ask(3, 60, 90, "gpt-a", "why?", true), ask(4, 110, 140, "gpt-b", "why?", false))
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, 1, s.Operations)
	assert.Equal(t, 3, s.Calls)
	assert.Equal(t, 1, *s.Retries.Call)

	s = step(ask(2, 10, 40, "gpt-a", "why?", true), ask(3, 60, 90, "gpt-b", "and when?", false))
	assert.Equal(t, 0, s.Fallbacks, "another question")
	assert.Equal(t, 2, s.Operations)
}
