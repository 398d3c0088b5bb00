package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

// testStore is a store that the test has at hand.
type testStore struct {
	component.StartFunc
	component.ShutdownFunc
	conn driver.Conn
	dir  string
}

func (s *testStore) Conn(ctx context.Context) (driver.Conn, error) {
	if s.conn == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.conn, nil
}
func (s *testStore) DataDir() string  { return s.dir }
func (s *testStore) Database() string { return "test" }
func (s *testStore) Location() string { return "the test's" }

type testHost struct {
	extensions map[component.ID]component.Component
}

func (h testHost) GetExtensions() map[component.ID]component.Component { return h.extensions }

func hostOf(s *testStore) component.Host {
	return testHost{map[component.ID]component.Component{component.MustNewID("retryledger_store"): s}}
}

// settings are those of the exporter under its plain name.
func settings() exporter.Settings {
	set := exportertest.NewNopSettings(Type)
	set.ID = component.NewID(Type)
	return set
}

// started makes a whole exporter, as a pipeline would have it.
func started(t testing.TB, s *testStore, set exporter.Settings, change func(*Config)) exporter.Traces {
	t.Helper()
	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB = 0
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	e, err := NewFactory().CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), hostOf(s)))
	return e
}

func realStore(t testing.TB) *testStore {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	return &testStore{conn: db.Conn, dir: t.TempDir()}
}

func stored(t testing.TB, s *testStore) (spans, distinct uint64) {
	t.Helper()
	row := s.conn.QueryRow(t.Context(), "SELECT count(), uniqExact(trace_id, span_id) FROM spans")
	require.NoError(t, row.Scan(&spans, &distinct))
	return spans, distinct
}

func TestSpansReachTheStore(t *testing.T) {
	s := realStore(t)
	e := started(t, s, settings(), nil)
	for i := range 10 {
		require.NoError(t, e.ConsumeTraces(t.Context(), request(i*100, names(100)...)))
	}
	require.NoError(t, e.Shutdown(t.Context()))
	_, distinct := stored(t, s)
	require.EqualValues(t, 1000, distinct)
	left, err := filepath.Glob(filepath.Join(s.dir, "journal", "*.journal"))
	require.NoError(t, err)
	require.Empty(t, left, "what the store has needs no journal")
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("call-%d", i)
	}
	return out
}

// Without a store spans are acknowledged all the same, a shutdown is bounded,
// and the next start delivers what is left.
func TestAStoreThatIsDownCostsNothing(t *testing.T) {
	s := realStore(t)
	down := &testStore{dir: s.dir}
	e := started(t, down, settings(), func(c *Config) { c.Writer.ShutdownTimeout = 10 * time.Millisecond })
	require.NoError(t, e.ConsumeTraces(t.Context(), request(0, names(500)...)))
	require.NoError(t, e.Shutdown(t.Context()))
	left, err := filepath.Glob(filepath.Join(s.dir, "journal", "*.journal"))
	require.NoError(t, err)
	require.NotEmpty(t, left)

	e = started(t, s, settings(), nil)
	require.NoError(t, e.Shutdown(t.Context()))
	_, distinct := stored(t, s)
	require.EqualValues(t, 500, distinct)
}

func TestAFullJournalAsksTheSenderToTryAgain(t *testing.T) {
	e := started(t, &testStore{dir: t.TempDir()}, settings(), func(c *Config) {
		c.Journal.MaxSizeMiB, c.Journal.SegmentSizeMiB = 2, 1
		c.Writer.ShutdownTimeout = 0
	})
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = e.ConsumeTraces(t.Context(), request(i*1000, names(1000)...))
	}
	require.ErrorIs(t, err, journal.ErrFull)
	require.False(t, consumererror.IsPermanent(err))
}

func TestASecondExporterHasItsOwnJournal(t *testing.T) {
	s := &testStore{dir: t.TempDir()}
	short := func(c *Config) { c.Writer.ShutdownTimeout = 0 }
	first := started(t, s, settings(), short)
	set := settings()
	set.ID = component.MustNewIDWithName("retryledger", "second")
	first2 := started(t, s, set, short)
	defer func() {
		require.NoError(t, first.Shutdown(context.Background()))
		require.NoError(t, first2.Shutdown(context.Background()))
	}()
	set.ID = component.MustNewID("retryledger")
	cfg := createDefaultConfig()
	third, err := NewFactory().CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	err = third.Start(t.Context(), hostOf(s))
	require.ErrorIs(t, err, journal.ErrInUse)
	require.ErrorContains(t, err, "journal::directory")
	require.NoError(t, third.Shutdown(t.Context()), "what did not start shuts down all the same")
}

func TestAStoreThatIsNotThere(t *testing.T) {
	for name, host := range map[string]component.Host{
		"no extension": testHost{},
		"no store": testHost{map[component.ID]component.Component{
			component.MustNewID("retryledger_store"): struct {
				component.StartFunc
				component.ShutdownFunc
			}{}}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := NewFactory().CreateTraces(t.Context(), settings(), createDefaultConfig())
			require.NoError(t, err)
			require.ErrorContains(t, e.Start(t.Context(), host), "retryledger_store")
			require.NoError(t, e.Shutdown(t.Context()))
		})
	}
}

func TestWhatTheExporterSaysAboutItself(t *testing.T) {
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(context.Background())) }()
	set := settings()
	set.TelemetrySettings = tel.NewTelemetrySettings()
	s := &testStore{dir: t.TempDir()}
	e := started(t, s, set, func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	require.NoError(t, e.ConsumeTraces(t.Context(), request(0, "a", "b", "")))

	value := func(name string) float64 {
		m, err := tel.GetMetric(name)
		require.NoError(t, err)
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			return float64(data.DataPoints[0].Value)
		case metricdata.Gauge[int64]:
			return float64(data.DataPoints[0].Value)
		case metricdata.Gauge[float64]:
			return data.DataPoints[0].Value
		}
		t.Fatalf("%s is a %T", name, m.Data)
		return 0
	}
	assert.InDelta(t, 2, value("retryledger_ingest_spans_accepted"), 0)
	assert.InDelta(t, 1, value("retryledger_ingest_dead_letters"), 0)
	assert.InDelta(t, 1, value("retryledger_ingest_journal_segments"), 0)
	assert.Positive(t, value("retryledger_ingest_journal_size"))
	assert.Positive(t, value("retryledger_ingest_journal_unconfirmed_size"))
	assert.Positive(t, value("retryledger_ingest_journal_oldest_unconfirmed_age"))
	assert.Zero(t, value("retryledger_ingest_journal_set_aside_size"))
	require.NoError(t, e.Shutdown(t.Context()))
	_, err := tel.GetMetric("retryledger_ingest_journal_size")
	require.Error(t, err, "a closed journal is not observed")

	letters := readDeadLetters(t, filepath.Join(s.dir, "journal"))
	require.Len(t, letters, 1)
	assert.Equal(t, "the span has no trace id", letters[0].Reason)
	assert.False(t, letters[0].Time.IsZero())
}

// A text that is no UTF-8 is mended, counted, and harms no other span.
func TestTextsThatAreNoUTF8AreCounted(t *testing.T) {
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(context.Background())) }()
	set := settings()
	set.TelemetrySettings = tel.NewTelemetrySettings()
	e := started(t, &testStore{dir: t.TempDir()}, set, func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	require.NoError(t, e.ConsumeTraces(t.Context(), request(0, "a", "b\xff", "caf\xc3", "café")))
	assert.EqualValues(t, 2, counted(t, tel, "retryledger_ingest_spans_mended")[0].Value)
	assert.EqualValues(t, 4, counted(t, tel, "retryledger_ingest_spans_accepted")[0].Value)
	require.NoError(t, e.Shutdown(t.Context()))
}

// Nothing that a span says at length may reach the disk: not through the
// journal, not through the dead letters.
func TestNoPromptReachesTheDisk(t *testing.T) {
	const prompt = "tell me a secret"
	s := &testStore{dir: t.TempDir()}
	e := started(t, s, settings(), func(c *Config) { c.Writer.ShutdownTimeout = 0 })
	td := request(0, "a", "", "b")
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			ss.Scope().SetName("@arizeai/openinference-instrumentation-langchain")
			for _, span := range ss.Spans().All() {
				for _, key := range []string{"input.value", "output.value", "llm.input_messages.0.message.content", "gen_ai.prompt", "other"} {
					span.Attributes().PutStr(key, prompt)
				}
				span.Status().SetMessage(prompt)
				ev := span.Events().AppendEmpty()
				ev.SetName("exception")
				ev.Attributes().PutStr("exception.message", prompt)
				ev.Attributes().PutStr("exception.stacktrace", prompt)
			}
		}
	}
	require.NoError(t, e.ConsumeTraces(t.Context(), td))
	require.NoError(t, e.Shutdown(t.Context()))
	files := 0
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files++
		assert.NotContains(t, string(raw), prompt, path)
		return err
	}))
	require.GreaterOrEqual(t, files, 2)
	// S2 may cut a text in two: look at the rows as well.
	j, err := journal.Open(journal.Options{Dir: filepath.Join(s.dir, "journal"), MaxBytes: 1 << 20, SegmentBytes: 1 << 20})
	require.NoError(t, err)
	rec, err := j.TryNext()
	require.NoError(t, err)
	require.Len(t, rec.Spans, 2)
	assert.NotContains(t, fmt.Sprintf("%+v", rec.Spans), prompt)
	require.NoError(t, j.Close())
}

func TestARowThatNoJournalHoldsCostsNoOther(t *testing.T) {
	s := &testStore{dir: t.TempDir()}
	set := settings()
	cfg := defaultConfig()
	cfg.Journal.MinFreeDiskMiB, cfg.Writer.ShutdownTimeout = 0, 0
	e, err := newExporter(set, cfg)
	require.NoError(t, err)
	e.inserter = newRefusing(func(int, []schema.Span) error { return errors.New("down") })
	td := request(0, "a", "b", "c")
	spans, _ := dialect.Normalise(td, 7)
	spans[1].Model = strings.Repeat("m", 5<<20)
	e.normalise = replay(spans)
	require.NoError(t, e.start(t.Context(), hostOf(s)))
	require.NoError(t, e.consume(t.Context(), td))
	require.NoError(t, e.shutdown(t.Context()))
	letters := readDeadLetters(t, filepath.Join(s.dir, "journal"))
	require.Len(t, letters, 1)
	require.Equal(t, spans[0].Service, letters[0].Service)
}

// BenchmarkConsume is a request from its decoded form to its acknowledgement.
// The store is down, so that nothing but the journal is measured.
func BenchmarkConsume(b *testing.B) {
	for _, c := range []struct{ senders, spans int }{{1, 1000}, {8, 1000}, {8, 8192}} {
		b.Run(fmt.Sprintf("senders=%d/spans=%d", c.senders, c.spans), func(b *testing.B) {
			e := started(b, &testStore{dir: b.TempDir()}, settings(), func(c *Config) {
				c.Writer.ShutdownTimeout = 0
				c.Journal.MaxSizeMiB = 1 << 20
			})
			td := request(0, names(c.spans)...)
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, span := range ss.Spans().All() {
						a := span.Attributes()
						a.PutStr("openinference.span.kind", "LLM")
						a.PutStr("llm.model_name", "gpt-4o-mini")
						a.PutInt("llm.token_count.prompt", 1200)
						a.PutStr("metadata", `{"langgraph_node":"resolve","langgraph_step":3,"langgraph_checkpoint_ns":"resolve:6f1c2b0e-2d0a-5b0e-9c51-7e2d1f0b4a77"}`)
						a.PutStr("input.value", strings.Repeat("prompt ", 40))
					}
				}
			}
			td.MarkReadOnly()
			b.ResetTimer()
			var wg sync.WaitGroup
			work := make(chan struct{})
			for range c.senders {
				wg.Go(func() {
					for range work {
						if err := e.ConsumeTraces(context.Background(), td); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(b.N*c.spans)/b.Elapsed().Seconds(), "spans/s")
			b.StopTimer()
			require.NoError(b, e.Shutdown(context.Background()))
		})
	}
}

// BenchmarkDrain is the writer's half: from the journal into the real engine.
func BenchmarkDrain(b *testing.B) {
	s := realStore(b)
	const spans = 100_000
	b.StopTimer()
	for i := range b.N {
		e := started(b, &testStore{dir: s.dir}, settings(), func(c *Config) { c.Writer.ShutdownTimeout = 0 })
		for n := 0; n < spans; n += 1000 {
			require.NoError(b, e.ConsumeTraces(b.Context(), request(i*spans+n, names(1000)...)))
		}
		require.NoError(b, e.Shutdown(context.Background()))
		b.StartTimer()
		e = started(b, s, settings(), func(c *Config) { c.Writer.ShutdownTimeout = time.Minute })
		require.NoError(b, e.Shutdown(context.Background()))
		b.StopTimer()
	}
	b.ReportMetric(float64(b.N*spans)/b.Elapsed().Seconds(), "spans/s")
	_, distinct := stored(b, s)
	require.EqualValues(b, b.N*spans, distinct)
}
