package otlpfile_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/internal/otlpfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the names of the spans in content, in order.
func read(content []byte, limit int64) (names []string, requests int, err error) {
	requests, err = otlpfile.Read(bytes.NewReader(content), limit, func(td ptrace.Traces) error {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					names = append(names, span.Name())
				}
			}
		}
		return nil
	})
	return names, requests, err
}

func request(names ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, name := range names {
		span := spans.AppendEmpty()
		span.SetName(name)
		span.Attributes().PutStr("text", `a "quoted" } ] { [ \ NaN`)
	}
	return td
}

func asProto(t require.TestingT, td ptrace.Traces) []byte {
	content, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return content
}

func asText(t require.TestingT, td ptrace.Traces) []byte {
	content, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return content
}

func zipped(t require.TestingT, content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// TestWhatIsWrittenIsRead: any names, cut into any requests, in any spelling, give the
// same names back. A protobuf request begins with a newline's byte, and its second
// byte, a length, may be the one of a bracket: names of all lengths go through there.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringN(1, 40, 160), 1, 5).Draw(t, "names")
		var lines []byte
		for _, name := range names {
			lines = append(lines, asText(t, request(name))...)
			lines = append(lines, rapid.SampledFrom([]string{"\n", "", " \r\n\n"}).Draw(t, "separator")...)
		}
		content := rapid.SampledFrom([][]byte{lines, asProto(t, request(names...)), asText(t, request(names...))}).Draw(t, "content")
		if rapid.Bool().Draw(t, "gzip") {
			content = zipped(t, content)
		}
		got, _, err := read(content, 1<<20)
		require.NoError(t, err)
		require.Equal(t, names, got)
	})
}

func TestProtobufOfEveryLength(t *testing.T) {
	t.Parallel()
	for n := range 300 {
		name := strings.Repeat("{", n+1)
		got, _, err := read(asProto(t, request(name)), 0)
		require.NoError(t, err, n)
		require.Equal(t, []string{name}, got)
	}
}

// TestNumbersThatJSONHasNoWordFor are read in all the ways that encoders write them.
func TestNumbersThatJSONHasNoWordFor(t *testing.T) {
	t.Parallel()
	for spelling, want := range map[string]float64{
		`NaN`: math.NaN(), `"NaN"`: math.NaN(), `null`: math.NaN(), `Infinity`: math.Inf(1), `-Infinity`: math.Inf(-1),
		`"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1), `1e3`: 1000, `"2.5"`: 2.5,
	} {
		document := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"NaN \" null","attributes":[{"key":"usage","value":{"doubleValue": ` +
			spelling + ` }},{"key":"Infinity","value":{"stringValue":"-Infinity"}}]}]}]}]}`
		requests, err := otlpfile.Read(strings.NewReader(document), 0, func(td ptrace.Traces) error {
			span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			value, _ := span.Attributes().Get("usage")
			text, _ := span.Attributes().Get("Infinity")
			require.Equal(t, "-Infinity", text.Str(), "strings are left alone")
			require.Equal(t, `NaN " null`, span.Name())
			if math.IsNaN(want) {
				require.True(t, math.IsNaN(value.Double()), spelling)
			} else {
				require.InDelta(t, want, value.Double(), 0, spelling)
			}
			return nil
		})
		require.NoError(t, err, spelling)
		require.Equal(t, 1, requests)
	}
}

func TestWhatIsNoTraceIsRefused(t *testing.T) {
	t.Parallel()
	whole := asProto(t, request("a", "b"))
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"text":                      {[]byte("hello"), "neither JSON nor"},
		"a short text":              {[]byte("h\n"), "neither JSON nor"},
		"HTML":                      {[]byte("<html></html>"), "neither JSON nor"},
		"cut protobuf":              {whole[:len(whole)-3], "neither JSON nor"},
		"other telemetry":           {[]byte(`{"resourceLogs":[]}`), "without resourceSpans"},
		"an array":                  {[]byte(` [{}]`), "JSON array"},
		"zstd":                      {[]byte("\x28\xb5\x2f\xfd\x00"), "zstd -d"},
		"a zip archive":             {[]byte("PK\x03\x04rest"), "unpack it"},
		"a cut object":              {[]byte(`{"resourceSpans":[`), "cut off"},
		"a cut string":              {[]byte(`{"resourceSpans`), "cut off"},
		"something after":           {append(asText(t, request("a")), "oops"...), `found 'o'`},
		"an id of the wrong length": {[]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"abc"}]}]}]}`), "JSON document 1"},
		"the second is wrong":       {append(append(asText(t, request("a")), '\n'), `{"resourceSpans":3}`...), "JSON document 2"},
	} {
		_, _, err := read(c.content, 0)
		require.ErrorIs(t, err, otlpfile.ErrNotTraces, name)
		require.ErrorContains(t, err, c.says, name)
	}
	_, requests, err := read([]byte(" \n{}\n"), 0)
	require.NoError(t, err, "an empty request is one")
	require.Equal(t, 1, requests)
	_, requests, err = read(nil, 0)
	require.NoError(t, err)
	require.Zero(t, requests)
}

// TestTheLimitIsOnWhatIsRead, not on what is on the disk.
func TestTheLimitIsOnWhatIsRead(t *testing.T) {
	t.Parallel()
	line := append(asText(t, request("a")), '\n')
	bomb := zipped(t, bytes.Repeat(line, 10_000))
	require.Less(t, len(bomb), 100*len(line))
	names, _, err := read(bomb, int64(100*len(line)))
	require.ErrorIs(t, err, otlpfile.ErrTooLarge)
	require.LessOrEqual(t, len(names), 100)
	for _, content := range [][]byte{line, asProto(t, request("a"))} {
		_, _, err = read(content, int64(len(content)))
		require.NoError(t, err, "exactly the limit")
		_, _, err = read(content, int64(len(content)-1))
		require.ErrorIs(t, err, otlpfile.ErrTooLarge)
	}
}

func TestErrorsOfTheSourceAndOfTheReaderComeThrough(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	for _, content := range [][]byte{asProto(t, request("a")), append([]byte(" "), asText(t, request("a"))...)} {
		_, err := otlpfile.Read(iotest.DataErrReader(&failing{content[:len(content)-1], broken}), 0, func(ptrace.Traces) error { return nil })
		require.ErrorIs(t, err, broken)
		_, err = otlpfile.Read(bytes.NewReader(content), 0, func(ptrace.Traces) error { return broken })
		require.Equal(t, broken, err)
	}
	_, _, err := read([]byte("\x1f\x8bnot gzip"), 0)
	require.ErrorIs(t, err, gzip.ErrHeader)
	zip := zipped(t, asText(t, request("a")))
	_, _, err = read(zip[:len(zip)-9], 0)
	require.Error(t, err, "a cut gzip file")
}

// failing gives content, then err.
type failing struct {
	content []byte
	err     error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.content) == 0 {
		return 0, f.err
	}
	n := copy(p, f.content)
	f.content = f.content[n:]
	return n, nil
}

func FuzzRead(f *testing.F) {
	f.Add(asProto(f, request("a")))
	f.Add(asText(f, request("a")))
	f.Add([]byte("\n{\"resourceSpans\":[{\"x\":NaN}]}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, _, err := read(content, 1<<20)
		if err == nil {
			return
		}
		require.NotEmpty(t, err.Error())
	})
}
