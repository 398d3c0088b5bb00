package attributor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

// store is a fresh ledger with what a test does to it.
type store struct {
	t        testing.TB
	conn     driver.Conn
	base     time.Time // of the spans: recent, or their retention would end
	logs     *observer.ObservedLogs
	received []int64 // of the last pass, Result.Received
}

func newStore(t testing.TB) *store {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	return &store{t: t, conn: db.Conn, base: time.Now().Add(-time.Hour).Truncate(time.Second)}
}

func (s *store) runner(change ...func(*Config)) *Runner {
	config := defaultConfig()
	for _, c := range change {
		c(config)
	}
	require.NoError(s.t, config.Validate())
	core, logs := observer.New(zap.WarnLevel)
	s.logs = logs
	r := NewRunner(config, func(context.Context) (driver.Conn, error) { return s.conn, nil }, zap.New(core))
	r.account = simpleAccount
	return r
}

// traceID and spanID are ids with a number in them.
func traceID(n int) (id schema.TraceID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func spanID(n int) (id schema.SpanID) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

// span is span n of a trace, n seconds after the base. Span 1 is the root.
func (s *store) span(trace, n int, change ...func(*schema.Span)) schema.Span {
	span := schema.Span{
		TraceID: traceID(trace), SpanID: spanID(n), ParentID: spanID(1),
		StartNs: s.base.Add(time.Duration(n) * time.Second).UnixNano(), Service: "shop", Step: "resolve", Role: schema.RoleModel,
		GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1,
		InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(),
	}
	if n == 1 {
		span.ParentID = schema.SpanID{}
	}
	span.EndNs = span.StartNs + int64(time.Millisecond)
	span.ReceivedNs = span.EndNs + int64(time.Second)
	for _, c := range change {
		c(&span)
	}
	span.ContentHash = span.Hash()
	return span
}

func runID(id string) func(*schema.Span) { return func(s *schema.Span) { s.RunID = id } }

func (s *store) insert(spans ...schema.Span) {
	s.t.Helper()
	require.NoError(s.t, schema.InsertSpans(s.t.Context(), s.conn, rand.Uint64, spans))
}

// insertAsOf inserts a span that the store took at another time.
func (s *store) insertAsOf(us int64, spans ...schema.Span) {
	s.t.Helper()
	s.insert(spans...)
	for _, span := range spans {
		cond := fmt.Sprintf("trace_id = unhex('%s') AND span_id = unhex('%s') AND content_hash = %d", span.TraceID, span.SpanID, span.ContentHash)
		require.NoError(s.t, s.conn.Exec(s.t.Context(), fmt.Sprintf(
			"ALTER TABLE spans UPDATE inserted_at = fromUnixTimestamp64Micro(%d, 'UTC') WHERE %s SETTINGS mutations_sync = 1", us, cond)))
		var n uint64
		require.NoError(s.t, s.conn.QueryRow(s.t.Context(), fmt.Sprintf(
			"SELECT count() FROM spans WHERE %s AND inserted_at = fromUnixTimestamp64Micro(%d, 'UTC')", cond, us)).Scan(&n))
		require.EqualValues(s.t, 1, n)
	}
}

func (s *store) now() time.Time { return s.base.Add(10 * time.Minute) }

// pass is what a pass did, but for the receipts of the rows it wrote, which received has.
func (s *store) pass(r *Runner, now time.Time) Result {
	s.t.Helper()
	result, err := r.Pass(s.t.Context(), now)
	require.NoError(s.t, err)
	s.received, result.Received = result.Received, nil
	return result
}

// rows are the current rows of the ledger, by trace.
func (s *store) rows() []schema.LedgerRow {
	s.t.Helper()
	var ids []schema.TraceID
	for n := range 200 {
		ids = append(ids, traceID(n))
	}
	rows, err := schema.LedgerOfTraces(s.t.Context(), s.conn, ids)
	require.NoError(s.t, err)
	slices.SortFunc(rows, func(a, b schema.LedgerRow) int { return slices.Compare(a.TraceID[:], b.TraceID[:]) })
	return rows
}

func (s *store) clockUs() int64 {
	us, err := schema.Clock(s.t.Context(), s.conn)
	require.NoError(s.t, err)
	return us
}

// summary says what the ledger holds, run by run: id, traces, attempts, completion.
func (s *store) summary() []string {
	var lines []string
	for _, run := range ledger.Runs(s.rows()) {
		var traces []string
		for _, id := range run.TraceIDs {
			traces = append(traces, strings.TrimLeft(id, "0"))
		}
		lines = append(lines, fmt.Sprintf("%s: traces %s, %d attempts, %s", strings.TrimLeft(run.RunID, "0"), strings.Join(traces, "+"), len(run.Attempts), run.Completion))
	}
	slices.Sort(lines)
	return lines
}

// simpleAccount is an account simple enough to be foreseen: traces of one run id
// are one run, every span is an attempt, a run without a root is running until
// the deadline. A trace with spans of no role is none.
func simpleAccount(spans []schema.Span, opts attribution.Options) (account attribution.Ledger) {
	slices.SortFunc(spans, func(a, b schema.Span) int {
		return slices.Compare(append(a.TraceID[:], a.SpanID[:]...), append(b.TraceID[:], b.SpanID[:]...))
	})
	ids := map[schema.TraceID]string{}
	for _, s := range spans {
		if s.Service == "explode" {
			panic("as the test wants it")
		}
		if s.Role != schema.RoleOther && ids[s.TraceID] == "" {
			ids[s.TraceID] = s.TraceID.String()
		}
		if s.RunID != "" {
			ids[s.TraceID] = s.RunID
		}
	}
	at := map[string]int{}
	for _, s := range spans {
		id := ids[s.TraceID]
		if id == "" {
			account.UnattributedSpans++
			continue
		}
		i, ok := at[id]
		if !ok {
			i = len(account.Runs)
			at[id] = i
			account.Runs = append(account.Runs, attribution.Run{RunID: id, Service: s.Service, Completion: "running", StartNs: s.StartNs})
		}
		run := &account.Runs[i]
		if hex := s.TraceID.String(); !slices.Contains(run.TraceIDs, hex) {
			run.TraceIDs = append(run.TraceIDs, hex)
		}
		run.EndNs = max(run.EndNs, s.EndNs)
		if s.ParentID.IsZero() {
			run.Completion = "unflagged"
		}
		if !slices.ContainsFunc(run.Steps, func(known attribution.Step) bool { return known.Step == s.Step }) {
			run.Steps = append(run.Steps, attribution.Step{Step: s.Step})
		}
		run.Attempts = append(run.Attempts, attribution.Attempt{
			TraceID: s.TraceID, SpanID: s.SpanID, Parent: -1, Operation: -1, ViewOf: -1, Grain: attribution.GrainWork, Step: s.Step, Ordinal: 1,
			StartNs: s.StartNs, EndNs: s.EndNs, InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(), Counted: true,
		})
	}
	for i := range account.Runs {
		if run := &account.Runs[i]; run.Completion == "running" && opts.AtNs-run.EndNs > opts.OrphanAfterNs {
			run.Completion = "orphaned"
		}
	}
	return account
}

func TestLedgerFollowsSpans(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(7, 2), s.span(7, 3))
	assert.Equal(t, Result{Traces: 1, Runs: 1}, s.pass(r, s.now()))
	assert.Equal(t, []string{"7: traces 7, 2 attempts, running"}, s.summary())

	assert.Equal(t, Result{}, s.pass(r, s.now()), "nothing new is nothing to do")

	s.insert(s.span(7, 1), s.span(7, 2)) // the root, and one again
	assert.Equal(t, Result{Traces: 1, Runs: 1}, s.pass(r, s.now()))
	assert.Equal(t, []string{"7: traces 7, 3 attempts, unflagged"}, s.summary())
	assert.Equal(t, Result{}, s.pass(r, s.now()), "a span that came twice is done once")
}

func TestRestartGoesOnWhereItWas(t *testing.T) {
	s := newStore(t)
	s.insert(s.span(1, 1), s.span(2, 1))
	assert.Equal(t, 2, s.pass(s.runner(), s.now()).Traces)
	assert.Equal(t, Result{}, s.pass(s.runner(), s.now()), "what is in the ledger is not done again")
	s.insert(s.span(2, 2))
	assert.Equal(t, 1, s.pass(s.runner(), s.now()).Traces)
}

func TestTracesOfOneRunAreOneRun(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1, runID("job-9")), s.span(3, 1))
	assert.Equal(t, Result{Traces: 2, Runs: 2}, s.pass(r, s.now()))
	s.insert(s.span(2, 1, runID("job-9")))
	assert.Equal(t, Result{Traces: 2, Runs: 1}, s.pass(r, s.now()), "the earlier trace is rewritten with the later")
	assert.Len(t, s.received, 1, "and is not late for that")
	assert.Equal(t, []string{"3: traces 3, 1 attempts, unflagged", "job-9: traces 1+2, 2 attempts, unflagged"}, s.summary())
	rows := s.rows()
	assert.Equal(t, rows[0].Version, rows[1].Version)
	assert.True(t, rows[0].Runs[0].Anchor)
	assert.False(t, rows[1].Runs[0].Anchor)

	// More than a day apart, or in another environment, one id is two runs: the
	// account of one is not asked about the other.
	s.insert(s.span(4, 1, runID("job-9"), func(s *schema.Span) { s.Environment = "test" }),
		s.span(5, 1, runID("job-9"), func(s *schema.Span) { s.StartNs -= 25 * 3600e9; s.EndNs -= 25 * 3600e9 }))
	assert.Equal(t, Result{Traces: 2, Runs: 2}, s.pass(r, s.now()))
}

func TestTasksJoinWithinTheirThread(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	task := func(thread, key string) func(*schema.Span) {
		return func(s *schema.Span) { s.ThreadID, s.TaskKey, s.ParentID = thread, key, schema.SpanID{9} }
	}
	var seen [][]schema.TraceID
	r.account = func(spans []schema.Span, o attribution.Options) attribution.Ledger {
		var ids []schema.TraceID
		for _, s := range spans {
			ids = append(ids, s.TraceID)
		}
		slices.SortFunc(ids, func(a, b schema.TraceID) int { return slices.Compare(a[:], b[:]) })
		seen = append(seen, slices.Compact(ids))
		return simpleAccount(spans, o)
	}
	s.insert(s.span(1, 1, task("a", "resolve:1")), s.span(2, 1, task("b", "resolve:1")), s.span(3, 1, task("a", "resolve:2")), s.span(4, 1, task("", "resolve:1")))
	s.pass(r, s.now())
	assert.Len(t, seen, 4, "a task of another thread, another task of the thread and a task without thread join nothing")
	seen = nil
	s.insert(s.span(5, 1, task("a", "resolve:1")), s.span(5, 2, task("a", "resolve:2")))
	s.pass(r, s.now())
	assert.Equal(t, [][]schema.TraceID{{traceID(1), traceID(3), traceID(5)}}, seen, "a trace that repeats tasks of two is accounted for with both")
}

func TestStepsThatAreTracesOfTheirOwnJoinByTheirThread(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	r.account = attribution.Account
	alone := func(at time.Duration) func(*schema.Span) {
		return func(s *schema.Span) {
			s.ThreadID, s.StartNs, s.EndNs = "t", s.StartNs-int64(at), s.EndNs-int64(at)
		}
	}
	s.insert(s.span(1, 1, alone(20*time.Minute)), s.span(2, 1, alone(10*time.Minute)), s.span(3, 1, alone(3*time.Hour)))
	assert.Equal(t, Result{Traces: 3, Runs: 2}, s.pass(r, s.now()), "the third is too long ago to belong to the others")
	s.insert(s.span(4, 1, alone(0)))
	assert.Equal(t, Result{Traces: 3, Runs: 1}, s.pass(r, s.now()), "one more step of the thread joins its run")
}

func TestInsertThatBecomesVisibleLate(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1))
	s.pass(r, s.now())
	// Another writer's insert began before and was slower.
	s.insertAsOf(s.clockUs()-5e6, s.span(1, 2))
	assert.Equal(t, 1, s.pass(r, s.now()).Traces)
	assert.Equal(t, []string{"1: traces 1, 2 attempts, unflagged"}, s.summary())
	// A content that came late without adding a span.
	s.insertAsOf(s.clockUs()-6e6, s.span(1, 2, func(s *schema.Span) { s.EndNs += 5e6; s.Failed = true }))
	assert.Equal(t, 1, s.pass(r, s.now().Add(time.Second)).Traces)
	rows := s.rows()
	assert.Equal(t, s.span(1, 2).EndNs+5e6, rows[0].Attempts[1].EndNs)
}

// Two collectors insert spans of one run within one microsecond, and a pass sees the one
// and not yet the other.
func TestInsertOfAMicrosecondThatWasReadAlready(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	us := s.clockUs() - 5e6
	s.insertAsOf(us, s.span(1, 1))
	assert.Equal(t, 1, s.pass(r, s.now()).Traces)
	s.insertAsOf(us, s.span(1, 2))
	assert.Equal(t, 1, s.pass(r, s.now().Add(time.Second)).Traces)
	assert.Equal(t, []string{"1: traces 1, 2 attempts, unflagged"}, s.summary())
}

// meanwhile is a connection on which something happens just before spans are read.
type meanwhile struct {
	driver.Conn
	happens func()
}

func (c *meanwhile) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	if c.happens != nil && strings.Contains(query, "FROM spans WHERE") && strings.Contains(query, "trace_id IN ids") {
		happens := c.happens
		c.happens = nil
		happens()
	}
	return c.Conn.Query(ctx, query, args...)
}

// An insert that becomes visible between the look at where a trace's spans lie and the
// read of them shows only those of its spans that lie there.
func TestInsertThatComesWhileItsTraceIsRead(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1), s.span(1, 3))
	s.pass(r, s.now())
	s.insert(s.span(1, 4))
	plain := s.conn
	s.conn = &meanwhile{plain, func() {
		require.NoError(t, schema.InsertSpans(t.Context(), plain, rand.Uint64, []schema.Span{s.span(1, 2), s.span(1, 9)}))
	}}
	s.pass(r, s.now())
	s.conn = plain
	s.pass(r, s.now().Add(time.Second))
	assert.Equal(t, []string{"1: traces 1, 5 attempts, unflagged"}, s.summary())
	assert.Zero(t, s.pass(r, s.now().Add(2*time.Second)).Traces, "and then all is known")
}

func TestBacklogIsWorkedOff(t *testing.T) {
	s := newStore(t)
	// Attribution was away for days: inserts of three hours of a day, one of them today.
	day := s.clockUs() - 48*3600e6
	s.insertAsOf(day, s.span(1, 1))
	s.insertAsOf(day+90e6, s.span(2, 1))
	s.insertAsOf(day+3*3600e6, s.span(3, 1))
	s.insert(s.span(4, 1))
	r := s.runner()
	passes := 0
	for behind := true; behind; passes++ {
		behind = s.pass(r, s.now()).Behind
	}
	assert.Len(t, s.summary(), 4)
	assert.Less(t, passes, 10, "silence is skipped")
	require.NoError(t, r.Record(t.Context()))
	us, err := schema.Watermark(t.Context(), s.conn)
	require.NoError(t, err)
	assert.Greater(t, us, day+3*3600e6)
}

func TestSilentRunIsOrphaned(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 2), s.span(2, 2), s.span(2, 1))
	s.pass(r, s.base.Add(time.Minute))
	assert.Equal(t, []string{"1: traces 1, 1 attempts, running", "2: traces 2, 2 attempts, unflagged"}, s.summary())
	deadline := s.base.Add(15 * time.Minute)
	assert.Len(t, s.received, 2)
	assert.Equal(t, Result{}, s.pass(r, deadline))
	assert.Equal(t, Result{Traces: 1, Runs: 1}, s.pass(r, deadline.Add(4*time.Second)))
	assert.Empty(t, s.received, "what is given up for silence came long ago, and is not late for that")
	assert.Equal(t, []string{"1: traces 1, 1 attempts, orphaned", "2: traces 2, 2 attempts, unflagged"}, s.summary())
	assert.Equal(t, Result{}, s.pass(r, deadline.Add(time.Hour)))

	s.insert(s.span(1, 1)) // the root comes after all
	s.pass(r, deadline)
	assert.Contains(t, s.summary(), "1: traces 1, 2 attempts, unflagged")
}

// A collector whose clock was ahead judged the run first. Its judgement must not
// stand in the way of the others'.
func TestJudgementOfAFastClockIsReplaced(t *testing.T) {
	s := newStore(t)
	s.insert(s.span(1, 2))
	fast := s.runner(func(c *Config) { c.OrphanAfter = 10 * time.Minute })
	s.pass(fast, s.base.Add(9*time.Minute))
	require.Equal(t, []string{"1: traces 1, 1 attempts, running"}, s.summary())
	slow := s.runner(func(c *Config) { c.OrphanAfter = time.Minute })
	// Its clock says an earlier time than that of the judgement in the ledger, and
	// its deadline is over.
	rows := s.rows()
	rows[0].RejudgeS = uint32(s.base.Add(2 * time.Minute).Unix())
	rows[0].Version.JudgedS++
	require.NoError(t, schema.InsertLedger(t.Context(), s.conn, rows))
	s.pass(slow, s.base.Add(3*time.Minute))
	assert.Equal(t, []string{"1: traces 1, 1 attempts, orphaned"}, s.summary())
}

func TestTraceThatIsNoRun(t *testing.T) {
	s := newStore(t)
	noRole := func(s *schema.Span) { s.Role = schema.RoleOther }
	s.insert(s.span(1, 1, noRole), s.span(1, 2, noRole))
	assert.Equal(t, Result{Traces: 1}, s.pass(s.runner(), s.now()))
	rows := s.rows()
	assert.Equal(t, schema.StateUnattributed, rows[0].State)
	assert.EqualValues(t, 2, rows[0].UnattributedSpans)
	assert.Empty(t, rows[0].Runs)
}

func TestFailureStaysWithItsRun(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1), s.span(2, 1, func(s *schema.Span) { s.Service = "explode" }), s.span(3, 1))
	assert.Equal(t, Result{Traces: 3, Runs: 2, Failed: 1}, s.pass(r, s.now()))
	assert.Equal(t, []string{"1: traces 1, 1 attempts, unflagged", "3: traces 3, 1 attempts, unflagged"}, s.summary())
	rows := s.rows()
	assert.Equal(t, schema.StateFailed, rows[1].State)
	entries := s.logs.FilterMessageSnippet("Attribution failed").All()
	require.Len(t, entries, 1)
	assert.Equal(t, traceID(2).String(), entries[0].ContextMap()["trace_id"])
	assert.Equal(t, Result{}, s.pass(r, s.now()), "it is not tried in vain for ever")

	// An account that speaks of what it was not given is as bad.
	r = s.runner()
	r.account = func([]schema.Span, attribution.Options) attribution.Ledger {
		return attribution.Ledger{Runs: []attribution.Run{{RunID: "x", TraceIDs: []string{traceID(99).String()}}}}
	}
	s.insert(s.span(1, 2))
	assert.Equal(t, 1, s.pass(r, s.now()).Failed)
}

func TestSpansPastRetentionDoNotShrinkTheLedger(t *testing.T) {
	s := newStore(t)
	s.insert(s.span(1, 1), s.span(1, 2), s.span(1, 3))
	s.pass(s.runner(), s.now())
	before := s.rows()
	require.NoError(t, s.conn.Exec(t.Context(), "ALTER TABLE spans DELETE WHERE span_id = unhex('0000000000000002') SETTINGS mutations_sync = 1"))
	s.insert(s.span(1, 3, func(s *schema.Span) { s.EndNs++ }))
	r := s.runner()
	assert.Equal(t, Result{Frozen: 1}, s.pass(r, s.now()))
	assert.Equal(t, before, s.rows())
	assert.Equal(t, Result{}, s.pass(r, s.now()))
}

func TestGrowingRunRests(t *testing.T) {
	s := newStore(t)
	r := s.runner(func(c *Config) { c.Interval = time.Minute })
	var spans []schema.Span
	for n := range 10_000 { // 80 ms
		spans = append(spans, s.span(1, n+2))
	}
	s.insert(spans...)
	now := s.now()
	assert.Equal(t, 1, s.pass(r, now).Traces)
	s.insert(s.span(1, 20_000))
	assert.Equal(t, Result{Deferred: 1}, s.pass(r, now.Add(100*time.Millisecond)))
	s.insert(s.span(2, 1))
	assert.Equal(t, Result{Deferred: 1, Traces: 1, Runs: 1}, s.pass(r, now.Add(700*time.Millisecond)), "others do not wait for it")
	require.NoError(t, r.Record(t.Context()))
	assert.Equal(t, Result{Traces: 1, Runs: 1}, s.pass(r, now.Add(800*time.Millisecond)))
	assert.Equal(t, "1: traces 1, 10001 attempts, running", s.summary()[0])

	// Once no span has come for an interval there is nothing to wait for.
	s.insert(s.span(1, 20_001))
	r.config.Interval = 0
	assert.Equal(t, Result{Traces: 1, Runs: 1}, s.pass(r, now.Add(800*time.Millisecond+130*time.Millisecond)))
}

func TestDeferredRunHoldsTheWatermark(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insertAsOf(s.clockUs()-120e6, s.span(1, 2))
	r.resting[traceID(1)] = rest{s.now(), time.Hour}
	assert.Equal(t, 1, s.pass(r, s.now()).Deferred)
	assert.Equal(t, 1, s.pass(r, s.now()).Deferred)
	require.NoError(t, r.Record(t.Context()))
	assert.Equal(t, 1, s.pass(s.runner(), s.now()).Traces, "a restart finds it")
}

func TestTooLargeTrace(t *testing.T) {
	s := newStore(t)
	r := s.runner(func(c *Config) { c.MaxSpansPerRun = 1000 })
	var spans []schema.Span
	for n := range 1000 {
		spans = append(spans, s.span(1, n+1))
	}
	s.insert(spans...)
	s.insert(s.span(2, 1))
	assert.Equal(t, Result{Traces: 2, Runs: 2}, s.pass(r, s.now()))
	s.insert(s.span(1, 1001), s.span(3, 1))
	now := s.now().Add(time.Hour)
	assert.Equal(t, Result{Traces: 2, Runs: 1, TooLarge: 1}, s.pass(r, now))
	rows := s.rows()
	assert.Equal(t, schema.StateTooLarge, rows[0].State)
	assert.EqualValues(t, 1001, rows[0].Spans)
	assert.Equal(t, Result{}, s.pass(r, now))
	assert.Equal(t, []string{"1: traces 1, 1000 attempts, unflagged", "2: traces 2, 1 attempts, unflagged", "3: traces 3, 1 attempts, unflagged"}, s.summary())
	assert.Equal(t, Result{}, s.pass(s.runner(func(c *Config) { c.MaxSpansPerRun = 1000 }), now))
}

func TestRunIDThatJoinsTooMuch(t *testing.T) {
	s := newStore(t)
	r := s.runner(func(c *Config) { c.MaxSpansPerRun = 1000 })
	for trace := range 3 {
		var spans []schema.Span
		for n := range 400 {
			spans = append(spans, s.span(trace+1, n+1, runID("constant")))
		}
		s.insert(spans...)
	}
	s.pass(r, s.now())
	assert.NotEmpty(t, s.logs.FilterMessageSnippet("joins more spans").All())
	attempts := 0
	for _, row := range s.rows() {
		attempts += len(row.Attempts)
	}
	assert.Equal(t, 1200, attempts, "every trace is in the ledger")
	assert.Equal(t, 0, s.pass(r, s.now()).Traces)
}

func TestStoreErrorIsTriedAgain(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1))
	require.NoError(t, s.conn.Exec(t.Context(), "RENAME TABLE ledger TO hidden"))
	_, err := r.Pass(t.Context(), s.now())
	require.Error(t, err)
	assert.True(t, schema.IsRetryable(err))
	require.NoError(t, s.conn.Exec(t.Context(), "RENAME TABLE hidden TO ledger"))
	assert.Equal(t, 1, s.pass(r, s.now()).Traces)
}

// Two attributors work on one store while writers insert. In the end the ledger is
// what one attributor alone would have written.
func TestAttributorsConverge(t *testing.T) {
	s := newStore(t)
	const traces, rounds = 40, 12
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		r := s.runner()
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := r.Pass(ctx, s.now()); err != nil && ctx.Err() == nil {
					t.Errorf("pass: %v", err)
					return
				}
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for round := range rounds {
				var spans []schema.Span
				for trace := range traces {
					// Traces 3k and 3k+1 are one run, which shows only in round 5.
					change := runID("")
					if round == 5 && trace%3 < 2 {
						change = runID(fmt.Sprint("run-", trace/3))
					}
					spans = append(spans, s.span(trace+1, 1+2*round+w, change))
				}
				if err := schema.InsertSpans(ctx, s.conn, rand.Uint64, spans); err != nil {
					t.Errorf("insert: %v", err)
				}
			}
		})
	}
	writers.Wait()
	cancel()
	wg.Wait()
	last := s.runner()
	s.pass(last, s.now())
	got := s.summary()

	require.NoError(t, s.conn.Exec(t.Context(), "TRUNCATE TABLE ledger"))
	s.pass(s.runner(), s.now())
	assert.Equal(t, s.summary(), got)
	assert.Len(t, got, 27)
	assert.Equal(t, fmt.Sprintf("run-0: traces 1+2, %d attempts, unflagged", 4*rounds), got[13])
}

// What attribution says of the spans is what the ledger says, however the spans
// came in.
func TestLedgerIsTheAccount(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	r.account = attribution.Account
	var spans []schema.Span
	for n := 2; n <= 5; n++ { // three failed calls and one that succeeded, of one step
		spans = append(spans, s.span(1, n, func(s *schema.Span) {
			s.Failed, s.ErrorClass, s.HTTPStatus = n < 5, "RateLimitError", 429
			s.InputTokens, s.OutputTokens = int64(10*n), int64(n)
		}))
	}
	spans = append(spans, s.span(1, 1, func(s *schema.Span) {
		s.Role, s.Name, s.EndNs = schema.RoleChain, "pipeline", s.EndNs+10e9
		s.Violations = []schema.Violation{{Node: "rank", Key: "deduplicated", Direction: "input", TimeNs: s.StartNs}}
	}))
	for _, span := range spans {
		s.insert(span)
		s.pass(r, s.now())
	}
	want := attribution.Account(spans, r.config.options(s.now()))
	require.Len(t, want.Runs, 1)
	require.NotEmpty(t, want.Runs[0].Steps)
	got, err := ledger.Read(t.Context(), s.conn, want.Runs[0].RunID)
	require.NoError(t, err)
	wantJSON, err := json.Marshal(want.Runs)
	require.NoError(t, err)
	gotJSON, err := json.Marshal(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(wantJSON), string(gotJSON))
	assert.Len(t, got[0].Attempts, len(want.Runs[0].Attempts))
	assert.Len(t, got[0].Operations, len(want.Runs[0].Operations))
}

// What the ledger has reached is told at once and not only when the inserts that may
// yet become visible have had their time: alerts wait for data that may be late.
func TestLagEndsWithTheAccount(t *testing.T) {
	s := newStore(t)
	r := s.runner()
	s.insert(s.span(1, 1), s.span(1, 2))
	lag, err := schema.AttributionLag(t.Context(), s.conn)
	require.NoError(t, err)
	require.Positive(t, lag)
	s.pass(r, s.now())
	lag, err = schema.AttributionLag(t.Context(), s.conn)
	require.NoError(t, err)
	require.Zero(t, lag)
}
