package attribution_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

const ms = int64(1e6)

// epoch is the start of every hand-made trace.
const epoch = int64(1_790_000_000_000_000_000)

func traceID(n int) (id schema.TraceID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
	return id
}

func spanID(n int) (id schema.SpanID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

// span is a span that says nothing yet; start and end are milliseconds since epoch.
func span(trace, id, parent int, name string, start, end int64) schema.Span {
	s := schema.Span{
		TraceID: traceID(trace), SpanID: spanID(id), StartNs: epoch + start*ms, EndNs: epoch + end*ms, Name: name, Service: "test",
		Dialect: "plain", GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1, InputTokens: schema.Unknown, OutputTokens: schema.Unknown,
	}
	if parent >= 0 {
		s.ParentID = spanID(parent)
	}
	return s
}

func with(s schema.Span, edits ...func(*schema.Span)) schema.Span {
	for _, edit := range edits {
		edit(&s)
	}
	s.ContentHash = s.Hash()
	return s
}

func failed(class string) func(*schema.Span) {
	return func(s *schema.Span) { s.Failed, s.ErrorClass = true, class }
}

func step(name string) func(*schema.Span) { return func(s *schema.Span) { s.Step = name } }

func role(r schema.Role) func(*schema.Span) { return func(s *schema.Span) { s.Role = r } }

func model(name string) func(*schema.Span) {
	return func(s *schema.Span) { s.Role, s.Model = schema.RoleModel, name }
}

func tokens(in, out int64) func(*schema.Span) {
	return func(s *schema.Span) { s.InputTokens, s.OutputTokens = in, out }
}

// task makes a span one that a graph's task holds.
func task(node, key string, graphStep int32) func(*schema.Span) {
	return func(s *schema.Span) { s.Node, s.TaskKey, s.GraphStep, s.Role = node, key, graphStep, schema.RoleChain }
}

func account(spans ...schema.Span) attribution.Ledger {
	opts := attribution.Defaults()
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
	}
	return attribution.Account(spans, opts)
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

func BenchmarkAccount(b *testing.B) {
	for _, size := range []int{100, 1_000, 12_500, 125_000} {
		spans := pipeline(1, size)
		b.Run(fmt.Sprintf("one_run_of_%d_spans", len(spans)), func(b *testing.B) {
			for b.Loop() {
				account(spans...)
			}
			b.ReportMetric(float64(len(spans)*b.N)/b.Elapsed().Seconds(), "spans/s")
		})
	}
	var many []schema.Span
	for i := range 1_000 {
		many = append(many, pipeline(i, 5)...)
	}
	b.Run("1000_runs_of_41_spans", func(b *testing.B) {
		for b.Loop() {
			account(many...)
		}
		b.ReportMetric(float64(len(many)*b.N)/b.Elapsed().Seconds(), "spans/s")
	})
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

func BenchmarkFlatSiblings(b *testing.B) {
	for _, size := range []int{10_000, 100_000} {
		for name, r := range map[string]schema.Role{"calls": schema.RoleModel, "tools": schema.RoleTool, "work": schema.RoleOther} {
			spans := flat(size, r)
			b.Run(fmt.Sprintf("%s_%d", name, size), func(b *testing.B) {
				for b.Loop() {
					account(spans...)
				}
				b.ReportMetric(float64(len(spans)*b.N)/b.Elapsed().Seconds(), "spans/s")
			})
		}
	}
}
