// Package replay sends recorded OTLP requests again as if their application ran now:
// with fresh trace, span, run and thread ids and moved times, over any of the ways
// in that an application has. What the spans say of themselves stays as it is.
package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Identities turns ids into fresh ones. Equal ids stay equal and different ones stay
// different, within and across requests, so trees, links, runs, threads and tasks
// keep their shape. Two values of one seed give the same ids.
type Identities struct {
	seed [16]byte
}

// NewIdentities makes ids that depend on seed only; give 16 random bytes for ids that
// no one else has.
func NewIdentities(seed [16]byte) Identities { return Identities{seed: seed} }

func (i Identities) digest(kind, id string) [32]byte {
	return sha256.Sum256([]byte(string(i.seed[:]) + kind + "\x00" + id))
}

// Trace is the fresh id of a trace.
func (i Identities) Trace(id pcommon.TraceID) pcommon.TraceID {
	if id.IsEmpty() {
		return id
	}
	sum := i.digest("trace", string(id[:]))
	return pcommon.TraceID(sum[:16])
}

// Span is the fresh id of a span.
func (i Identities) Span(id pcommon.SpanID) pcommon.SpanID {
	if id.IsEmpty() {
		return id
	}
	sum := i.digest("span", string(id[:]))
	return pcommon.SpanID(sum[:8])
}

var uuids = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)

// Text is the fresh form of a run's or thread's id, or of a task's such as
// "resolve:<uuid>": UUIDs in it become others, and a text without any gets a suffix,
// so that it can still be recognised.
func (i Identities) Text(id string) string {
	if id == "" {
		return id
	}
	if uuids.MatchString(id) {
		return uuids.ReplaceAllStringFunc(id, i.uuid)
	}
	sum := i.digest("text", id)
	return id + "-" + hex.EncodeToString(sum[:4])
}

func (i Identities) uuid(id string) string {
	sum := i.digest("uuid", strings.ToLower(id))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// identifying are the attributes, and the members of metadata objects, that name a
// run, a thread or a task, by the last segment of the name, underscores for dots.
var identifying = []string{
	"run_id", "thread_id", "session_id", "conversation_id", "agent_call_id",
	"checkpoint_ns", "checkpoint_id", "langgraph_checkpoint_ns", "task_id", "temporalWorkflowID", "temporalRunID",
}

func isIdentifying(key string) bool {
	key = strings.ReplaceAll(key, ".", "_")
	for _, name := range identifying {
		if key == name || strings.HasSuffix(key, "_"+name) {
			return true
		}
	}
	return false
}

// member matches one string member of a JSON object: its name and its value.
var member = regexp.MustCompile(`"([A-Za-z_.]+)"(\s*:\s*)"((?:[^"\\]|\\.)*)"`)

// metadata rewrites the identifying members of a JSON object and nothing else.
func (i Identities) metadata(object string) string {
	return member.ReplaceAllStringFunc(object, func(text string) string {
		parts := member.FindStringSubmatch(text)
		if !isIdentifying(parts[1]) {
			return text
		}
		return `"` + parts[1] + `"` + parts[2] + `"` + i.Text(parts[3]) + `"`
	})
}

func (i Identities) attributes(attributes pcommon.Map) {
	for key, value := range attributes.All() {
		if value.Type() != pcommon.ValueTypeStr {
			continue
		}
		switch text := value.Str(); {
		case isIdentifying(key):
			value.SetStr(i.Text(text))
		case key == "metadata" || strings.HasSuffix(key, ".metadata"):
			value.SetStr(i.metadata(text))
		}
	}
}

// Rewrite gives the spans of requests fresh identities and moves all of them by one
// distance, so that the last one ends at lastEnd. It changes requests in place. An
// empty service keeps the service.name of each.
func Rewrite(requests []ptrace.Traces, identities Identities, lastEnd time.Time, service string) {
	shift := lastEnd.Sub(lastEndOf(requests))
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			if service != "" {
				rs.Resource().Attributes().PutStr("service.name", service)
			}
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					identities.rewrite(span, shift)
				}
			}
		}
	}
}

func (i Identities) rewrite(span ptrace.Span, shift time.Duration) {
	span.SetTraceID(i.Trace(span.TraceID()))
	span.SetSpanID(i.Span(span.SpanID()))
	span.SetParentSpanID(i.Span(span.ParentSpanID()))
	span.SetStartTimestamp(moved(span.StartTimestamp(), shift))
	span.SetEndTimestamp(moved(span.EndTimestamp(), shift))
	i.attributes(span.Attributes())
	for _, event := range span.Events().All() {
		event.SetTimestamp(moved(event.Timestamp(), shift))
		i.attributes(event.Attributes())
	}
	for _, link := range span.Links().All() {
		link.SetTraceID(i.Trace(link.TraceID()))
		link.SetSpanID(i.Span(link.SpanID()))
		i.attributes(link.Attributes())
	}
}

// moved leaves a time that was never set alone.
func moved(t pcommon.Timestamp, shift time.Duration) pcommon.Timestamp {
	if t == 0 {
		return 0
	}
	return pcommon.NewTimestampFromTime(t.AsTime().Add(shift))
}

// lastEndOf is the end of the last span, the epoch if there is none.
func lastEndOf(requests []ptrace.Traces) time.Time {
	var last pcommon.Timestamp
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					last = max(last, span.EndTimestamp())
				}
			}
		}
	}
	return last.AsTime()
}

// TraceIDs lists the trace ids of requests, each once, in the order of appearance.
func TraceIDs(requests []ptrace.Traces) []string {
	var ids []string
	seen := map[pcommon.TraceID]bool{}
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					if id := span.TraceID(); !seen[id] {
						seen[id] = true
						ids = append(ids, id.String())
					}
				}
			}
		}
	}
	return ids
}
