package ingest

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/schema"
)

// normaliseFunc is dialect.Normalise.
type normaliseFunc func(td ptrace.Traces, receivedNs int64) (spans []schema.Span, refused int)

// panicked is a panic of a normaliseFunc.
type panicked struct {
	reason string
	stack  []byte
}

// normalised is what became of a request.
type normalised struct {
	spans  []schema.Span
	dead   []deadLetter // without their time
	panics int          // spans at which normalise panicked
	stack  []byte       // of one of them
}

// normaliseContained normalises td. A panic costs the span that caused it and
// none of its batch-mates: the batch is then split, first by resource, and
// where that is not enough by span.
func normaliseContained(normalise normaliseFunc, td ptrace.Traces, receivedNs int64) normalised {
	var out normalised
	if out.try(normalise, td, receivedNs) == nil {
		return out
	}
	for _, rs := range td.ResourceSpans().All() {
		one := ptrace.NewTraces()
		rs.CopyTo(one.ResourceSpans().AppendEmpty())
		if out.try(normalise, one, receivedNs) == nil {
			continue
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				single := alone(rs, ss, span)
				if p := out.try(normalise, single, receivedNs); p != nil {
					out.dead = append(out.dead, letterOf(rs, span, "its dialect failed: "+p.reason))
					out.panics++
					out.stack = p.stack
				}
			}
		}
	}
	return out
}

// alone is span with its resource and scope, and nothing else.
func alone(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) ptrace.Traces {
	td := ptrace.NewTraces()
	r := td.ResourceSpans().AppendEmpty()
	rs.Resource().CopyTo(r.Resource())
	r.SetSchemaUrl(rs.SchemaUrl())
	s := r.ScopeSpans().AppendEmpty()
	ss.Scope().CopyTo(s.Scope())
	s.SetSchemaUrl(ss.SchemaUrl())
	span.CopyTo(s.Spans().AppendEmpty())
	return td
}

// try normalises td into out; after a panic out is as before.
func (out *normalised) try(normalise normaliseFunc, td ptrace.Traces, receivedNs int64) (p *panicked) {
	defer func() {
		if v := recover(); v != nil {
			p = &panicked{reason: reasonOf(v), stack: debug.Stack()}
		}
	}()
	spans, refused := normalise(td, receivedNs)
	if out.spans == nil {
		out.spans = spans
	} else {
		out.spans = append(out.spans, spans...)
	}
	if refused > 0 {
		out.dead = append(out.dead, refusedLetters(td, refused)...)
	}
	return nil
}

// reasonOf tells a panic without what it may quote of a span: the runtime's
// own errors name types and numbers, any other value is known by its type.
func reasonOf(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("panic of a %T", v)
}

// refusedLetters finds the spans that normalise left out: the ones without an
// id. Others, should there be any, are only counted.
func refusedLetters(td ptrace.Traces, refused int) []deadLetter {
	var out []deadLetter
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if len(out) == refused {
					return out
				}
				switch {
				case span.TraceID().IsEmpty():
					out = append(out, letterOf(rs, span, "the span has no trace id"))
				case span.SpanID().IsEmpty():
					out = append(out, letterOf(rs, span, "the span has no span id"))
				}
			}
		}
	}
	if n := refused - len(out); n > 0 {
		out = append(out, deadLetter{Kind: kindSpan, Reason: "the dialect cannot keep it", Count: n})
	}
	return out
}

func letterOf(rs ptrace.ResourceSpans, span ptrace.Span, reason string) deadLetter {
	l := deadLetter{Kind: kindSpan, Reason: reason}
	if id := span.TraceID(); !id.IsEmpty() {
		l.TraceID = id.String()
	}
	if id := span.SpanID(); !id.IsEmpty() {
		l.SpanID = id.String()
	}
	if service, ok := rs.Resource().Attributes().Get("service.name"); ok {
		l.Service = service.AsString()
		if len(l.Service) > schema.MaxName {
			l.Service = l.Service[:schema.MaxName]
		}
	}
	return l
}
