package attribution_test

import (
	"encoding/binary"

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
