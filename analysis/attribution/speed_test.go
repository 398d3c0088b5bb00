package attribution_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/schema"
)

// shapes are runs by what they are made of: each makes about n spans.
var shapes = []struct {
	name string
	make func(n int) []schema.Span
}{
	{"mixed", func(n int) []schema.Span { return pipeline(1, n/8) }},
	{"deep", deep},
	{"deep_steps", deepSteps},
	{"calls_side_by_side", func(n int) []schema.Span { return flat(n, schema.RoleModel) }},
	{"tools_side_by_side", func(n int) []schema.Span { return flat(n, schema.RoleTool) }},
	{"work_side_by_side", func(n int) []schema.Span { return flat(n, schema.RoleOther) }},
	{"fan_out", fanOut},
	{"loop", loop},
	{"retries", retries},
	{"failures_that_nobody_repeats", abandoned},
	{"run_of_many_traces", func(n int) []schema.Span { return sharedRun(n / 41) }},
	{"task_of_many_traces", lateWork},
	{"many_runs", func(n int) []schema.Span {
		spans := make([]schema.Span, 0, n)
		for i := range n / 41 {
			spans = append(spans, pipeline(i, 5)...)
		}
		return spans
	}},
}

// BenchmarkAccount is the cost of one account by shape and size: linear in the size.
func BenchmarkAccount(b *testing.B) {
	for _, shape := range shapes {
		for _, size := range []int{1_000, 10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, size), func(b *testing.B) { benchmark(b, shape.make(size)) })
		}
	}
}

// BenchmarkAccountOfCaptures is the cost of real spans, instrumentation by
// instrumentation: its captures over and over, as traces of their own and as one run.
func BenchmarkAccountOfCaptures(b *testing.B) {
	byInstrumentation := make(map[string][]schema.Span)
	for _, spans := range captured(b) {
		name := instrumentationOf(spans)
		byInstrumentation[name] = append(byInstrumentation[name], spans...)
	}
	for _, name := range slices.Sorted(maps.Keys(byInstrumentation)) {
		for _, size := range []int{10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/apart/%d", name, size), func(b *testing.B) { benchmark(b, tiled(byInstrumentation[name], size, "")) })
			b.Run(fmt.Sprintf("%s/one_run/%d", name, size), func(b *testing.B) { benchmark(b, tiled(byInstrumentation[name], size, "all of them")) })
		}
	}
}

func benchmark(b *testing.B, spans []schema.Span) {
	b.Helper()
	b.ReportAllocs()
	runtime.GC() // what the last benchmark left is not this one's to collect
	before := processorTime(b)
	for b.Loop() {
		account(spans...)
	}
	used := processorTime(b) - before
	b.ReportMetric(float64(len(spans)*b.N)/used.Seconds(), "spans/cpu-s")
}

// processorTime is what this process has used of all cores, the collector of garbage
// included: on a machine that others use too, the clock on the wall says little.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// instrumentationOf is the first part of the cell that captured names the service after.
func instrumentationOf(spans []schema.Span) string {
	cell := spans[0].Service
	return cell[:slices.Index([]byte(cell), '/')]
}

// tiled repeats spans, each time in traces of their own that begin an hour later,
// until there are n; with a run id they are one run.
func tiled(spans []schema.Span, n int, runID string) []schema.Span {
	out := make([]schema.Span, 0, n+len(spans))
	for round := 0; len(out) < n; round++ {
		shift := int64(round) * 3600 * 1000 * ms
		for _, s := range spans {
			id := binary.BigEndian.Uint64(s.TraceID[:8])
			binary.BigEndian.PutUint64(s.TraceID[:8], id+uint64(round))
			s.StartNs, s.EndNs = s.StartNs+shift, s.EndNs+shift
			if runID != "" {
				s.RunID, s.RunIDRank, s.Service = runID, 1, "tiled"
			} else {
				s.ThreadID = fmt.Sprint(s.ThreadID, round)
			}
			out = append(out, s)
		}
	}
	return out
}

// pipeline is a graph run of n nodes, each run twice by the engine, each attempt
// with a retry wrapper around two model calls: 1 + 8n spans.
func pipeline(trace, n int) []schema.Span {
	spans := make([]schema.Span, 0, 1+8*n)
	id := 1
	at := int64(1)
	for i := range n {
		node := fmt.Sprintf("node%d", i%7)
		key := fmt.Sprintf("%s:%d-%d", node, trace, i)
		for attempt := range 2 {
			run := id
			inTask := task(node, key, int32(i+1))
			spans = append(spans, with(span(trace, run, 0, node, at, at+8), inTask, func(s *schema.Span) {
				if attempt == 0 {
					failed("TimeoutError")(s)
				}
			}),
				with(span(trace, run+1, run, "ChatModel", at+1, at+7), inTask),
				with(span(trace, run+2, run+1, "ChatModel", at+1, at+3), inTask, model("m"), failed("RateLimitError")),
				with(span(trace, run+3, run+1, "ChatModel", at+4, at+7), inTask, model("m"), tokens(120, 35)))
			id += 4
			at += 10
		}
	}
	return append(spans, with(span(trace, 0, -1, "LangGraph", 0, at), role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true }))
}

// sharedRun is one run of n traces of 41 spans: a worker that delivers again and again.
func sharedRun(n int) []schema.Span {
	spans := make([]schema.Span, 0, 41*n)
	for i := range n {
		for _, s := range pipeline(i, 5) {
			s.RunID, s.RunIDRank = "shared", 1
			s.StartNs, s.EndNs = s.StartNs+int64(i)*200*ms, s.EndNs+int64(i)*200*ms
			spans = append(spans, s)
		}
	}
	return spans
}

// deep is a chain of n levels with a call at the bottom and a step halfway.
func deep(n int) []schema.Span {
	spans := make([]schema.Span, 0, n+1)
	for i := range n {
		s := with(span(1, i, i-1, "level", 0, 0), role(schema.RoleChain))
		s.StartNs, s.EndNs = epoch+int64(i), epoch+4*int64(n)-int64(i)
		if i == n/2 {
			s.Step = "half"
		}
		spans = append(spans, s)
	}
	bottom := with(span(1, n, n-1, "llm", 0, 0), model("m"))
	bottom.StartNs, bottom.EndNs = epoch+2*int64(n), epoch+2*int64(n)+1
	return append(spans, bottom)
}

// deepSteps is a chain of n steps, each in the one before and each with a call that failed.
func deepSteps(n int) []schema.Span {
	spans := deep(n / 2)[:n/2]
	for i := range spans {
		spans[i].Role, spans[i].Step = schema.RoleOther, fmt.Sprint("step ", i%5, "-", i)
		call := with(span(1, n+i, i, "llm", 0, 0), model("m"), failed("Busy"))
		call.StartNs, call.EndNs = spans[i].StartNs+1, spans[i].StartNs+2
		spans = append(spans, call)
	}
	return spans
}

// flat is one step with n spans side by side below it, every third failed.
func flat(n int, r schema.Role) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "run", 0, int64(n)+2)), with(span(1, 1, 0, "work", 0, int64(n)+1), step("work"))}
	for i := range n {
		s := span(1, i+2, 1, "call", int64(i), int64(i)+1)
		s.Role, s.InputHash = r, uint64(i/3)+1
		if i%3 == 0 {
			failed("Busy")(&s)
		}
		spans = append(spans, with(s))
	}
	return spans
}

// fanOut is n/3 branches of one superstep, all open at once, each with a failed call and a good one.
func fanOut(n int) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "LangGraph", 0, 1000), role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true })}
	for i := range n / 3 {
		branch := task("score", fmt.Sprintf("score:%d", i), 2)
		spans = append(spans, with(span(1, 3*i+1, 0, "score", 1, 900), branch),
			with(span(1, 3*i+2, 3*i+1, "ChatModel", 2, 100), branch, model("m"), failed("RateLimitError")),
			with(span(1, 3*i+3, 3*i+1, "ChatModel", 200, 300), branch, model("m"), tokens(10, 5)))
	}
	return spans
}

// loop is an agent that calls a model and a tool n/4 times.
func loop(n int) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "LangGraph", 0, 20*int64(n)), role(schema.RoleChain), func(s *schema.Span) { s.GraphRoot = true })}
	for i := range n / 4 {
		at := int64(20 * i)
		model0, tools := task("model", fmt.Sprintf("model:%d", i), int32(2*i+1)), task("tools", fmt.Sprintf("tools:%d", i), int32(2*i+2))
		spans = append(spans, with(span(1, 4*i+1, 0, "model", at+1, at+9), model0), with(span(1, 4*i+2, 4*i+1, "ChatModel", at+2, at+8), model0, model("m"), tokens(10, 5)),
			with(span(1, 4*i+3, 0, "tools", at+11, at+19), tools), with(span(1, 4*i+4, 4*i+3, "lookup", at+12, at+18), tools, role(schema.RoleTool)))
	}
	return spans
}

// retries is one step that fails n/2 times, each time with a failed call in it.
func retries(n int) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "run", 0, 20*int64(n)))}
	for i := range n / 2 {
		at := int64(20 * i)
		spans = append(spans, with(span(1, 2*i+1, 0, "resolve", at+1, at+9), step("resolve"), failed("Busy")),
			with(span(1, 2*i+2, 2*i+1, "ChatModel", at+2, at+8), model("m"), failed("Busy")))
	}
	return spans
}

// abandoned is n executions that failed at once.
func abandoned(n int) []schema.Span {
	spans := []schema.Span{with(span(1, 0, -1, "run", 0, 100))}
	for i := range n {
		spans = append(spans, with(span(1, i+1, 0, "item", 1, int64(10+i%7)), step("item"), failed("Busy")))
	}
	return spans
}

// lateWork is one run of n traces, each with a call of one task whose own span never came.
func lateWork(n int) []schema.Span {
	spans := make([]schema.Span, 0, n)
	for i := range n {
		spans = append(spans, with(span(i, 1, -1, "llm", int64(i), int64(i)+1), model("m"), func(s *schema.Span) {
			s.RunID, s.RunIDRank, s.TaskKey, s.Node = "run", 1, "work:1", "work"
		}))
	}
	return spans
}
