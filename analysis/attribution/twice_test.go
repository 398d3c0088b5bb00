package attribution_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

const seemsTwice = "to be shown twice by one instrumentation"

// Two handlers of one library given to one application: all numbers were double. The
// counters of the applications are in the truth of the captures, which
// internal/capturetest judges; here is what the reports were about.
func TestField31AHandlerThatIsRegisteredTwice(t *testing.T) {
	rows := captured(t)
	for cell, want := range map[string]struct {
		step                      string
		executions, calls, failed int
		retries                   layers
		tokens                    int64
	}{
		"py-langfuse-twice/two_handlers":          {"ask", 1, 3, 2, layers{-1, 2, 0, 0, 0}, 155},
		"py-langfuse-twice/three_handlers":        {"boom", 3, 3, 3, layers{-1, 0, 2, 0, 0}, 0},
		"py-langfuse-twice/bound_and_given":       {"slow", 4, 4, 0, layers{-1, 0, 0, 0, 0}, 620},
		"py-langfuse-twice/bound_to_a_subgraph":   {"deep", 1, 0, 0, layers{-1, 0, 0, 0, 0}, 0},
		"py-langfuse-twice/given_again_to_a_call": {"work", 1, 2, 1, layers{-1, 1, 0, 0, 0}, 155},
		"py-langfuse-twice/of_the_model_too":      {"work", 1, 2, 1, layers{-1, 1, 0, 0, 0}, 155},
		"py-langfuse-twice/async":                 {"work", 6, 6, 0, layers{-1, 0, 0, 0, 0}, 930},
		"py-langfuse-twice/async_without_thread":  {"flaky", 3, 0, 0, layers{-1, 0, 2, 0, 0}, 0},
		"py-langfuse-twice/retry":                 {"M", 1, 3, 2, layers{-1, 2, 0, 0, 0}, 155},
		"langfuse-twice/seven":                    {"resolve", 7, 0, 0, layers{-1, 0, 4, 2, 0}, 0},
	} {
		run := theRun(t, account(rows[cell]...))
		s := theStep(t, run, want.step)
		assert.Equal(t, want.executions, s.Executions, cell)
		assert.Equal(t, want.calls, s.Calls, cell)
		assert.Equal(t, want.failed, s.CallsFailed, cell)
		assert.Equal(t, want.retries, layersOf(s), cell)
		assert.Equal(t, want.tokens, s.Tokens.Input+s.Tokens.Output, cell)
		assert.Equal(t, 1, run.Deliveries, cell)
		assert.Empty(t, run.Warnings, cell)
	}
}

// again is spans as a second handler tells them that is asked a moment later each time,
// in a trace of its own; in JavaScript starts are cut to milliseconds.
func again(spans []schema.Span) []schema.Span {
	out := slices.Clone(spans)
	for i := range out {
		s := &out[i]
		s.TraceID[0] ^= 0xff
		flip(&s.SpanID)
		if !s.ParentID.IsZero() {
			flip(&s.ParentID)
		}
		if s.StartNs%ms != 0 {
			s.StartNs++
		}
		s.EndNs++
		s.ContentHash = s.Hash()
	}
	return out
}

func flip(id *schema.SpanID) {
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(id[:])^0xff00ff00ff00ff00)
}

// steps is what a run's steps come to, without what depends on the instants.
func steps(run attribution.Run) []attribution.Step {
	out := slices.Clone(run.Steps)
	for i := range out {
		out[i].Wasted.TimeMs, out[i].Wasted.WaitMs, out[i].StartNs, out[i].EndNs = 0, 0, 0, 0
	}
	return out
}

func TestASecondViewOfAGraphChangesNothing(t *testing.T) {
	tried := 0
	for cell, spans := range captured(t) {
		graph := slices.ContainsFunc(spans, func(s schema.Span) bool { return s.GraphRoot && s.TaskKey == "" && s.ParentID.IsZero() })
		alone := account(spans...)
		one := !slices.ContainsFunc(spans, func(s schema.Span) bool { return s.Scope != spans[0].Scope || s.TraceID != spans[0].TraceID })
		if !graph || !one || len(alone.Runs) != 1 || len(alone.Runs[0].Steps) == 0 || alone.Runs[0].OrphanSpans > 0 || strings.Contains(cell, "-twice/") {
			continue
		}
		tried++
		both := account(append(slices.Clone(spans), again(spans)...)...)
		require.Len(t, both.Runs, 1, cell)
		assert.Equal(t, steps(alone.Runs[0]), steps(both.Runs[0]), cell)
		assert.Equal(t, alone.Runs[0].Warnings, both.Runs[0].Warnings, cell)
	}
	assert.Greater(t, tried, 20)
}

// A person who sends an approval twice has the rest of the graph executed twice, with
// the same ids of the first tasks, in two traces: both are paid.
func TestTwoExecutionsOfOneTaskAreNotOne(t *testing.T) {
	resumed := func(trace int, from int64, took int64) []sent {
		id := 100 * trace
		md := attrs{"thread": "t1"}
		return []sent{
			{trace: trace, id: id, parent: -1, name: "LangGraph", from: from, to: from + took + 20, ok: true, attrs: oi("CHAIN", "", "", 0, md)},
			{trace: trace, id: id + 1, parent: id, name: "ask", from: from + 5, to: from + took + 15, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1, md)},
			{trace: trace, id: id + 2, parent: id + 1, name: "ChatModel", from: from + 10, to: from + 10 + took, ok: true,
				attrs: oi("LLM", "ask", "ask:1", 1, md, attrs{"model": "a", "llm.token_count.prompt": 120, "llm.token_count.completion": 35})},
		}
	}
	for name, second := range map[string][]sent{
		"a moment later":   resumed(2, 30, 500),
		"at once, slower":  resumed(2, 0, 520),
		"at once, quicker": resumed(2, 0, 480),
		"much later":       resumed(2, 400, 500),
	} {
		run := runOf(t, scopeOI, append(resumed(1, 0, 500), second...)...)
		s := theStep(t, run, "ask")
		assert.Equal(t, 2, s.Calls, name)
		assert.Equal(t, int64(240), s.Tokens.Input, name)
		require.Len(t, run.Warnings, 1, name)
		assert.Contains(t, run.Warnings[0], seemsTwice, name)
	}
	apart := runOf(t, scopeOI, append(resumed(1, 0, 500), resumed(2, 600, 500)...)...)
	assert.Equal(t, 2, theStep(t, apart, "ask").Calls)
	assert.Empty(t, apart.Warnings, "one after the other is a resume")
}

// What looks like a second view of something and is work of its own.
func TestEqualWorkIsNoSecondView(t *testing.T) {
	call := func(id, parent int, from, to int64) sent { return llm(id, parent, from, to, "a") }
	bad := func(id, parent int, from, to int64) sent { return badLLM(id, parent, from, to, "a") }
	for name, c := range map[string]struct {
		spans          []sent
		calls, retries int
	}{
		"a fan-out of equal calls that begin and end together": {[]sent{call(2, 1, 10, 20), call(3, 1, 10, 20), call(4, 1, 10, 20)}, 3, 0},
		"a retry after a failure at once":                      {[]sent{bad(2, 1, 10, 10), bad(3, 1, 10, 10), call(4, 1, 11, 20)}, 3, 2},
		"equal chains beside each other": {[]sent{
			chain(2, 1, "RunnableSequence", 10, 21, false), call(3, 2, 11, 20), chain(4, 1, "RunnableSequence", 10, 21, false), call(5, 4, 11, 20),
		}, 2, 0},
		"a chain that calls a chain of its name": {[]sent{
			chain(2, 1, "Agent", 10, 50, false), chain(3, 2, "Agent", 11, 30, false), call(4, 3, 12, 29), call(5, 2, 31, 49),
		}, 2, 0},
		"a chain of its name that outlives it": {[]sent{
			chain(2, 1, "Agent", 10, 50, false), chain(3, 2, "Agent", 11, 60, false), call(4, 3, 12, 29), call(5, 2, 31, 49),
		}, 2, 0},
		"one that does more": {[]sent{
			chain(2, 1, "Agent", 10, 50, false), chain(3, 2, "Agent", 11, 60, false), call(4, 3, 12, 49), call(5, 2, 12, 49), call(6, 2, 12, 49),
		}, 3, 0},
	} {
		run := runOf(t, scopeOI, ask(c.spans...)...)
		s := theStep(t, run, "ask")
		assert.Equal(t, c.calls, s.Calls, name)
		assert.Equal(t, c.retries, *s.Retries.Call, name)
		assert.Empty(t, run.Warnings, name)
	}
}
