package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// What users of other systems were bitten by, each as the spans they had.

const scopeOpenAI = "openinference.instrumentation.openai"

func completion(trace, id, parent int, from, to int64, failed bool, more attrs) sent {
	a := attrs{"openinference.span.kind": "LLM", "llm.invocation_parameters": `{"model":"m"}`, "session.id": "t1"}
	if !failed {
		a["llm.token_count.prompt"], a["llm.token_count.completion"] = 1000, 200
	}
	for k, v := range more {
		a[k] = v
	}
	return sent{trace: trace, id: id, parent: parent, name: "ChatCompletion", scope: scopeOpenAI, from: from, to: to, failed: failed, ok: !failed, message: map[bool]string{true: "RateLimitError: 429"}[failed], attrs: a}
}

func work(step string, inside ...sent) []sent {
	return append([]sent{{id: 0, parent: -1, name: "run", to: 1000}, {id: 1, parent: 0, name: step, from: 1, to: 990, attrs: attrs{"step": step}}}, inside...)
}

func TestField01SiblingsWithoutTags(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), completion(0, 3, 1, 20, 30, true, nil), completion(0, 4, 1, 40, 50, false, nil))...), "ask")
	assert.Equal(t, 3, s.Calls)
	assert.Equal(t, attribution.OutcomeAfterRetry, s.Outcome)
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceInferred}, s.Evidence)
}

func TestField02OneOperationInFiveTraces(t *testing.T) {
	var spans []sent
	for i := range 5 {
		spans = append(spans, completion(i, i, -1, int64(i)*2000, int64(i)*2000+500, i < 4, nil))
	}
	run := runOf(t, scopeApp, spans...)
	assert.Equal(t, "inferred", run.JoinedBy)
	s := theStep(t, run, "ChatCompletion")
	assert.Equal(t, 1, s.Operations)
	assert.Equal(t, layers{-1, 4, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 4, s.CallsFailed)
	assert.Equal(t, attribution.OutcomeAfterRetry, s.Outcome)
	assert.Equal(t, "ok", run.Outcome, "no failed operation: a page for operations stays silent")
	assert.Equal(t, 1, run.Deliveries)

	for i := range spans {
		spans[i].from, spans[i].to = int64(i)*3_600_000, int64(i)*3_600_000+500
	}
	assert.Len(t, ledgerOf(t, scopeApp, spans...).Runs, 5, "an hour apart they are runs of their own")
	for i := range spans {
		spans[i].from, spans[i].to, spans[i].attrs["session.id"] = int64(i)*2000, int64(i)*2000+500, ""
	}
	assert.Len(t, ledgerOf(t, scopeApp, spans...).Runs, 5, "nothing joins them")
}

func TestField03And05OperationsAndAttemptsAreCountedApart(t *testing.T) {
	run := runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), completion(0, 3, 1, 20, 30, false, nil))...)
	s := theStep(t, run, "ask")
	assert.Equal(t, 1, s.Operations)
	assert.Equal(t, 2, s.Calls)
	assert.Equal(t, int64(1200), s.Tokens.Input+s.Tokens.Output)
	assert.Equal(t, int64(0), s.Wasted.Input+s.Wasted.Output)
	assert.Equal(t, 1, s.Wasted.UnknownCalls)
	assert.Positive(t, s.Wasted.TimeMs)
}

func TestField04TheModelRetrySpan(t *testing.T) {
	mark := sent{id: 3, parent: 1, name: "model_retry", from: 11, to: 12, attrs: attrs{"attempt": 2, "max_attempts": 3, "failed_model": "m", "next_model": "n", "error_type": "RateLimitError", "backoff_seconds": 1.5, "retry_with": "fallback", "status_code": 429}}
	s := theStep(t, runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), mark, completion(0, 4, 1, 20, 30, false, attrs{"llm.invocation_parameters": `{"model":"n"}`}))...), "ask")
	assert.Equal(t, 1, s.Fallbacks)
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	again := mark
	again.attrs = attrs{"attempt": 2, "max_attempts": 3, "failed_model": "m", "next_model": "m", "error_type": "RateLimitError"}
	alone := theStep(t, runOf(t, scopeApp, work("ask", again)...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(alone), "the mark tells of the repeat even where no call is seen")
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceAttribute}, alone.Evidence)
	both := theStep(t, runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), again, completion(0, 4, 1, 20, 30, false, nil))...), "ask")
	assert.Equal(t, layers{-1, 1, 0, 0, 0}, layersOf(both), "and is no second one where it is")
}

func TestField06And07TheFactorsOfThreeLayers(t *testing.T) {
	spans := []sent{{id: 0, parent: -1, name: "run", to: 10_000}}
	id, at := 100, int64(1)
	for node := range 3 {
		n := id
		spans = append(spans, sent{id: n, parent: 0, name: "ask", from: at, to: at + 900, failed: true, message: "E: 503", attrs: attrs{"step": "ask", "retry.attempt": node + 1}})
		for range 3 {
			id++
			call := id
			spans = append(spans, completion(0, call, n, at+1, at+200, true, nil))
			for range 5 {
				id++
				spans = append(spans, sent{id: id, parent: call, name: "POST", from: at + 2, to: at + 20, client: true, failed: true, attrs: attrs{"http.request.method": "POST", "http.response.status_code": 503}})
				at += 30
			}
			at += 100
		}
		id++
		at += 500
	}
	for i := range spans { // the nodes last as long as what is in them
		if spans[i].name == "ask" {
			spans[i].to = spans[i].from + 3*(5*30+100) + 10
		}
		if spans[i].name == "ChatCompletion" {
			spans[i].to = spans[i].from + 5*30
		}
	}
	s := theStep(t, runOf(t, scopeApp, spans...), "ask")
	assert.Equal(t, "3×3×5", s.Factorisation)
	assert.Equal(t, 45, s.HTTPCalls)
	assert.Equal(t, layers{36, 6, 2, 0, 0}, layersOf(s))
}

func TestField09TheGroupOfAnAttempt(t *testing.T) {
	s := theStep(t, runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), completion(0, 3, 1, 20, 30, true, nil), completion(0, 4, 1, 40, 50, false, nil))...), "ask")
	assert.Equal(t, 1, s.Operations, "two failures and a success are one operation in three rows")
}

func TestField11TheErrorIsThePrimarys(t *testing.T) {
	second := completion(0, 3, 1, 20, 30, true, attrs{"llm.invocation_parameters": `{"model":"n"}`})
	second.message = "NotFoundError: 404"
	run := runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), second)...)
	require.NotEmpty(t, run.Operations)
	assert.Equal(t, "RateLimitError", run.Operations[0].FirstError)
	assert.Equal(t, "NotFoundError", run.Operations[0].LastError)
}

func TestField12OperationsAndAttemptsSideBySide(t *testing.T) {
	other := attrs{"llm.invocation_parameters": `{"model":"n"}`}
	run := runOf(t, scopeApp, work("ask",
		completion(0, 2, 1, 2, 10, true, nil), completion(0, 3, 1, 20, 30, false, nil), // retried
		completion(0, 4, 1, 40, 50, false, nil),                                                                                         // well at once
		completion(0, 5, 1, 60, 70, true, nil), completion(0, 6, 1, 80, 90, true, nil), completion(0, 7, 1, 100, 110, false, other))...) // retried, then another model
	s := theStep(t, run, "ask")
	assert.Equal(t, []int{3, 6, 3}, []int{s.Operations, s.Calls, s.CallsFailed}, "three things were wanted, six attempts made")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 1, s.Fallbacks)
	assert.InDelta(t, 1.0/3, s.FallbackRate, 1e-9, "of operations, not of attempts")
	outcomes := make(map[attribution.Outcome]int)
	attempts := 0
	for _, o := range run.Operations {
		if o.CountsInStep {
			outcomes[o.Outcome]++
			attempts += o.Attempts
		}
	}
	assert.Equal(t, map[attribution.Outcome]int{attribution.OutcomeAfterRetry: 1, attribution.OutcomeFirstTry: 1, attribution.OutcomeByFallback: 1}, outcomes, "no operation failed, though half the attempts did")
	assert.Equal(t, s.Calls, attempts)
}

func TestField13TheAttributesInUse(t *testing.T) {
	for name, a := range map[string]attrs{
		"retry.attempt": {"retry.attempt": 2}, "tags": {"tags": []any{"retry:attempt:2"}},
	} {
		rows := rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: a})
		assert.Equal(t, int32(2), rows[0].Attempt, name)
	}
	assert.Equal(t, int32(1), rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: attrs{"http.request.resend_count": 1}})[0].ResendCount)
	assert.Equal(t, int32(2), rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, attrs: attrs{"retry.count": 2}})[0].RetryCount)
	assert.Len(t, rowsOf(t, scopeApp, sent{id: 1, parent: -1, to: 1, events: []happened{{name: "retry"}, {name: "retrying"}, {name: "retry.attempt"}, {name: "retry.scheduled"}, {name: "other"}}})[0].RetryEvents, 4)
}

func TestField14ALogicalSpanOverItsAttempts(t *testing.T) {
	logical := completion(0, 2, 1, 2, 50, false, nil)
	s := theStep(t, runOf(t, scopeApp, work("ask", logical, completion(0, 3, 2, 3, 10, true, nil), completion(0, 4, 2, 20, 49, false, nil))...), "ask")
	assert.Equal(t, 2, s.Calls)
	assert.Equal(t, 1, s.CallsFailed)
	assert.Equal(t, attribution.OutcomeAfterRetry, s.Outcome)
}

func TestField15WhichErrorSwitched(t *testing.T) {
	run := runOf(t, scopeApp, work("ask", completion(0, 2, 1, 2, 10, true, nil), completion(0, 3, 1, 20, 30, false, attrs{"llm.invocation_parameters": `{"model":"n"}`}))...)
	assert.Equal(t, "RateLimitError", run.Attempts[2].FallbackReason)
	assert.Equal(t, "m", run.Attempts[2].FallbackFrom)
	assert.Equal(t, "n", run.Attempts[2].Model)
}

// Round 2 of a batch of three: item 1 is well, item 2 fails again, and what its wrapper
// returned is another item's.
func TestField16ABatchThatHandsOnAnotherInputsOutput(t *testing.T) {
	const lost = "RateLimitError: 429"
	observed := func(id, parent int, name, kind string, from, to int64, failed bool, tags string) sent {
		more := attrs{}
		if failed {
			more["langfuse.observation.level"], more["langfuse.observation.status_message"] = "ERROR", lost
		}
		return sent{id: id, parent: parent, name: name, from: from, to: to, attrs: lf(kind, "ask", "ask:1", tags, more)}
	}
	const second = `["retry:attempt:2"]`
	batch := func(lastWrapperFailed bool) attribution.Run {
		return runOf(t, scopeLangfuse, sent{id: 0, parent: -1, name: "LangGraph", to: 100, attrs: lf("chain", "", "", "")},
			observed(1, 0, "ask", "chain", 1, 90, false, ""),
			observed(10, 1, "M", "chain", 2, 50, false, ""), observed(11, 1, "M", "chain", 2, 50, false, ""), observed(12, 1, "M", "chain", 2, 50, lastWrapperFailed, ""),
			observed(20, 10, "M", "generation", 3, 10, false, ""), observed(21, 11, "M", "generation", 3, 10, true, ""), observed(22, 12, "M", "generation", 3, 10, true, ""),
			observed(31, 11, "M", "generation", 20, 30, false, second), observed(32, 12, "M", "generation", 20, 30, true, second))
	}
	run := batch(false)
	s := theStep(t, run, "ask")
	assert.Equal(t, []int{3, 5, 3}, []int{s.Operations, s.Calls, s.CallsFailed})
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s), "two items in the second round")
	assert.Equal(t, "2", s.Factorisation, "which is one round")
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceTag}, s.Evidence)
	assert.Equal(t, []string{"step ask: 1 retry wrapper of M ended well although the last attempt in it failed; what it returned may belong to another input"}, run.Warnings)
	assert.Empty(t, batch(true).Warnings, "a wrapper that says so is as it should be")

	// Below a node of LangGraph for Python the attempts lie beside their childless wrappers.
	input := func(s sent, text string) sent { s.attrs["input.value"] = text; return s }
	python := func(lastWrapperFailed bool) attribution.Run {
		return runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 60, false), chain(3, 1, "ChatModel", 2, 60, false), chain(4, 1, "ChatModel", 2, 60, lastWrapperFailed),
			input(llm(5, 1, 3, 10, "a"), "x"), input(badLLM(6, 1, 3, 10, "a"), "y"), input(badLLM(7, 1, 3, 11, "a"), "z"),
			input(llm(8, 1, 40, 50, "a"), "y"), input(badLLM(9, 1, 40, 51, "a"), "z"))...)
	}
	assert.Len(t, python(false).Warnings, 1)
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(theStep(t, python(false), "ask")))
	assert.Empty(t, python(true).Warnings)
	swapped := runOf(t, scopeOI, ask(chain(2, 1, "ChatModel", 2, 60, true), chain(3, 1, "ChatModel", 2, 60, false),
		llm(5, 1, 3, 10, "a"), badLLM(6, 1, 4, 10, "a"), badLLM(7, 1, 40, 51, "a"))...)
	assert.Empty(t, swapped.Warnings, "one input failed and one wrapper says so, whichever it is")
}

func TestField17WasteIsAllBelowALostAttempt(t *testing.T) {
	var spans []sent
	for i, failed := range []bool{true, false} {
		n, at := 10*(i+1), int64(1000*i)
		spans = append(spans, sent{id: n, parent: 0, name: "node", from: at + 1, to: at + 900, failed: failed, message: map[bool]string{true: "E: x"}[failed], attrs: attrs{"step": "node"}},
			completion(0, n+1, n, at+2, at+100, false, nil), completion(0, n+2, n, at+200, at+300, false, nil))
	}
	s := theStep(t, runOf(t, scopeApp, append(spans, sent{id: 0, parent: -1, name: "run", to: 2000})...), "node")
	assert.Equal(t, int64(2000), s.Wasted.Input, "both calls of the lost attempt, though each succeeded")
	assert.InDelta(t, 899, s.Wasted.TimeMs, 1e-9)
}

func TestField18AStreamThatBreaksMidwayIsNotRecoveredByAFallback(t *testing.T) {
	s := theStep(t, runOf(t, scopeOI, ask(chain(2, 1, "RunnableWithFallbacks", 2, 100, true), badLLM(3, 2, 3, 10, "a"))...), "ask")
	assert.Equal(t, 0, s.Fallbacks)
	assert.Equal(t, 1, s.CallsFailed)
}

func TestField19TheSameToolWithTheSameArguments(t *testing.T) {
	loop := func(tools int, arguments func(int) string, more ...sent) attribution.Run {
		spans := []sent{
			{id: 0, parent: -1, name: "LangGraph", to: 10_000, failed: true, message: "GraphRecursionError('Recursion limit of 25 reached')Traceback", attrs: oi("CHAIN", "", "", 0)},
		}
		for i := range tools {
			at, n := int64(100*i), 10*(i+1)
			task := func(name string) string { return name + ":" + string(rune('a'+i)) }
			spans = append(spans, sent{id: n, parent: 0, name: "agent", from: at, to: at + 40, ok: true, attrs: oi("CHAIN", "agent", task("agent"), 2*i+1)},
				sent{id: n + 1, parent: n, name: "ChatModel", from: at + 1, to: at + 30, ok: true, attrs: oi("LLM", "agent", task("agent"), 2*i+1)},
				sent{id: n + 2, parent: 0, name: "tools", from: at + 50, to: at + 90, ok: true, attrs: oi("CHAIN", "tools", task("tools"), 2*i+2)},
				sent{id: n + 3, parent: n + 2, name: "search", from: at + 51, to: at + 80, ok: true, attrs: oi("TOOL", "tools", task("tools"), 2*i+2, attrs{"input.value": arguments(i)})})
		}
		return runOf(t, scopeOI, append(spans, more...)...)
	}
	same := func(int) string { return `{"query":"x"}` }
	assert.Equal(t, []string{"step tools: tool search ran 5 times with the same arguments"}, loop(5, same).Warnings)
	assert.Empty(t, loop(4, same).Warnings)
	assert.Empty(t, loop(9, func(i int) string { return `{"query":"` + string(rune('a'+i)) + `"}` }).Warnings, "other arguments are progress")
	assert.Empty(t, loop(9, func(int) string { return "" }).Warnings, "arguments that nobody stated are not known to be the same")

	tool := func(id int, from int64, failed bool, key string) sent {
		return sent{id: id, parent: 1, name: "execute_tool search", from: from, to: from + 5, failed: failed, message: map[bool]string{true: "E: 503"}[failed],
			attrs: attrs{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", key: map[string]any{"b": 1, "a": "x"}}}
	}
	several := func(gap int64, failed bool, key string) []string {
		var spans []sent
		for i := range 6 {
			spans = append(spans, tool(10+i, 10+gap*int64(i), failed, key))
		}
		return runOf(t, scopeApp, work("agent", spans...)...).Warnings
	}
	assert.Equal(t, []string{"step agent: tool execute_tool search ran 6 times with the same arguments"}, several(20, false, "gen_ai.tool.call.arguments"))
	assert.Empty(t, several(0, false, "gen_ai.tool.call.arguments"), "side by side they are a fan-out")
	assert.Empty(t, several(20, true, "gen_ai.tool.call.arguments"), "one that failed and is tried again is retried")
	assert.Empty(t, several(20, false, "other"))
}
