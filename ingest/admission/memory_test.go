package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

func takenOf(m *memory) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}

// assertAllReleased waits until no message is held any more; a call's end is told when its
// answer is on the way.
func assertAllReleased(t *testing.T, m *middleware) {
	t.Helper()
	arrivals := func() (n int) {
		m.unread.codec.arrivals.Range(func(any, any) bool { n++; return true })
		return n
	}
	assert.Eventually(t, func() bool { return takenOf(m.unread.codec.memory) == 0 && arrivals() == 0 }, eventually, eventually/1000)
	assert.Zero(t, takenOf(m.unread.codec.memory), "bytes that are not released")
	assert.Zero(t, arrivals(), "requests that are not forgotten")
}

// Whatever messages come, grow and end, together they take no more than the memory, and who
// comes alone is let in.
func TestTogetherMessagesTakeNoMoreThanTheMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory(rapid.Int64Range(1, 1000).Draw(t, "most"), 4)
		all := make([]*reservation, 5)
		for i := range all {
			all[i] = m.reserve()
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			r := rapid.SampledFrom(all).Draw(t, "message")
			if rapid.Bool().Draw(t, "ends") {
				r.release()
				r.release()
				require.Zero(t, r.held)
			} else {
				before := r.held
				n := rapid.Int64Range(before, max(before, m.most)).Draw(t, "grows to")
				switch alone := m.taken == before; {
				case r.take(n, m.most):
					require.Equal(t, n, r.held)
				default:
					require.False(t, alone)
					require.Greater(t, m.taken-before+n, m.most)
					require.Equal(t, before, r.held)
				}
			}
			var sum int64
			for _, r := range all {
				sum += r.held
			}
			require.Equal(t, sum, m.taken)
			require.LessOrEqual(t, sum, m.most)
		}
	})
}

// waiting is a consumer whose messages wait until they are answered.
type waiting struct {
	inside chan int // spans
	answer chan error
}

func (w *waiting) take(_ context.Context, td ptrace.Traces) error {
	w.inside <- td.SpanCount()
	return <-w.answer
}

func newWaiting(t *testing.T) (*waiting, consumer.Traces) {
	t.Helper()
	w := &waiting{make(chan int), make(chan error)}
	next, err := consumer.NewTraces(w.take)
	require.NoError(t, err)
	return w, next
}

// heavyMessage is a message of real spans, of this size or a little more.
func heavyMessage(t *testing.T, size int) (wire, json []byte) {
	t.Helper()
	one, err := ptraceotlp.NewExportRequestFromTraces(heavySpans(10)).MarshalProto()
	require.NoError(t, err)
	message := ptraceotlp.NewExportRequestFromTraces(heavySpans(1 + size*10/len(one)))
	wire, err = message.MarshalProto()
	require.NoError(t, err)
	json, err = message.MarshalJSON()
	require.NoError(t, err)
	return wire, json
}

// A message that would take too much together with another one is turned away, however both
// come, and taken when the other is done.
func TestWhatIsTooMuchTogetherIsAskedToComeAgain(t *testing.T) {
	wire, json := heavyMessage(t, 1<<20)
	exact := newExactWalk()
	require.Equal(t, admitted, exact.feed(wire))
	m, logs, telemetry, _ := made(t, 10)
	m.unread.codec.memory.most = exact.size() * 7 / 4
	m.unread.codec.memory.coarse = 0
	consumed, next := newWaiting(t)
	r := receivedBy(t, m, 64, next)
	const protobuf = "application/x-protobuf"
	overGRPC := func(options ...grpc.CallOption) func() (bool, bool) {
		return func() (taken, busy bool) {
			err := r.overGRPC(t, wire, options...)
			return err == nil, status.Code(err) == codes.Unavailable
		}
	}
	overHTTP := func(media, encoding string, body []byte) func() (bool, bool) {
		return func() (taken, busy bool) {
			code, said, header := r.post(t, media, encoding, body)
			return code == http.StatusOK, code == http.StatusServiceUnavailable && header.Get("Retry-After") == "1" && strings.Contains(said, "busy")
		}
	}
	ways := map[string]func() (taken, busy bool){
		"gRPC": overGRPC(), "gRPC gzip": overGRPC(grpc.UseCompressor("gzip")),
		"HTTP": overHTTP(protobuf, "", wire), "HTTP gzip": overHTTP(protobuf, "gzip", zipped(t, wire)),
		"JSON": overHTTP("application/json", "", json), "JSON gzip": overHTTP("application/json", "gzip", zipped(t, json)),
	}
	turned := int64(0)
	for first, sendFirst := range ways {
		took := make(chan bool)
		go func() {
			ok, _ := sendFirst()
			took <- ok
		}()
		<-consumed.inside
		for second, send := range ways {
			_, busy := send()
			assert.True(t, busy, "%s while there is %s", second, first)
			turned++
		}
		consumed.answer <- nil
		require.True(t, <-took, first)
		assertAllReleased(t, m)
	}
	assert.Equal(t, map[string]int64{"max_decoded_mib": turned}, byReason(t, telemetry, "retryledger_admission_messages_refused"))
	assert.Equal(t, 1, logs.FilterMessageSnippet("turned away").Len())
	assert.Empty(t, unreadBy(t, telemetry), "none is given up")
	assert.Less(t, m.gate.limit, 10., "fewer are read")
}

// However a message ends, what it held is released.
func TestWhateverEndsAMessageReleasesIt(t *testing.T) {
	wire, json := heavyMessage(t, 1<<18)
	const export = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	m, _, telemetry, _ := made(t, 100)
	consumed, next := newWaiting(t)
	r := receivedBy(t, m, 64, next)
	held := func() {
		t.Helper()
		require.Eventually(t, func() bool { return takenOf(m.unread.codec.memory) > 0 }, eventually, eventually/1000)
	}
	inside := func(answer error) {
		<-consumed.inside
		assert.Positive(t, takenOf(m.unread.codec.memory))
		consumed.answer <- answer
	}
	open := func(ctx context.Context) grpc.ClientStream {
		stream, err := r.grpc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, export, grpc.ForceCodecV2(asIs{}))
		require.NoError(t, err)
		return stream
	}
	ends := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"taken", func(t *testing.T) {
			t.Helper()
			go inside(nil)
			require.NoError(t, r.overGRPC(t, wire))
			for media, body := range map[string][]byte{"application/x-protobuf": wire, "application/json": json} {
				go inside(nil)
				code, _ := r.overHTTP(t, media, "", body)
				require.Equal(t, http.StatusOK, code)
			}
		}},
		{"refused further in", func(t *testing.T) {
			t.Helper()
			for _, answer := range []error{errors.New("full"), consumererror.NewPermanent(errors.New("wrong"))} {
				go inside(answer)
				require.Error(t, r.overGRPC(t, wire))
				go inside(answer)
				code, _ := r.overHTTP(t, "application/x-protobuf", "", wire)
				require.NotEqual(t, http.StatusOK, code)
			}
		}},
		{"no OTLP after a beginning", func(t *testing.T) {
			t.Helper()
			broken := append(bytes.Clone(wire), 0x0f)
			require.Equal(t, codes.Internal, status.Code(r.overGRPC(t, broken)))
			for media, body := range map[string][]byte{"application/x-protobuf": broken, "application/json": json[:len(json)/2]} {
				code, _ := r.overHTTP(t, media, "", body)
				require.Equal(t, http.StatusBadRequest, code)
			}
		}},
		{"a sender that leaves while its message is handled", func(t *testing.T) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			stream := open(ctx)
			require.NoError(t, stream.SendMsg(wire))
			require.NoError(t, stream.CloseSend())
			<-consumed.inside
			cancel()
			require.Error(t, stream.RecvMsg(new([]byte)))
			require.Positive(t, takenOf(m.unread.codec.memory), "as long as it is handled")
			consumed.answer <- nil
		}},
		{"a call that never ends", func(t *testing.T) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			stream := open(ctx)
			require.NoError(t, stream.SendMsg(wire))
			held()
			cancel()
			require.Error(t, stream.RecvMsg(new([]byte)))
		}},
		{"a connection that goes in the middle of a body", func(t *testing.T) {
			t.Helper()
			to, err := url.Parse(r.http)
			require.NoError(t, err)
			conn, err := net.Dial("tcp", to.Host)
			require.NoError(t, err)
			_, err = fmt.Fprintf(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n%s", len(wire), wire[:len(wire)/2])
			require.NoError(t, err)
			held()
			require.NoError(t, conn.Close())
		}},
	}
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			end.do(t)
			assertAllReleased(t, m)
		})
	}
	// gRPC would decode a second message beside the first one.
	for name, first := range map[string][]byte{"a second message": wire, "a second message after an empty one": {}, "a second message after one that is refused": bytes.Repeat([]byte("\x0a\x00"), 1<<23)} {
		t.Run(name, func(t *testing.T) {
			before := unreadBy(t, telemetry)
			stream := open(t.Context())
			require.NoError(t, stream.SendMsg(first))
			require.NoError(t, stream.SendMsg(wire))
			require.NoError(t, stream.CloseSend())
			err := stream.RecvMsg(new([]byte))
			require.Equal(t, codes.Internal, status.Code(err))
			require.ErrorContains(t, err, errSecond.Error())
			assertAllReleased(t, m)
			why := "malformed"
			if len(first) > len(wire) {
				why = "decodes_too_large"
			}
			require.Eventually(t, func() bool { return unreadBy(t, telemetry)[why] == before[why]+1 }, eventually, eventually/1000)
		})
	}
}

// panics decodes nothing.
type panics struct{ encoding.CodecV2 }

func (panics) Unmarshal(mem.BufferSlice, any) error { panic("broken") }

func TestAPanicReleasesWhatAMessageHolds(t *testing.T) {
	wire, _ := heavyMessage(t, 1<<18)
	m, _, _, _ := made(t, 1)
	c := m.unread.codec
	c.CodecV2 = panics{c.CodecV2}
	assert.Panics(t, func() { _ = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, newDecoded()) })
	assertAllReleased(t, m)

	wrap, err := m.GetHTTPHandler(t.Context())
	require.NoError(t, err)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Positive(t, takenOf(m.unread.codec.memory))
		panic("broken")
	}))
	require.NoError(t, err)
	for range 3 {
		request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(wire))
		request.Header.Set("Content-Type", "application/x-protobuf")
		assert.Panics(t, func() { handler.ServeHTTP(httptest.NewRecorder(), request) })
		assertAllReleased(t, m)
	}
}

// comes is a body of protobuf that comes piece by piece.
func comes(t *testing.T, m *memory) (*body, *io.PipeWriter) {
	t.Helper()
	read, write := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "/v1/traces", read)
	r.Header.Set("Content-Type", "application/x-protobuf")
	return newBody(r, m, func() {}, func() {}), write
}

// Of two messages that grow at the same time the one goes on that does not pass the memory
// first, up to what one may take.
func TestMessagesGrowIntoTheMemory(t *testing.T) {
	wire, _ := heavyMessage(t, 1<<20)
	exact := newExactWalk()
	exact.feed(wire)
	m := newMemory(exact.size()*3/2, 1)
	m.coarse = 0
	feed := func(b *body, w *io.PipeWriter, p []byte) error {
		go func() {
			_, _ = w.Write(p)
			if len(p) > 0 && &p[len(p)-1] == &wire[len(wire)-1] {
				_ = w.Close()
			}
		}()
		_, err := io.ReadFull(b, make([]byte, len(p)))
		return err
	}
	first, toFirst := comes(t, m)
	second, toSecond := comes(t, m)
	half, most := len(wire)/2, len(wire)*7/8
	require.NoError(t, feed(first, toFirst, wire[:half]))
	require.NoError(t, feed(second, toSecond, wire[:half]))
	require.Greater(t, takenOf(m), exact.size()*9/10)
	require.NoError(t, feed(first, toFirst, wire[half:most]))
	assert.Equal(t, codes.Unavailable, status.Code(feed(second, toSecond, wire[half:])))
	_, err := second.Read(make([]byte, 1))
	assert.Equal(t, codes.Unavailable, status.Code(err), "nothing more")
	require.NoError(t, feed(first, toFirst, wire[most:]))
	assert.Equal(t, exact.size(), takenOf(m), "the other holds nothing any more")
	first.holds.release()
	assert.Zero(t, takenOf(m))
}

// The default lets in as many messages as may be under way, of real spans and of the size that
// gRPC takes by default, in protobuf and in JSON.
func TestTheDefaultHurtsNoUsualMessages(t *testing.T) {
	const size = 4 << 20
	wire, _ := heavyMessage(t, size)
	_, json := heavyMessage(t, size)
	_, json = heavyMessage(t, size*len(wire)/len(json))
	require.InDelta(t, size, len(wire), size/50)
	require.InDelta(t, size, len(json), size/50)
	read := func(media string, p []byte) func(t *testing.T, m *memory) *reservation {
		return func(t *testing.T, m *memory) *reservation {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, "/v1/traces", bytes.NewReader(p))
			r.Header.Set("Content-Type", media)
			b := newBody(r, m, func() {}, func() {})
			_, err := io.Copy(io.Discard, b)
			require.NoError(t, err)
			return b.holds
		}
	}
	for name, come := range map[string]func(t *testing.T, m *memory) *reservation{
		"gRPC": func(t *testing.T, m *memory) *reservation {
			t.Helper()
			r := m.reserve()
			require.Equal(t, admitted, r.protobuf(mem.BufferSlice{mem.SliceBuffer(wire)}))
			return r
		},
		"HTTP": read("application/x-protobuf", wire),
		"JSON": read("application/json", json),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(defaultDecodedMiB<<20, defaultInFlight)
			for range defaultInFlight {
				assert.Positive(t, come(t, m).held)
			}
			t.Logf("%d messages of %d MiB take %d MiB", defaultInFlight, size>>20, takenOf(m)>>20)
		})
	}
}
