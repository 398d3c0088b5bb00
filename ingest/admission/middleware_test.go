package admission

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/seldom"
)

func made(t *testing.T, maxInFlight int) (*middleware, *observer.ObservedLogs, *componenttest.Telemetry, *clock) {
	t.Helper()
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	core, logs := observer.New(zap.InfoLevel)
	settings := telemetry.NewTelemetrySettings()
	settings.Logger = zap.New(core)
	c := &clock{start}
	m, err := newMiddleware(&Config{MaxInFlight: maxInFlight, ReadWithin: time.Minute, MaxDecodedMiB: defaultDecodedMiB}, settings, c.now)
	require.NoError(t, err)
	return m, logs, telemetry, c
}

func counted(t *testing.T, telemetry *componenttest.Telemetry) int64 {
	t.Helper()
	metric, err := telemetry.GetMetric("retryledger_admission_messages_refused")
	if err != nil {
		return 0
	}
	var n int64
	for _, point := range sumOf(t, metric) {
		n += point
	}
	return n
}

func TestOverHTTPWhatIsTooMuchIsAskedToComeAgain(t *testing.T) {
	m, logs, telemetry, c := made(t, 1)
	wrap, err := m.GetHTTPHandler(t.Context())
	require.NoError(t, err)
	inside, goOn := make(chan struct{}), make(chan int)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		w.WriteHeader(<-goOn)
	}))
	require.NoError(t, err)
	send := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/traces", strings.NewReader("never read")))
		return w
	}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- send() }()
	<-inside
	for range 3 {
		w := send()
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	assert.EqualValues(t, 3, counted(t, telemetry))
	assert.Equal(t, 1, logs.Len(), "once, not three times")
	c.at = c.at.Add(seldom.Every)
	send()
	require.Equal(t, 2, logs.Len())
	assert.EqualValues(t, 3, logs.All()[1].ContextMap()["messages"], "those that were not said before, and this one")
	goOn <- http.StatusOK
	assert.Equal(t, http.StatusOK, (<-first).Code)
	go func() { first <- send() }()
	<-inside
	goOn <- http.StatusOK
	assert.Equal(t, http.StatusOK, (<-first).Code, "there is room again")
}

func TestAPanicLeavesTheGate(t *testing.T) {
	m, _, _, _ := made(t, 1)
	wrap, err := m.GetHTTPHandler(t.Context())
	require.NoError(t, err)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") }))
	require.NoError(t, err)
	for range 3 {
		assert.Panics(t, func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		})
	}
	assert.Zero(t, m.gate.underWay)
}

func TestAnswersTellHowItWent(t *testing.T) {
	for code, want := range map[int]outcome{200: taken, 503: refused, 429: refused, 400: neither, 500: neither} {
		w := &answerWriter{ResponseWriter: httptest.NewRecorder()}
		w.WriteHeader(code)
		w.WriteHeader(http.StatusOK)
		assert.Equal(t, want, w.outcome(), code)
	}
	w := &answerWriter{ResponseWriter: httptest.NewRecorder()}
	_, err := w.Write([]byte("ok"))
	require.NoError(t, err)
	assert.Equal(t, taken, w.outcome())
}

// traces is an OTLP service that answers what it is told to.
type traces struct {
	ptraceotlp.UnimplementedGRPCServer
	inside chan int // spans
	answer chan error
	gone   chan struct{}
}

func (s *traces) Export(ctx context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	s.inside <- request.Traces().SpanCount()
	select {
	case err := <-s.answer:
		return ptraceotlp.NewExportResponse(), err
	case <-ctx.Done():
		s.gone <- struct{}{}
		return ptraceotlp.NewExportResponse(), ctx.Err()
	}
}

// served is an OTLP service behind the middleware, and a connection to it.
func served(t *testing.T, m *middleware, service *traces) *grpc.ClientConn {
	t.Helper()
	options, err := m.GetGRPCServerOptions(t.Context())
	require.NoError(t, err)
	server := grpc.NewServer(options...)
	ptraceotlp.RegisterGRPCServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-ended)
	})
	return conn
}

func TestOverGRPCWhatIsTooMuchIsAskedToComeAgain(t *testing.T) {
	m, _, telemetry, c := made(t, 2)
	service := &traces{inside: make(chan int), answer: make(chan error), gone: make(chan struct{})}
	conn := served(t, m, service)
	client := ptraceotlp.NewGRPCClient(conn)
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("s")
	send := func(ctx context.Context) error {
		_, err := client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
		return err
	}
	results := make(chan error, 2)
	begin := func(ctx context.Context) {
		go func() { results <- send(ctx) }()
		require.Equal(t, 1, <-service.inside)
	}
	empty := func() {
		require.Eventually(t, func() bool {
			m.gate.mu.Lock()
			defer m.gate.mu.Unlock()
			return m.gate.underWay == 0
		}, 10*time.Second, time.Millisecond)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	begin(cancelled)
	begin(t.Context())
	require.Equal(t, codes.Unavailable, status.Code(send(t.Context())), "a third one")
	assert.EqualValues(t, 1, counted(t, telemetry))
	cancel()
	<-service.gone
	require.Equal(t, codes.Canceled, status.Code(<-results))
	service.answer <- nil
	require.NoError(t, <-results)
	empty()

	// One that is refused further in lowers what is let in; a calm second raises it again.
	begin(t.Context())
	service.answer <- status.Error(codes.Unavailable, "the journal is full")
	require.Equal(t, codes.Unavailable, status.Code(<-results))
	empty()
	begin(t.Context())
	require.Equal(t, codes.Unavailable, status.Code(send(t.Context())), "only one is let in now")
	c.at = c.at.Add(calm)
	service.answer <- nil
	require.NoError(t, <-results)
	empty()
	begin(t.Context())
	begin(t.Context())
	service.answer <- nil
	service.answer <- nil
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	empty()
}

// A connection that sends headers and nothing more holds a place no longer than the
// setting allows, over HTTP and over gRPC.
func TestWhoDoesNotSendLosesItsPlace(t *testing.T) {
	m, _, _, _ := made(t, 1)
	m.readWithin = 200 * time.Millisecond
	underWay := func() int {
		m.gate.mu.Lock()
		defer m.gate.mu.Unlock()
		return m.gate.underWay
	}
	heldThenFree := func() {
		t.Helper()
		require.Eventually(t, func() bool { return underWay() == 1 }, 10*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return underWay() == 0 }, 10*time.Second, time.Millisecond)
	}

	wrap, err := m.GetHTTPHandler(t.Context())
	require.NoError(t, err)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		time.Sleep(2 * m.readWithin) // what comes after the reading has no bound
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	require.NoError(t, err)
	web := httptest.NewServer(handler)
	defer web.Close()
	idle, err := net.Dial("tcp", web.Listener.Addr().String())
	require.NoError(t, err)
	defer idle.Close()
	_, err = idle.Write([]byte("POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"))
	require.NoError(t, err)
	heldThenFree()
	answer, err := http.Post(web.URL, "application/json", strings.NewReader("whole"))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	http.DefaultClient.CloseIdleConnections()

	service := &traces{inside: make(chan int, 1), answer: make(chan error, 1), gone: make(chan struct{}, 1)}
	conn := served(t, m, service)
	_, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/opentelemetry.proto.collector.trace.v1.TraceService/Export")
	require.NoError(t, err)
	heldThenFree()
	service.answer <- nil
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequest())
	require.NoError(t, err)
}

// A sender that leaves says nothing of what the collector can take.
func TestWhoLeavesLowersNothing(t *testing.T) {
	m, _, _, _ := made(t, 8)
	wrap, err := m.GetHTTPHandler(t.Context())
	require.NoError(t, err)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	require.NoError(t, err)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(left, http.MethodPost, "/v1/traces", http.NoBody))
	assert.InDelta(t, 8, m.gate.limit, 0)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/traces", http.NoBody))
	assert.InDelta(t, 4, m.gate.limit, 0, "one that stays and is refused does")
}

func TestConfiguration(t *testing.T) {
	config := NewFactory().CreateDefaultConfig()
	require.NoError(t, componenttest.CheckConfigStruct(config))
	require.NoError(t, own(config).Validate())
	for _, wrong := range []int{0, -1, mostInFlight + 1} {
		config := NewFactory().CreateDefaultConfig()
		require.NoError(t, confmap.NewFromStringMap(map[string]any{"max_in_flight": wrong}).Unmarshal(config))
		require.ErrorContains(t, own(config).Validate(), "max_in_flight")
	}
	for _, wrong := range []string{"0s", "2h"} {
		config := NewFactory().CreateDefaultConfig()
		require.NoError(t, confmap.NewFromStringMap(map[string]any{"read_within": wrong}).Unmarshal(config))
		require.ErrorContains(t, own(config).Validate(), "read_within")
	}
	e, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(componentType), config)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, e.Shutdown(t.Context()))
}

func sumOf(t *testing.T, m metricdata.Metrics) (out []int64) {
	t.Helper()
	sum, ok := m.Data.(metricdata.Sum[int64])
	require.True(t, ok)
	for _, point := range sum.DataPoints {
		out = append(out, point.Value)
	}
	return out
}

func own(config component.Config) *Config {
	return config.(*Config) //nolint:errcheck // it is ours
}
