package ingest

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// Rows that the store refused come back when somebody asks for it and the store takes
// them, and count once, however often they are replayed.
func TestDeadLettersAreReplayedIntoTheStoreOnce(t *testing.T) {
	s := realStore(t)
	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB = 0
	ill, err := newExporter(settings(), cfg)
	require.NoError(t, err)
	// The real store has no way to be made to refuse one row.
	bad := map[string]bool{"call-3": true, "call-7": true}
	store := storeInserter{s, ill.random}
	ill.inserter = inserterFunc(func(ctx context.Context, rows []schema.Span) error {
		for i := range rows {
			if bad[rows[i].Name] {
				return errPermanent
			}
		}
		return store.InsertSpans(ctx, rows)
	})
	require.NoError(t, ill.start(t.Context(), hostOf(s)))
	require.NoError(t, ill.consume(t.Context(), request(0, append(names(20), "")...)))
	require.NoError(t, ill.shutdown(t.Context()))
	_, distinct := stored(t, s)
	require.EqualValues(t, 18, distinct)
	dir := filepath.Join(s.dir, "journal")
	require.Len(t, readDeadLetters(t, dir), 3)

	well := started(t, s, settings(), nil)
	answer, err := deadletter.RequestReplay(t.Context(), dir, "once")
	require.NoError(t, err)
	assert.Equal(t, 2, answer.Replayed)
	assert.Equal(t, 1, answer.Kept, "a span without an id")
	assert.Empty(t, answer.Error)
	again, err := deadletter.RequestReplay(t.Context(), dir, "twice")
	require.NoError(t, err)
	assert.Zero(t, again.Replayed)
	// A copy of the letters from elsewhere, and the sender, bring them once more.
	require.NoError(t, well.ConsumeTraces(t.Context(), request(0, names(20)...)))
	require.NoError(t, well.Shutdown(t.Context()))
	_, distinct = stored(t, s)
	require.EqualValues(t, 20, distinct)
	var final uint64
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&final))
	require.EqualValues(t, 20, final)
	require.Len(t, readDeadLetters(t, dir), 1)
}

type inserterFunc func(ctx context.Context, rows []schema.Span) error

func (f inserterFunc) InsertSpans(ctx context.Context, rows []schema.Span) error { return f(ctx, rows) }

// A replay that finds nothing is answered, and is no warning.
func TestAReplayOfNothingIsNoWarning(t *testing.T) {
	s := &testStore{dir: t.TempDir()}
	dir := filepath.Join(s.dir, "journal")
	core, logs := observer.New(zapcore.InfoLevel)
	set := settings()
	set.Logger = zap.New(core)
	e := started(t, s, set, func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	answer, err := deadletter.RequestReplay(t.Context(), dir, "nothing")
	require.NoError(t, err)
	assert.Zero(t, answer.Replayed+answer.Kept)
	require.NoError(t, e.Shutdown(t.Context()))
	said := logs.FilterMessageSnippet("nothing to replay").All()
	require.Len(t, said, 1)
	assert.Equal(t, zapcore.InfoLevel, said[0].Level)
	assert.Empty(t, logs.FilterMessageSnippet("were replayed").All())
}

// A collector that is down when it is asked replays at its next start; one whose journal
// is full says so and keeps the letters.
func TestARequestToReplayWaitsForACollector(t *testing.T) {
	s := &testStore{dir: t.TempDir()}
	dir := filepath.Join(s.dir, "journal")
	e := started(t, s, settings(), func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	require.NoError(t, e.Shutdown(t.Context()))
	row, err := journal.EncodeRows([]schema.Span{{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{1}}})
	require.NoError(t, err)
	f := deadletter.New(dir, 1<<20)
	_, err = f.Add(deadletter.Letter{Kind: deadletter.KindRow, Row: row})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = deadletter.RequestReplay(short, dir, "early")
	require.ErrorIs(t, err, deadletter.ErrNotTaken)

	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB, cfg.Writer.ShutdownTimeout = 1<<30, 0 // no disk has so much free
	full, err := newExporter(settings(), cfg)
	require.NoError(t, err)
	require.NoError(t, full.start(t.Context(), hostOf(s)))
	answer, err := deadletter.RequestReplay(t.Context(), dir, "full")
	require.NoError(t, err)
	assert.Contains(t, answer.Error, "journal::min_free_disk_mib")
	require.NoError(t, full.shutdown(t.Context()))
	require.Len(t, readDeadLetters(t, dir), 1)

	_, err = deadletter.RequestReplay(short, dir, "late")
	require.ErrorIs(t, err, deadletter.ErrNotTaken)
	e = started(t, s, settings(), func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	require.Eventually(t, func() bool { return len(readDeadLetters(t, dir)) == 0 }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, e.Shutdown(t.Context()))
	j, err := journal.Open(journal.Options{Dir: dir, MaxBytes: 1 << 20, SegmentBytes: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	rec, err := j.TryNext()
	require.NoError(t, err)
	require.Len(t, rec.Spans, 1)
}

// counted are the points of a counter.
func counted(t *testing.T, tel *componenttest.Telemetry, name string) []metricdata.DataPoint[int64] {
	t.Helper()
	m, err := tel.GetMetric(name)
	require.NoError(t, err)
	sum, ok := m.Data.(metricdata.Sum[int64])
	require.True(t, ok, "%s is a %T", name, m.Data)
	return sum.DataPoints
}

// Each refusal has a count and a line in the log, with the reason; a flood of them is
// one line now and then. The sender is told to try again, whatever the reason.
func TestEachRefusalIsCountedAndTold(t *testing.T) {
	for reason, change := range map[string]func(*Config){
		"journal_full": func(c *Config) { c.Journal.MaxSizeMiB, c.Journal.SegmentSizeMiB = 2, 1 },
		"disk_low":     func(c *Config) { c.Journal.MinFreeDiskMiB = 1 << 30 },
	} {
		t.Run(reason, func(t *testing.T) {
			tel := componenttest.NewTelemetry()
			defer func() { require.NoError(t, tel.Shutdown(context.Background())) }()
			core, logs := observer.New(zapcore.WarnLevel)
			set := settings()
			set.TelemetrySettings = tel.NewTelemetrySettings()
			set.Logger = zap.New(core)
			e := started(t, &testStore{dir: t.TempDir()}, set, func(c *Config) {
				c.Writer.ShutdownTimeout = 0
				change(c)
			})
			defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
			accepted, refused := 0, 0
			for i := 0; refused < 5000 && i < 10_000; i++ {
				if err := e.ConsumeTraces(t.Context(), request(i*1000, names(1000)...)); err != nil {
					require.False(t, consumererror.IsPermanent(err), "%v", err)
					refused += 1000
				} else {
					accepted += 1000
				}
			}
			require.Equal(t, 5000, refused)
			points := counted(t, tel, "retryledger_ingest_spans_refused")
			require.Len(t, points, 1)
			assert.EqualValues(t, refused, points[0].Value)
			said, _ := points[0].Attributes.Value("reason")
			assert.Equal(t, reason, said.AsString())
			lines := logs.FilterMessageSnippet("refused").All()
			require.NotEmpty(t, lines)
			assert.Less(t, len(lines), 5)
			assert.Equal(t, reason, lines[0].ContextMap()["reason"])
			assert.Zero(t, logs.FilterMessageSnippet("ejecting").Len(), "and nobody says that data were rejected")
			if accepted > 0 {
				assert.EqualValues(t, accepted, counted(t, tel, "retryledger_ingest_spans_accepted")[0].Value)
			}
		})
	}
	for want, err := range map[string]error{
		"shutting_down": journal.ErrClosed, "sender_left": context.Canceled, "disk_full": &filepathError{syscall.ENOSPC}, "disk_error": errors.New("input/output error"),
	} {
		assert.Equal(t, want, refusalReason(err))
	}
}

type filepathError struct{ error }

func (e *filepathError) Unwrap() error { return e.error }

// A journal that is smaller than one request takes the request all the same, by parts,
// or asks to try again: a sender is never told to give up.
func TestARequestLargerThanTheJournal(t *testing.T) {
	s := realStore(t)
	e := started(t, s, settings(), func(c *Config) {
		c.Journal.MaxSizeMiB, c.Journal.SegmentSizeMiB = 2, 1
		c.Writer.FlushInterval = time.Millisecond
	})
	const spans = 100_000
	td := request(0, names(spans)...)
	require.Eventually(t, func() bool {
		err := e.ConsumeTraces(t.Context(), td)
		require.False(t, consumererror.IsPermanent(err), "%v", err)
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, e.Shutdown(t.Context()))
	_, distinct := stored(t, s)
	require.EqualValues(t, spans, distinct)
}
