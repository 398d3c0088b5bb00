package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// theRun is the only run of a ledger, with its identities checked.
func theRun(t *testing.T, ledger attribution.Ledger) attribution.Run {
	t.Helper()
	require.Len(t, ledger.Runs, 1)
	assert.Empty(t, ledger.Runs[0].BrokenIdentities())
	return ledger.Runs[0]
}

func theStep(t *testing.T, run attribution.Run, name string) attribution.Step {
	t.Helper()
	for _, s := range run.Steps {
		if s.Step == name {
			return s
		}
	}
	require.Failf(t, "no such step", "%q is not among %d steps", name, len(run.Steps))
	return attribution.Step{}
}

// layers are the numbers of retries by layer, -1 for one that is not observable.
type layers struct{ transport, call, node, orchestrator, worker int }

func layersOf(s attribution.Step) layers {
	number := func(n *int) int {
		if n == nil {
			return -1
		}
		return *n
	}
	return layers{number(s.Retries.Transport), number(s.Retries.Call), number(s.Retries.Node), number(s.Retries.Orchestrator), number(s.Retries.Worker)}
}

func graphRoot(trace int, end int64, edits ...func(*schema.Span)) schema.Span {
	return with(span(trace, 0, -1, "LangGraph", 0, end), append([]func(*schema.Span){role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true }}, edits...)...)
}

func TestNodeRunsOfOneTaskAreNodeRetries(t *testing.T) {
	in := task("resolve", "resolve:1", 2)
	run := theRun(t, account(graphRoot(1, 100),
		with(span(1, 1, 0, "resolve", 10, 20), in, failed("TimeoutError")),
		with(span(1, 2, 0, "resolve", 30, 40), in, failed("TimeoutError")),
		with(span(1, 3, 0, "resolve", 55, 70), in)))
	s := theStep(t, run, "resolve")
	assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s))
	assert.Equal(t, 3, s.Executions)
	assert.Equal(t, 1, s.Visits)
	assert.Equal(t, attribution.OutcomeAfterRetry, s.Outcome)
	assert.Equal(t, "3", s.Factorisation)
	assert.InDelta(t, 20, s.Wasted.TimeMs, 1e-9, "two attempts of 10 ms")
	assert.InDelta(t, 25, s.Wasted.WaitMs, 1e-9, "10 ms and 15 ms between attempts")
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceStructure}, s.Evidence)
	assert.Equal(t, []attribution.ErrorCount{{Class: "TimeoutError", Count: 2}}, s.Errors)
}

func TestBranchesOfAFanOutAreNoRetries(t *testing.T) {
	// The second branch begins after the first has failed, as under a concurrency limit.
	run := theRun(t, account(graphRoot(1, 100),
		with(span(1, 1, 0, "score", 10, 20), task("score", "score:1", 2), failed("TimeoutError")),
		with(span(1, 2, 0, "score", 30, 40), task("score", "score:2", 2))))
	s := theStep(t, run, "score")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
	assert.Equal(t, 2, s.Visits)
	assert.Equal(t, attribution.OutcomeHandled, s.Outcome, "the worst branch's: it failed and the run went on")
}

func TestReEntryAfterFailureToldInTheOutputIsAnOrchestratorRetry(t *testing.T) {
	told := func(s *schema.Span) { s.OutputFailed, s.OutputReason = true, "status is error" }
	run := theRun(t, account(graphRoot(1, 100),
		with(span(1, 1, 0, "resolve", 10, 20), task("resolve", "resolve:1", 1), told),
		with(span(1, 2, 0, "resolve", 30, 40), task("resolve", "resolve:2", 2))))
	s := theStep(t, run, "resolve")
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(s))
	assert.Equal(t, []attribution.Evidence{attribution.EvidenceOutput}, s.Evidence)

	loop := theStep(t, theRun(t, account(graphRoot(1, 100),
		with(span(1, 1, 0, "resolve", 10, 20), task("resolve", "resolve:1", 1)),
		with(span(1, 2, 0, "resolve", 30, 40), task("resolve", "resolve:2", 2)))), "resolve")
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(loop), "a loop after success is no retry")
	assert.Equal(t, 2, loop.Visits)
}

func TestOneDecisionIsChargedOnceToTheInnermostStep(t *testing.T) {
	told := func(s *schema.Span) { s.OutputFailed = true }
	spans := []schema.Span{
		graphRoot(1, 200),
		with(span(1, 1, 0, "dispatch", 10, 50), task("dispatch", "dispatch:1", 1), told),
		with(span(1, 2, 1, "sub", 11, 49), task("dispatch", "dispatch:1", 1), failed("ServerError")),
		with(span(1, 3, 2, "resolve", 12, 20), task("resolve", "dispatch:1|resolve:1", 1), failed("ServerError")),
		with(span(1, 4, 2, "resolve", 30, 40), task("resolve", "dispatch:1|resolve:1", 1), failed("ServerError")),
		with(span(1, 5, 0, "dispatch", 60, 90), task("dispatch", "dispatch:2", 3)),
		with(span(1, 6, 5, "sub", 61, 89), task("dispatch", "dispatch:2", 3)),
		with(span(1, 7, 6, "resolve", 62, 80), task("resolve", "dispatch:2|resolve:2", 1)),
	}
	run := theRun(t, account(spans...))
	assert.Equal(t, layers{-1, 0, 1, 1, 0}, layersOf(theStep(t, run, "resolve")))
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "dispatch")))
	assert.Equal(t, 2, theStep(t, run, "dispatch").Visits)
	assert.Equal(t, 2, run.Budget.Retries, "a run's total is the sum over its steps")
}

func TestAnEnginesRepeatOfTheOuterStepIsTheInnerStepsInTheSameLayer(t *testing.T) {
	outer := task("outer", "outer:1", 1)
	run := theRun(t, account(graphRoot(1, 200, failed("ServerError")),
		with(span(1, 1, 0, "outer", 10, 50), outer, failed("ServerError")),
		with(span(1, 2, 1, "resolve", 12, 40), task("resolve", "outer:1|resolve:1", 1), failed("ServerError")),
		with(span(1, 3, 0, "outer", 60, 90), outer, failed("ServerError")),
		with(span(1, 4, 3, "resolve", 62, 80), task("resolve", "outer:1|resolve:2", 1), failed("ServerError"))))
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(theStep(t, run, "resolve")))
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "outer")))

	own := theRun(t, account(graphRoot(1, 200),
		with(span(1, 1, 0, "outer", 10, 50), outer, failed("ServerError")),
		with(span(1, 2, 1, "resolve", 12, 40), task("resolve", "outer:1|resolve:1", 1)),
		with(span(1, 3, 0, "outer", 60, 90), outer),
		with(span(1, 4, 3, "resolve", 62, 80), task("resolve", "outer:1|resolve:2", 1))))
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(theStep(t, own, "outer")), "nothing inside failed: the outer step is charged")
	assert.Equal(t, 2, theStep(t, own, "resolve").Visits, "a step that had succeeded is visited")
}

func TestInterruptAndResumeIsNoRetry(t *testing.T) {
	thread := func(s *schema.Span) { s.ThreadID = "t" }
	in := task("approve", "approve:1", 2)
	spans := []schema.Span{
		graphRoot(1, 50, thread),
		with(span(1, 1, 0, "approve", 10, 20), in, thread, func(s *schema.Span) { s.Flow = schema.FlowInterrupt }),
	}
	first := theRun(t, account(spans...))
	assert.Equal(t, "interrupted", first.Completion)
	assert.Equal(t, "interrupted", first.Outcome)
	spans = append(spans, with(span(2, 10, -1, "LangGraph", 100, 150), role(schema.RoleChain), thread, func(s *schema.Span) { s.GraphRoot = true }),
		with(span(2, 11, 10, "approve", 110, 120), in, thread))
	run := theRun(t, account(spans...))
	assert.Equal(t, "task", run.JoinedBy)
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "approve")))
	assert.Equal(t, "unflagged", run.Completion)
	assert.Equal(t, 2, run.Deliveries)

	for i := range spans { // without a thread an equal task id joins nothing
		spans[i].ThreadID = ""
	}
	assert.Len(t, account(spans...).Runs, 2)
}

func TestResumeAfterAKillIsAWorkerRetry(t *testing.T) {
	thread := func(s *schema.Span) { s.ThreadID = "t" }
	in := task("resolve", "resolve:1", 2)
	run := theRun(t, account(
		with(span(1, 5, 4, "ChatModel", 10, 20), in, thread, model("m"), tokens(10, 5)), // the node's own span never came
		with(span(2, 10, -1, "LangGraph", 100, 150), role(schema.RoleChain), thread, func(s *schema.Span) { s.GraphRoot = true }),
		with(span(2, 11, 10, "resolve", 110, 120), in, thread)))
	s := theStep(t, run, "resolve")
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(s))
	assert.Equal(t, 2, s.Executions)
	assert.Equal(t, int64(10), s.Wasted.Input, "the killed execution's tokens were spent for nothing")
	assert.Equal(t, 1, run.OrphanSpans)
}

func TestFallbackCandidates(t *testing.T) {
	wrapper := func(s *schema.Span) { s.Role, s.FallbackWrapper = schema.RoleChain, true }
	in := task("ask", "ask:1", 1)
	base := []schema.Span{graphRoot(1, 100), with(span(1, 1, 0, "ask", 10, 90), in)}
	t.Run("in their wrapper", func(t *testing.T) {
		run := theRun(t, account(append(base,
			with(span(1, 2, 1, "RunnableWithFallbacks", 11, 80), in, wrapper),
			with(span(1, 3, 2, "ChatModel", 12, 20), in, model("a"), failed("RateLimitError")),
			with(span(1, 4, 2, "ChatModel", 21, 30), in, model("a"), tokens(1, 1)))...))
		s := theStep(t, run, "ask")
		assert.Equal(t, 1, s.Fallbacks, "a fallback to the same model is known by its wrapper only")
		assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(s))
		assert.InDelta(t, 1.0, s.FallbackRate, 0)
		assert.Equal(t, attribution.OutcomeByFallback, s.Outcome)
	})
	t.Run("beside their childless wrapper", func(t *testing.T) {
		run := theRun(t, account(append(base,
			with(span(1, 2, 1, "RunnableWithFallbacks", 11, 50), in, wrapper),
			with(span(1, 3, 1, "ChatModel", 12, 20), in, model("a"), failed("RateLimitError")),
			with(span(1, 4, 1, "ChatModel", 21, 49), in, model("b")),
			with(span(1, 5, 1, "ChatModel", 60, 70), in, model("b")))...))
		s := theStep(t, run, "ask")
		assert.Equal(t, 1, s.Fallbacks)
		assert.Equal(t, 3, s.Calls)
		assert.Equal(t, 2, s.Operations, "a later call of a candidate's model is another operation")
		assert.Equal(t, "a", run.Attempts[2].FallbackFrom)
	})
	t.Run("refused by a breaker", func(t *testing.T) {
		run := theRun(t, account(with(span(1, 0, -1, "run", 0, 50)), with(span(1, 1, 0, "ask", 1, 40), step("ask")),
			with(span(1, 2, 1, "call b", 2, 30), func(s *schema.Span) { s.Fallback, s.FallbackFrom, s.FallbackReason = 1, "a", "circuit_open" })))
		s := theStep(t, run, "ask")
		assert.Equal(t, 1, s.Fallbacks)
		assert.InDelta(t, 1.0, s.FallbackRate, 0)
		assert.Equal(t, "circuit_open", run.Attempts[1].FallbackReason)
	})
}

func TestAttemptsThatOnlyANumberTellsOf(t *testing.T) {
	numbered := func(n int32) func(*schema.Span) {
		return func(s *schema.Span) { s.Attempt, s.AttemptEvidence = n, "tag" }
	}
	root := with(span(1, 0, -1, "run", 0, 100))
	run := theRun(t, account(root, with(span(1, 1, 0, "resolve", 10, 20), step("resolve"), numbered(3))))
	s := theStep(t, run, "resolve")
	assert.Equal(t, 3, s.Executions, "the spans of attempts 1 and 2 never came")
	assert.Equal(t, layers{-1, 0, 2, 0, 0}, layersOf(s))

	run = theRun(t, account(root, with(span(1, 1, 0, "ask", 1, 90), step("ask")), with(span(1, 2, 1, "llm", 10, 20), model("m"), numbered(3))))
	s = theStep(t, run, "ask")
	assert.Equal(t, 1, s.Calls, "calls are what the spans show")
	assert.Equal(t, layers{-1, 2, 0, 0, 0}, layersOf(s))

	run = theRun(t, account(root, with(span(1, 1, 0, "resolve", 10, 20), step("resolve"), numbered(2_000_000_000))))
	assert.Less(t, len(run.Attempts), 200, "a number may not bring any amount of attempts to life")
}

func TestRetryEventsAndSpansOfOneRepeatCountOnce(t *testing.T) {
	events := func(n int) func(*schema.Span) {
		return func(s *schema.Span) {
			for i := range n {
				s.RetryEvents = append(s.RetryEvents, schema.RetryEvent{TimeNs: s.StartNs + int64(i)*ms, ErrorClass: "Busy"})
			}
		}
	}
	root := with(span(1, 0, -1, "run", 0, 100))
	for _, test := range []struct {
		name   string
		events int
		want   int
	}{{"as many", 1, 1}, {"more events", 3, 3}, {"no events", 0, 1}} {
		t.Run(test.name, func(t *testing.T) {
			s := theStep(t, theRun(t, account(root, with(span(1, 1, 0, "ask", 1, 90), step("ask"), events(test.events)),
				with(span(1, 2, 1, "try", 10, 20), failed("Busy")), with(span(1, 3, 1, "try", 30, 40)))), "ask")
			assert.Equal(t, layers{-1, test.want, 0, 0, 0}, layersOf(s))
		})
	}
	inside := theStep(t, theRun(t, account(root, with(span(1, 1, 0, "ask", 1, 90), step("ask")),
		with(span(1, 2, 1, "llm", 10, 20), model("m"), events(2)))), "ask")
	assert.Equal(t, layers{2, 0, 0, 0, 0}, layersOf(inside), "repeats inside one call are the transport's")
}

func TestContractViolationsBelongToTheirExecution(t *testing.T) {
	violation := func(node, key string, at int64) func(*schema.Span) {
		return func(s *schema.Span) {
			s.ContractSpan, s.Failed = true, true
			s.Violations = []schema.Violation{{Node: node, Key: key, Direction: "output", TimeNs: epoch + at*ms}}
		}
	}
	root := with(span(1, 0, -1, "run", 0, 100))
	run := theRun(t, account(root,
		with(span(1, 1, 0, "write", 10, 20), step("write")), with(span(1, 2, 0, "contract_violation", 12, 12), violation("write", "outline", 12)),
		with(span(1, 3, 0, "contract_violation", 13, 13), violation("write", "outline", 13)), // said twice of one execution
		with(span(1, 4, 0, "write", 30, 40), step("write")), with(span(1, 5, 0, "contract_violation", 35, 35), violation("write", "outline", 35))))
	require.Len(t, run.ContractViolations, 1)
	assert.Equal(t, 2, run.ContractViolations[0].Count, "once per execution; over executions they add up")
	s := theStep(t, run, "write")
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(s), "an execution that violated its contract was entered again")
	assert.Equal(t, attribution.OutcomeAfterRetry, s.Outcome)

	loose := account(with(span(1, 2, -1, "contract_violation", 12, 12), violation("write", "outline", 12)))
	assert.Empty(t, loose.Runs)
	assert.Equal(t, 1, loose.UnattributedSpans)
	require.Len(t, loose.ContractViolations, 1)
}

func TestCompletion(t *testing.T) {
	flagged := func(f schema.Flag) func(*schema.Span) { return func(s *schema.Span) { s.Complete = f } }
	work := with(span(1, 1, 0, "work", 1, 10), step("work"))
	for _, test := range []struct {
		name  string
		spans []schema.Span
		at    int64 // milliseconds since epoch; 0 the end
		want  string
	}{
		{"flag", []schema.Span{work, with(span(1, 0, -1, "run", 0, 20), flagged(schema.FlagYes))}, 0, "complete"},
		{"flag beats failure", []schema.Span{work, with(span(1, 0, -1, "run", 0, 20), flagged(schema.FlagYes), failed("X"))}, 0, "complete"},
		{"last flag wins", []schema.Span{work, with(span(1, 2, 0, "early", 0, 5), flagged(schema.FlagYes)), with(span(1, 0, -1, "run", 0, 20), flagged(schema.FlagNo))}, 0, "incomplete"},
		{"no flag", []schema.Span{work, with(span(1, 0, -1, "run", 0, 20))}, 0, "unflagged"},
		{"failed", []schema.Span{work, with(span(1, 0, -1, "run", 0, 20), failed("X"))}, 0, "failed"},
		{"cancelled", []schema.Span{work, with(span(1, 0, -1, "run", 0, 20), func(s *schema.Span) { s.Flow = schema.FlowAbandoned })}, 0, "cancelled"},
		{"running", []schema.Span{work}, 0, "running"},
		{"orphaned", []schema.Span{work}, 16 * 60 * 1000, "orphaned"},
		{"alive", []schema.Span{work, with(span(1, 3, 0, "run.heartbeat", 9*60*1000, 9*60*1000), func(s *schema.Span) { s.Heartbeat = true })}, 16 * 60 * 1000, "running"},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := attribution.Defaults()
			opts.AtNs = epoch + max(test.at, 20)*ms
			run := theRun(t, attribution.Account(test.spans, opts))
			assert.Equal(t, test.want, run.Completion)
			assert.Equal(t, test.want == "incomplete" || test.want == "failed" || test.want == "cancelled" || test.want == "orphaned", run.Quarantined)
		})
	}
}

func TestSeveralGraphRootsOfOneTraceAreSeveralRuns(t *testing.T) {
	graph := func(id int, start int64, edits ...func(*schema.Span)) []schema.Span {
		in := task("resolve", "resolve:"+spanID(id).String(), 1)
		return []schema.Span{
			with(span(1, id, 0, "LangGraph", start, start+20), role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true }),
			with(span(1, id+1, id, "resolve", start+1, start+10), append([]func(*schema.Span){in}, edits...)...),
		}
	}
	root := with(span(1, 0, -1, "request", 0, 100))
	spans := append(graph(10, 5, failed("ServerError")), graph(20, 40)...)
	ledger := account(append(spans, root)...)
	require.Len(t, ledger.Runs, 2)
	for _, run := range ledger.Runs {
		assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, run, "resolve")), "a second graph is no repeat of the first")
		assert.NotEqual(t, "running", run.Completion)
	}
	named := with(root, func(s *schema.Span) { s.RunID, s.RunIDRank = "r1", 1 })
	assert.Equal(t, layers{-1, 0, 0, 1, 0}, layersOf(theStep(t, theRun(t, account(append(spans, named)...)), "resolve")), "one run id: one run")
}

func TestRunIDsJoinTracesWithinTheWindow(t *testing.T) {
	at := func(trace int, start int64, env string) schema.Span {
		return with(span(trace, trace*10, -1, "run", start, start+10), step("work"), func(s *schema.Span) { s.RunID, s.RunIDRank, s.Environment = "r1", 1, env })
	}
	const hour = int64(3600 * 1000)
	assert.Len(t, account(at(1, 0, "a"), at(2, hour, "a")).Runs, 1)
	assert.Len(t, account(at(1, 0, "a"), at(2, 25*hour, "a")).Runs, 2, "later it starts a new run")
	assert.Len(t, account(at(1, 0, "a"), at(2, hour, "b")).Runs, 2, "a run id is scoped by its environment")
}

func TestBudget(t *testing.T) {
	limits := func(s *schema.Span) { s.RunLimit, s.StepLimit = 2, 1 }
	in := task("resolve", "resolve:1", 2)
	run := theRun(t, account(graphRoot(1, 100, limits),
		with(span(1, 1, 0, "resolve", 10, 20), in, failed("E")),
		with(span(1, 2, 0, "resolve", 30, 40), in, failed("E")),
		with(span(1, 3, 0, "resolve", 55, 70), in)))
	assert.Equal(t, attribution.Budget{RunLimit: 2, StepLimit: 1, Retries: 2, Exhausted: true}, run.Budget)
	assert.True(t, theStep(t, run, "resolve").OverBudget)
}
