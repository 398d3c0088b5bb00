package journal_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

// anySpan draws every field of a row, by reflection, so that a field that is
// added to the row and forgotten in the codec fails the round trip.
func anySpan(t *rapid.T) schema.Span {
	var s schema.Span
	fill(t, reflect.ValueOf(&s).Elem())
	return s
}

func fill(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, "length"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i))
			}
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 20, 80).Draw(t, "string"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") >> (64 - v.Type().Bits()))
	case reflect.Int8, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int") >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN())).Draw(t, "float"))
	default:
		t.Fatalf("a field of kind %s: teach the test and the codec", v.Kind())
	}
}

// plainSpan is a row as most are.
func plainSpan(i int) schema.Span {
	s := schema.Span{
		StartNs: 1_700_000_000_123_456_789 + int64(i)*1_000_000, Service: "capture-app", Version: "1.2.3",
		Environment: "production", Scope: "@arizeai/openinference-instrumentation-langchain",
		Dialect: "openinference", Name: "ChatOpenAI", Role: schema.RoleModel, Node: "resolve",
		TaskKey: "resolve:6f1c2b0e-2d0a-5b0e-9c51-7e2d1f0b4a77", GraphStep: 3, Attempt: int32(1 + i%3), AttemptEvidence: "tag",
		RetryCount: -1, ResendCount: -1, Fallback: -1, Model: "gpt-4o-mini-2024-07-18", Provider: "openai",
		InputTokens: 1200, OutputTokens: schema.Unknown, CostUSD: math.NaN(), Failed: i%3 != 0, ErrorClass: "RateLimitError",
		HTTPStatus: 429, InputHash: 0x9e3779b97f4a7c15 * uint64(i), ContentHash: 0xc2b2ae3d27d4eb4f * uint64(i+1),
	}
	s.EndNs = s.StartNs + 1_234_567_890
	s.ReceivedNs = s.EndNs + 250_000_000
	for b := range 8 {
		s.TraceID[b], s.SpanID[b], s.ParentID[b] = byte(i/8>>(8*b)), byte(i>>(8*b)), byte((i+7)>>(8*b))
		s.TraceID[8+b] = byte(0x9e3779b97f4a7c15 * uint64(i/8) >> (8 * b))
	}
	return s
}

func plainSpans(n int) []schema.Span {
	spans := make([]schema.Span, n)
	for i := range spans {
		spans[i] = plainSpan(i)
	}
	return spans
}

// sameSpans compares NaN as itself.
func sameSpans(t require.TestingT, want, got []schema.Span) {
	clean := func(spans []schema.Span) []schema.Span {
		out := append([]schema.Span(nil), spans...)
		for i := range out {
			if math.IsNaN(out[i].CostUSD) {
				out[i].CostUSD = math.MaxFloat64
			}
		}
		return out
	}
	require.Equal(t, clean(want), clean(got))
}

func TestEveryFieldSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spans []schema.Span
		for range rapid.IntRange(0, 4).Draw(t, "spans") {
			spans = append(spans, anySpan(t))
		}
		if len(spans) == 0 {
			return
		}
		payload, err := journal.EncodeRows(spans)
		require.NoError(t, err)
		again, err := journal.EncodeRows(spans)
		require.NoError(t, err)
		require.True(t, bytes.Equal(payload, again), "the encoding is deterministic")
		got, err := journal.DecodeRows(payload)
		require.NoError(t, err)
		sameSpans(t, spans, got)
	})
}

// A journal of an earlier build must read for ever: the golden file is
// written once for each version and never again.
func TestAnOldJournalStillReads(t *testing.T) {
	golden := filepath.Join("testdata", "rows.v1")
	want := plainSpans(3)
	want[1].RetryEvents = []schema.RetryEvent{{TimeNs: 5, Attempt: 2, ErrorClass: "Timeout", HTTPStatus: 504}}
	want[1].Violations = []schema.Violation{{Node: "rank", Key: "deduplicated", Direction: "input", TimeNs: 6}}
	want[2].UnfinishedSteps = []string{"rank", "publish"}
	want[2].CostUSD, want[2].ParentID = 0.0125, schema.SpanID{}
	if *update {
		payload, err := journal.EncodeRows(want)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(golden, payload, 0o600))
	}
	payload, err := os.ReadFile(golden)
	require.NoError(t, err)
	got, err := journal.DecodeRows(payload)
	require.NoError(t, err)
	sameSpans(t, want, got)
}

func TestDecodeTellsWhatIsWrong(t *testing.T) {
	good, err := journal.EncodeRows(plainSpans(3))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		payload []byte
		want    error
	}{
		"empty":         {nil, journal.ErrMalformed},
		"newer version": {append([]byte{2}, good[1:]...), journal.ErrNewerFormat},
		"no version":    {append([]byte{0}, good[1:]...), journal.ErrMalformed},
		"cut":           {good[:len(good)-1], journal.ErrMalformed},
		"huge claim":    {[]byte{1, 0xff, 0xff, 0xff, 0x7f}, journal.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := journal.DecodeRows(c.payload)
			assert.ErrorIs(t, err, c.want)
		})
	}
}

func TestRowsThatNoRecordHolds(t *testing.T) {
	long := plainSpan(1)
	long.Name = strings.Repeat("x", 5<<20)
	require.ErrorIs(t, journal.CheckRow(&long), journal.ErrRowTooLarge)
	many := plainSpan(1)
	many.UnfinishedSteps = make([]string, 70_000)
	require.ErrorIs(t, journal.CheckRow(&many), journal.ErrRowTooLarge)
	large := plainSpan(1)
	large.Name = strings.Repeat("x", 3<<20)
	require.NoError(t, journal.CheckRow(&large))
	payload, err := journal.EncodeRows([]schema.Span{plainSpan(0), large})
	require.NoError(t, err)
	got, err := journal.DecodeRows(payload)
	require.NoError(t, err)
	sameSpans(t, []schema.Span{plainSpan(0), large}, got)
}

func FuzzDecode(f *testing.F) {
	for _, n := range []int{1, 3, 100} {
		payload, err := journal.EncodeRows(plainSpans(n))
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		spans, err := journal.DecodeRows(payload)
		runtime.ReadMemStats(&after)
		// A row of one byte becomes a span of about a kilobyte; S2 shrinks at most to 1 in 64.
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 128<<20 {
			t.Fatalf("%d bytes made Decode allocate %d", len(payload), grew)
		}
		if err != nil {
			return
		}
		if len(spans) == 0 {
			return
		}
		again, err := journal.EncodeRows(spans)
		if err != nil {
			return // longer than one record, once the zero fields are filled in
		}
		got, err := journal.DecodeRows(again)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := journal.EncodeRows(got)
		if err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("what was read does not write and read as itself: %v", err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	spans := plainSpans(1000)
	var size int
	for b.Loop() {
		payload, err := encodeAll(spans)
		if err != nil {
			b.Fatal(err)
		}
		size = payload
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "spans/s")
	b.ReportMetric(float64(size)/1000, "bytes/span")
}

func encodeAll(spans []schema.Span) (int, error) {
	n := 0
	for i := 0; i < len(spans); i += 100 {
		p, err := journal.EncodeRows(spans[i:min(i+100, len(spans))])
		if err != nil {
			return 0, err
		}
		n += len(p)
	}
	return n, nil
}

func BenchmarkDecode(b *testing.B) {
	payload, err := journal.EncodeRows(plainSpans(100))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := journal.DecodeRows(payload); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "spans/s")
}
