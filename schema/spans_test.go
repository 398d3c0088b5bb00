package schema

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fillSpan draws a value for every field, so that a field that is added to Span
// and forgotten in the table fails the test.
func fillSpan(t *rapid.T, v reflect.Value, label string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillSpan(t, v.Field(i), label+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 2).Draw(t, label+" length")
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range n {
			fillSpan(t, v.Index(i), fmt.Sprintf("%s[%d]", label, i))
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, label)))
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 5, 20).Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int8:
		v.SetInt(int64(rapid.Int8Range(-1, 1).Draw(t, label)))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32Range(-1, math.MaxInt32).Draw(t, label)))
	case reflect.Int64:
		v.SetInt(rapid.Int64Min(-1).Draw(t, label))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, label))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN())).Draw(t, label))
	default:
		t.Fatalf("%s: a field of type %s is new here", label, v.Type())
	}
}

func TestSpanThroughTheStoreAndBack(t *testing.T) {
	db := migrated(t)
	drawn := rapid.Custom(func(t *rapid.T) Span {
		var span Span
		fillSpan(t, reflect.ValueOf(&span).Elem(), "span")
		span.ReceivedNs = noon // or its retention would end
		// Any end is taken, real or not.
		span.EndNs = rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, firstNs - 1, firstNs, noon, lastNs - 1, lastNs, math.MaxInt64}).Draw(t, "end")
		return span
	})
	var spans []Span
	var ids []TraceID
	for i := range 300 { // one insert of many is quicker than many of one
		span := drawn.Example(i)
		span.TraceID = TraceID{byte(i >> 8), byte(i)}
		spans = append(spans, span)
		ids = append(ids, span.TraceID)
	}
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	found, err := SpansOfTraces(t.Context(), db.Conn, ids, len(spans))
	require.NoError(t, err)
	for _, want := range spans {
		require.Len(t, found[want.TraceID].Spans, 1)
		got := found[want.TraceID].Spans[0]
		if math.IsNaN(want.CostUSD) && math.IsNaN(got.CostUSD) {
			want.CostUSD, got.CostUSD = 0, 0
		}
		require.Equal(t, want, got)
	}
}

func TestLaterEndThenLargerHashWins(t *testing.T) {
	base := plainSpan(1)
	version := func(endNs int64, hash uint64, name string, receivedNs int64) Span {
		s := base
		s.EndNs, s.ContentHash, s.Name, s.ReceivedNs = endNs, hash, name, receivedNs
		return s
	}
	day := dayNs
	winner := version(base.EndNs+day, 5, "winner", noon+5)
	losers := []Span{
		version(base.EndNs, 9, "earlier", noon+9),
		version(base.EndNs+day, 4, "smaller hash", noon+9),
		version(0, 99, "not real", noon+9),
		winner, // again
	}
	db := migrated(t)
	check := func(when string) {
		for order := range len(losers) + 1 {
			id := TraceID{byte(order + 1)}
			found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{id}, 100)
			require.NoError(t, err)
			require.Len(t, found[id].Spans, 1)
			assert.Equal(t, "winner", found[id].Spans[0].Name, "inserted at place %d, %s", order, when)
			var name string
			require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT name FROM spans FINAL WHERE trace_id = unhex(?) ORDER BY version DESC LIMIT 1 BY trace_id, span_id", id.String()).Scan(&name))
			assert.Equal(t, "winner", name, "SQL decides the same")
		}
	}
	for order := range len(losers) + 1 {
		for _, s := range slices.Concat(losers[:order], []Span{winner}, losers[order:]) {
			s.TraceID = TraceID{byte(order + 1)}
			require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{s}))
		}
	}
	check("as inserted")
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	check("merged")
}

func TestInsertOverManyDays(t *testing.T) {
	db := migrated(t)
	var spans []Span
	for n := range 2*maxInsertPartitions + 1 {
		s := plainSpan(n)
		s.EndNs = noon - int64(n)*dayNs
		s.TraceID = TraceID{1}
		spans = append(spans, s)
	}
	before := append([]Span{}, spans...)
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	assert.Equal(t, fmt.Sprint(before), fmt.Sprint(spans), "the caller's slice is as it was")
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{{1}}, 1000)
	require.NoError(t, err)
	assert.Len(t, found[TraceID{1}].Spans, 2*maxInsertPartitions+1)
}

func TestEndsThatCannotBeRealShareOnePartition(t *testing.T) {
	db := migrated(t)
	var spans []Span
	for i, end := range []int64{math.MinInt64, -1, 0, firstNs - 1, lastNs, math.MaxInt64, firstNs, lastNs - 1} {
		s := plainSpan(i)
		s.EndNs = end
		spans = append(spans, s)
	}
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	var partitions, bucket uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT uniqExact(_partition_id), countIf(_partition_id = '19700101') FROM spans").Scan(&partitions, &bucket))
	assert.EqualValues(t, 3, partitions)
	assert.EqualValues(t, 6, bucket)
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{spans[0].TraceID}, 100)
	require.NoError(t, err)
	assert.Len(t, found[spans[0].TraceID].Spans, len(spans))
	// The table's own expression and BoundedEnd say the same.
	rows, err := db.Conn.Query(t.Context(), "SELECT end_ns, received_ns, end_bounded_ns FROM spans")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var end, received, bounded int64
		require.NoError(t, rows.Scan(&end, &received, &bounded))
		assert.Equal(t, BoundedEnd(end, received), bounded)
	}
	require.NoError(t, rows.Err())
}

func TestReadIsBounded(t *testing.T) {
	db := migrated(t)
	spans := []Span{plainSpan(1), plainSpan(2), plainSpan(3)}
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	_, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{spans[0].TraceID}, 2)
	require.ErrorIs(t, err, ErrTooManySpans)
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{spans[0].TraceID, {9}}, 3)
	require.NoError(t, err)
	assert.Len(t, found, 1, "a trace without spans is left out")
	summary, err := SummaryOfTrace(t.Context(), db.Conn, spans[0].TraceID)
	require.NoError(t, err)
	assert.EqualValues(t, 3, summary.SpanCount)
	assert.Equal(t, found[spans[0].TraceID].Inserts, summary.Inserts)
	assert.Equal(t, found[spans[0].TraceID].InsertedUs, summary.InsertedUs)
	assert.Equal(t, spans[2].EndNs, summary.LastEndNs)
}

func TestTracesOfKeys(t *testing.T) {
	db := migrated(t)
	var spans []Span
	for n := range 5 {
		s := plainSpan(n)
		s.TraceID = TraceID{byte(n + 1)}
		s.RunID, s.ThreadID, s.TaskKey = "job-1", "thread-1", fmt.Sprint("task:", n%2)
		s.EndNs = noon + int64(n)*1e9
		spans = append(spans, s)
	}
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	run, task, alone := spans[0].JoinKeys()
	assert.Zero(t, alone, "a span with a run id is found by it")
	found, err := TracesOfKeys(t.Context(), db.Conn, []uint64{run}, noon+1e9, noon+3e9, 2)
	require.NoError(t, err)
	require.Len(t, found, 2, "at most so many, the latest first")
	assert.Equal(t, TraceID{4}, found[0].TraceID)
	assert.Equal(t, TraceID{3}, found[1].TraceID)
	found, err = TracesOfKeys(t.Context(), db.Conn, []uint64{task}, math.MinInt64, math.MaxInt64, 10)
	require.NoError(t, err)
	assert.Len(t, found, 3)
}

func TestRunKeysAreScoped(t *testing.T) {
	base := Span{Service: "a", Environment: "prod", RunID: "1", ThreadID: "1", TaskKey: "1"}
	keys := base.RunKeys()
	require.Len(t, keys, 3)
	assert.Len(t, map[uint64]bool{keys[0]: true, keys[1]: true, keys[2]: true}, 3, "a run, a thread and a task of one name are three keys")
	for name, change := range map[string]func(*Span){
		"service":     func(s *Span) { s.Service = "b" },
		"environment": func(s *Span) { s.Environment = "test" },
		"boundary":    func(s *Span) { s.Service, s.Environment = "apr", "od" },
	} {
		other := base
		change(&other)
		for i, key := range other.RunKeys() {
			assert.NotEqual(t, keys[i], key, name)
		}
	}
	otherThread := base
	otherThread.ThreadID = "2"
	assert.NotEqual(t, keys[2], otherThread.RunKeys()[2], "a task belongs to its thread")
	assert.Empty(t, (&Span{Service: "a", TaskKey: "1", GraphStep: 2}).RunKeys())
	assert.Empty(t, (&Span{Service: "a", TaskKey: "1", GraphStep: -1}).RunKeys())
	assert.Len(t, (&Span{Service: "a", TaskKey: "1", GraphStep: 1}).RunKeys(), 1, "a graph's first step leads to another view of the run")
}

func TestStepsThatAreTracesOfTheirOwnAreFoundByTheirThread(t *testing.T) {
	call := Span{Service: "a", ThreadID: "1", Role: RoleModel}
	_, _, alone := call.JoinKeys()
	assert.NotZero(t, alone)
	assert.Contains(t, call.RunKeys(), alone)
	for name, change := range map[string]func(*Span){
		"not a root":        func(s *Span) { s.ParentID = SpanID{1} },
		"no thread":         func(s *Span) { s.ThreadID = "" },
		"a run id":          func(s *Span) { s.RunID = "r" },
		"a pipeline's root": func(s *Span) { s.Role, s.GraphRoot = RoleChain, true },
		"an agent":          func(s *Span) { s.Role = RoleChain },
	} {
		other := call
		change(&other)
		assert.False(t, other.StandsAlone(), name)
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	db := migrated(t)
	assert.False(t, IsRetryable(nil))
	assert.True(t, IsRetryable(errors.New("connection refused")))

	require.NoError(t, db.Conn.Exec(t.Context(), "RENAME TABLE spans TO hidden"))
	err := InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(1)})
	require.Error(t, err)
	assert.True(t, IsRetryable(err), "a table can come back: %v", err)
	require.NoError(t, db.Conn.Exec(t.Context(), "RENAME TABLE hidden TO spans"))

	// Rows that the store will never take.
	err = insert(t.Context(), db.Conn, "ledger", []column[LedgerRow]{
		nested("steps.step", func(r *LedgerRow) *[]StepRow { return &r.Steps }, func(s *StepRow) *string { return &s.Step }),
		nested("steps.calls", func(r *LedgerRow) *[]RunRow { return &r.Runs }, func(s *RunRow) *int64 { return &s.Spans }),
	}, []LedgerRow{{Steps: make([]StepRow, 2), Runs: make([]RunRow, 1)}})
	require.Error(t, err)
	assert.False(t, IsRetryable(err), "%v", err)

	require.NoError(t, db.Conn.Close())
	err = InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(1)})
	require.Error(t, err)
	assert.True(t, IsRetryable(err))
}

func TestDirtyTracesByInsert(t *testing.T) {
	db := migrated(t)
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(1)}))
	first, err := Clock(t.Context(), db.Conn)
	require.NoError(t, err)
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(2), plainSpan(200)}))
	all, err := DirtyTraces(t.Context(), db.Conn, 0, math.MaxInt64)
	require.NoError(t, err)
	require.Len(t, all, 2)
	after, err := DirtyTraces(t.Context(), db.Conn, first, math.MaxInt64)
	require.NoError(t, err)
	require.Len(t, after, 2)
	before, err := DirtyTraces(t.Context(), db.Conn, 0, first)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.Len(t, before[0].Tokens, 1)
	for _, d := range all {
		if d.TraceID == before[0].TraceID {
			assert.Len(t, d.Tokens, 2)
			assert.Contains(t, d.Tokens, before[0].Tokens[0])
		}
	}
	next, err := NextInsert(t.Context(), db.Conn, first)
	require.NoError(t, err)
	assert.Equal(t, after[0].FirstInsertedUs, next)
	next, err = NextInsert(t.Context(), db.Conn, time.Now().Add(time.Hour).UnixMicro())
	require.NoError(t, err)
	assert.Zero(t, next)
}

// tokensOf are the names of the inserts that brought spans of a trace.
func tokensOf(t *testing.T, conn driver.Conn, id TraceID) (tokens []uint64) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT arraySort(groupUniqArray(insert_token)) FROM spans WHERE trace_id = unhex(?)", id.String()).Scan(&tokens))
	return tokens
}

// Two collectors may insert within one microsecond. What the one brought must not pass
// for what the other did.
func TestInsertsOfOneMicrosecondAreToldApart(t *testing.T) {
	db := migrated(t)
	for n := range 2 {
		require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(n)}))
	}
	require.NoError(t, db.Conn.Exec(t.Context(), "ALTER TABLE spans UPDATE inserted_at = toDateTime64('2026-03-01 12:00:00', 6, 'UTC') WHERE 1 SETTINGS mutations_sync = 1"))
	dirty, err := DirtyTraces(t.Context(), db.Conn, 0, math.MaxInt64)
	require.NoError(t, err)
	require.Len(t, dirty, 1)
	assert.Equal(t, dirty[0].FirstInsertedUs, dirty[0].LastInsertedUs)
	assert.Len(t, dirty[0].Tokens, 2)

	// Blocks of one call become visible one by one, and so do the days of one block.
	var spans []Span
	for n := range maxInsertPartitions + 1 {
		s := plainSpan(n)
		s.EndNs, s.TraceID = noon-int64(n)*dayNs, TraceID{9}
		spans = append(spans, s)
	}
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	assert.Len(t, tokensOf(t, db.Conn, TraceID{9}), len(spans))
	zero := func() uint64 { return 0 }
	require.NoError(t, InsertSpans(t.Context(), db.Conn, zero, []Span{plainSpan(1)}))
	var unnamed uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM spans WHERE insert_id = 0").Scan(&unnamed))
	assert.Zero(t, unnamed, "0 is kept for collectors of earlier releases")
}
