package admission

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/porttest"
)

// eventually is how long a count may take to show: a call's end is told when its answer
// is on the way.
const eventually = 10 * time.Second

// receiver is a real OTLP receiver behind a middleware, and what it took, where it gives that
// to nobody else.
type receiver struct {
	grpc *grpc.ClientConn
	http string
	took *consumertest.TracesSink
}

func received(t *testing.T, m *middleware, mebibytes int) receiver {
	t.Helper()
	took := new(consumertest.TracesSink)
	out := receivedBy(t, m, mebibytes, took)
	out.took = took
	return out
}

func receivedBy(t *testing.T, m *middleware, mebibytes int, next consumer.Traces) receiver {
	t.Helper()
	ports := porttest.Free(t, 2)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	use := []any{map[string]any{"id": "retryledger_admission"}}
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": ports[0], "max_recv_msg_size_mib": mebibytes, "middlewares": use},
		"http": map[string]any{"endpoint": ports[1], "max_request_body_size": mebibytes << 20, "middlewares": use},
	}}).Unmarshal(cfg))
	out := receiver{http: "http://" + ports[1] + "/v1/traces"}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(component.MustNewType("otlp")), cfg, next)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), hostOf{component.MustNewID("retryledger_admission"): m}))
	out.grpc, err = grpc.NewClient(ports[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, out.grpc.Close())
		require.NoError(t, r.Shutdown(context.Background()))
	})
	return out
}

// asIs sends bytes over gRPC as they are.
type asIs struct{}

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil //nolint:errcheck // as below
}

func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:errcheck // as below
	return nil
}

func (asIs) Name() string { return "proto" }

func (r receiver) overGRPC(t *testing.T, p []byte, options ...grpc.CallOption) error {
	t.Helper()
	var answer []byte
	return r.grpc.Invoke(t.Context(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export", p, &answer,
		append(options, grpc.ForceCodecV2(asIs{}))...)
}

func (r receiver) overHTTP(t *testing.T, media, encoding string, p []byte) (int, string) {
	t.Helper()
	code, said, _ := r.post(t, media, encoding, p)
	return code, said
}

func (r receiver) post(t *testing.T, media, encoding string, p []byte) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http, bytes.NewReader(p))
	require.NoError(t, err)
	request.Header.Set("Content-Type", media)
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(said), answer.Header
}

func zipped(t *testing.T, p []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(p)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func unreadBy(t *testing.T, telemetry *componenttest.Telemetry) map[string]int64 {
	t.Helper()
	return byReason(t, telemetry, "retryledger_admission_messages_unread")
}

func byReason(t *testing.T, telemetry *componenttest.Telemetry, name string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	got, err := telemetry.GetMetric(name)
	if err != nil {
		return out
	}
	sum, ok := got.Data.(metricdata.Sum[int64])
	require.True(t, ok)
	for _, point := range sum.DataPoints {
		why, _ := point.Attributes.Value("reason")
		out[why.AsString()] = point.Value
	}
	return out
}

// A message of empty parts, of whatever kind, is refused before it is decoded, for good,
// by a sentence, and counted; over gRPC, HTTP and in JSON, compressed or not. A tenth of it
// is taken.
func TestWhatDecodesTooLargeIsRefused(t *testing.T) {
	const n = 1 << 18
	wire := func(each string, fields ...byte) func(n int) []byte {
		return func(n int) []byte { return within(bytes.Repeat([]byte(each), n/len(each)), fields...) }
	}
	text := func(before, each, after string) func(n int) []byte {
		return func(n int) []byte {
			return []byte(before + strings.Repeat(each+",", n/len(each+",")) + each + after)
		}
	}
	const inSpan, endSpan = `{"resourceSpans":[{"scopeSpans":[{"spans":[{`, `}]}]}]}`
	for _, c := range []struct {
		name string
		wire func(n int) []byte
		json func(n int) []byte
	}{
		{"ResourceSpans", wire("\x0a\x00"), text(`{"resourceSpans":[`, `{}`, `]}`)},
		{"ScopeSpans", wire("\x12\x00", 1), text(`{"resourceSpans":[{"scopeSpans":[`, `{}`, `]}]}`)},
		{"Span", wire("\x12\x00", 1, 2), text(`{"resourceSpans":[{"scopeSpans":[{"spans":[`, `{}`, `]}]}]}`)},
		{"resource attributes", wire("\x0a\x00", 1, 1), text(`{"resourceSpans":[{"resource":{"attributes":[`, `{}`, `]}}]}`)},
		{"EntityRef", wire("\x1a\x00", 1, 1), text(`{"resourceSpans":[{"resource":{"entityRefs":[`, `{}`, `]}}]}`)},
		{"scope attributes", wire("\x1a\x00", 1, 2, 1), text(`{"resourceSpans":[{"scopeSpans":[{"scope":{"attributes":[`, `{}`, `]}}]}]}`)},
		{"KeyValue", wire("\x4a\x00", 1, 2, 2), text(inSpan+`"attributes":[`, `{}`, `]`+endSpan)},
		{"Event", wire("\x5a\x00", 1, 2, 2), text(inSpan+`"events":[`, `{}`, `]`+endSpan)},
		{"Link", wire("\x6a\x00", 1, 2, 2), text(inSpan+`"links":[`, `{}`, `]`+endSpan)},
		{"attributes of events", wire("\x1a\x00", 1, 2, 2, 11), text(inSpan+`"events":[{"attributes":[`, `{}`, `]}]`+endSpan)},
		{"values of an array", wire("\x0a\x00", 1, 2, 2, 9, 2, 5), text(inSpan+`"attributes":[{"value":{"arrayValue":{"values":[`, `{}`, `]}}}]`+endSpan)},
		{"values of a list", wire("\x0a\x00", 1, 2, 2, 9, 2, 6), text(inSpan+`"attributes":[{"value":{"kvlistValue":{"values":[`, `{}`, `]}}}]`+endSpan)},
		{"arrays of an array", wire("\x0a\x02\x2a\x00", 1, 2, 2, 9, 2, 5), text(inSpan+`"attributes":[{"value":{"arrayValue":{"values":[`, `{"arrayValue":{}}`, `]}}}]`+endSpan)},
		{"what jsoniter takes for JSON", wire("\x0a\x00"), text(`{"resourceSpans":[`, `}`, `]}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, logs, telemetry, _ := made(t, 10)
			full := newExactWalk()
			full.feed(c.wire(n))
			text := newWalkJSON(c.json(n), unbounded)
			require.NoError(t, text.walk())
			bounded := min(full.takes+full.at, text.takes+text.at) - 1
			m.unread.codec.memory.most = bounded
			r := received(t, m, 8)
			small := int(bounded / (widest/2 + 1) / 8)

			hostile := c.wire(n)
			for _, err := range []error{r.overGRPC(t, hostile), r.overGRPC(t, hostile, grpc.UseCompressor("gzip"))} {
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
				assert.ErrorContains(t, err, "send smaller batches")
			}
			const protobuf, json = "application/x-protobuf", "application/json"
			for _, sent := range []struct {
				media, encoding string
				body            []byte
			}{
				{protobuf, "", hostile}, {protobuf, "gzip", zipped(t, hostile)},
				{json, "", c.json(n)}, {json + "; charset=utf-8", "gzip", zipped(t, c.json(n))},
			} {
				code, said := r.overHTTP(t, sent.media, sent.encoding, sent.body)
				assert.Equal(t, http.StatusBadRequest, code)
				assert.Contains(t, said, "send smaller batches")
			}
			assert.Zero(t, r.took.SpanCount())
			require.NoError(t, r.overGRPC(t, c.wire(small)))
			for media, body := range map[string][]byte{protobuf: c.wire(small), json: c.json(small)} {
				code, said := r.overHTTP(t, media, "", body)
				assert.Equal(t, http.StatusOK, code, said)
			}
			require.Eventually(t, func() bool { return unreadBy(t, telemetry)["decodes_too_large"] == 6 }, eventually, eventually/1000, "%v", unreadBy(t, telemetry))
			assert.Equal(t, map[string]int64{"decodes_too_large": 6}, unreadBy(t, telemetry))
			assert.Equal(t, 1, logs.FilterMessageSnippet("could not be read").Len())
			assertAllReleased(t, m)
		})
	}
}

// A value without an end of arrays in arrays would end the program, whose stack may have
// 1 GB: no code of ours is asked before.
func TestWhatIsNestedTooDeepIsRefused(t *testing.T) {
	m, _, telemetry, _ := made(t, 10)
	r := received(t, m, 64)
	wire := within(nil, 5, 1)
	for range 2 * deepest {
		wire = within(wire, 5, 1)
	}
	wire = within(wire, 1, 2, 2, 9, 2, 5, 1)
	json := []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":` + strings.Repeat(`{"arrayValue":{"values":[`, 2*deepest))
	err := r.overGRPC(t, wire)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, err, "1000 deep")
	for media, body := range map[string][]byte{"application/x-protobuf": wire, "application/json": json} {
		code, said := r.overHTTP(t, media, "", body)
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, said, "1000 deep")
	}
	require.Eventually(t, func() bool { return unreadBy(t, telemetry)["nested_too_deep"] == 3 }, eventually, eventually/1000)
}

// Real spans in messages as large as a receiver takes are taken: many small ones, and few with
// prompts.
func TestLargeMessagesOfRealSpansAreTaken(t *testing.T) {
	const size = 63 << 20
	m, _, telemetry, _ := made(t, 10)
	r := received(t, m, 64)
	id := "\x0a\x100123456789abcdef\x12\x0801234567"
	times := "\x3901234567\x4101234567"
	prompt := within(append([]byte("\x0a\x0binput.value"), within(bytes.Repeat([]byte("p"), 1<<20), 2, 1)...), 9)
	for name, each := range map[string][]byte{
		"tiny spans": within([]byte(id+times+"\x2a\x04step\x4a\x0a\x0a\x04step\x12\x02\x18\x05"), 2),
		"prompts":    within(append([]byte(id+times), prompt...), 2),
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GC()
			message := within(bytes.Repeat(each, size/len(each)), 1, 2)
			require.NoError(t, r.overGRPC(t, message))
			code, said := r.overHTTP(t, "application/x-protobuf", "", message)
			require.Equal(t, http.StatusOK, code, said)
			assert.Equal(t, 2*(size/len(each)), r.took.SpanCount())
			r.took.Reset()
		})
	}
	assert.Empty(t, unreadBy(t, telemetry))
}

// The codec knows pdata's request by its type.
func TestTheRequestsTypeIsKnown(t *testing.T) {
	require.NotNil(t, exportRequest)
	assert.Equal(t, reflect.Pointer, exportRequest.Kind())
}

// A sender may say that much comes, and send nothing: what it costs is what has come.
func TestWhatIsPromisedTakesNothing(t *testing.T) {
	const senders = 16
	m, _, _, _ := made(t, senders)
	r := received(t, m, 64)
	host := strings.TrimSuffix(strings.TrimPrefix(r.http, "http://"), "/v1/traces")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range senders {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 67000000\r\n\r\n{")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		m.gate.mu.Lock()
		defer m.gate.mu.Unlock()
		return m.gate.underWay == senders
	}, time.Minute, time.Millisecond)
	time.Sleep(100 * time.Millisecond) // let them read what came
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}
