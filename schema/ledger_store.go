package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// InsertLedger writes rows as one block, so that all of them become visible
// together. Rows of one run must go in one call, with one version. It may be
// repeated after any error.
func InsertLedger(ctx context.Context, conn driver.Conn, rows []LedgerRow) error {
	return insert(ctx, conn, "ledger", ledgerColumns, rows)
}

// LedgerOfTraces reads the current row of each trace. Traces without one are
// left out.
func LedgerOfTraces(ctx context.Context, conn driver.Conn, ids []TraceID) ([]LedgerRow, error) {
	table, err := idTable(ids)
	if err != nil {
		return nil, err
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithExternalTable(table))
	return ledgerWhere(ctx, conn, "trace_id IN ids")
}

// LedgerOfRun reads the current rows of the runs with this id: all their
// traces, anchors first, the latest run first. Several runs may have one id, in
// several services or more than a day apart. Rows may hold other runs beside.
func LedgerOfRun(ctx context.Context, conn driver.Conn, runID string) ([]LedgerRow, error) {
	where, arg := "has(`runs.run_id`, ?)", any(runID)
	if id, err := ParseTraceID(runID); err == nil {
		// Most runs are named by their trace: the primary key finds it.
		rows, err := ledgerWhere(ctx, conn, "trace_id = unhex(?) AND has(`runs.run_id`, ?)", id.String(), runID)
		if err != nil || len(rows) > 0 && !spread(rows, runID) {
			return rows, err
		}
	}
	return ledgerWhere(ctx, conn, where, arg)
}

// spread tells whether the run has other traces than the ones of rows.
func spread(rows []LedgerRow, runID string) bool {
	for i := range rows {
		for j := range rows[i].Runs {
			if r := &rows[i].Runs[j]; r.RunID == runID && (!r.Anchor || len(r.TraceIDs) > 1) {
				return true
			}
		}
	}
	return false
}

func ledgerWhere(ctx context.Context, conn driver.Conn, where string, args ...any) (found []LedgerRow, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the ledger: %w", err)
		}
	}()
	err = readRows(ctx, conn, "SELECT "+readList(ledgerColumns)+" FROM ledger FINAL WHERE "+where+
		" ORDER BY has(`runs.anchor`, true) DESC, last_end_ns DESC, trace_id", args, ledgerColumns, func(row *LedgerRow) error {
		found = append(found, *row)
		return nil
	})
	return found, err
}

// LedgerHead is what the ledger says about a trace's account, without it.
type LedgerHead struct {
	TraceID      TraceID
	Version      LedgerVersion
	State        State
	Spans        uint32
	InsertTokens []uint64
	Hours        []uint32 // since the epoch, that the row says something about
	ReachNs      int64    // the latest of all ends in the row, and in those that it replaced
}

var headColumns = []column[LedgerHead]{
	id("trace_id", func(h *LedgerHead) []byte { return h.TraceID[:] }, func(h *LedgerHead) any { return &h.TraceID }),
	{read: "argMax(insert_tokens, version)", dest: func(h *LedgerHead) any { return &h.InsertTokens }},
	{read: "max(reach_ns)", dest: func(h *LedgerHead) any { return &h.ReachNs }},
	{read: "argMax(hours, version)", dest: func(h *LedgerHead) any { return &h.Hours }},
	{read: "toString(argMax(state, version))", dest: func(h *LedgerHead) any { return (*string)(&h.State) }},
	{read: "argMax(spans, version)", dest: func(h *LedgerHead) any { return &h.Spans }},
	{read: "reinterpretAsFixedString(max(version))", dest: func(h *LedgerHead) any { return &h.Version }},
}

// LedgerHeads reads the heads of the traces' current rows.
func LedgerHeads(ctx context.Context, conn driver.Conn, ids []TraceID) (map[TraceID]LedgerHead, error) {
	heads := make(map[TraceID]LedgerHead, len(ids))
	if len(ids) == 0 {
		return heads, nil
	}
	table, err := idTable(ids)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(clickhouse.Context(ctx, clickhouse.WithExternalTable(table)),
		"SELECT "+readList(headColumns)+" FROM ledger WHERE trace_id IN ids GROUP BY trace_id")
	if err != nil {
		return nil, fmt.Errorf("read the ledger's versions of %d traces: %w", len(ids), err)
	}
	defer func() { _ = rows.Close() }()
	dests := make([]any, len(headColumns))
	for rows.Next() {
		var head LedgerHead
		for i, c := range headColumns {
			dests[i] = c.dest(&head)
		}
		if err := rows.Scan(dests...); err != nil {
			return nil, fmt.Errorf("read the ledger's versions: %w", err)
		}
		heads[head.TraceID] = head
	}
	return heads, rows.Err()
}

// DirtyTrace is a trace that received spans.
type DirtyTrace struct {
	TraceID         TraceID
	FirstInsertedUs int64    // microseconds since the epoch by the store's clock
	LastInsertedUs  int64    // microseconds since the epoch by the store's clock
	Tokens          []uint64 // of the inserts, as LedgerHead.InsertTokens has them
}

// DirtyTraces finds the traces with spans inserted after afterUs and not after
// untilUs, microseconds since the epoch by the store's clock. It compares
// nothing: a caller skips those whose tokens the ledger has all seen.
//
// Tokens and not times tell what has been seen, for an insert may become
// visible after one that is younger.
func DirtyTraces(ctx context.Context, conn driver.Conn, afterUs, untilUs int64) ([]DirtyTrace, error) {
	rows, err := conn.Query(ctx,
		"SELECT trace_id, min(toUnixTimestamp64Micro(inserted_at)), max(toUnixTimestamp64Micro(inserted_at)) AS last,"+
			" groupUniqArray(insert_token) FROM spans"+
			" WHERE inserted_at > fromUnixTimestamp64Micro(?, 'UTC') AND inserted_at <= fromUnixTimestamp64Micro(?, 'UTC')"+
			" GROUP BY trace_id ORDER BY last", afterUs, untilUs)
	if err != nil {
		return nil, fmt.Errorf("find the traces with new spans: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var found []DirtyTrace
	for rows.Next() {
		var d DirtyTrace
		if err := rows.Scan(&d.TraceID, &d.FirstInsertedUs, &d.LastInsertedUs, &d.Tokens); err != nil {
			return nil, fmt.Errorf("find the traces with new spans: %w", err)
		}
		found = append(found, d)
	}
	return found, rows.Err()
}

// NextInsert is when the first span after afterUs was inserted, 0 if there is
// none; microseconds since the epoch by the store's clock.
func NextInsert(ctx context.Context, conn driver.Conn, afterUs int64) (int64, error) {
	var us int64
	err := conn.QueryRow(ctx, "SELECT toUnixTimestamp64Micro(min(inserted_at)) FROM spans WHERE inserted_at > fromUnixTimestamp64Micro(?, 'UTC')", afterUs).Scan(&us)
	if err != nil {
		return 0, fmt.Errorf("find the next insert: %w", err)
	}
	return us, nil
}

// Clock is the store's clock, microseconds since the epoch.
func Clock(ctx context.Context, conn driver.Conn) (us int64, err error) {
	if err := conn.QueryRow(ctx, "SELECT toUnixTimestamp64Micro(now64(6, 'UTC'))").Scan(&us); err != nil {
		return 0, fmt.Errorf("read the store's clock: %w", err)
	}
	return us, nil
}

// OverdueTraces finds at most limit traces whose runs have been silent for so
// long that atS, seconds since the epoch, gives another account.
func OverdueTraces(ctx context.Context, conn driver.Conn, atS int64, limit int) ([]TraceID, error) {
	// The inner condition is answered by an index and may match old rows; the
	// outer one looks at the current row only.
	rows, err := conn.Query(ctx, "SELECT trace_id FROM ledger WHERE trace_id IN"+
		" (SELECT trace_id FROM ledger WHERE rejudge_at BETWEEN toDateTime(1, 'UTC') AND toDateTime(?, 'UTC'))"+
		" GROUP BY trace_id HAVING toUInt32(argMax(rejudge_at, version)) BETWEEN 1 AND ? ORDER BY trace_id LIMIT ?", atS, atS, limit)
	if err != nil {
		return nil, fmt.Errorf("find the silent runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var found []TraceID
	for rows.Next() {
		var id TraceID
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("find the silent runs: %w", err)
		}
		found = append(found, id)
	}
	return found, rows.Err()
}

const progressName = "ledger"

// Watermark is how far attribution has come: all that was inserted up to it is
// in the ledger. Microseconds since the epoch by the store's clock, 0 at first.
func Watermark(ctx context.Context, conn driver.Conn) (us int64, err error) {
	err = conn.QueryRow(ctx, "SELECT toUnixTimestamp64Micro(max(watermark)) FROM attribution_progress WHERE name = ?", progressName).Scan(&us)
	if err != nil {
		return 0, fmt.Errorf("read how far attribution has come: %w", err)
	}
	return us, nil
}

// AttributionLag is for how long the oldest spans that are not yet known to be in the
// ledger have been in the store: 0 where there are none. How far attribution has come
// is recorded every few seconds.
func AttributionLag(ctx context.Context, conn driver.Conn) (time.Duration, error) {
	var now, next int64
	err := conn.QueryRow(ctx, "WITH (SELECT max(watermark) FROM attribution_progress) AS through"+
		" SELECT toUnixTimestamp64Micro(now64(6, 'UTC')), toUnixTimestamp64Micro(min(inserted_at)) FROM spans WHERE inserted_at > through").
		Scan(&now, &next)
	if err != nil {
		return 0, fmt.Errorf("read how far the ledger is behind: %w", err)
	}
	if next == 0 {
		return 0, nil
	}
	return max(0, time.Duration(now-next)*time.Microsecond), nil
}

// SetWatermark records that all that was inserted up to us is in the ledger.
func SetWatermark(ctx context.Context, conn driver.Conn, us int64) error {
	return setProgress(ctx, conn, progressName, us)
}

// reachedName is the progress that people are told. It is ahead of the watermark, which
// waits for inserts that become visible late.
const reachedName = "reached"

// SetReached records that all that was inserted up to us and visible then is in the ledger.
func SetReached(ctx context.Context, conn driver.Conn, us int64) error {
	return setProgress(ctx, conn, reachedName, us)
}

func setProgress(ctx context.Context, conn driver.Conn, name string, us int64) error {
	type progress struct {
		name string
		at   time.Time
	}
	err := insert(ctx, conn, "attribution_progress", []column[progress]{
		field("name", func(p *progress) *string { return &p.name }),
		field("watermark", func(p *progress) *time.Time { return &p.at }),
	}, []progress{{name, time.UnixMicro(us)}})
	if err != nil {
		return fmt.Errorf("record how far attribution has come: %w", err)
	}
	return nil
}
