package schema

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// merges starts or stops the merges of this test's tables.
func merges(t *testing.T, conn driver.Conn, verb string) {
	t.Helper()
	for _, table := range []string{"spans", "run_keys", "ledger", "usage_hours"} {
		require.NoError(t, conn.Exec(t.Context(), "SYSTEM "+verb+" MERGES "+table))
	}
}

// parts is how many active parts a table has.
func parts(t *testing.T, conn driver.Conn, table string) (n uint64) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count() FROM system.parts WHERE active AND database = currentDatabase() AND table = ?", table).Scan(&n))
	return n
}

// Thousands of copies that nothing has merged: a sender that repeats itself, inserts
// whose answers were lost, and merges that are stopped. Every read shows each span once,
// with them and without, and so do the sums that are built over the ledger.
func TestCopiesThatNothingMergesCountOnce(t *testing.T) {
	db := migrated(t)
	merges(t, db.Conn, "STOP")
	const spans, copies = 200, 12
	random := rand.New(rand.NewPCG(1, 2))
	var all []Span
	for n := range spans {
		s := plainSpan(n)
		s.TraceID, s.InputTokens = TraceID{1}, int64(n)
		all = append(all, s)
	}
	row := usageRow(1, 7, "a", 2, 0, 1)
	for n := range copies { // in other batches each time
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for batch := range slices.Chunk(all, spans/8+random.IntN(spans)) {
			require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, batch))
		}
		replace(t, t, db.Conn, row)
		if n%5 == 1 {
			_, err := BuildUsageHours(t.Context(), db.Conn, 0, 100)
			require.NoError(t, err)
		}
	}
	check := func(when string) {
		found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{{1}}, 2*spans*copies)
		require.NoError(t, err)
		require.Len(t, found[TraceID{1}].Spans, spans, when)
		assert.Zero(t, found[TraceID{1}].Conflicts, when)
		tokens := int64(0)
		for _, s := range found[TraceID{1}].Spans {
			tokens += s.InputTokens
		}
		assert.EqualValues(t, spans*(spans-1)/2, tokens, when)
		summary, err := SummaryOfTrace(t.Context(), db.Conn, TraceID{1})
		require.NoError(t, err)
		assert.EqualValues(t, spans, summary.SpanCount, when)
		var final, attempts, runs uint64
		require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&final))
		require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT (SELECT count() FROM attempts), (SELECT count() FROM runs)").Scan(&attempts, &runs))
		assert.Equal(t, []uint64{spans, uint64(len(row.Attempts)), 1}, []uint64{final, attempts, runs}, when)
		withHours, without := usageSums(t, t, db.Conn, noon, noon+12*hourNs)
		assert.Equal(t, without, withHours, when)
		assert.NotEmpty(t, withHours["runs"])
	}
	require.Greater(t, parts(t, db.Conn, "spans"), uint64(copies))
	check("with all copies")
	merges(t, db.Conn, "START")
	for _, table := range []string{"spans", "run_keys", "ledger", "usage_hours"} {
		require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE "+table+" FINAL"))
	}
	check("when all are merged")
}

// Two contents of one span that end at the same nanosecond: one of them, the same one in
// whatever order they came, before merges and after.
func TestTwoVersionsOfOneInstantGiveOneAnswer(t *testing.T) {
	db := migrated(t)
	merges(t, db.Conn, "STOP")
	version := func(order int, hash uint64, name string) Span {
		s := plainSpan(1)
		s.TraceID, s.ContentHash, s.Name = TraceID{byte(order)}, hash, name
		return s
	}
	for order, names := range [][]string{{"says less", "says more"}, {"says more", "says less"}, {"says more", "says less", "says more"}} {
		for _, name := range names {
			hash := uint64(5)
			if name == "says more" {
				hash = 6
			}
			require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{version(order+1, hash, name)}))
		}
	}
	check := func(when string) {
		for order := 1; order <= 3; order++ {
			id := TraceID{byte(order)}
			found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{id}, 10)
			require.NoError(t, err)
			require.Len(t, found[id].Spans, 1, when)
			assert.Equal(t, "says more", found[id].Spans[0].Name, when)
		}
		var final, right uint64
		require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count(), countIf(name = 'says more') FROM spans FINAL").Scan(&final, &right))
		assert.Equal(t, []uint64{3, 3}, []uint64{final, right}, when)
	}
	check("with all versions")
	merges(t, db.Conn, "START")
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	check("when they are merged")
}

// A root that came in one batch and its children in others: rows that share a trace are
// no versions of each other, and merging takes none of them away.
func TestPartsOfATraceAreNotMergedAway(t *testing.T) {
	db := migrated(t)
	id := TraceID{4}
	for n := range 10 {
		s := plainSpan(n)
		s.TraceID, s.EndNs = id, noon // all in one minute
		if n > 0 {
			s.ParentID = SpanID{1}
		}
		require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{s}))
	}
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{id}, 100)
	require.NoError(t, err)
	assert.Len(t, found[id].Spans, 10)
}

// An insert of which the server does not know whether it happened is made again: its
// rows count once in any case. So is one that the server's state is in the way of.
func TestWhatMayHaveHappenedIsRetryable(t *testing.T) {
	for code, retryable := range map[int32]bool{
		319: true,  // UNKNOWN_STATUS_OF_INSERT
		209: true,  // SOCKET_TIMEOUT
		210: true,  // NETWORK_ERROR
		241: true,  // MEMORY_LIMIT_EXCEEDED
		243: true,  // NOT_ENOUGH_SPACE
		252: true,  // TOO_MANY_PARTS
		60:  true,  // UNKNOWN_TABLE
		202: true,  // TOO_MANY_SIMULTANEOUS_QUERIES
		321: false, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
		131: false, // TOO_LARGE_STRING_SIZE
	} {
		err := classified(fmt.Errorf("insert: %w", &proto.Exception{Code: code}))
		assert.Equal(t, retryable, IsRetryable(err), code)
	}
}

// A trickle of small inserts makes no heap of parts. Each insert of the native protocol
// is a part, whatever async_insert says, so the store must merge them as they come.
func TestATrickleMakesNoHeapOfParts(t *testing.T) {
	db := migrated(t)
	const inserts = 60
	for n := range inserts {
		require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(n)}))
	}
	for _, table := range []string{"spans", "run_keys"} {
		require.Eventually(t, func() bool { return parts(t, db.Conn, table) <= 12 }, time.Minute, 100*time.Millisecond, table)
	}
	var final uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&final))
	assert.EqualValues(t, inserts, final)
}
