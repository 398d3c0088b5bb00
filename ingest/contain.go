package ingest

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// normaliseFunc is dialect.Normalise.
type normaliseFunc func(td ptrace.Traces, receivedNs int64) (spans []schema.Span, refused int)

// maxPart is how many spans of one request are rows at the same time: a row takes about
// a kilobyte, a span on the wire can take forty bytes.
const maxPart = 8192

// maxLettersEach is how many spans of one part are told one by one in the dead letters;
// a sender whose spans are all bad must not wear out the disk.
const maxLettersEach = 100

// parts cuts td so that no part has more than limit spans. Nearly every request is one
// part, which is not copied.
func parts(td ptrace.Traces, limit int) func(yield func(ptrace.Traces) bool) {
	return func(yield func(ptrace.Traces) bool) {
		if td.SpanCount() <= limit {
			yield(td)
			return
		}
		part, room := ptrace.NewTraces(), limit
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				var into ptrace.SpanSlice
				open := false
				for _, span := range ss.Spans().All() {
					if room == 0 {
						if !yield(part) {
							return
						}
						part, room, open = ptrace.NewTraces(), limit, false
					}
					if !open {
						into, open = likeScope(part, rs, ss), true
					}
					span.CopyTo(into.AppendEmpty())
					room--
				}
			}
		}
		yield(part)
	}
}

// likeScope appends to td an empty scope with the resource and scope of ss.
func likeScope(td ptrace.Traces, rs ptrace.ResourceSpans, ss ptrace.ScopeSpans) ptrace.SpanSlice {
	r := td.ResourceSpans().AppendEmpty()
	rs.Resource().CopyTo(r.Resource())
	r.SetSchemaUrl(rs.SchemaUrl())
	s := r.ScopeSpans().AppendEmpty()
	ss.Scope().CopyTo(s.Scope())
	s.SetSchemaUrl(ss.SchemaUrl())
	return s.Spans()
}

// alone is span with its resource and scope, and nothing else.
func alone(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) ptrace.Traces {
	td := ptrace.NewTraces()
	span.CopyTo(likeScope(td, rs, ss).AppendEmpty())
	return td
}

// panicked is a panic of a normaliseFunc.
type panicked struct {
	reason string
	stack  []byte
}

// normalised is what became of a part of a request.
type normalised struct {
	spans  []schema.Span
	dead   []deadletter.Letter // without their time
	panics int                 // spans at which normalise panicked
	stack  []byte              // of one of them
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
					out.failed(normalise, single, receivedNs, p)
				}
			}
		}
	}
	return out
}

// failed notes a span at which normalise panicked.
func (out *normalised) failed(normalise normaliseFunc, single ptrace.Traces, receivedNs int64, p *panicked) {
	out.panics++
	out.stack = p.stack
	rs := single.ResourceSpans().At(0)
	span := rs.ScopeSpans().At(0).Spans().At(0)
	letter := letterOf(rs, span, deadletter.CauseDialectFailed, "its dialect failed: "+p.reason)
	// What the span says without its attributes can be replayed: its place in the trace,
	// its times, its name and how it ended.
	span.Attributes().Clear()
	span.Events().RemoveIf(func(ptrace.SpanEvent) bool { return true })
	span.Status().SetMessage("")
	rs.ScopeSpans().At(0).Scope().SetName("")
	var bare normalised
	if bare.try(normalise, single, receivedNs) == nil && len(bare.spans) == 1 {
		if row, err := journal.EncodeRows(bare.spans); err == nil {
			letter.Row = row
		}
	}
	out.bury(letter)
}

// bury adds a dead letter; of many that have one cause the later ones are only counted.
func (out *normalised) bury(letter deadletter.Letter) {
	told := 0
	for i := range out.dead {
		if out.dead[i].Cause != letter.Cause {
			continue
		}
		told++
		if told == maxLettersEach {
			rest := &out.dead[i]
			if rest.Count == 0 {
				rest.Count = 1
			}
			rest.Count++
			rest.TraceID, rest.SpanID, rest.Service, rest.Row = "", "", "", nil
			return
		}
	}
	out.dead = append(out.dead, letter)
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
		out.refused(td, refused)
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

// refused finds the spans that normalise left out: the ones without an id. Others, should
// there be any, are only counted.
func (out *normalised) refused(td ptrace.Traces, refused int) {
	found := 0
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if found == refused {
					return
				}
				switch {
				case span.TraceID().IsEmpty():
					out.bury(letterOf(rs, span, deadletter.CauseNoTraceID, "the span has no trace id"))
				case span.SpanID().IsEmpty():
					out.bury(letterOf(rs, span, deadletter.CauseNoSpanID, "the span has no span id"))
				default:
					continue
				}
				found++
			}
		}
	}
	if n := refused - found; n > 0 {
		out.dead = append(out.dead, deadletter.Letter{Kind: deadletter.KindSpan, Cause: deadletter.CauseOther, Reason: "the dialect cannot keep it", Count: n})
	}
}

// dropTooLarge moves the rows that no journal can hold to the dead letters.
func (out *normalised) dropTooLarge() {
	kept := out.spans[:0]
	for i := range out.spans {
		s := &out.spans[i]
		if err := journal.CheckRow(s); err != nil {
			out.tooLarge(s, err)
			continue
		}
		kept = append(kept, *s)
	}
	out.spans = kept
}

func (out *normalised) tooLarge(s *schema.Span, err error) {
	out.bury(deadletter.Letter{Kind: deadletter.KindSpan, Cause: deadletter.CauseRowTooLarge, Reason: err.Error(),
		TraceID: s.TraceID.String(), SpanID: s.SpanID.String(), Service: bounded(s.Service, schema.MaxName)})
}

func letterOf(rs ptrace.ResourceSpans, span ptrace.Span, cause deadletter.Cause, reason string) deadletter.Letter {
	l := deadletter.Letter{Kind: deadletter.KindSpan, Cause: cause, Reason: reason}
	if id := span.TraceID(); !id.IsEmpty() {
		l.TraceID = id.String()
	}
	if id := span.SpanID(); !id.IsEmpty() {
		l.SpanID = id.String()
	}
	if service, ok := rs.Resource().Attributes().Get("service.name"); ok && service.Type() == pcommon.ValueTypeStr {
		l.Service = bounded(service.Str(), schema.MaxName)
	}
	return l
}

func bounded(text string, n int) string {
	if len(text) > n {
		return text[:n]
	}
	return text
}
