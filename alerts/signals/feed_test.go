package signals_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

func migrated(t testing.TB) *enginetest.DB {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(context.Background(), db.Conn, schema.MigrateOptions{}))
	return db
}

// documented are the queries of docs/signals.md, by their signals.
func documented(t *testing.T) map[signals.Signal]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/signals.md")
	require.NoError(t, err)
	found := make(map[signals.Signal]string)
	for _, m := range regexp.MustCompile("(?s)\n### (\\w+)\n(.*?)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found[signals.Signal(m[1])] = m[3]
	}
	for _, s := range signals.All() {
		require.NotEmpty(t, found[s], "docs/signals.md defines %s", s)
	}
	require.Len(t, found, len(signals.All()))
	return found
}

// asked asks a documented query.
func asked(t *testing.T, conn driver.Conn, q signals.Query, query string) []signals.Sample {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, clickhouse.Named("to", q.ToNs), clickhouse.Named("window", q.WindowNs))
	require.NoError(t, err, query)
	defer func() { _ = rows.Close() }()
	var samples []signals.Sample
	columns := rows.Columns()
	for rows.Next() {
		values := make(map[string]*string)
		numbers := make([]any, 0, 2)
		dests := make([]any, len(columns))
		for i, kind := range rows.ColumnTypes() {
			if strings.HasSuffix(kind.DatabaseTypeName(), "Int64") {
				if kind.DatabaseTypeName() == "Int64" {
					dests[i] = new(int64)
				} else {
					dests[i] = new(uint64)
				}
				numbers = append(numbers, dests[i])
			} else {
				values[columns[i]] = new(string)
				dests[i] = values[columns[i]]
			}
		}
		require.NoError(t, rows.Scan(dests...))
		var s signals.Sample
		for _, d := range q.Signal.Dimensions() {
			s.Labels = s.Labels.With(d, *values[string(d)])
		}
		for i, to := range []*int64{&s.Numerator, &s.Denominator} {
			switch n := numbers[i].(type) {
			case *int64:
				*to = *n
			case *uint64:
				*to = int64(*n)
			}
		}
		samples = append(samples, s)
	}
	require.NoError(t, rows.Err())
	slices.SortFunc(samples, func(a, b signals.Sample) int { return a.Labels.Compare(b.Labels) })
	return samples
}

// sameAsTheViews compares every signal, by all its dimensions, with its documented
// query, at some instants.
func sameAsTheViews(t *testing.T, conn driver.Conn, c *signals.Cache) (found int64) {
	t.Helper()
	queries := documented(t)
	to := c.UpTo() / 1e6
	for back, seconds := range map[int64]int64{0: 60, 7: 5} {
		for _, s := range signals.All() {
			q := signals.Query{Signal: s, ToNs: (to - back) * second, WindowNs: seconds * second, GroupBy: s.Dimensions()}
			samples := window(t, c, q)
			assert.Equal(t, asked(t, conn, q, queries[s]), samples, "%s of the %d s until %d", s, seconds, to-back)
			for _, sample := range samples {
				found += sample.Numerator
			}
		}
	}
	return found
}

func read(t *testing.T, f *signals.Feed, conn driver.Conn) signals.Progress {
	t.Helper()
	p, err := f.Read(t.Context(), conn)
	require.NoError(t, err)
	return p
}

func clock(t testing.TB, conn driver.Conn) int64 {
	t.Helper()
	us, err := schema.Clock(context.Background(), conn)
	require.NoError(t, err)
	return us
}

// What the feed and the cache say at an instant is what the views say, however the
// rows came: replaced, repeated, late, and wherever a new feed begins.
func TestFeedSaysWhatTheViewsSay(t *testing.T) {
	db := migrated(t)
	cache := signals.NewCache(everything(time.Minute), signals.Limits{})
	feed := signals.NewFeed(cache)
	read(t, feed, db.Conn)
	var younger []*signals.Cache
	var feeds []*signals.Feed
	draw := rapid.Custom(func(t *rapid.T) []schema.LedgerRow {
		var rows []schema.LedgerRow
		for range rapid.IntRange(10, 60).Draw(t, "rows") {
			row := drawnRow(t, -rapid.Int64Range(0, 20*second).Draw(t, "age"), 60*second)
			row.TraceID = schema.TraceID{rapid.Byte().Draw(t, "trace")}
			rows = append(rows, row)
		}
		return rows
	})
	found := int64(0)
	for i := range 4 {
		now := clock(t, db.Conn)
		rows := draw.Example(i)
		for j := range rows {
			moved(&rows[j], now*1000)
			rows[j].Version = schema.LedgerVersion{InsertedUs: rows[j].LastReceivedNs / 1000, Spans: uint32(100*i + j)}
		}
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows[:len(rows)/3]), "again")
		read(t, feed, db.Conn)
		found += sameAsTheViews(t, db.Conn, cache)
		if i == 2 {
			younger = append(younger, signals.NewCache(everything(time.Minute), signals.Limits{}))
			feeds = append(feeds, signals.NewFeed(younger[len(younger)-1]))
		}
		for j, f := range feeds {
			read(t, f, db.Conn)
			found += sameAsTheViews(t, db.Conn, younger[j])
		}
	}
	assert.Greater(t, found, int64(500), "something was counted")
}

// moved shifts all times of a row that was drawn around 0.
func moved(row *schema.LedgerRow, byNs int64) {
	row.LastReceivedNs += byNs
	row.FirstEndNs, row.LastEndNs = row.LastReceivedNs, 0
	move := func(ns *int64) {
		*ns += byNs
		bounded := schema.BoundedEnd(*ns, row.LastReceivedNs)
		row.FirstEndNs, row.LastEndNs = min(row.FirstEndNs, bounded), max(row.LastEndNs, bounded)
	}
	for i := range row.Runs {
		move(&row.Runs[i].EndNs)
	}
	for i := range row.Operations {
		move(&row.Operations[i].EndNs)
	}
	for i := range row.Attempts {
		move(&row.Attempts[i].EndNs)
	}
	for i := range row.Violations {
		move(&row.Violations[i].TimeNs)
	}
}

// Real applications, through attribution, the store and the feed.
func TestFeedOfRealApplications(t *testing.T) {
	db := migrated(t)
	now := clock(t, db.Conn) * 1000
	var all []schema.LedgerRow
	var events []signals.Event
	for i, capture := range capturetest.All(t) {
		_, rows := captured(t, capture)
		last := int64(0)
		for j := range rows {
			last = max(last, rows[j].LastReceivedNs)
		}
		for j := range rows {
			moved(&rows[j], now-last-int64(i%40)*second/4)
			events = append(events, signals.Events(&rows[j])...)
		}
		all = append(all, rows...)
	}
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, all))
	cache := signals.NewCache(everything(time.Hour), signals.Limits{})
	read(t, signals.NewFeed(cache), db.Conn)
	to := (now/second + 5) * second
	for _, s := range signals.All() {
		var want signals.Sample
		for _, e := range events {
			if waits := e.Unsettled && e.AtNs+10*second > to; e.Signal == s && !waits {
				want.Numerator += e.Numerator
				want.Denominator += e.Denominator
			}
		}
		q := signals.Query{Signal: s, ToNs: to, WindowNs: 3600 * second}
		assert.Equal(t, []signals.Sample{want}, window(t, cache, q), s)
	}
	sameAsTheViews(t, db.Conn, cache)
}

// writeLate writes rows as an insert does that became visible only after a while.
func writeLate(t *testing.T, conn driver.Conn, by time.Duration, rows ...schema.LedgerRow) {
	t.Helper()
	require.NoError(t, conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS late AS ledger"))
	require.NoError(t, conn.Exec(t.Context(), "RENAME TABLE ledger TO current, late TO ledger"))
	require.NoError(t, schema.InsertLedger(t.Context(), conn, rows))
	require.NoError(t, conn.Exec(t.Context(), "RENAME TABLE ledger TO late, current TO ledger"))
	require.NoError(t, conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO ledger SELECT * REPLACE (written_at - toIntervalMillisecond(%d) AS written_at) FROM late", by.Milliseconds())))
	require.NoError(t, conn.Exec(t.Context(), "TRUNCATE TABLE late"))
}

func TestFeedFindsWhatBecameVisibleLate(t *testing.T) {
	db := migrated(t)
	cache := signals.NewCache(everything(time.Minute), signals.Limits{})
	feed := signals.NewFeed(cache)
	read(t, feed, db.Conn)
	visit := func(trace byte, outcome string) schema.LedgerRow {
		us := clock(t, db.Conn)
		row := oneVisit(trace, us, us*1000-2*second, outcome, true)
		row.Runs = []schema.RunRow{{RunID: "run", Service: "shop"}}
		row.FirstEndNs, row.LastEndNs = row.Operations[0].EndNs, row.Operations[0].EndNs
		return row
	}
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{visit(1, "handled")}))
	assert.Equal(t, 1, read(t, feed, db.Conn).Rows)
	assert.Zero(t, read(t, feed, db.Conn).Rows, "what was read is not read again")
	writeLate(t, db.Conn, 5*time.Second, visit(2, "handled"))
	assert.Equal(t, 1, read(t, feed, db.Conn).Rows)
	assert.Equal(t, [2]int64{2, 2}, failures(t, cache, cache.UpTo()/1e6, 60))
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{visit(1, "succeeded_after_retry")}))
	read(t, feed, db.Conn)
	assert.Equal(t, [2]int64{1, 2}, failures(t, cache, cache.UpTo()/1e6, 60), "a late span made a failure a success")
	sameAsTheViews(t, db.Conn, cache)
}

// A trace that joins the run of another loses its own run and moves its operations.
func TestFeedFollowsJoinedRuns(t *testing.T) {
	db := migrated(t)
	cache := signals.NewCache(everything(time.Minute), signals.Limits{})
	feed := signals.NewFeed(cache)
	us := clock(t, db.Conn)
	row := func(trace byte, version int64, service string, anchor bool) schema.LedgerRow {
		r := oneVisit(trace, version, us*1000-second, "handled", true)
		r.Runs = []schema.RunRow{{RunID: service, Service: service, Anchor: anchor, Completion: "incomplete", EndNs: us*1000 - second}}
		r.FirstEndNs, r.LastEndNs = r.Operations[0].EndNs, r.Operations[0].EndNs
		return r
	}
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{row(1, us, "first", true), row(2, us, "second", true)}))
	read(t, feed, db.Conn)
	read(t, feed, db.Conn)
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{row(1, us+1, "first", true), row(2, us+1, "first", false)}))
	read(t, feed, db.Conn)
	q := signals.Query{Signal: signals.OperationErrorRatio, ToNs: cache.UpTo() / 1e6 * second, WindowNs: 60 * second, GroupBy: []signals.Dimension{signals.Service}}
	assert.Equal(t, []signals.Sample{{Labels: signals.Labels{Service: "first"}, Numerator: 2, Denominator: 2}}, window(t, cache, q))
	q.Signal = signals.IncompleteRunRatio
	assert.Equal(t, []signals.Sample{{Labels: signals.Labels{Service: "first"}, Numerator: 1, Denominator: 1}}, window(t, cache, q))
	sameAsTheViews(t, db.Conn, cache)
}

// While the store is away the cache says how far it had come, and goes on from there.
func TestFeedOutlivesTheStore(t *testing.T) {
	db := migrated(t)
	cache := signals.NewCache(everything(time.Minute), signals.Limits{})
	feed := signals.NewFeed(cache)
	broken, err := clickhouse.Open(db.Options)
	require.NoError(t, err)
	require.NoError(t, broken.Close())
	_, err = feed.Read(t.Context(), broken)
	require.Error(t, err)
	assert.Zero(t, cache.UpTo())
	us := clock(t, db.Conn)
	row := oneVisit(1, us, us*1000, "handled", true)
	row.FirstEndNs, row.LastEndNs = us*1000, us*1000
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{row}))
	p := read(t, feed, db.Conn)
	assert.Equal(t, p.UpToUs, cache.UpTo())
	assert.GreaterOrEqual(t, cache.UpTo(), us)
	_, err = feed.Read(t.Context(), broken)
	require.Error(t, err)
	assert.Equal(t, p.UpToUs, cache.UpTo(), "what it says is as old as the last read that succeeded")
	row = oneVisit(2, us, us*1000, "handled", true)
	row.FirstEndNs, row.LastEndNs = us*1000, us*1000
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{row}))
	read(t, feed, db.Conn)
	assert.Equal(t, [2]int64{2, 2}, failures(t, cache, cache.UpTo()/1e6+1, 60))
}
