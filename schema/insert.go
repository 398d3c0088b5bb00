package schema

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

const (
	// maxInsertRows bounds one block: what a crash can leave half visible, and
	// memory on both sides.
	maxInsertRows = 50_000
	// maxInsertPartitions is ClickHouse's own default limit for one block; more is error 252.
	maxInsertPartitions = 100

	secondNs = int64(time.Second)
	dayNs    = 24 * 3600 * secondNs
)

// firstNs and lastNs bound the ends that are taken for real: 2020 to 2100, as
// the tables' own expressions have them.
var (
	firstNs = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	lastNs  = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

// InsertSpans writes spans and the keys by which their runs are found. It may
// be repeated after any error: a span that is there already stays one span.
// The error says by IsRetryable whether repeating can help. random gives each block of
// rows its id, by which attribution knows what it has read: two inserts must not share one.
func InsertSpans(ctx context.Context, conn driver.Conn, random func() uint64, spans []Span) error {
	for block := range blocks(spans) {
		// The keys come first: who sees a span must find its run.
		if err := insert(ctx, conn, "run_keys", keyColumns, keysOf(block)); err != nil {
			return err
		}
		id := max(random(), 1) // 0 is what collectors write that know of no ids
		if err := insert(ctx, conn, "spans", append(slices.Clip(spanColumns), constant[Span]("insert_id", id)), block); err != nil {
			return err
		}
	}
	return nil
}

// BoundedEnd is an end as windows take it: an end that cannot be real, before 2020
// or after the receipt, is taken to be the receipt. The views' end_bounded_ns says
// the same. Nanoseconds since the epoch.
func BoundedEnd(endNs, receivedNs int64) int64 {
	if endNs < firstNs || endNs > receivedNs {
		return receivedNs
	}
	return endNs
}

// partitionOf is the partition of an end, as the day since the epoch; 0 is the
// bucket of ends that cannot be real.
func partitionOf(endNs int64) int64 {
	if endNs < firstNs || endNs >= lastNs {
		return 0
	}
	return endNs / dayNs
}

// blocks cuts spans so that each block fits one insert. Most batches fit whole
// and are not copied.
func blocks(spans []Span) func(yield func([]Span) bool) {
	return func(yield func([]Span) bool) {
		days := make(map[int64]struct{})
		for i := range spans {
			days[partitionOf(spans[i].EndNs)] = struct{}{}
		}
		rest := spans
		if len(days) > maxInsertPartitions {
			rest = slices.Clone(spans)
			slices.SortStableFunc(rest, func(a, b Span) int {
				return cmp.Compare(partitionOf(a.EndNs), partitionOf(b.EndNs))
			})
		}
		for len(rest) > 0 {
			clear(days)
			n := 0
			for n < len(rest) && n < maxInsertRows {
				days[partitionOf(rest[n].EndNs)] = struct{}{}
				if len(days) > maxInsertPartitions {
					break
				}
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// runKey is a row of the table run_keys.
type runKey struct {
	hash       uint64
	traceID    TraceID
	firstEndNs int64
	lastEndNs  int64
	graphRoot  uint8
	receivedNs int64
}

var keyColumns = []column[runKey]{
	field("key_hash", func(k *runKey) *uint64 { return &k.hash }),
	id("trace_id", func(k *runKey) []byte { return k.traceID[:] }, func(k *runKey) any { return &k.traceID }),
	field("first_end_ns", func(k *runKey) *int64 { return &k.firstEndNs }),
	field("last_end_ns", func(k *runKey) *int64 { return &k.lastEndNs }),
	field("graph_root", func(k *runKey) *uint8 { return &k.graphRoot }),
	{name: "received_at", put: func(col driver.BatchColumn, rows []runKey) error {
		times := make([]time.Time, len(rows))
		for i := range rows {
			times[i] = secondOf(rows[i].receivedNs)
		}
		return col.Append(times)
	}},
}

// secondOf is ns as ClickHouse's DateTime can hold it.
func secondOf(ns int64) time.Time {
	return time.Unix(min(max(ns/secondNs, 0), 1<<32-1), 0).UTC()
}

// keysOf are the keys of spans, each trace's own key among them, once each.
func keysOf(spans []Span) []runKey {
	type ident struct {
		hash  uint64
		trace TraceID
	}
	at := make(map[ident]int, len(spans)/4)
	var rows []runKey
	add := func(s *Span, hash uint64) {
		root := uint8(0)
		if s.GraphRoot {
			root = 1
		}
		i, seen := at[ident{hash, s.TraceID}]
		if !seen {
			at[ident{hash, s.TraceID}] = len(rows)
			rows = append(rows, runKey{hash, s.TraceID, s.EndNs, s.EndNs, root, s.ReceivedNs})
			return
		}
		k := &rows[i]
		k.firstEndNs = min(k.firstEndNs, s.EndNs)
		k.lastEndNs = max(k.lastEndNs, s.EndNs)
		k.graphRoot = max(k.graphRoot, root)
		k.receivedNs = max(k.receivedNs, s.ReceivedNs)
	}
	for i := range spans {
		s := &spans[i]
		if partitionOf(s.EndNs) == 0 {
			add(s, bucketKey(s.TraceID))
		} else {
			add(s, traceKey(s.TraceID))
		}
		for _, hash := range s.RunKeys() {
			add(s, hash)
		}
	}
	return rows
}
