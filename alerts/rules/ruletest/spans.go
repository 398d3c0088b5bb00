package ruletest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/internal/otlpfile"
)

// spanSource is spans of a test: those of OTLP files, or one span written in the test.
// Requests carry times since the test's start.
type spanSource struct {
	requests []ptrace.Traces
	inline   *inline
	late     time.Duration // after a span's end
}

func (s *spanSource) count() (n int64) {
	if s.inline != nil {
		n = s.inline.times
	}
	for _, td := range s.requests {
		n += int64(td.SpanCount())
	}
	return n
}

const maxOTLPFile = 64 << 20 // bytes of one file of spans

func parseSpans(f *strictyaml.File, n *yaml.Node, open Open) spanSource {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "files" {
				return parseSpanFiles(f, n, open)
			}
		}
	}
	return parseInline(f, n)
}

// parseSpanFiles reads OTLP files. Together they are shifted so that their first span
// begins at `at`.
func parseSpanFiles(f *strictyaml.File, n *yaml.Node, open Open) spanSource {
	var source spanSource
	var at time.Duration
	total := 0
	f.Fields(n, "files of spans", map[string]func(*yaml.Node){
		"at":   func(n *yaml.Node) { at = f.Duration(n, "at", 0, maxLength).V },
		"late": func(n *yaml.Node) { source.late = f.Duration(n, "late", 0, maxLength).V },
		"files": func(n *yaml.Node) {
			for _, item := range f.Items(n, "files") {
				name := f.Text(item, "a file's name")
				if !name.Given() {
					continue
				}
				err := readFile(name.V, open, func(td ptrace.Traces) error {
					if total += td.SpanCount(); total > maxSpans {
						return fmt.Errorf("there are more than %d spans", maxSpans)
					}
					source.requests = append(source.requests, td)
					return nil
				})
				if err != nil {
					f.Add(name.Line, "%s: %v", strictyaml.Shown(name.V), err)
				}
			}
		},
	})
	first := uint64(math.MaxUint64)
	eachSpan(source.requests, func(span ptrace.Span) { first = min(first, uint64(span.StartTimestamp())) })
	shift := func(t pcommon.Timestamp) pcommon.Timestamp {
		return t - pcommon.Timestamp(first) + pcommon.Timestamp(at)
	}
	eachSpan(source.requests, func(span ptrace.Span) {
		span.SetStartTimestamp(shift(span.StartTimestamp()))
		span.SetEndTimestamp(shift(span.EndTimestamp()))
		for _, event := range span.Events().All() {
			event.SetTimestamp(shift(event.Timestamp()))
		}
	})
	return source
}

func readFile(name string, open Open, each func(ptrace.Traces) error) error {
	file, err := open(name)
	if err != nil {
		return err
	}
	_, err = otlpfile.Read(file, maxOTLPFile, each)
	return errors.Join(err, file.Close())
}

func eachSpan(requests []ptrace.Traces, do func(ptrace.Span)) {
	for _, td := range requests {
		for _, resource := range td.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					do(span)
				}
			}
		}
	}
}

// inline is one span as a test writes it, or several that differ in time and trace only.
type inline struct {
	at, took, every      time.Duration
	times                int64
	trace, id, parent    string
	name                 string
	client, failed       bool
	resource, attributes pcommon.Map
	late                 time.Duration
	line                 int
}

// parseInline reads a span. The keys are those that most tests need; every other
// attribute goes under attributes.
func parseInline(f *strictyaml.File, n *yaml.Node) spanSource {
	s := inline{
		took: 100 * time.Millisecond, every: time.Second, times: 1, resource: pcommon.NewMap(), attributes: pcommon.NewMap(),
		line: n.Line,
	}
	s.resource.PutStr("service.name", "app")
	word := func(key string, put func(string)) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if v := f.Text(n, key); v.Given() {
				put(v.V)
			}
		}
	}
	attribute := func(key, attribute string) func(*yaml.Node) {
		return word(key, func(v string) { s.attributes.PutStr(attribute, v) })
	}
	resource := func(key, attribute string) func(*yaml.Node) {
		return word(key, func(v string) { s.resource.PutStr(attribute, v) })
	}
	number := func(key, attribute string, most int64) func(*yaml.Node) {
		return func(n *yaml.Node) { s.attributes.PutInt(attribute, f.Whole(n, key, 1, most).V) }
	}
	f.Fields(n, "a span", map[string]func(*yaml.Node){
		"at":          func(n *yaml.Node) { s.at = length(f, n, "at") },
		"took":        func(n *yaml.Node) { s.took = length(f, n, "took") },
		"every":       func(n *yaml.Node) { s.every = length(f, n, "every") },
		"late":        func(n *yaml.Node) { s.late = length(f, n, "late") },
		"times":       func(n *yaml.Node) { s.times = f.Whole(n, "times", 1, maxSpans).V },
		"trace":       word("trace", func(v string) { s.trace = v }),
		"id":          word("id", func(v string) { s.id = v }),
		"parent":      word("parent", func(v string) { s.parent = v }),
		"name":        word("name", func(v string) { s.name = v }),
		"service":     resource("service", "service.name"),
		"version":     resource("version", "service.version"),
		"environment": resource("environment", "deployment.environment.name"),
		"step":        attribute("step", "step"),
		"error":       attribute("error", "error.type"),
		"provider":    attribute("provider", "gen_ai.provider.name"),
		"model": word("model", func(v string) {
			s.attributes.PutStr("gen_ai.request.model", v)
			s.attributes.PutStr("gen_ai.operation.name", "chat")
			s.client = true
		}),
		"attempt":     number("attempt", "retry.attempt", 1_000_000),
		"http_status": number("http_status", "http.response.status_code", 999),
		"status": word("status", func(v string) {
			if v != "ok" && v != "error" {
				f.Add(n.Line, "status: write ok or error, not %q", strictyaml.Shown(v))
			}
			s.failed = v == "error"
		}),
		"attributes": func(n *yaml.Node) { putAttributes(f, n, s.attributes) },
	})
	if s.parent != "" && s.trace == "" {
		f.Add(n.Line, "a span with a parent names the trace that both are in")
	}
	if s.at+time.Duration(s.times)*s.every > maxLength {
		f.Add(n.Line, "the spans go on for longer than %s", strictyaml.Short(maxLength))
		return spanSource{}
	}
	return spanSource{inline: &s, late: s.late}
}

// length reads a length of time down to nanoseconds.
func length(f *strictyaml.File, n *yaml.Node, what string) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if err != nil || d < 0 || d > maxLength {
		f.Add(n.Line, "%s: write a length of time such as 300ms, 30s or 2m, not %s", what, strictyaml.KindOf(n))
		return 0
	}
	return d
}

// putAttributes reads any attributes, of the types that YAML gives them.
func putAttributes(f *strictyaml.File, n *yaml.Node, into pcommon.Map) {
	if n.Kind != yaml.MappingNode {
		f.Add(n.Line, "attributes is a mapping of keys to values, not %s", strictyaml.KindOf(n))
		return
	}
	var all map[string]any
	if err := n.Decode(&all); err != nil {
		f.Add(n.Line, "attributes: %v", err)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := into.PutEmpty(key).FromRaw(all[key]); err != nil {
			f.Add(n.Line, "attributes: %s: %v", strictyaml.Shown(key), err)
		}
	}
}

// request is the span, as often as it happens.
func (s *inline) request() ptrace.Traces {
	td := ptrace.NewTraces()
	resource := td.ResourceSpans().AppendEmpty()
	s.resource.CopyTo(resource.Resource().Attributes())
	spans := resource.ScopeSpans().AppendEmpty().Spans()
	trace, id := s.trace, s.id
	if trace == "" {
		trace = "line " + strconv.Itoa(s.line)
	}
	if id == "" {
		id = "line " + strconv.Itoa(s.line)
	}
	name := s.name
	if step, ok := s.attributes.Get("step"); ok && name == "" {
		name = step.Str()
	}
	if name == "" {
		name = "span"
	}
	for i := range s.times {
		span := spans.AppendEmpty()
		traceID := hash16("trace", trace, i)
		spanID := func(id string) (short pcommon.SpanID) {
			long := hash16("span "+trace, id, i)
			copy(short[:], long[:])
			return short
		}
		span.SetTraceID(traceID)
		span.SetSpanID(spanID(id))
		if s.parent != "" {
			span.SetParentSpanID(spanID(s.parent))
		}
		span.SetName(name)
		span.SetKind(ptrace.SpanKindInternal)
		if s.client {
			span.SetKind(ptrace.SpanKindClient)
		}
		if s.failed {
			span.Status().SetCode(ptrace.StatusCodeError)
		}
		at := s.at + time.Duration(i)*s.every
		span.SetStartTimestamp(pcommon.Timestamp(at))
		span.SetEndTimestamp(pcommon.Timestamp(at + s.took))
		s.attributes.CopyTo(span.Attributes())
	}
	return td
}

func hash16(kind, name string, i int64) (id [16]byte) {
	h := fnv.New128a()
	_, _ = io.WriteString(h, kind+"\x00"+name+"\x00"+strconv.FormatInt(i, 10))
	h.Sum(id[:0])
	return id
}
