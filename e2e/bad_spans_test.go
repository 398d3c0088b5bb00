package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// batch is one export request of a service: a good run of three spans, and what a test
// adds to it.
type batch struct {
	t       *testing.T
	td      ptrace.Traces
	service string
	runID   string
	spans   ptrace.SpanSlice
	at      time.Time
}

func randomSpan(spans ptrace.SpanSlice, trace pcommon.TraceID) ptrace.Span {
	s := spans.AppendEmpty()
	s.SetTraceID(trace)
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	s.SetSpanID(id)
	return s
}

func randomTrace() (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// newBatch has a complete run whose step "resolve" fails once and is tried again.
func newBatch(t *testing.T, service string, at time.Time) *batch {
	t.Helper()
	b := &batch{t: t, td: ptrace.NewTraces(), service: service, runID: "run of " + service, at: at}
	rs := b.td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("e2e")
	b.spans = ss.Spans()
	trace := randomTrace()
	root := randomSpan(b.spans, trace)
	root.SetName("pipeline")
	root.Attributes().PutStr("run.id", b.runID)
	root.Attributes().PutBool("run.complete", true)
	b.times(root, 0, 5*time.Second)
	rootID := root.SpanID()
	for attempt := range 2 {
		s := randomSpan(b.spans, trace)
		s.SetParentSpanID(rootID)
		s.SetName("resolve")
		s.Attributes().PutStr("step", "resolve")
		s.Attributes().PutInt("retry.attempt", int64(attempt+1))
		if attempt == 0 {
			s.Status().SetCode(ptrace.StatusCodeError)
			s.Status().SetMessage("UpstreamError: 503")
		}
		b.times(s, time.Duration(1+2*attempt)*time.Second, time.Duration(2+2*attempt)*time.Second)
	}
	return b
}

func (b *batch) times(s ptrace.Span, from, to time.Duration) {
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(b.at.Add(from)))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(b.at.Add(to)))
}

// another is a span of a trace of its own, which is good until the test makes it bad.
func (b *batch) another() ptrace.Span {
	s := randomSpan(b.spans, randomTrace())
	s.SetName("another")
	b.times(s, 0, time.Second)
	return s
}

// padded grows the request to exactly size bytes on the wire.
func (b *batch) padded(size int) {
	b.t.Helper()
	s := b.another()
	length := func() int {
		raw, err := ptraceotlp.NewExportRequestFromTraces(b.td).MarshalProto()
		require.NoError(b.t, err)
		return len(raw)
	}
	pad := size - length() - 100
	for range 4 { // lengths are written with a varying number of bytes
		s.Attributes().PutStr("input.value", strings.Repeat("p", pad))
		pad += size - length()
	}
	require.Equal(b.t, size, length())
}

// storeOf connects to the collector's own engine as its user.
func storeOf(t *testing.T, data, address string) driver.Conn {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(data, "engine", "password"))
	require.NoError(t, err)
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{address},
		Auth: clickhouse.Auth{Database: "retryledger", Username: "retryledger", Password: strings.TrimSpace(string(password))}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// deadLetters are how many spans could not be kept, by cause.
func deadLetters(t *testing.T, p collectortest.Place) map[string]int {
	t.Helper()
	var found struct {
		Causes []struct {
			Cause string
			Items int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.Retryledger(t, "deadletter", "list", "--data-dir", p.Data, "--format", "json")), &found))
	byCause := make(map[string]int)
	for _, c := range found.Causes {
		byCause[c.Cause] = c.Items
	}
	return byCause
}

// Whatever a bad span is like, its sender hears that the request was taken, the good
// spans beside it are in the store and in the ledger, and it is there itself, or a dead
// letter with its cause.
func TestABadSpanNeverHarmsItsBatchMates(t *testing.T) {
	place := newPlace(t)
	engine := porttest.Free(t, 1)[0]
	_, port, _ := strings.Cut(engine, ":")
	d := start(t, place, "--set=extensions.retryledger_store.engine.port="+port)
	store := storeOf(t, place.Data, engine)
	const mib = 1 << 20
	var gRPC, http, both = ways[:1], ways[2:3], []way{ways[0], ways[2]}
	for _, c := range []struct {
		name string
		ways []way
		at   time.Duration // of the run, from now
		bad  func(b *batch)
		kept int // spans that the test added and that are to be in the store
		dead map[string]int
	}{
		// A text cut inside a rune made receivers refuse the batch, and senders try for ever.
		{name: "texts that are no UTF-8", ways: ways, kept: 2, bad: func(b *batch) {
			s := b.another()
			s.SetName("caf\xc3")
			s.Status().SetCode(ptrace.StatusCodeError)
			s.Status().SetMessage("bad \xff message")
			s.Attributes().PutStr("step", "bad\xfestep")
			s.Attributes().PutStr("k\xff", "v\xff")
			s.TraceState().FromRaw("a=\xff")
			s.Events().AppendEmpty().SetName("\xff")
			rs := b.td.ResourceSpans().AppendEmpty() // all of another resource
			rs.Resource().Attributes().PutStr("service.name", b.service)
			rs.Resource().Attributes().PutStr("service.version", "\xff\xff")
			other := randomSpan(rs.ScopeSpans().AppendEmpty().Spans(), randomTrace())
			b.times(other, 0, time.Second)
			rs.ScopeSpans().At(0).Scope().SetName("sc\xffope")
		}},
		{name: "no trace id and no span id", ways: ways, dead: map[string]int{"no_trace_id": 1, "no_span_id": 2}, bad: func(b *batch) {
			b.another().SetTraceID(pcommon.TraceID{})
			b.another().SetSpanID(pcommon.SpanID{})
			b.another().SetSpanID(pcommon.SpanID{})
		}},
		{name: "no end, and an end before the beginning", ways: both, kept: 3, bad: func(b *batch) {
			b.another().SetEndTimestamp(0)
			b.times(b.another(), time.Second, 0)
			none := b.another()
			none.SetStartTimestamp(0)
			none.SetEndTimestamp(0)
		}},
		{name: "times in 1970, 2262 and beyond", ways: both, kept: 4, bad: func(b *batch) {
			for _, at := range []pcommon.Timestamp{1, pcommon.Timestamp(math.MaxInt64), pcommon.Timestamp(math.MaxUint64)} {
				s := b.another()
				s.SetStartTimestamp(at)
				s.SetEndTimestamp(at)
			}
			ages := b.another()
			ages.SetStartTimestamp(1)
			ages.SetEndTimestamp(pcommon.Timestamp(math.MaxInt64))
		}},
		{name: "NaN and infinity", ways: both, kept: 1, bad: func(b *batch) {
			a := b.another().Attributes()
			for i, key := range []string{"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "llm.cost.total", "gen_ai.usage.cost", "retry.attempt", "retry.max_attempts", "fallback", "run.attempt"} {
				a.PutDouble(key, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3])
			}
		}},
		{name: "an attribute of 10 MB", ways: both, kept: 2, bad: func(b *batch) {
			b.another().Attributes().PutStr("input.value", strings.Repeat("x", 10e6))
			b.another().Attributes().PutStr("step", strings.Repeat("y", 10e6))
		}},
		{name: "5,000 attributes", ways: both, kept: 1, bad: func(b *batch) {
			a := b.another().Attributes()
			for i := range 5000 {
				a.PutInt(fmt.Sprintf("item.%d", i), int64(i))
			}
		}},
		{name: "64 MiB over gRPC", ways: gRPC, kept: 1, bad: func(b *batch) { b.padded(64 * mib) }},
		{name: "64 MiB over HTTP", ways: http, kept: 1, bad: func(b *batch) { b.padded(64 * mib) }},
		// A usual batch of an agent: above the 4 MiB that receivers take by default.
		{name: "159 spans of 110 kB", ways: both, kept: 159, bad: func(b *batch) {
			for range 159 {
				b.another().Attributes().PutStr("input.value", strings.Repeat("p", 110_000))
			}
		}},
		// More partitions than the store takes in one insert.
		{name: "200 days in one batch", ways: both, kept: 200, bad: func(b *batch) {
			for day := range 200 {
				s := b.another()
				b.times(s, -time.Duration(day)*24*time.Hour, -time.Duration(day)*24*time.Hour+time.Second)
			}
		}},
		{name: "step names with ids, and without end", ways: gRPC, kept: 8000, bad: func(b *batch) {
			trace := randomTrace()
			for i := range 8000 {
				s := randomSpan(b.spans, trace)
				b.times(s, 0, time.Second)
				step := fmt.Sprintf("fetch %08x-e89b-12d3-a456-%012x", rand.Uint32(), i)
				if i%2 == 0 {
					step = fmt.Sprintf("fetch page%dx", i)
				}
				s.SetName(step)
				s.Attributes().PutStr("step", step)
			}
		}},
		{name: "a clock an hour ahead", ways: both, at: time.Hour, bad: func(*batch) {}},
		{name: "a clock an hour behind", ways: both, at: -time.Hour, bad: func(*batch) {}},
	} {
		for _, w := range c.ways {
			t.Run(c.name+" over "+w.name, func(t *testing.T) {
				before := deadLetters(t, place)
				b := newBatch(t, c.name+" over "+w.name, time.Now().Add(c.at-10*time.Second))
				c.bad(b)
				require.NoError(t, d.sender(w).Send(t.Context(), b.td))
				eventually(t, appearWithin, func() error {
					var spans uint64
					if err := store.QueryRow(t.Context(), "SELECT uniqExact(trace_id, span_id) FROM spans WHERE service = ?", b.service).Scan(&spans); err != nil {
						return err
					}
					if spans != uint64(3+c.kept) {
						return fmt.Errorf("%d spans in the store instead of %d", spans, 3+c.kept)
					}
					return nil
				})
				eventually(t, appearWithin, func() error { return inLedger(t, place, b) })
				after := deadLetters(t, place)
				for cause := range after {
					after[cause] -= before[cause]
				}
				for cause, n := range c.dead {
					assert.Equal(t, n, after[cause], cause)
					delete(after, cause)
				}
				for cause, n := range after {
					assert.Zero(t, n, "%s", cause)
				}
			})
		}
	}
	t.Run("names are bounded", func(t *testing.T) {
		var steps, ids, others uint64
		require.NoError(t, store.QueryRow(t.Context(), "SELECT uniqExact(step), countIf(step = 'fetch {id}'), countIf(step = '(other)') FROM spans FINAL WHERE service LIKE 'step names%'").Scan(&steps, &ids, &others))
		assert.EqualValues(t, 1000+2, steps, "those that a service may have, the others, and no step") // "" of the root
		assert.EqualValues(t, 4000, ids)
		assert.EqualValues(t, 4000-998, others, "two of the names are resolve and fetch {id}")
	})
	// None of these can be replayed, and the collector says so.
	said := place.Retryledger(t, "deadletter", "replay", "--data-dir", place.Data)
	assert.Contains(t, said, "0 rows replayed")
	assert.Contains(t, said, "Left there")
	d.Stop()
}

// inLedger tells what the ledger lacks of the good run.
func inLedger(t *testing.T, p collectortest.Place, b *batch) error {
	t.Helper()
	var runs answer.Runs
	if err := p.Get(t.Context(), "/api/v1/runs?limit=0&service="+url.QueryEscape(b.service), &runs); err != nil {
		return err
	}
	for i := range runs.Runs {
		if run := &runs.Runs[i]; run.RunID == b.runID {
			if run.Completion != "complete" || run.Spans != 3 {
				return fmt.Errorf("the run is %s, with %d spans", run.Completion, run.Spans)
			}
			return stepInLedger(t, p, b)
		}
	}
	return fmt.Errorf("the run is not in the ledger, among %d", len(runs.Runs))
}

func stepInLedger(t *testing.T, p collectortest.Place, b *batch) error {
	t.Helper()
	var top answer.Top
	if err := p.Get(t.Context(), "/api/v1/top?limit=0&service="+url.QueryEscape(b.service), &top); err != nil {
		return err
	}
	for i := range top.Steps {
		if s := &top.Steps[i]; s.Step == "resolve" {
			if s.Executions != 2 || s.Retries.Node == nil || *s.Retries.Node != 1 {
				return fmt.Errorf("the step has %d executions", s.Executions)
			}
			return nil
		}
	}
	return fmt.Errorf("the step is not in the ledger")
}
