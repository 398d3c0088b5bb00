package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrTooManySpans is returned instead of more spans than the caller wants.
var ErrTooManySpans = errors.New("more spans than the limit")

// TraceSpans are the spans of one trace, each identity once, and what the store
// says about their inserts.
type TraceSpans struct {
	TraceID    TraceID
	Spans      []Span
	InsertedUs int64 // the newest insert, microseconds since the epoch by the store's clock
	Conflicts  int   // contents of spans beyond their first, as far as the store still holds them
	// Inserts are those whose spans of the trace were all read: token → when, microseconds
	// since the epoch by the store's clock. Empty where more came in during the read.
	Inserts map[uint64]int64
}

// SpansOfTraces reads all spans of the traces, in no order. Of two contents with
// one id it keeps the one that ends later, then the one that says more (Span.Hash). It
// returns ErrTooManySpans if the store holds more than limit rows of them.
// Traces without spans are left out.
func SpansOfTraces(ctx context.Context, conn driver.Conn, ids []TraceID, limit int) (map[TraceID]*TraceSpans, error) {
	ranges, err := traceRanges(ctx, conn, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[TraceID]*TraceSpans, len(ids))
	reader := spanReader{found: found, at: make(map[spanKey]int), limit: limit}
	for _, c := range clustered(ranges) {
		if err := reader.read(ctx, conn, c); err != nil {
			return nil, fmt.Errorf("read the spans of %d traces: %w", len(c.ids), err)
		}
	}
	grown, err := grownSince(ctx, conn, ids, ranges)
	if err != nil {
		return nil, err
	}
	for _, id := range grown {
		if t := found[id]; t != nil {
			clear(t.Inserts)
		}
	}
	return found, nil
}

// grownSince are the traces whose spans lie elsewhere than ranges said. An insert that
// became visible meanwhile shows, to a read by these ranges, only its spans within them:
// it must not count as read. Inserts write their keys first, so that the keys as they are
// after a read tell of every insert that the read may have seen.
func grownSince(ctx context.Context, conn driver.Conn, ids []TraceID, ranges []traceRange) ([]TraceID, error) {
	now, err := traceRanges(ctx, conn, ids)
	if err != nil {
		return nil, err
	}
	before := make(map[TraceID]traceRange, len(ranges))
	for _, r := range ranges {
		before[r.id] = r
	}
	var grown []TraceID
	for _, r := range now {
		if r != before[r.id] {
			grown = append(grown, r.id)
		}
	}
	return grown, nil
}

// traceRange says where the spans of a trace lie.
type traceRange struct {
	id              TraceID
	firstNs, lastNs int64 // of real ends; first > last if there are none
	bucket          bool  // some ends cannot be real
}

func traceRanges(ctx context.Context, conn driver.Conn, ids []TraceID) ([]traceRange, error) {
	hashes := make([]uint64, 0, 2*len(ids))
	for _, id := range ids {
		hashes = append(hashes, traceKey(id), bucketKey(id))
	}
	keyed, err := TracesOfKeys(ctx, conn, hashes, -1<<63, 1<<63-1, 1)
	if err != nil {
		return nil, err
	}
	at := make(map[TraceID]int, len(ids))
	var ranges []traceRange
	for _, k := range keyed {
		i, seen := at[k.TraceID]
		if !seen {
			i = len(ranges)
			at[k.TraceID] = i
			ranges = append(ranges, traceRange{id: k.TraceID, firstNs: 1, lastNs: 0})
		}
		if k.Key == traceKey(k.TraceID) {
			ranges[i].firstNs, ranges[i].lastNs = k.FirstEndNs, k.LastEndNs
		} else {
			ranges[i].bucket = true
		}
	}
	return ranges, nil
}

// cluster is a set of traces that one query reads: they lie in the same hours.
type cluster struct {
	traceRange // of all of them
	ids        []TraceID
}

// where is the condition on the time of its spans.
func (c *cluster) where() string {
	where := fmt.Sprintf("end_ns BETWEEN %d AND %d", c.firstNs, c.lastNs)
	if c.bucket {
		where = fmt.Sprintf("(%s OR end_ns < %d OR end_ns >= %d)", where, firstNs, lastNs)
	}
	return where
}

func clustered(ranges []traceRange) []cluster {
	const hourNs = 3600 * secondNs
	key := func(r traceRange) [2]int64 { return [2]int64{r.firstNs / hourNs, r.lastNs / hourNs} }
	slices.SortFunc(ranges, func(a, b traceRange) int {
		return cmp.Or(slices.Compare(sliceOf(key(a)), sliceOf(key(b))), slices.Compare(a.id[:], b.id[:]))
	})
	var clusters []cluster
	for i, r := range ranges {
		if i == 0 || key(r) != key(ranges[i-1]) {
			clusters = append(clusters, cluster{traceRange: r})
		}
		c := &clusters[len(clusters)-1]
		c.ids = append(c.ids, r.id)
		c.firstNs, c.lastNs = min(c.firstNs, r.firstNs), max(c.lastNs, r.lastNs)
		c.bucket = c.bucket || r.bucket
	}
	return clusters
}

func sliceOf(pair [2]int64) []int64 { return pair[:] }

type spanKey struct {
	trace TraceID
	span  SpanID
}

type spanReader struct {
	found map[TraceID]*TraceSpans
	at    map[spanKey]int // position in TraceSpans.Spans
	limit int
	rows  int

	contents map[spanKey]map[uint64]struct{} // hashes, of the spans that have several
}

func (r *spanReader) read(ctx context.Context, conn driver.Conn, c cluster) error {
	ids, err := idTable(c.ids)
	if err != nil {
		return err
	}
	query := "SELECT " + readList(spanColumns) + ", toUnixTimestamp64Micro(inserted_at), insert_token FROM spans" +
		" WHERE " + c.where() + " AND trace_id IN ids"
	rows, err := conn.Query(clickhouse.Context(ctx, clickhouse.WithExternalTable(ids)), query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var next Span
	var insertedUs int64
	var token uint64
	dests := make([]any, 0, len(spanColumns)+2)
	for _, c := range spanColumns {
		dests = append(dests, c.dest(&next))
	}
	dests = append(dests, &insertedUs, &token)
	for rows.Next() {
		r.rows++
		if r.rows > r.limit {
			return ErrTooManySpans
		}
		next = Span{}
		if err := rows.Scan(dests...); err != nil {
			return err
		}
		r.keep(&next, insertedUs, token)
	}
	return rows.Err()
}

func (r *spanReader) keep(s *Span, insertedUs int64, token uint64) {
	t := r.found[s.TraceID]
	if t == nil {
		t = &TraceSpans{TraceID: s.TraceID, Inserts: make(map[uint64]int64)}
		r.found[s.TraceID] = t
	}
	t.InsertedUs = max(t.InsertedUs, insertedUs)
	t.Inserts[token] = insertedUs
	i, seen := r.at[spanKey{s.TraceID, s.SpanID}]
	if !seen {
		r.at[spanKey{s.TraceID, s.SpanID}] = len(t.Spans)
		t.Spans = append(t.Spans, *s)
		return
	}
	kept := &t.Spans[i]
	switch c := cmp.Or(cmp.Compare(s.EndNs, kept.EndNs), cmp.Compare(s.ContentHash, kept.ContentHash)); {
	case c > 0:
		r.differ(t, kept, s)
		*kept = *s
	case c < 0:
		r.differ(t, kept, s)
	case c == 0:
		kept.ReceivedNs = min(kept.ReceivedNs, s.ReceivedNs)
	}
}

// differ counts the contents of one span beyond the first, each once.
func (r *spanReader) differ(t *TraceSpans, a, b *Span) {
	key := spanKey{a.TraceID, a.SpanID}
	if r.contents == nil {
		r.contents = make(map[spanKey]map[uint64]struct{})
	}
	if r.contents[key] == nil {
		r.contents[key] = map[uint64]struct{}{a.ContentHash: {}}
	}
	if _, known := r.contents[key][b.ContentHash]; !known {
		r.contents[key][b.ContentHash] = struct{}{}
		t.Conflicts++
	}
}

// idTable is a temporary table `ids` for one query.
func idTable(ids []TraceID) (*ext.Table, error) {
	table, err := ext.NewTable("ids", ext.Column("trace_id", "FixedString(16)"))
	if err != nil {
		return nil, err
	}
	for i := range ids {
		if err := table.Append(ids[i][:]); err != nil {
			return nil, err
		}
	}
	return table, nil
}

// KeyedTrace is a trace that one of the wanted keys leads to.
type KeyedTrace struct {
	Key                   uint64
	TraceID               TraceID
	FirstEndNs, LastEndNs int64 // of its spans that carry the key
	GraphRoot             bool  // one of its spans that carry the key is a graph's own root
}

// TracesOfKeys finds the traces of each key that have spans between the two
// ends, at most limit for each key, the latest first.
func TracesOfKeys(ctx context.Context, conn driver.Conn, keys []uint64, firstEndNs, lastEndNs int64, limit int) ([]KeyedTrace, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	fail := func(err error) ([]KeyedTrace, error) {
		return nil, fmt.Errorf("find the traces of %d keys: %w", len(keys), err)
	}
	table, err := ext.NewTable("keys", ext.Column("key_hash", "UInt64"))
	if err != nil {
		return fail(err)
	}
	for _, k := range keys {
		if err := table.Append(k); err != nil {
			return fail(err)
		}
	}
	rows, err := conn.Query(clickhouse.Context(ctx, clickhouse.WithExternalTable(table)), fmt.Sprintf(
		"SELECT key_hash, trace_id, min(first_end_ns) AS first_ns, max(last_end_ns) AS last_ns, max(graph_root) AS root FROM run_keys"+
			" WHERE key_hash IN keys GROUP BY key_hash, trace_id HAVING last_ns >= %d AND first_ns <= %d"+
			" ORDER BY last_ns DESC, trace_id LIMIT %d BY key_hash", firstEndNs, lastEndNs, limit))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	var found []KeyedTrace
	for rows.Next() {
		var k KeyedTrace
		var root uint8
		if err := rows.Scan(&k.Key, &k.TraceID, &k.FirstEndNs, &k.LastEndNs, &root); err != nil {
			return fail(err)
		}
		k.GraphRoot = root != 0
		found = append(found, k)
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return found, nil
}

// TraceSummary is what the store says about a trace without reading its spans.
type TraceSummary struct {
	TraceSpans
	SpanCount             int64 // distinct spans
	FirstEndNs, LastEndNs int64
	LastReceivedNs        int64
}

// SummaryOfTrace reads the summary of a trace; its Spans stay empty.
func SummaryOfTrace(ctx context.Context, conn driver.Conn, id TraceID) (TraceSummary, error) {
	summary := TraceSummary{TraceSpans: TraceSpans{TraceID: id, Inserts: make(map[uint64]int64)}}
	fail := func(err error) (TraceSummary, error) {
		return summary, fmt.Errorf("summarise trace %s: %w", id, err)
	}
	ranges, err := traceRanges(ctx, conn, []TraceID{id})
	if err != nil {
		return fail(err)
	}
	for _, c := range clustered(ranges) {
		var count uint64
		var tokens []uint64
		var times []int64
		err := conn.QueryRow(ctx, "SELECT uniqExact(span_id), min(end_ns), max(end_ns), max(received_ns), max(toUnixTimestamp64Micro(inserted_at)),"+
			" arrayMap(i -> i.1, groupUniqArray((insert_token, toUnixTimestamp64Micro(inserted_at))) AS inserts), arrayMap(i -> i.2, inserts)"+
			" FROM spans WHERE "+c.where()+" AND trace_id = unhex(?)", id.String()).
			Scan(&count, &summary.FirstEndNs, &summary.LastEndNs, &summary.LastReceivedNs, &summary.InsertedUs, &tokens, &times)
		if err != nil {
			return fail(err)
		}
		summary.SpanCount = int64(count)
		for i, token := range tokens {
			summary.Inserts[token] = times[i]
		}
	}
	grown, err := grownSince(ctx, conn, []TraceID{id}, ranges)
	if err != nil {
		return fail(err)
	}
	if len(grown) > 0 {
		clear(summary.Inserts)
	}
	return summary, nil
}
