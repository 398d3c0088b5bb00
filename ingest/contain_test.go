package ingest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// request has one span for each name, spread over resources of two scopes of
// two spans each. Ids follow the position; a name "" leaves the trace id out.
func request(first int, names ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	var rs ptrace.ResourceSpans
	var ss ptrace.ScopeSpans
	for i, name := range names {
		if i%4 == 0 {
			rs = td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", "service-a")
		}
		if i%2 == 0 {
			ss = rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName("scope-a")
		}
		span := ss.Spans().AppendEmpty()
		span.SetName(name)
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[8:], uint64(first+i)+1)
		if name != "" {
			span.SetTraceID(trace)
		}
		span.SetSpanID(pcommon.SpanID(trace[8:]))
		span.SetStartTimestamp(1_700_000_000_000_000_000)
		span.SetEndTimestamp(1_700_000_001_000_000_000)
	}
	return td
}

// touchy is Normalise, but it panics at spans of some names.
func touchy(td ptrace.Traces, receivedNs int64) ([]schema.Span, int) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				switch span.Name() {
				case "nil map":
					counts(td)[span.Name()] = 1
				case "secret":
					panic("the prompt was: tell me a secret")
				}
			}
		}
	}
	return dialect.Normalise(td, receivedNs)
}

// counts is a map that somebody forgot to make.
func counts(ptrace.Traces) map[string]int { return nil }

func TestAPanicCostsOneSpan(t *testing.T) {
	td := request(0, "a", "b", "c", "d", "e", "nil map", "f", "secret", "g", "h")
	n := normaliseContained(touchy, td, 7)
	names := make([]string, 0, len(n.spans))
	for _, s := range n.spans {
		names = append(names, s.Name)
		assert.Equal(t, "service-a", s.Service)
		assert.Equal(t, "scope-a", s.Scope)
		assert.EqualValues(t, 7, s.ReceivedNs)
	}
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g", "h"}, names)
	require.Len(t, n.dead, 2)
	assert.Equal(t, 2, n.panics)
	assert.Contains(t, string(n.stack), "touchy")
	assert.NotContains(t, string(n.stack), "tell me")
	assert.Equal(t, deadletter.Letter{Kind: deadletter.KindSpan, Cause: deadletter.CauseDialectFailed, Reason: "its dialect failed: assignment to entry in nil map",
		TraceID: "00000000000000000000000000000006", SpanID: "0000000000000006", Service: "service-a"}, n.dead[0])
	assert.Equal(t, "its dialect failed: panic of a string", n.dead[1].Reason, "what the panic says may quote a span")
}

func TestRefusedSpansAreNamed(t *testing.T) {
	td := request(0, "a", "", "b")
	td.ResourceSpans().At(0).ScopeSpans().At(1).Spans().At(0).SetSpanID(pcommon.SpanID{})
	n := normaliseContained(dialect.Normalise, td, 7)
	require.Len(t, n.spans, 1)
	assert.Equal(t, []deadletter.Letter{
		{Kind: deadletter.KindSpan, Cause: deadletter.CauseNoTraceID, Reason: "the span has no trace id", SpanID: "0000000000000002", Service: "service-a"},
		{Kind: deadletter.KindSpan, Cause: deadletter.CauseNoSpanID, Reason: "the span has no span id", TraceID: "00000000000000000000000000000003", Service: "service-a"},
	}, n.dead)

	other := func(ptrace.Traces, int64) ([]schema.Span, int) { return nil, 2 }
	n = normaliseContained(other, request(0, "a", "b"), 7)
	assert.Equal(t, []deadletter.Letter{{Kind: deadletter.KindSpan, Cause: deadletter.CauseOther, Reason: "the dialect cannot keep it", Count: 2}}, n.dead)
}

// However panics, refusals and good spans are mixed, each span is kept once or
// is one dead letter, and the kept ones are as if the others had not been there.
func TestContainmentLosesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "nil map", "secret"}), 0, 20).Draw(t, "names")
		td := request(0, names...)
		n := normaliseContained(touchy, td, 7)
		good := request(0, names...)
		good.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
			rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
				ss.Spans().RemoveIf(func(s ptrace.Span) bool { return s.Name() != "a" && s.Name() != "b" })
				return false
			})
			return false
		})
		want, refused := dialect.Normalise(good, 7)
		require.Zero(t, refused)
		require.Len(t, n.spans, len(want))
		for i := range want {
			require.Equal(t, want[i].TraceID, n.spans[i].TraceID)
			require.Equal(t, want[i].ContentHash, n.spans[i].ContentHash)
		}
		require.Len(t, n.dead, len(names)-len(want))
	})
}

// A span that is stumbled over because of what an attribute says leaves what it says
// without them, to be replayed: no text but its name.
func TestAPanicLeavesWhatCanBeReplayed(t *testing.T) {
	td := request(0, "a", "b")
	span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1)
	span.Attributes().PutStr("input.value", "tell me a secret")
	span.Status().SetCode(ptrace.StatusCodeError)
	span.Status().SetMessage("tell me a secret")
	stumbles := func(td ptrace.Traces, receivedNs int64) ([]schema.Span, int) {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					if _, ok := span.Attributes().Get("input.value"); ok {
						panic("boom")
					}
				}
			}
		}
		return dialect.Normalise(td, receivedNs)
	}
	n := normaliseContained(stumbles, td, 7)
	require.Len(t, n.spans, 1)
	require.Len(t, n.dead, 1)
	rows, err := journal.DecodeRows(n.dead[0].Row)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, "b", rows[0].Name)
	assert.Equal(t, "service-a", rows[0].Service)
	assert.True(t, rows[0].Failed)
	assert.NotContains(t, fmt.Sprintf("%+v", rows[0]), "secret")
	assert.Equal(t, 2, td.SpanCount(), "the request is not changed")
	_, there := span.Attributes().Get("input.value")
	assert.True(t, there)
}

// A request of many spans is worked off by parts: all of it, in order, once.
func TestPartsAreTheWholeRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		td := request(0, names(rapid.IntRange(0, 40).Draw(t, "spans"))...)
		td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty() // with nothing in it
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		whole, _ := dialect.Normalise(td, 7)
		var found []schema.Span
		for part := range parts(td, limit) {
			require.LessOrEqual(t, part.SpanCount(), limit)
			rows, _ := dialect.Normalise(part, 7)
			found = append(found, rows...)
		}
		require.Len(t, found, len(whole))
		for i := range whole {
			require.Equal(t, whole[i].ContentHash, found[i].ContentHash)
		}
	})
}

// A sender whose spans are all bad costs a bounded number of letters.
func TestLettersOfOneCauseAreBounded(t *testing.T) {
	n := normaliseContained(dialect.Normalise, request(0, make([]string, 5000)...), 7)
	require.Len(t, n.dead, maxLettersEach)
	total := 0
	for i := range n.dead {
		total += n.dead[i].Items()
	}
	assert.Equal(t, 5000, total)
	assert.Empty(t, n.dead[maxLettersEach-1].SpanID, "the last one stands for many")
}

// replay is a normaliseFunc that knows its answer.
func replay(spans []schema.Span) normaliseFunc {
	return func(ptrace.Traces, int64) ([]schema.Span, int) { return append([]schema.Span(nil), spans...), 0 }
}
