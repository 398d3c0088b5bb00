package admission

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"pgregory.net/rapid"
)

// unbounded is a bound that nothing in these tests comes near.
const unbounded = 1 << 40

// newExactWalk looks into all parts of a message.
func newExactWalk() *walk {
	return newWalk(unbounded, 0)
}

// decoded is what pdata's decoder makes, before it moves what is in old fields.
type decoded interface {
	UnmarshalProto(p []byte) error
}

func newDecoded() decoded {
	return reflect.New(exportRequest.Elem()).Interface().(decoded) //nolint:errcheck // a test that needs it fails
}

// contents are the messages in v by kind, without those that are part of another's struct,
// and the memory that is held from it, in bytes.
func contents(v reflect.Value) (counts [kinds]int64, holds int64) {
	names := map[string]kind{
		"ResourceSpans": resourceSpans, "ScopeSpans": scopeSpans, "Span": span, "SpanEvent": event, "SpanLink": link,
		"KeyValue": keyValue, "EntityRef": entityRef, "ArrayValue": arrayValue, "KeyValueList": keyValueList,
	}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // the others hold nothing
		case reflect.String:
			holds += int64(v.Len())
		case reflect.Interface:
			if !v.IsNil() {
				visit(v.Elem())
			}
		case reflect.Pointer:
			if !v.IsNil() {
				holds += int64(v.Elem().Type().Size())
				visit(v.Elem())
			}
		case reflect.Slice:
			holds += int64(v.Cap()) * int64(v.Type().Elem().Size())
			if v.Type().Elem().Kind() == reflect.Uint8 {
				return
			}
			for i := range v.Len() {
				visit(v.Index(i))
			}
		case reflect.Struct:
			counts[names[v.Type().Name()]]++
			for i := range v.NumField() {
				visit(v.Field(i))
			}
		}
	}
	visit(v)
	return counts, holds
}

// anything draws a message as instrumentations may send it.
func anything(t *rapid.T) ptrace.Traces {
	few := rapid.IntRange(0, 3)
	words := rapid.StringN(0, 8, 300)
	var fill func(v pcommon.Value, deep int)
	attributes := func(m pcommon.Map, deep int) {
		for range few.Draw(t, "attributes") {
			fill(m.PutEmpty(words.Draw(t, "key")), deep)
		}
	}
	fill = func(v pcommon.Value, deep int) {
		most := 7
		if deep == 0 {
			most = 5
		}
		switch rapid.IntRange(0, most).Draw(t, "type") {
		case 1:
			v.SetStr(words.Draw(t, "text"))
		case 2:
			v.SetInt(rapid.Int64().Draw(t, "int"))
		case 3:
			v.SetBool(rapid.Bool().Draw(t, "truth"))
		case 4:
			v.SetDouble(rapid.Float64().Draw(t, "double"))
		case 5:
			v.SetEmptyBytes().FromRaw(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bytes"))
		case 6:
			for range few.Draw(t, "values") {
				fill(v.SetEmptySlice().AppendEmpty(), deep-1)
			}
		case 7:
			attributes(v.SetEmptyMap(), deep-1)
		}
	}
	const deep = 3
	td := ptrace.NewTraces()
	for range few.Draw(t, "resources") {
		rs := td.ResourceSpans().AppendEmpty()
		rs.SetSchemaUrl(words.Draw(t, "schema"))
		attributes(rs.Resource().Attributes(), deep)
		for range few.Draw(t, "scopes") {
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(words.Draw(t, "scope"))
			attributes(ss.Scope().Attributes(), deep)
			for range few.Draw(t, "spans") {
				s := ss.Spans().AppendEmpty()
				s.SetTraceID(rapid.Custom(func(t *rapid.T) (id pcommon.TraceID) { id[3] = rapid.Byte().Draw(t, "id"); return id }).Draw(t, "trace"))
				s.SetSpanID([8]byte{1})
				s.SetName(words.Draw(t, "name"))
				s.SetKind(ptrace.SpanKindClient)
				s.SetFlags(rapid.Uint32().Draw(t, "flags"))
				s.SetStartTimestamp(pcommon.Timestamp(rapid.Uint64().Draw(t, "start")))
				s.SetDroppedAttributesCount(3)
				s.Status().SetMessage(words.Draw(t, "message"))
				attributes(s.Attributes(), deep)
				for range few.Draw(t, "events") {
					attributes(s.Events().AppendEmpty().Attributes(), deep)
				}
				for range few.Draw(t, "links") {
					attributes(s.Links().AppendEmpty().Attributes(), deep)
				}
			}
		}
	}
	return td
}

// What is counted on the wire is what pdata decodes, in whatever pieces it comes, and in
// JSON as in protobuf.
func TestTheWalkCountsWhatIsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := ptraceotlp.NewExportRequestFromTraces(anything(t))
		p, err := message.MarshalProto()
		require.NoError(t, err)
		into := newDecoded()
		require.NoError(t, into.UnmarshalProto(p))
		want, holds := contents(reflect.ValueOf(into).Elem())

		w := newExactWalk()
		for rest := p; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			require.Equal(t, admitted, w.feed(rest[:n]))
			rest = rest[n:]
		}
		require.False(t, w.broken)
		require.EqualValues(t, len(p), w.at)
		require.GreaterOrEqual(t, w.takes+w.at, holds)

		text, err := message.MarshalJSON()
		require.NoError(t, err)
		j := newWalkJSON(text, unbounded)
		require.NoError(t, j.walk())
		for _, k := range []kind{resourceSpans, scopeSpans, span, event, link, keyValue, arrayValue, keyValueList} {
			require.Equal(t, want[k], w.counts[k], "kind %d", k)
			require.Equal(t, want[k], j.counts[k], "kind %d in JSON", k)
		}
		require.GreaterOrEqual(t, j.takes+j.at, holds)
	})
}

// seeds are messages for the fuzz tests: usual ones, and those that decoders stumble over.
func seeds(t testing.TB) (wire, json [][]byte) {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "s")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID([16]byte{1})
	s.SetName("call")
	s.SetStartTimestamp(5)
	s.Attributes().PutInt("n", 300)
	s.Attributes().PutDouble("d", 1.5)
	s.Attributes().PutEmptySlice("list").AppendEmpty().SetEmptyMap().PutBool("b", true)
	s.Attributes().PutEmptyBytes("bytes").FromRaw([]byte{1, 2})
	s.Events().AppendEmpty().SetName("e")
	s.Links().AppendEmpty().Attributes().PutStr("l", "v")
	message := ptraceotlp.NewExportRequestFromTraces(td)
	p, err := message.MarshalProto()
	require.NoError(t, err)
	text, err := message.MarshalJSON()
	require.NoError(t, err)
	wire = [][]byte{
		p,
		within([]byte("\xc2\x3e\x02\x12\x00\x12\x02\x12\x00"), 1), // the old number of scope_spans, and the new one
		within(bytes.Repeat([]byte("\x1a\x04\x1a\x00\x22\x00"), 3), 1, 1),
		[]byte("\x0a\x80\x80\x00\x8a\x80\x80\x80\x80\x80\x80\x00\x00"), // numbers longer than they need be
		[]byte("\x0b\x13\x14\x0c\x0a\x00"),                             // groups, which pdata ends early
		[]byte("\x0b\x08\x01\x0a\x00\x0a\x00"),
		[]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		within([]byte("\x12\x00\x12\x04\x32\x02\x12\x00\x12\x02\x10\x01"), 1, 2),
	}
	for _, text := range []string{
		string(text),
		`{"resourceSpans":[},},{},null,n,[],]}`,
		`{"resourceSpans":,{"scopeSpans":,{"spans":[[[[{},5,"},},}"`,
		`{"resource_spans":[{"schemaUrl":12,"],},},},}":1}]}`,
		`{"resourceSpans":[{"resource":{"entityRefs":[{"idKeys":[n,"",""]}]},"deprecated_scope_spans":[{}]}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"flags":"5","kind":"SPAN_KIND_CLIENT","startTimeUnixNano":1e5,"attributes":[{"value":{"arrayV\u0061lue":{"values":[{"doubleValue":"NaN"}]}}}]}]}]}]}`,
		`{"":1,"resourceSpans":[{}]}`,
		`{"a":{"b":[1,"\"",true]},"resourceSpans":[{"schemaUrl":"\ud800\n\u00e9"}]}`,
	} {
		json = append(json, []byte(text))
	}
	return wire, json
}

// within is body in messages of these fields, outermost first.
func within(body []byte, fields ...byte) []byte {
	for i := len(fields) - 1; i >= 0; i-- {
		head := []byte{fields[i]<<3 | wireLen}
		n := len(body)
		for ; n >= 0x80; n >>= 7 {
			head = append(head, byte(n)|0x80)
		}
		body = append(append(head, byte(n)), body...)
	}
	return body
}

// Whatever comes, pdata makes no more of it than was counted before, also where it gives
// up in the middle, and no stack grows without end.
func FuzzNothingDecodesToMoreThanWasEstimated(f *testing.F) {
	wire, _ := seeds(f)
	for i, p := range wire {
		f.Add(p, uint8(i))
	}
	f.Fuzz(func(t *testing.T, p []byte, piece uint8) {
		coarse := newWalk(unbounded, unbounded/4)
		require.Equal(t, admitted, coarse.feed(p))
		w := newExactWalk()
		require.Equal(t, admitted, w.feed(p))
		into := newDecoded()
		err := into.UnmarshalProto(p)
		counts, holds := contents(reflect.ValueOf(into).Elem())
		for _, k := range []kind{resourceSpans, scopeSpans, span, event, link, keyValue, entityRef, arrayValue, keyValueList} {
			require.LessOrEqual(t, counts[k], w.counts[k], "kind %d", k)
		}
		require.LessOrEqual(t, holds, w.takes+w.at)
		if err == nil {
			require.False(t, w.broken, "what pdata reads to its end is walked to its end")
		}
		require.LessOrEqual(t, holds, coarse.takes+coarse.at)
		pieces := newExactWalk()
		for rest := p; len(rest) > 0; {
			n := min(len(rest), 1+int(piece))
			pieces.feed(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, w.counts, pieces.counts)
		require.Equal(t, w.takes, pieces.takes)
		require.Equal(t, w.broken, pieces.broken)
	})
}

// The same of JSON, by the quick look, which must hold whatever comes, and by reading it,
// after which nothing is decoded that pdata does not read to its end.
func FuzzNoJSONDecodesToMoreThanWasEstimated(f *testing.F) {
	_, json := seeds(f)
	for _, p := range json {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		into := ptraceotlp.NewExportRequest()
		err := into.UnmarshalJSON(p)
		_, holds := contents(reflect.ValueOf(into).FieldByName("orig").Elem())
		require.LessOrEqual(t, holds, atMostJSON(p))
		w := newWalkJSON(p, unbounded)
		if walked := w.walk(); walked == nil {
			require.LessOrEqual(t, holds, w.takes+w.at)
		} else {
			require.Error(t, err)
		}
	})
}

func TestValuesLieInEachOtherOnlySoDeep(t *testing.T) {
	wire := func(deep int, field byte) []byte {
		p := []byte{}
		for range deep {
			p = within(p, 2, field, 1)
		}
		return within(p, 1, 2, 2, 9)
	}
	json := func(deep int) []byte {
		return []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":` +
			strings.Repeat(`{"kvlistValue":{"values":[{"value":{"arrayV\u0061lue":{"values":[`, deep) + "{}" +
			strings.Repeat(`]}}}]}}`, deep) + `}]}]}]}]}`)
	}
	for _, c := range []struct {
		name string
		make func(deep int) []byte
		walk func(p []byte) (reason, error)
		each int
	}{
		{"lists", func(deep int) []byte { return wire(deep, 6) }, func(p []byte) (reason, error) { return newWalk(unbounded, unbounded/4).feed(p), nil }, 1},
		{"JSON", json, func(p []byte) (reason, error) { return newMemory(unbounded, 1).reserve().json(p) }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			why, err := c.walk(c.make(deepest / c.each))
			require.NoError(t, err)
			assert.Equal(t, admitted, why)
			why, err = c.walk(c.make(deepest/c.each + 1))
			require.NoError(t, err)
			assert.Equal(t, nestedTooDeep, why)
		})
	}
}

func heavySpans(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "bench")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		s := spans.AppendEmpty()
		s.SetTraceID([16]byte{1, byte(i)})
		s.SetSpanID([8]byte{1, byte(i), byte(i >> 8)})
		s.SetParentSpanID([8]byte{2})
		s.SetName("ChatModel")
		s.SetStartTimestamp(1_700_000_000_000_000_000)
		s.SetEndTimestamp(1_700_000_001_000_000_000)
		for j := range 12 {
			s.Attributes().PutStr(fmt.Sprintf("gen_ai.attribute.%d", j), "a value of it")
		}
		s.Attributes().PutInt("gen_ai.usage.input_tokens", 1200)
		s.Attributes().PutInt("gen_ai.usage.output_tokens", 300)
		s.Attributes().PutStr("input.value", strings.Repeat("Lorem ipsum, dolor sit \"amet\". ", 10))
	}
	return td
}

// BenchmarkWalk is the walk, beside what it goes before.
func BenchmarkWalk(b *testing.B) {
	const spans = 2000
	message := ptraceotlp.NewExportRequestFromTraces(heavySpans(spans))
	p, err := message.MarshalProto()
	require.NoError(b, err)
	text, err := message.MarshalJSON()
	require.NoError(b, err)
	for _, c := range []struct {
		name string
		size int
		run  func() error
	}{
		{"walk", len(p), func() error { newWalk(unbounded, unbounded/4).feed(p); return nil }},
		{"walk a large one", len(p), func() error { newExactWalk().feed(p); return nil }},
		{"decode", len(p), func() error { return ptraceotlp.NewExportRequest().UnmarshalProto(p) }},
		{"look at JSON", len(text), func() error { _, err := newMemory(unbounded, 1).reserve().json(text); return err }},
		{"walk JSON", len(text), func() error { return newWalkJSON(text, unbounded).walk() }},
		{"decode JSON", len(text), func() error { return ptraceotlp.NewExportRequest().UnmarshalJSON(text) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(c.size))
			for b.Loop() {
				if err := c.run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/spans, "ns/span")
		})
	}
}
