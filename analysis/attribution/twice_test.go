package attribution_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

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
	} {
		run := theRun(t, account(rows[cell]...))
		s := theStep(t, run, want.step)
		assert.Equal(t, want.executions, s.Executions, cell)
		assert.Equal(t, want.calls, s.Calls, cell)
		assert.Equal(t, want.failed, s.CallsFailed, cell)
		assert.Equal(t, want.retries, layersOf(s), cell)
		assert.Equal(t, want.tokens, s.Tokens.Input+s.Tokens.Output, cell)
		assert.Empty(t, run.Warnings, cell)
	}
}

// The span of a graph's run is the last that comes: until then the views of its nodes
// hang beside each other below a parent that nobody knows.
func TestViewsAreOneBeforeTheirGraphHasCome(t *testing.T) {
	rows := captured(t)
	for cell, tokens := range map[string]int64{"py-langfuse-twice/two_handlers": 1395, "py-langfuse-twice/three_handlers": 1395} {
		whole := theRun(t, account(rows[cell]...))
		running := slices.DeleteFunc(slices.Clone(rows[cell]), func(s schema.Span) bool { return s.ParentID.IsZero() })
		early := theRun(t, account(running...))
		count := func(run attribution.Run) (of int64) {
			for _, s := range run.Steps {
				of += s.Tokens.Input + s.Tokens.Output
			}
			return of
		}
		assert.Equal(t, tokens, count(whole), cell)
		assert.Equal(t, tokens, count(early), cell)
		for _, s := range whole.Steps {
			assert.Equal(t, s.Executions, theStep(t, early, s.Step).Executions, "%s %s", cell, s.Step)
		}
	}
}

// again is spans as a second handler tells them that is asked a moment later each time,
// and whose topmost hang in the topmost of the first.
func again(spans []schema.Span) []schema.Span {
	out := slices.Clone(spans)
	for i := range out {
		s := &out[i]
		if s.ParentID.IsZero() {
			s.ParentID = s.SpanID
		} else {
			flip(&s.ParentID)
		}
		flip(&s.SpanID)
		if s.StartNs%ms != 0 { // or else a clock's grain
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
		named := slices.ContainsFunc(spans, func(s schema.Span) bool { return s.NodeRun == schema.FlagYes })
		one := !slices.ContainsFunc(spans, func(s schema.Span) bool { return s.Scope != spans[0].Scope || s.TraceID != spans[0].TraceID })
		alone := account(spans...)
		if !graph || !named || !one || len(alone.Runs) != 1 || len(alone.Runs[0].Steps) == 0 || alone.Runs[0].OrphanSpans > 0 || strings.Contains(cell, "-twice/") {
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

// voting is a graph of one node, with what runs in it.
func voting(inside ...sent) []sent {
	return append([]sent{
		{id: 0, parent: -1, name: "LangGraph", to: 2000, attrs: lf("span", "", "", "")},
		{id: 1, parent: 0, name: "vote", from: 5, to: 1900, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
	}, inside...)
}

func vote(id, parent int, from, to int64) sent {
	return sent{id: id, parent: parent, name: "ChatOpenAI", from: from, to: to, attrs: lf("generation", "vote", "vote:t1", "",
		attrs{"langfuse.observation.model.name": "a", "langfuse.observation.usage_details": `{"input":120,"output":1}`})}
}

// What looks like a second view of something and is work of its own.
func TestEqualWorkIsNoSecondView(t *testing.T) {
	within := func(id, parent int, name string, from, to int64) sent {
		return sent{id: id, parent: parent, name: name, from: from, to: to, attrs: lf("span", "", "", "")}
	}
	inherits := func(id, parent int, name string, from, to int64) sent {
		return sent{id: id, parent: parent, name: name, from: from, to: to, attrs: lf("span", "vote", "vote:t1", "")}
	}
	for name, c := range map[string]struct {
		spans  []sent
		calls  int
		atOnce bool
	}{
		"calls side by side, each under a function of its own": {voting(
			within(2, 1, "sample", 10, 700), vote(3, 2, 60, 560), within(4, 1, "sample", 10, 701), vote(5, 4, 60, 561), within(6, 1, "sample", 10, 702), vote(7, 6, 60, 562)), 3, false},
		"chains side by side, each with a handler of its own": {voting(
			inherits(2, 1, "RunnableSequence", 10, 700), vote(3, 2, 60, 560), inherits(4, 1, "RunnableSequence", 10, 701), vote(5, 4, 60, 561)), 2, false},
		"chains of the node's name": {voting(
			inherits(2, 1, "vote", 10, 700), vote(3, 2, 60, 560), inherits(4, 1, "vote", 10, 701), vote(5, 4, 60, 561)), 2, false},
		"chains of the node's name in each other": {voting(
			inherits(2, 1, "vote", 10, 700), vote(3, 2, 60, 560), inherits(4, 2, "vote", 10, 701), vote(5, 4, 60, 561)), 2, false},
		"a hedged call in the call that it hedges": {voting(
			inherits(2, 1, "RunnableSequence", 10, 700), vote(3, 2, 60, 560), inherits(4, 2, "RunnableSequence", 11, 701), vote(5, 4, 61, 561)), 2, false},
		"a graph that goes on in two tasks of one function": {[]sent{
			within(20, -1, "app", 0, 2000),
			within(0, 20, "LangGraph", 0, 2000), {id: 1, parent: 0, name: "vote", from: 5, to: 1900, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)}, vote(2, 1, 10, 510),
			within(10, 20, "LangGraph", 0, 2001), {id: 11, parent: 10, name: "vote", from: 5, to: 1901, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)}, vote(12, 11, 10, 511)}, 2, true},
		"a graph that goes on beside itself when a stream of it took too long": {append(voting(vote(2, 1, 121, 550)),
			within(10, 0, "LangGraph", 270, 429), sent{id: 11, parent: 10, name: "vote", from: 272, to: 331, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)}, vote(12, 11, 273, 330)), 2, true},
		"two streams of one graph that are read in turn": {append(voting(vote(2, 1, 6, 170)),
			within(10, 0, "LangGraph", 2, 249), sent{id: 11, parent: 10, name: "vote", from: 7, to: 178, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)}, vote(12, 11, 8, 177)), 2, true},
		"two streams of a node that asks late, for another answer": {append(voting(vote(2, 1, 60, 170)),
			within(10, 0, "LangGraph", 2, 249), sent{id: 11, parent: 10, name: "vote", from: 7, to: 178, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
			sent{id: 12, parent: 11, name: "ChatOpenAI", from: 61, to: 171, attrs: lf("generation", "vote", "vote:t1", "", attrs{"langfuse.observation.usage_details": `{"input":120,"output":9}`})}), 2, true},
		"a graph that is started in a run of it that has ended": {append(voting(vote(2, 1, 10, 510)),
			within(10, 0, "LangGraph", 1950, 3000), sent{id: 11, parent: 10, name: "vote", from: 1955, to: 2900, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)}, vote(12, 11, 1960, 2500)), 2, false},
	} {
		run := runOf(t, scopeLangfuse, c.spans...)
		s := theStep(t, run, "vote")
		assert.Equal(t, c.calls, s.Calls, name)
		assert.Equal(t, int64(120*c.calls), s.Tokens.Input, name)
		assert.Equal(t, c.atOnce, len(run.Warnings) == 1, "%s: %v", name, run.Warnings)
	}
}

// The second handler may be told of two equal things in another order than the first.
func TestViewsOfEqualThingsAreTheClosestOnes(t *testing.T) {
	part := func(id, parent int, from, to int64) sent {
		return sent{id: id, parent: parent, name: "RunnableSequence", from: from, to: to, attrs: lf("span", "vote", "vote:t1", "")}
	}
	s := theStep(t, runOf(t, scopeLangfuse, append(voting(
		part(2, 1, 20, 100), vote(3, 2, 22, 60), vote(4, 2, 62, 95),
		part(5, 1, 21, 300), vote(6, 5, 110, 290)),
		sent{id: 10, parent: 0, name: "LangGraph", to: 2001, attrs: lf("span", "", "", "")},
		sent{id: 11, parent: 10, name: "vote", from: 6, to: 1901, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
		part(15, 11, 21, 301), vote(16, 15, 111, 291),
		part(12, 11, 22, 101), vote(13, 12, 23, 61), vote(14, 12, 63, 96))...), "vote")
	assert.Equal(t, 3, s.Calls)
	assert.Equal(t, int64(360), s.Tokens.Input)
}

// Handlers are few: what hangs in one span in numbers is work of its own, and costs no
// more than other work.
func TestManyGraphsInOneAreNoViews(t *testing.T) {
	spans := voting()[:1]
	for i := range 10 {
		id := 10 * (i + 1)
		task := fmt.Sprint("vote:t", i)
		own := func(id, parent int, from int64) sent {
			return sent{id: id, parent: parent, name: "vote", from: from, to: 1900, attrs: lf("span", "vote", task, `["graph:step:1"]`)}
		}
		spans = append(spans, own(id, 0, 5), sent{id: id + 1, parent: 0, name: "LangGraph", from: 5, to: 2000, attrs: lf("span", "", "", "")}, own(id+2, id+1, 5))
	}
	assert.Equal(t, 20, theStep(t, runOf(t, scopeLangfuse, spans...), "vote").Executions)
}

// By a clock with a coarse grain all views begin at once.
func TestViewsThatBeginAtOnceAreOne(t *testing.T) {
	var spans []sent
	for view := range 4 {
		id := 10 * view
		spans = append(spans,
			sent{id: id, parent: id - 10, name: "LangGraph", to: 100, attrs: lf("span", "", "", "")},
			sent{id: id + 1, parent: id, name: "vote", to: 90, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`)},
			vote(id+2, id+1, 0, 80),
			sent{id: id + 3, parent: id, name: "sum", from: 90, to: 95, attrs: lf("span", "sum", "sum:t2", `["graph:step:2"]`)})
	}
	spans[0].parent = -1
	run := runOf(t, scopeLangfuse, spans...)
	s := theStep(t, run, "vote")
	assert.Equal(t, 1, s.Executions)
	assert.Equal(t, int64(120), s.Tokens.Input)
	assert.Equal(t, 1, theStep(t, run, "sum").Executions)
}

// A view by another process is none: what two workers do counts for each.
func TestTwoWorkersAreNoTwoViews(t *testing.T) {
	spans := append(voting(vote(2, 1, 10, 510)),
		sent{id: 10, parent: 0, name: "LangGraph", from: 0, to: 2001, attrs: lf("span", "", "", "", attrs{"worker.id": "w2"})},
		sent{id: 11, parent: 10, name: "vote", from: 5, to: 1901, attrs: lf("span", "vote", "vote:t1", `["graph:step:1"]`, attrs{"worker.id": "w2"})},
		vote(12, 11, 10, 511))
	assert.Equal(t, 2, theStep(t, runOf(t, scopeLangfuse, spans...), "vote").Calls)
	for i := range spans {
		delete(spans[i].attrs, "worker.id")
	}
	assert.Equal(t, 1, theStep(t, runOf(t, scopeLangfuse, spans...), "vote").Calls, "by one process it is one")
}
