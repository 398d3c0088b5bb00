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
