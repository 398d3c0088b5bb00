// Package dialect reads spans as instrumentations really write them, one file
// per instrumentation, into the one row that everything else shares.
//
// Reading has three layers, each of which may overrule the one before: what any
// span may state (plain.go), the semantic conventions that most instrumentations
// build on (semconv.go), and the dialect that wrote the span. A span that no
// dialect knows still counts as what its generic attributes say.
package dialect

import (
	"math"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/schema"
)

// Limits on what is kept of one span, so that no sender decides how large a row becomes.
const (
	maxText       = 200 // bytes of a reason or a class
	maxViolations = 64
	maxEvents     = 1024
	maxSteps      = 256 // unfinished steps that a flag may list
)

// instrumentation is one dialect: how to tell its spans, and how to read them.
type instrumentation struct {
	name   string
	scopes []string // prefixes of instrumentation scope names
	// marks are attributes that only this dialect writes; one is enough.
	marks []string
	read  func(*reading)
}

// instrumentations are tried in order; the first that claims a span reads it.
var instrumentations = []instrumentation{
	langfuse, aiSDK, aiSDK7, openAIAgents, crewAI, instructor, liteLLM, openInferenceOpenAI, openInference, langSmith, traceloopAI, traceloop, openLLMetry, mlflow,
	mastra, temporal, grpcGo, awsGo, botocore, undici, pydanticAI, logfire, googleADK, strands,
	openLIT, openLITCalls, autogen, genAILang, openAIv2,
}

// Reader reads spans into rows.
type Reader struct {
	// Outputs say which outputs tell that a step failed; the first that fits counts.
	Outputs []OutputTests
}

// Normalise is that of a Reader without settings.
func Normalise(td ptrace.Traces, receivedNs int64) (spans []schema.Span, refused int) {
	return Reader{}.Normalise(td, receivedNs)
}

// Normalise reads every span of td into its row, using only what the span itself
// and its resource and scope say. A span that cannot be kept (no trace or span id)
// is left out and counted in refused. receivedNs is the time of receipt in
// nanoseconds since the epoch.
func (reader Reader) Normalise(td ptrace.Traces, receivedNs int64) (spans []schema.Span, refused int) {
	spans = make([]schema.Span, 0, td.SpanCount())
	for _, rs := range td.ResourceSpans().All() {
		res := attributes{rs.Resource().Attributes()}
		base := schema.Span{
			ReceivedNs:  receivedNs,
			Service:     clip(res.text("service.name"), schema.MaxName),
			Version:     clip(res.text("service.version"), schema.MaxName),
			Environment: clip(res.text("deployment.environment.name", "deployment.environment"), schema.MaxName),
		}
		sampled := sampledAttributes(res.m)
		for _, ss := range rs.ScopeSpans().All() {
			base.Scope = clip(ss.Scope().Name(), schema.MaxName)
			base.Sampled = sampled || sampledAttributes(ss.Scope().Attributes())
			for _, span := range ss.Spans().All() {
				if span.TraceID().IsEmpty() || span.SpanID().IsEmpty() {
					refused++
					continue
				}
				row := base
				reader.readSpan(&row, span)
				spans = append(spans, row)
			}
		}
	}
	return spans, refused
}

// reading is one span while it is read.
type reading struct {
	row   *schema.Span
	span  ptrace.Span
	attrs attributes

	outputs []stepOutput
}

func (reader Reader) readSpan(row *schema.Span, span ptrace.Span) {
	row.TraceID = schema.TraceID(span.TraceID())
	row.SpanID = schema.SpanID(span.SpanID())
	row.ParentID = schema.SpanID(span.ParentSpanID())
	row.StartNs = nanoseconds(span.StartTimestamp())
	row.EndNs = nanoseconds(span.EndTimestamp())
	if row.EndNs < row.StartNs {
		row.EndNs = row.StartNs // a clock that went backwards: no negative time
	}
	row.Name = clip(span.Name(), schema.MaxName)
	row.ClientKind = span.Kind() == ptrace.SpanKindClient
	row.Sampled = row.Sampled || sampledState(span.TraceState().AsRaw()) || sampledAttributes(span.Attributes())
	row.Dialect = "plain"
	row.GraphStep, row.RetryCount, row.ResendCount, row.Fallback = -1, -1, -1, -1
	row.InputTokens, row.OutputTokens, row.CostUSD = schema.Unknown, schema.Unknown, math.NaN()

	r := &reading{row: row, span: span, attrs: attributes{span.Attributes()}}
	r.readSemconv()
	r.readEnding()
	r.readPlain()
	for i := range instrumentations {
		if in := &instrumentations[i]; in.claims(row.Scope, r.attrs) {
			row.Dialect = in.name
			in.read(r)
			break
		}
	}
	r.cleanNames()
	r.testOutputs(reader.Outputs)
	row.ContentHash = row.Hash()
}

func (in *instrumentation) claims(scope string, attrs attributes) bool {
	for _, prefix := range in.scopes {
		// A prefix ends where a name's part ends: "ai" is not the beginning of "aiohttp".
		if rest, ok := strings.CutPrefix(scope, prefix); ok && (rest == "" || strings.HasSuffix(prefix, "-") || !isWord(prefix[len(prefix)-1]) || !isWord(rest[0])) {
			return true
		}
	}
	for _, key := range in.marks {
		if attrs.has(key) {
			return true
		}
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// nanoseconds bounds a timestamp to what fits a signed integer (the year 2262).
func nanoseconds(t pcommon.Timestamp) int64 {
	if uint64(t) > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(t)
}

// clip cuts text to at most limit bytes at a rune's boundary, mends text that is no UTF-8, and
// replaces what looks like a secret. Every text that is kept goes through it.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
		for text != "" && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		if text != "" {
			if r, size := utf8.DecodeLastRuneInString(text); r == utf8.RuneError && size == 1 {
				text = text[:len(text)-1]
			}
		}
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "�")
	}
	return withoutSecrets(text)
}
