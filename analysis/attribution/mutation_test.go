package attribution_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
)

// FuzzMutatedCaptures changes real spans and not bytes: it drops, repeats, re-parents,
// retimes and renames spans, turns their statuses, and drops attributes or gives them
// another type, so that every input is a request that some sender might write.
func FuzzMutatedCaptures(f *testing.F) {
	var requests []ptrace.Traces
	for _, c := range capturetest.All(f) {
		whole := ptrace.NewTraces()
		for _, name := range c.Files {
			file, err := os.Open(name)
			require.NoError(f, err)
			_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
				td.ResourceSpans().MoveAndAppendTo(whole.ResourceSpans())
				return nil
			})
			require.NoError(f, err)
			require.NoError(f, file.Close())
		}
		if n := whole.SpanCount(); n > 0 && n <= 300 {
			requests = append(requests, whole)
			f.Add(uint16(len(requests)-1), uint64(1), uint8(10))
		}
	}
	f.Fuzz(func(t *testing.T, capture uint16, seed uint64, percent uint8) {
		td := ptrace.NewTraces()
		requests[int(capture)%len(requests)].CopyTo(td)
		mutate(td, rand.New(rand.NewPCG(seed, 0)), int(percent)%60)
		accountHolds(t, td)
	})
}

// mutate changes about the given share of the spans, each in one way.
func mutate(td ptrace.Traces, r *rand.Rand, percent int) {
	var ids []pcommon.SpanID
	var names []string
	each(td, func(_ ptrace.SpanSlice, s ptrace.Span) { ids, names = append(ids, s.SpanID()), append(names, s.Name()) })
	if len(ids) == 0 {
		return
	}
	each(td, func(list ptrace.SpanSlice, s ptrace.Span) {
		if r.IntN(100) >= percent {
			return
		}
		switch r.IntN(9) {
		case 0:
			s.SetParentSpanID(ids[r.IntN(len(ids))])
		case 1:
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], r.Uint64())
			s.SetParentSpanID(id) // it never comes
		case 2:
			s.SetStartTimestamp(s.StartTimestamp() + pcommon.Timestamp(r.Int64N(4e9)) - 2e9)
		case 3:
			s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(r.Int64N(4e9)) - 2e9)
		case 4:
			s.SetName(names[r.IntN(len(names))])
		case 5:
			s.Status().SetCode(ptrace.StatusCode(r.IntN(3)))
		case 6:
			s.Attributes().RemoveIf(func(string, pcommon.Value) bool { return r.IntN(4) == 0 })
		case 7:
			s.Attributes().Range(func(_ string, v pcommon.Value) bool {
				if r.IntN(4) == 0 {
					retype(v, r)
				}
				return true
			})
		case 8: // again, and not quite the same
			twin := list.AppendEmpty()
			s.CopyTo(twin)
			twin.SetSpanID(ids[r.IntN(len(ids))])
		}
	})
	each(td, func(_ ptrace.SpanSlice, s ptrace.Span) {
		if r.IntN(300) < percent {
			s.SetTraceID(pcommon.TraceID{}) // refused at the door: the span is lost
		}
	})
}

func each(td ptrace.Traces, visit func(ptrace.SpanSlice, ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for i := range ss.Spans().Len() {
				visit(ss.Spans(), ss.Spans().At(i))
			}
		}
	}
}

// retype says the same or something else in another type.
func retype(v pcommon.Value, r *rand.Rand) {
	text := v.AsString()
	switch r.IntN(6) {
	case 0:
		v.SetStr(text)
	case 1:
		v.SetInt(r.Int64() - math.MaxInt64/2)
	case 2:
		v.SetDouble(math.NaN())
	case 3:
		v.SetBool(r.IntN(2) == 0)
	case 4:
		v.SetEmptySlice().AppendEmpty().SetStr(text)
	case 5:
		v.SetEmptyMap().PutStr("value", text)
	}
}
