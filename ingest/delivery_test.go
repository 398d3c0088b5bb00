package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/porttest"
	"github.com/retryledger/retryledger/schema"
)

// halfDead inserts and then says that it failed, as a connection that breaks
// before the answer does, or a kill before the confirmation.
type halfDead struct {
	inserter
	failures int
}

func (h *halfDead) InsertSpans(ctx context.Context, rows []schema.Span) error {
	if err := h.inserter.InsertSpans(ctx, rows); err != nil {
		return err
	}
	h.failures--
	if h.failures >= 0 {
		return errors.New("connection reset by peer")
	}
	return nil
}

func TestASpanThatIsInsertedTwiceIsOneSpan(t *testing.T) {
	s := realStore(t)
	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB = 0
	cfg.Writer.RetryInitialInterval, cfg.Writer.RetryMaxInterval = time.Millisecond, time.Millisecond
	e, err := newExporter(settings(), cfg)
	require.NoError(t, err)
	e.inserter = &halfDead{storeInserter{s, rand.Uint64}, 3}
	require.NoError(t, e.start(t.Context(), hostOf(s)))
	require.NoError(t, e.consume(t.Context(), request(0, names(300)...)))
	require.NoError(t, e.shutdown(t.Context()))
	_, distinct := stored(t, s)
	require.EqualValues(t, 300, distinct)
	var final uint64
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&final))
	require.EqualValues(t, 300, final)
}

// What a sender sees of a full journal: an answer that makes it try again.
func TestAFullJournalAtTheReceiver(t *testing.T) {
	e := started(t, &testStore{dir: t.TempDir()}, settings(), func(c *Config) {
		c.Journal.MaxSizeMiB, c.Journal.SegmentSizeMiB = 2, 1
		c.Writer.ShutdownTimeout = 0
	})
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()

	addresses := porttest.Free(t, 2)
	httpAddr, grpcAddr := addresses[0], addresses[1]
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"http": map[string]any{"endpoint": httpAddr}, "grpc": map[string]any{"endpoint": grpcAddr},
	}}).Unmarshal(cfg))
	receiver, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(component.MustNewType("otlp")), cfg, e)
	require.NoError(t, err)
	require.NoError(t, receiver.Start(t.Context(), componenttest.NewNopHost()))
	defer func() { require.NoError(t, receiver.Shutdown(context.Background())) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(first int) int {
		body, err := ptraceotlp.NewExportRequestFromTraces(request(first, names(1000)...)).MarshalProto()
		require.NoError(t, err)
		answer, err := client.Post("http://"+httpAddr+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, http.StatusOK, post(0))
	code := http.StatusOK
	for i := 1; code == http.StatusOK && i < 1000; i++ {
		code = post(i * 1000)
	}
	require.Equal(t, http.StatusServiceUnavailable, code)

	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(request(0, names(1000)...)))
	require.Equal(t, codes.Unavailable, status.Code(err), fmt.Sprint(err))
	require.ErrorContains(t, err, "journal::max_size_mib")
}

// What the exporter measures of itself can be read in the store.
func TestWhatIsMeasuredIsKept(t *testing.T) {
	s := realStore(t)
	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB = 0
	e, err := newExporter(settings(), cfg)
	require.NoError(t, err)
	require.NoError(t, e.start(t.Context(), hostOf(s)))
	require.NoError(t, e.consume(t.Context(), request(0, names(300)...)))
	require.NoError(t, e.shutdown(t.Context()))
	require.NoError(t, e.telemetry.kept.Write(t.Context(), s.conn))
	of := func(name string) (times uint64, total float64) {
		require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT sum(times), sum(total) FROM self_metrics WHERE name = ?", name).Scan(&times, &total))
		return times, total
	}
	for _, name := range []string{schema.MetricSpansAccepted, schema.MetricRowsInserted} {
		_, total := of(name)
		require.InDelta(t, 300, total, 0, name)
	}
	inserts, seconds := of(schema.MetricInsertTime)
	require.NotZero(t, inserts)
	require.Positive(t, seconds)
	looks, waiting := of(schema.MetricJournalWaiting)
	require.EqualValues(t, 1, looks)
	require.Zero(t, waiting)
}
