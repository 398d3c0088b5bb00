package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
)

func TestRule09ATaskInALaterTraceIsAResume(t *testing.T) {
	thread := attrs{"thread": "t1"}
	spans := []sent{
		{trace: 1, id: 0, parent: -1, name: "LangGraph", to: 50, failed: true, message: lost429, attrs: oi("CHAIN", "", "", 0, thread)},
		{trace: 1, id: 1, parent: 0, name: "ask", from: 1, to: 40, failed: true, message: lost429, attrs: oi("CHAIN", "ask", "ask:1", 1, thread)},
		{trace: 2, id: 10, parent: -1, name: "LangGraph", from: 100, to: 150, ok: true, attrs: oi("CHAIN", "", "", 0, thread)},
		{trace: 2, id: 11, parent: 10, name: "ask", from: 101, to: 140, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1, thread)},
	}
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(theStep(t, runOf(t, scopeOI, spans...), "ask")), "after a failure the worker's repeat")
	spans[1].failed, spans[1].message = true, "[\n {}\n]\n\nGraphInterrupt: [\n {}\n]\n    at x"
	spans[0].failed, spans[0].message = false, ""
	assert.Equal(t, layers{-1, 0, 0, 0, 0}, layersOf(theStep(t, runOf(t, scopeOI, spans...), "ask")), "after an interrupt no retry at all")
}

func TestRule20ChildrenComeBeforeParents(t *testing.T) {
	spans := ask(chain(2, 1, "ChatModel", 2, 100, false), badLLM(3, 2, 3, 10, "a"), llm(4, 2, 20, 30, "a"))
	for n := range spans { // the last n spans have come, children first
		ledger := ledgerOf(t, scopeOI, spans[len(spans)-1-n:]...)
		require.Len(t, ledger.Runs, 1)
		assert.Empty(t, ledger.Runs[0].BrokenIdentities())
		s := theStep(t, ledger.Runs[0], "ask")
		assert.Equal(t, 1, s.Executions, "known by its orphans before its own span comes")
		if n < len(spans)-1 {
			assert.Equal(t, "running", ledger.Runs[0].Completion)
		}
	}
}

func TestRule21ParentsThatNeverCome(t *testing.T) {
	run := runOf(t, scopeSmith, sent{id: 1, parent: 99, name: "LangGraph", to: 100, ok: true, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.ls_integration": "langgraph"}},
		sent{id: 2, parent: 1, name: "ask", from: 1, to: 90, ok: true, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.metadata.langgraph_node": "ask", "langsmith.metadata.langgraph_checkpoint_ns": "ask:1"}})
	assert.Equal(t, "unflagged", run.Completion, "a graph's root is the run's, whatever parent it names")
	pending := rowsOf(t, "logfire", sent{id: 1, parent: 2, name: "ask", to: 0, attrs: attrs{"logfire.span_type": "pending_span", "step": "ask"}})[0]
	assert.True(t, pending.Hidden)
	assert.Empty(t, pending.Step, "a pending span repeats one that is to come")
}

func TestRule30ResentAndReplayedSpansCountOnce(t *testing.T) {
	spans := ask(badLLM(3, 1, 3, 10, "a"), llm(4, 1, 20, 30, "a"))
	assert.Equal(t, written(t, ledgerOf(t, scopeOI, spans...)), written(t, ledgerOf(t, scopeOI, append(spans, spans...)...)))
	activity := func(id, parent int, from int64, failed bool) sent {
		return sent{id: id, parent: parent, name: "RunActivity:Resolve", from: from, to: from + 5, failed: failed, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r", "temporalActivityID": "5"}}
	}
	workflow := func(id int, from, to int64) sent {
		return sent{id: id, parent: 0, name: "RunWorkflow:P", from: from, to: to, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r"}}
	}
	s := theStep(t, runOf(t, "temporal-sdk-go", sent{id: 0, parent: -1, name: "StartWorkflow:P", to: 5, attrs: attrs{"temporalWorkflowID": "w"}},
		workflow(1, 1, 100), workflow(2, 1, 90), // replayed under a new span id
		sent{id: 3, parent: 1, name: "StartActivity:Resolve", from: 2, to: 2, attrs: attrs{"temporalWorkflowID": "w", "temporalRunID": "r"}},
		activity(4, 3, 10, true), activity(5, 3, 30, false)), "Resolve")
	assert.Equal(t, layers{-1, 0, 1, 0, 0}, layersOf(s))
}

func TestRule36IdsThatAreNone(t *testing.T) {
	spans := []sent{
		{trace: 1, id: 1, parent: -1, name: "LangGraph.workflow", to: 10, attrs: attrs{"traceloop.span.kind": "workflow", "gen_ai.task.id": "x", "gen_ai.task.status": "success", "gen_ai.agent.id": "u1", "step": "a"}},
		{trace: 2, id: 2, parent: -1, name: "LangGraph.workflow", from: 20, to: 30, attrs: attrs{"traceloop.span.kind": "workflow", "gen_ai.task.id": "x", "gen_ai.task.status": "success", "gen_ai.agent.id": "u1", "step": "a"}},
	}
	assert.Len(t, ledgerOf(t, scopeLLMetry, spans...).Runs, 2)
	assert.Empty(t, rowsOf(t, scopeSmith, sent{id: 1, parent: -1, to: 1, attrs: attrs{"langsmith.span.kind": "chain", "langsmith.trace.session_name": "project"}})[0].ThreadID)
	assert.Equal(t, "t1", rowsOf(t, scopeOI, sent{id: 1, parent: -1, to: 1, attrs: attrs{"openinference.span.kind": "CHAIN", "session.id": "t1"}})[0].ThreadID)
}

func TestRule44AnExecutionIsKnownThroughItsOrphans(t *testing.T) {
	run := runOf(t, scopeOI, sent{id: 5, parent: 4, name: "ChatModel", from: 1, to: 5, ok: true, attrs: oi("LLM", "in", "out:1|in:1", 1)})
	assert.Equal(t, 1, theStep(t, run, "in").Executions)
	assert.Equal(t, attribution.OutcomeUnknown, theStep(t, run, "in").Outcome)
	assert.Equal(t, 1, theStep(t, run, "out").Executions, "its namespace names the task around it")
	assert.Equal(t, "killed_or_running", run.Outcome)

	thread := attrs{"thread": "t1"}
	resumed := runOf(t, scopeOI, sent{trace: 1, id: 5, parent: 4, name: "ChatModel", from: 1, to: 5, ok: true, attrs: oi("LLM", "in", "in:1", 1, thread)},
		sent{trace: 2, id: 10, parent: -1, name: "LangGraph", from: 100, to: 150, ok: true, attrs: oi("CHAIN", "", "", 0, thread)},
		sent{trace: 2, id: 11, parent: 10, name: "in", from: 101, to: 140, ok: true, attrs: oi("CHAIN", "in", "in:1", 1, thread)})
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(theStep(t, resumed, "in")), "the later trace goes on with what was killed")
	assert.Equal(t, 2, resumed.Deliveries)
}

func TestARunThatWasResumedEndsAsItsLastDeliveryDid(t *testing.T) {
	thread := attrs{"thread": "t1"}
	run := runOf(t, scopeOI,
		sent{trace: 1, id: 1, parent: -1, name: "LangGraph", from: 0, to: 50, failed: true, message: "E: x", attrs: oi("CHAIN", "", "", 0, thread)},
		sent{trace: 1, id: 2, parent: 1, name: "in", from: 1, to: 40, failed: true, message: "E: x", attrs: oi("CHAIN", "in", "in:1", 1, thread)},
		sent{trace: 2, id: 10, parent: -1, name: "LangGraph", from: 100, to: 150, ok: true, attrs: oi("CHAIN", "", "", 0, thread)},
		sent{trace: 2, id: 11, parent: 10, name: "in", from: 101, to: 140, ok: true, attrs: oi("CHAIN", "in", "in:1", 1, thread)})
	assert.Equal(t, layers{-1, 0, 0, 0, 1}, layersOf(theStep(t, run, "in")))
	assert.Equal(t, attribution.OutcomeAfterRetry, theStep(t, run, "in").Outcome)
	assert.Equal(t, "ok", run.Outcome)
}
