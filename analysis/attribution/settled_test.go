package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// theOperation is the only operation of a step at one grain.
func theOperation(t *testing.T, run attribution.Run, step string, grain attribution.Grain) attribution.Operation {
	t.Helper()
	var found []attribution.Operation
	for _, o := range run.Operations {
		if o.Step == step && o.Grain == grain {
			found = append(found, o)
		}
	}
	require.Len(t, found, 1, "operations of grain %s of step %s", grain, step)
	return found[0]
}

func isSettled(t *testing.T, want bool, run attribution.Run, step string, grain attribution.Grain) {
	t.Helper()
	assert.Equal(t, want, theOperation(t, run, step, grain).Settled, "%s of %s", grain, step)
}

func TestFailureIsSettledByTheEndOfWhatWouldRepeatIt(t *testing.T) {
	outer, inner := task("outer", "outer:1", 1), task("inner", "outer:1|inner:1", 1)
	failedCall := with(span(1, 3, 2, "ChatModel", 12, 15), inner, model("m"), failed("RateLimitError"))
	innerEnded := with(span(1, 2, 1, "inner", 11, 20), inner, failed("RateLimitError"))
	outerEnded := with(span(1, 1, 0, "outer", 10, 30), outer)
	rootEnded := graphRoot(1, 100)

	run := theRun(t, account(failedCall))
	isSettled(t, false, run, "inner", attribution.GrainCall)

	run = theRun(t, account(failedCall, innerEnded))
	isSettled(t, true, run, "inner", attribution.GrainCall)
	isSettled(t, false, run, "inner", attribution.GrainExecution)

	run = theRun(t, account(failedCall, innerEnded, outerEnded))
	isSettled(t, false, run, "inner", attribution.GrainExecution) // the graph may enter outer, and so inner, again
	isSettled(t, true, run, "outer", attribution.GrainExecution)  // it succeeded, which nothing undoes

	run = theRun(t, account(failedCall, innerEnded, outerEnded, rootEnded))
	isSettled(t, true, run, "inner", attribution.GrainExecution)
}

func TestFailedCallIsSettledByItsRetryWrapper(t *testing.T) {
	in := task("ask", "ask:1", 1)
	attempt := func(id int, start, end int64) schema.Span {
		return with(span(1, id, 2, "ChatModel", start, end), in, model("m"), failed("RateLimitError"))
	}
	wrapper := with(span(1, 2, 1, "RunnableRetry", 10, 40), in, failed("RateLimitError"), func(s *schema.Span) { s.RetryWrapper = true })
	run := theRun(t, account(attempt(3, 11, 15), attempt(4, 20, 25)))
	isSettled(t, false, run, "ask", attribution.GrainCall)
	run = theRun(t, account(attempt(3, 11, 15), attempt(4, 20, 25), wrapper))
	isSettled(t, true, run, "ask", attribution.GrainCall)
	assert.Equal(t, 2, theOperation(t, run, "ask", attribution.GrainCall).Attempts)
}

func TestRunsWordSettlesItsFailures(t *testing.T) {
	visit := with(span(1, 1, 0, "resolve", 10, 20), task("resolve", "resolve:1", 1), failed("TimeoutError"))
	for name, end := range map[string]func(*schema.Span){
		"complete":   func(s *schema.Span) { s.Complete = schema.FlagYes },
		"incomplete": func(s *schema.Span) { s.Complete = schema.FlagNo },
		"cancelled":  func(s *schema.Span) { s.RunCancelled = true },
	} {
		run := theRun(t, account(visit, with(span(1, 2, 0, "finish", 30, 31), end)))
		assert.True(t, theOperation(t, run, "resolve", attribution.GrainExecution).Settled, name)
	}
}

func TestStepThatIsATraceOfItsOwnMayBeFollowedByAnother(t *testing.T) {
	alone := func(s *schema.Span) { s.ThreadID = "thread" }
	run := theRun(t, account(with(span(1, 1, -1, "resolve", 10, 20), step("resolve"), failed("TimeoutError"), alone)))
	isSettled(t, false, run, "resolve", attribution.GrainExecution)
}

// The root of a trace settles what failed in it, whatever later traces of the run do.
func TestEachTraceHasARootOfItsOwn(t *testing.T) {
	same := func(s *schema.Span) { s.RunID, s.RunIDRank = "run-7", 1 }
	second := func(s *schema.Span) { s.ThreadID = "thread" }
	run := theRun(t, account(graphRoot(1, 100, same, failed("Error")),
		with(span(1, 1, 0, "load", 10, 20), task("load", "load:1", 1), same, failed("Error")),
		with(span(2, 1, 0, "store", 210, 220), task("store", "store:1", 2), same, second, failed("Error"))))
	isSettled(t, true, run, "load", attribution.GrainExecution)
	isSettled(t, false, run, "store", attribution.GrainExecution)
}

func TestRequestsAreTheInnermostSends(t *testing.T) {
	in := step("ask")
	client := func(status int32) func(*schema.Span) {
		return func(s *schema.Span) {
			s.Role, s.HTTPStatus = schema.RoleHTTP, status
			if status >= 400 {
				s.Failed, s.ErrorClass = true, "error"
			}
		}
	}
	by := func(name string) func(*schema.Span) { return func(s *schema.Span) { s.Provider = name } }
	run := theRun(t, account(with(span(1, 0, -1, "ask", 0, 100), in),
		with(span(1, 1, 0, "chat m", 1, 50), model("m"), by("acme")),
		with(span(1, 2, 1, "POST", 2, 10), client(503)),
		with(span(1, 3, 1, "POST", 20, 40), client(200)),
		with(span(1, 4, 0, "chat n", 60, 70), model("n"), by("other"), func(s *schema.Span) {
			s.RetryEvents = []schema.RetryEvent{{TimeNs: epoch + 65*ms, ErrorClass: "OverloadedError", HTTPStatus: 529}}
		})))
	type request struct {
		grain    attribution.Grain
		provider string
		status   int
	}
	var requests []request
	for _, a := range run.Attempts {
		if a.Request {
			requests = append(requests, request{a.Grain, a.Provider, a.HTTPStatus})
		}
	}
	assert.Equal(t, []request{
		{attribution.GrainHTTP, "acme", 503}, {attribution.GrainHTTP, "acme", 200},
		{attribution.GrainCall, "other", 0}, {attribution.GrainWork, "other", 529},
	}, requests)
}

func TestMidwayIsAFailureAfterTheFirstWord(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*schema.Span)
		want bool
	}{
		"refused":       {failed("RateLimitError"), false},
		"said 3 tokens": {func(s *schema.Span) { s.Failed, s.OutputTokens = true, 3 }, true},
		"said nothing":  {func(s *schema.Span) { s.Failed, s.OutputTokens = true, 0 }, false},
		"status 200":    {func(s *schema.Span) { s.Failed, s.HTTPStatus = true, 200 }, true},
		"finish reason": {func(s *schema.Span) { s.Failed, s.FinishReason = true, "error" }, true},
		"well":          {func(s *schema.Span) { s.OutputTokens, s.HTTPStatus = 35, 200 }, false},
	} {
		run := theRun(t, account(with(span(1, 0, -1, "ask", 0, 100), step("ask")), with(span(1, 1, 0, "chat", 1, 9), model("m"), c.edit)))
		var midway []bool
		for _, a := range run.Attempts {
			if a.Grain == attribution.GrainCall {
				midway = append(midway, a.Midway)
			}
		}
		assert.Equal(t, []bool{c.want}, midway, name)
	}
}

func TestViolatedIsTheExecutionThatMissedAKey(t *testing.T) {
	missed := func(s *schema.Span) {
		s.Violations = []schema.Violation{{Node: "rank", Key: "deduplicated", Direction: "input", TimeNs: epoch + 35*ms}}
	}
	run := theRun(t, account(graphRoot(1, 100), with(span(1, 1, 0, "rank", 10, 20), step("rank")), with(span(1, 2, 0, "rank", 30, 40), step("rank"), missed)))
	require.Len(t, run.Attempts, 2)
	assert.False(t, run.Attempts[0].Violated)
	assert.True(t, run.Attempts[1].Violated)
}
