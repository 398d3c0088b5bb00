package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// Shapes of real applications that once were counted wrongly.

func TestRetryAroundFallbacks(t *testing.T) {
	t.Run("candidates in their wrappers", func(t *testing.T) {
		s := theStep(t, runOf(t, scopeOIjs, ask(chain(2, 1, "RunnableWithFallbacks", 2, 200, false),
			chain(3, 2, "RunnableWithFallbacks", 3, 50, true), badLLM(4, 3, 4, 10, "a"), badLLM(5, 3, 12, 20, "b"),
			chain(6, 2, "RunnableWithFallbacks", 60, 90, false), badLLM(7, 6, 61, 70, "a"), llm(8, 6, 72, 80, "b"))...), "ask")
		assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
		assert.Equal(t, 2, s.Fallbacks)
		assert.Equal(t, 1, s.Operations)
	})
	t.Run("candidates beside childless wrappers", func(t *testing.T) {
		s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "RunnableWithFallbacks", 2, 200, false),
			chain(3, 2, "RunnableWithFallbacks", 3, 50, true), badLLM(4, 2, 4, 10, "a"), badLLM(5, 2, 12, 20, "b"),
			chain(6, 2, "RunnableWithFallbacks", 60, 90, false), llm(7, 2, 61, 70, "a"))...), "ask")
		assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
		assert.Equal(t, 1, s.Fallbacks)
	})
	t.Run("no wrapper at all", func(t *testing.T) {
		s := theStep(t, runOf(t, scopeOI, ask(badLLM(3, 1, 3, 10, "a"), badLLM(4, 1, 12, 20, "b"), badLLM(5, 1, 30, 40, "a"), llm(6, 1, 42, 50, "b"))...), "ask")
		assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s), "back to a model of this round: the next round")
		assert.Equal(t, 2, s.Fallbacks)
	})
}

func TestGoingOnFromACheckpointInOneTraceIsOneRun(t *testing.T) {
	graph := func(id int, from int64, failed bool) []sent {
		return []sent{
			{id: id, parent: 0, name: "LangGraph", from: from, to: from + 50, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "", "", 0, attrs{"thread": "t"})},
			{id: id + 1, parent: id, name: "resolve", from: from + 1, to: from + 40, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "resolve", "resolve:1", 1, attrs{"thread": "t"})},
		}
	}
	spans := append([]sent{{id: 0, parent: -1, name: "job", scope: scopeApp, to: 500}}, graph(10, 10, true)...)
	s := theStep(t, runOf(t, scopeOI, append(spans, graph(20, 100, false)...)...), "resolve")
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(s))
}

func TestAGraphRepeatedByARunnableIsOneRun(t *testing.T) {
	graph := func(id int, from int64, failed bool) []sent {
		task := "resolve:" + string(rune('a'+id/10))
		return []sent{
			{id: id, parent: 0, name: "LangGraph", from: from, to: from + 50, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "", "", 0)},
			{id: id + 1, parent: id, name: "resolve", from: from + 1, to: from + 40, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "resolve", task, 1)},
		}
	}
	spans := append([]sent{{id: 0, parent: -1, name: "LangGraph", to: 500, attrs: oi("CHAIN", "", "", 0)}}, graph(10, 10, true)...)
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, runOf(t, scopeOI, append(spans, graph(20, 100, false)...)...), "resolve")))
}

func TestAGraphRepeatedInsideAStepIsChargedToTheStepThatFailed(t *testing.T) {
	run := runOf(t, scopeOI, ask(
		sent{id: 10, parent: 1, name: "LangGraph", from: 10, to: 50, failed: true, message: lost429, attrs: oi("CHAIN", "ask", "ask:1", 1)},
		sent{id: 11, parent: 10, name: "in", from: 11, to: 40, failed: true, message: lost429, attrs: oi("CHAIN", "in", "ask:1|in:1", 1)},
		sent{id: 20, parent: 1, name: "LangGraph", from: 60, to: 90, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)},
		sent{id: 21, parent: 20, name: "in", from: 61, to: 80, ok: true, attrs: oi("CHAIN", "in", "ask:1|in:2", 1)})...)
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, run, "in")))
	assert.Equal(t, 1, run.Budget.Retries, "one decision, one charge")

	items := runOf(t, scopeOI, ask(
		sent{id: 10, parent: 1, name: "LangGraph", from: 10, to: 50, failed: true, message: lost429, attrs: oi("CHAIN", "ask", "ask:1", 1, attrs{"input.value": "item 1"})},
		sent{id: 11, parent: 10, name: "in", from: 11, to: 40, failed: true, message: lost429, attrs: oi("CHAIN", "in", "ask:1|in:1", 1)},
		sent{id: 20, parent: 1, name: "LangGraph", from: 60, to: 90, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1, attrs{"input.value": "item 2"})},
		sent{id: 21, parent: 20, name: "in", from: 61, to: 80, ok: true, attrs: oi("CHAIN", "in", "ask:1|in:2", 1)})...)
	assert.Zero(t, items.Budget.Retries, "a graph invoked for another item is no repeat")
}

func TestAHeartbeatChangesNothingElseOfItsSpan(t *testing.T) {
	beat := []happened{{name: "run.heartbeat", attrs: attrs{"run.id": "r"}}}
	run := runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100, events: beat, attrs: attrs{"run.id": "r"}},
		sent{id: 1, parent: 0, name: "plan", from: 1, to: 10, events: beat, attrs: attrs{"step": "plan"}})
	assert.Equal(t, "ok", run.Outcome)
	assert.Equal(t, 1, theStep(t, run, "plan").Executions)
	alone := runOf(t, scopeApp, sent{id: 0, parent: -1, name: "run.heartbeat", attrs: attrs{"run.id": "r"}})
	assert.Empty(t, alone.Steps)
	assert.Equal(t, "running", alone.Completion)
}

func TestViolationsOfParallelBranches(t *testing.T) {
	branch := func(id int, from int64) []sent {
		return []sent{
			{id: id, parent: 0, name: "enrich", from: from, to: from + 20, attrs: attrs{"step": "enrich", "item": id}},
			{id: id + 1, parent: id, name: "contract_violation", from: from + 10, to: from + 11, failed: true, attrs: attrs{"contract.node": "enrich", "contract.missing_output": "score"}},
		}
	}
	spans := append([]sent{{id: 0, parent: -1, name: "job", to: 100}}, branch(10, 5)...)
	run := runOf(t, scopeApp, append(spans, branch(20, 6)...)...)
	require.Len(t, run.ContractViolations, 1)
	assert.Equal(t, 2, run.ContractViolations[0].Count)
}

func TestACounterInALayerOfSteps(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100},
		sent{id: 1, parent: 0, name: "resolve", from: 1, to: 90, attrs: attrs{"step": "resolve", "retry.count": 2, "retry.layer": "node"}}), "resolve")
	assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s))
	assert.Equal(t, 3, s.Executions)
	assert.Equal(t, 1, s.Visits)
}

func TestWhatOneSpanCountsAreRepeatsOfOneThing(t *testing.T) {
	run := runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100},
		sent{id: 1, parent: 0, name: "resolve", from: 1, to: 90, attrs: attrs{"step": "resolve", "retry.count": 5}})
	s := theStep(t, run, "resolve")
	assert.Equal(t, layers{-1, 5, 0, 0, 0}, layersOf(s))
	assert.Equal(t, "6", s.Factorisation)
	var ordinals []int
	for _, a := range run.Attempts {
		if a.Charge == string(attribution.LayerCall) {
			ordinals = append(ordinals, a.Ordinal)
		}
	}
	assert.Equal(t, []int{2, 3, 4, 5, 6}, ordinals)
}

func TestAnEventThatAnnouncesTheNextSpanIsThatSpan(t *testing.T) {
	step := func(id int, from int64, failed bool, attempt int, events ...happened) sent {
		return sent{id: id, parent: 0, name: "resolve", from: from, to: from + 5, failed: failed, message: map[bool]string{true: "E: x"}[failed], attrs: attrs{"step": "resolve", "retry.attempt": attempt}, events: events}
	}
	announced := happened{name: "retry.scheduled"}
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100}, step(1, 1, true, 1, announced), step(2, 10, true, 2, announced), step(3, 20, false, 3)), "resolve")
	assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s))
}

func TestAnAgentThatGoesOnAfterItsToolGaveUpLoops(t *testing.T) {
	gaveUp := `{"messages": [{"data": {"content": "Tool 'lookup' failed after 2 attempts with E: x", "status": "error"}}]}`
	run := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 500, ok: true, attrs: oi("CHAIN", "", "", 0)},
		sent{id: 1, parent: 0, name: "tools", from: 1, to: 50, ok: true, attrs: oi("CHAIN", "tools", "tools:1", 2, attrs{"output.value": gaveUp})},
		sent{id: 2, parent: 1, name: "lookup", from: 2, to: 10, failed: true, message: lost429, attrs: oi("TOOL", "tools", "tools:1", 2, attrs{"input.value": "x"})},
		sent{id: 3, parent: 1, name: "lookup", from: 20, to: 30, failed: true, message: lost429, attrs: oi("TOOL", "tools", "tools:1", 2, attrs{"input.value": "x"})},
		sent{id: 4, parent: 0, name: "tools", from: 60, to: 90, ok: true, attrs: oi("CHAIN", "tools", "tools:2", 4)})
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(theStep(t, run, "tools")))
	assert.Equal(t, 2, theStep(t, run, "tools").Visits)
}

func TestGoingOnAfterSomebodyStoppedTheRunIsNoRetry(t *testing.T) {
	cancelled := "CancelledError()Traceback"
	node := func(trace, id, parent int, from int64, message string) sent {
		return sent{trace: trace, id: id, parent: parent, name: "resolve", from: from, to: from + 5, failed: message != "", message: message, attrs: oi("CHAIN", "resolve", "resolve:1", 2, attrs{"thread": "t"})}
	}
	root := func(trace, id int, from int64, message string) sent {
		return sent{trace: trace, id: id, parent: -1, name: "LangGraph", from: from, to: from + 20, failed: message != "", message: message, attrs: oi("CHAIN", "", "", 0, attrs{"thread": "t"})}
	}
	s := theStep(t, runOf(t, scopeOI, root(1, 0, 0, cancelled), node(1, 1, 0, 1, cancelled), root(2, 10, 100, ""), node(2, 11, 10, 101, "")), "resolve")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.Visits)
}

func TestARunningTraceIsNotChargedForWhatIsStillOpen(t *testing.T) {
	// The outer node's first attempt has ended, its second is still open.
	failedNode := func(id, parent int, name, task string, from, to int64) sent {
		return sent{id: id, parent: parent, name: name, from: from, to: to, failed: true, message: lost429, attrs: oi("CHAIN", name, task, 1)}
	}
	run := runOf(t, scopeOI, failedNode(1, 0, "out", "out:1", 1, 50), failedNode(2, 1, "in", "out:1|in:1", 2, 40), failedNode(3, 9, "in", "out:1|in:2", 70, 80))
	assert.Equal(t, 1, run.Budget.Retries)
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(theStep(t, run, "in")))
	assert.Equal(t, 2, theStep(t, run, "out").Executions)
}

func TestAnotherItemIsNoRepeat(t *testing.T) {
	t.Run("a function's", func(t *testing.T) {
		task := func(id int, key string, from int64, failed bool, input string) sent {
			return sent{id: id, parent: 1, name: "score", from: from, to: from + 5, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "score", "ask:1|"+key, 0, attrs{"input.value": input})}
		}
		entry := ask(task(2, "score:1", 10, true, "x"), task(3, "score:2", 20, false, "y"))
		entry[1].attrs = oi("CHAIN", "ask", "ask:1", 0)
		assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, runOf(t, scopeOI, entry...), "score")))
		entry[3].attrs = oi("CHAIN", "score", "ask:1|score:2", 0, attrs{"input.value": "x"})
		assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, runOf(t, scopeOI, entry...), "score")), "the same input again")
	})
	t.Run("a policy's", func(t *testing.T) {
		asked := func(s sent, input string) sent { s.attrs["input.value"] = input; return s }
		s := theStep(t, runOf(t, scopeOI, ask(asked(chain(2, 1, "ChatModel", 2, 40, true), "q1"), badLLM(3, 2, 3, 10, "a"), badLLM(4, 2, 20, 30, "a"),
			asked(chain(5, 1, "ChatModel", 50, 80, false), "q2"), llm(6, 5, 51, 79, "a"))...), "ask")
		assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(s))
		assert.Equal(t, 2, s.Operations)
	})
	t.Run("an application's", func(t *testing.T) {
		chunk := func(id int, from int64, failed bool) sent {
			return sent{id: id, parent: 1, name: "chunk", from: from, to: from + 5, failed: failed, message: map[bool]string{true: "E: x"}[failed], attrs: attrs{"item": id}}
		}
		s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100}, sent{id: 1, parent: 0, name: "embed", from: 1, to: 90, attrs: attrs{"step": "embed"}}, chunk(2, 2, true), chunk(3, 10, false)), "embed")
		assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	})
	t.Run("a request's", func(t *testing.T) {
		get := func(id int, from int64, status int, url string) sent {
			return sent{id: id, parent: 1, name: "GET", from: from, to: from + 5, client: true, failed: status >= 500, attrs: attrs{"http.request.method": "GET", "url.full": url, "http.response.status_code": status}}
		}
		spans := []sent{{id: 0, parent: -1, name: "job", to: 100}, {id: 1, parent: 0, name: "fetch", from: 1, to: 90, attrs: attrs{"step": "fetch"}}, get(2, 2, 503, "https://a.test/x?try=1")}
		assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, runOf(t, scopeApp, append(spans, get(3, 10, 200, "https://b.test/y"))...), "fetch")))
		assert.Equal(t, layers{1, 0, 0, 0, 0}, layersOf(theStep(t, runOf(t, scopeApp, append(spans, get(3, 10, 200, "https://a.test/x?try=2"))...), "fetch")))
	})
}

func TestTheCallersRepeatIsNotChargedAgainInTheService(t *testing.T) {
	post := func(id int, from int64, status int) []sent {
		return []sent{
			{id: id, parent: 1, name: "POST", from: from, to: from + 20, client: true, failed: status >= 500, attrs: attrs{"http.request.method": "POST", "url.path": "/r", "http.response.status_code": status}},
			{id: id + 1, parent: id, name: "reserve", from: from + 1, to: from + 19, failed: status >= 500, attrs: attrs{"step": "reserve"}},
		}
	}
	spans := append([]sent{{id: 0, parent: -1, name: "job", to: 100}, {id: 1, parent: 0, name: "order", from: 1, to: 90, attrs: attrs{"step": "order"}}}, post(10, 2, 503)...)
	run := runOf(t, scopeApp, append(spans, post(20, 40, 200)...)...)
	assert.Equal(t, 1, run.Budget.Retries)
	assert.Equal(t, layers{1, 0, 0, 0, 0}, layersOf(theStep(t, run, "order")))
}

func TestAStepThatIsAFallback(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100},
		sent{id: 1, parent: 0, name: "resolve", from: 1, to: 10, failed: true, message: "E: x", attrs: attrs{"step": "resolve"}},
		sent{id: 2, parent: 0, name: "resolve", from: 20, to: 30, attrs: attrs{"step": "resolve", "fallback": true, "fallback.from": "fast"}}), "resolve")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, attribution.OutcomeByFallback, s.Outcome)
	assert.InDelta(t, 1.0, s.FallbackRate, 0)
}

func TestAStepThatHandsOnTheWholeStateDidNotFail(t *testing.T) {
	node := func(id int, name, task string, step int, from int64, input, output string) sent {
		return sent{id: id, parent: 0, name: name, from: from, to: from + 5, ok: true, attrs: oi("CHAIN", name, task, step, attrs{"input.value": input, "output.value": output})}
	}
	run := runOf(t, scopeOI, sent{id: 0, parent: -1, name: "LangGraph", to: 100, ok: true, attrs: oi("CHAIN", "", "", 0)},
		node(1, "resolve", "resolve:1", 1, 1, `{"q":1}`, `{"error":"boom"}`), node(2, "log", "log:1", 2, 10, `{"q":1,"error":"boom"}`, `{"q":1,"error":"boom","logged":1}`),
		node(3, "resolve", "resolve:2", 3, 20, `{"q":1,"error":"boom"}`, `{"error":null}`), node(4, "log", "log:2", 4, 30, `{"q":1}`, `{"q":1}`))
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, run, "resolve")))
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "log")))
}

func TestACallInAMiddlewaresHookIsNoStepsCall(t *testing.T) {
	run := runOf(t, scopeOI, append(ask(llm(3, 1, 3, 10, "a")),
		sent{id: 20, parent: 0, name: "SummarizationMiddleware.before_model", from: 910, to: 950, ok: true, attrs: oi("CHAIN", "SummarizationMiddleware.before_model", "SummarizationMiddleware.before_model:1", 1)},
		sent{id: 21, parent: 20, name: "ChatModel", from: 911, to: 940, ok: true, attrs: oi("LLM", "SummarizationMiddleware.before_model", "SummarizationMiddleware.before_model:1", 1)})...)
	assert.Equal(t, 1, theStep(t, run, "ask").Calls)
	assert.Equal(t, 1, theStep(t, run, "SummarizationMiddleware.before_model").Calls)
	require.Len(t, run.Steps, 2)
}

func TestAFailedCandidateBelowItsRequest(t *testing.T) {
	s := theStep(t, runOf(t, "pydantic-ai", sent{id: 0, parent: -1, name: "run", scope: scopeApp, to: 100}, sent{id: 1, parent: 0, name: "ask", scope: scopeApp, from: 1, to: 90, attrs: attrs{"step": "ask"}},
		sent{id: 2, parent: 1, name: "chat b", from: 2, to: 80, client: true, attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "b", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}},
		sent{id: 3, parent: 2, name: "model request attempt a", from: 3, to: 10, failed: true, message: "ModelHTTPError: status_code: 503", attrs: attrs{"gen_ai.request.model": "a", "pydantic_ai.model_request.attempt": 0}}), "ask")
	assert.Equal(t, 2, s.Calls)
	assert.Equal(t, 1, s.CallsFailed)
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, int64(10), s.Tokens.Input)
}

func TestNumberedAttemptsOfFallbacks(t *testing.T) {
	chat := func(id int, from int64, model string, failed bool, more attrs) sent {
		more["gen_ai.operation.name"], more["gen_ai.request.model"] = "chat", model
		return sent{id: id, parent: 1, name: "chat " + model, from: from, to: from + 5, client: true, failed: failed, message: map[bool]string{true: "E: 503"}[failed], attrs: more}
	}
	s := theStep(t, runOf(t, scopeApp, sent{id: 0, parent: -1, name: "job", to: 100}, sent{id: 1, parent: 0, name: "ask", from: 0, to: 90, attrs: attrs{"step": "ask"}},
		chat(2, 1, "a", true, attrs{}), chat(3, 10, "a", true, attrs{"tags": "retry:attempt:2"}),
		chat(4, 20, "b", true, attrs{"fallback": 1}), chat(5, 30, "b", true, attrs{"fallback": 1, "tags": "retry:attempt:2"}), chat(6, 40, "c", false, attrs{"fallback": 2})), "ask")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.Fallbacks)
	assert.Equal(t, 1, s.Operations)
}
