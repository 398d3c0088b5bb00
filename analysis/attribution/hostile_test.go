package attribution_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/schema"
)

func TestCyclesOfParents(t *testing.T) {
	run := theRun(t, account(
		with(span(1, 1, 3, "a", 0, 10), step("a")), with(span(1, 2, 1, "b", 1, 9), step("b")), with(span(1, 3, 2, "c", 2, 8), step("c")),
		with(span(1, 4, 4, "self", 3, 7), step("self"))))
	assert.Len(t, run.Steps, 4)
	assert.Equal(t, 4, run.Spans)
}

func TestTenThousandLevels(t *testing.T) {
	spans := make([]schema.Span, 0, 10_000)
	for i := range 10_000 {
		spans = append(spans, with(span(1, i, i-1, "level", int64(i), 30_000-int64(i)), role(schema.RoleChain)))
	}
	spans = append(spans, with(span(1, 10_000, 9_999, "llm", 15_000, 15_001), model("m")))
	assert.Equal(t, 1, theRun(t, account(spans...)).Steps[0].Calls)
}

func TestOneIDWithTwoContents(t *testing.T) {
	early := with(span(1, 1, -1, "work", 0, 10), step("work"), failed("Early"))
	late := with(span(1, 1, -1, "work", 0, 20), step("work"))
	for _, order := range [][]schema.Span{{early, late}, {late, early}, {late, early, late}} {
		run := theRun(t, account(order...))
		assert.Equal(t, 1, run.Steps[0].Executions)
		assert.Equal(t, "unflagged", run.Completion, "the later end wins")
	}
	other := with(span(1, 1, -1, "work", 0, 10), step("work"), failed("Other"))
	a, b := theRun(t, account(early, other)), theRun(t, account(other, early))
	assert.Equal(t, a.Steps[0].Errors, b.Steps[0].Errors, "of equal ends the content decides, not the order")

	for _, bare := range []string{"a", "b", "c", "d", "e"} { // whatever the hashes are
		less := with(span(1, 1, -1, "work", 0, 10), step(bare))
		more := with(span(1, 1, -1, "work", 0, 10), step("work"), tokens(1, 2), failed("Full"))
		for _, order := range [][]schema.Span{{less, more}, {more, less}} {
			assert.Equal(t, "work", theRun(t, account(order...)).Steps[0].Step, "of equal ends the content that says more wins")
		}
	}
}

func TestExtremeTimesAndNames(t *testing.T) {
	run := theRun(t, account(
		with(span(1, 1, -1, strings.Repeat("x", 1<<20), 0, 10), step("a")),
		with(schema.Span{TraceID: traceID(1), SpanID: spanID(2), EndNs: 1<<63 - 1, Step: "b", Name: "b", GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1})))
	assert.Len(t, run.Steps, 2)
}

func TestManyFailuresThatNobodyRepeats(t *testing.T) {
	spans := make([]schema.Span, 0, 5_000)
	for i := range 5_000 {
		spans = append(spans, with(span(1, i+1, 0, "item", 1, int64(10+i%7)), step("item"), failed("Busy")))
	}
	spans = append(spans, with(span(1, 0, -1, "run", 0, 100)))
	s := theStep(t, theRun(t, account(spans...)), "item")
	assert.Equal(t, 5_000, s.Visits)
}

// One run of 300,000 spans: every number is right, and none of the stages gives up or
// takes more than its share.
func TestManySpansInOneRun(t *testing.T) {
	if testing.Short() {
		t.Skip("so many spans take a while")
	}
	const nodes = 37_500
	spans := pipeline(1, nodes)
	run := theRun(t, account(spans...))
	assert.Equal(t, 8*nodes+1, run.Spans)
	assert.Empty(t, run.BrokenIdentities())
	var executions, calls, failed, node, call, unknown int
	var input int64
	for _, s := range run.Steps {
		executions, calls, failed = executions+s.Executions, calls+s.Calls, failed+s.CallsFailed
		node, call = node+*s.Retries.Node, call+*s.Retries.Call
		input, unknown = input+s.Tokens.Input, unknown+s.Tokens.UnknownCalls
	}
	assert.Equal(t, []int{2 * nodes, 4 * nodes, 2 * nodes, nodes, 2 * nodes, 2 * nodes}, []int{executions, calls, failed, node, call, unknown})
	assert.Equal(t, int64(120*2*nodes), input)
	assert.Len(t, run.Steps, 7)
	assert.True(t, run.Budget.Exhausted)
}

// A few bytes must not fill the memory: what numbers alone tell of is bounded by run.
func TestCountersOfARunAreBoundedTogether(t *testing.T) {
	var spans []schema.Span
	for i := range 60 {
		spans = append(spans, with(span(1, i, -1, "chat", int64(i), int64(i)+1), model("m"), func(s *schema.Span) { s.RetryCount = 10_000 }))
	}
	run := theRun(t, account(spans...))
	assert.Equal(t, 60+60+100_000, len(run.Attempts)) //nolint:testifylint // Len would print them all
	assert.Empty(t, run.BrokenIdentities())
}

// nestedRepeats is n/2 levels, each a failed call and the one that repeats it, which
// holds the next level.
func nestedRepeats(n int) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "ask", 0, 50*int64(n)), step("ask"))}
	for i := range n / 2 {
		at, above := 4*int64(i), 2*i
		spans = append(spans, with(span(1, 2*i+1, above, "chat", at, at+1), model("m"), failed("Busy")),
			with(span(1, 2*i+2, above, "chat", at+2, 40*int64(n)-int64(i)), model("m"), failed("Busy")))
	}
	return spans
}

// What each level adds to the attempts of one operation is not copied level by level.
func TestNestedRepeatsCostWhatTheirSpansDo(t *testing.T) {
	allocated := func(n int) float64 {
		spans := nestedRepeats(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run := theRun(t, account(spans...))
		runtime.ReadMemStats(&after)
		assert.Equal(t, n/2+1, theStep(t, run, "ask").Calls)
		assert.Equal(t, n/2, *theStep(t, run, "ask").Retries.Call)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(500) // what is made once
	assert.Less(t, allocated(8_000), 6*allocated(2_000), "four times the spans")
}
