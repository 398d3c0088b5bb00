package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Write is one insert into the ledger. Its rows become visible together.
type Write struct {
	ID uint64
	At int64 // when, in microseconds since the epoch by the store's clock
}

// LedgerWrites hands each row that was written after afterUs (microseconds since the
// epoch by the store's clock) to take, but for those of the writes that have the IDs
// of seen. Rows that others have replaced may come too. They hold until take returns.
// An error of take ends it.
//
// A write may become visible after one that is younger: ask for some time before the
// last answer again.
func LedgerWrites(ctx context.Context, conn driver.Conn, afterUs int64, seen []uint64, take func(*Brief, Write) error) error {
	table, err := ext.NewTable("seen", ext.Column("id", "UInt64"))
	if err != nil {
		return fmt.Errorf("name the writes that were seen: %w", err)
	}
	for _, id := range seen {
		if err := table.Append(id); err != nil {
			return fmt.Errorf("name the writes that were seen: %w", err)
		}
	}
	var w Write
	err = readBriefs(clickhouse.Context(ctx, clickhouse.WithExternalTable(table)), conn,
		", write_id, toUnixTimestamp64Micro(written_at) FROM ledger PREWHERE written_at > fromUnixTimestamp64Micro(?, 'UTC') AND write_id NOT IN seen",
		[]any{afterUs}, []any{&w.ID, &w.At}, func(b *Brief) error { return take(b, w) })
	if err != nil {
		return fmt.Errorf("read what was written into the ledger: %w", err)
	}
	return nil
}

// LedgerSince hands the current row of each trace that had a span or was written
// after since to take. They hold until take returns. An error of take ends it.
func LedgerSince(ctx context.Context, conn driver.Conn, since time.Time, take func(*Brief) error) error {
	err := readBriefs(ctx, conn, " FROM ledger FINAL WHERE last_end_ns > ? OR written_at > fromUnixTimestamp64Micro(?, 'UTC')",
		[]any{since.UnixNano(), since.UnixMicro()}, nil, take)
	if err != nil {
		return fmt.Errorf("read the ledger since %s: %w", since.UTC().Format(time.DateTime), err)
	}
	return nil
}

// eventSlack is by how much an event of a trace may lie before the end of its first
// span: an attempt known from an event ends within a span.
const eventSlack = time.Hour

// LedgerBetween hands the current row of each trace that may have something that ended
// in (from, to] to take. They hold until take returns. An error of take ends it.
func LedgerBetween(ctx context.Context, conn driver.Conn, from, to time.Time, take func(*Brief) error) error {
	err := readBriefs(ctx, conn, " FROM ledger FINAL WHERE last_end_ns > ? AND first_end_ns <= ?",
		[]any{from.UnixNano(), to.Add(eventSlack).UnixNano()}, nil, take)
	if err != nil {
		return fmt.Errorf("read the ledger from %s to %s: %w", from.UTC().Format(time.DateTime), to.UTC().Format(time.DateTime), err)
	}
	return nil
}

// readBriefs hands each brief row that a query gives to take, all in the same memory.
func readBriefs(ctx context.Context, conn driver.Conn, rest string, args, more []any, take func(*Brief) error) error {
	var reader briefReader
	next := func() *briefReader { return &reader }
	return scanRows(ctx, conn, "SELECT "+readList(briefColumns)+rest, args, briefColumns, more, next, func(r *briefReader) error { return take(&r.brief) })
}

// readRows scans the columns of each row that a query gives.
func readRows[R any](ctx context.Context, conn driver.Conn, query string, args []any, columns []column[R], take func(*R) error) error {
	return scanRows(ctx, conn, query, args, columns, nil, func() *R { return new(R) }, take)
}

// scanRows scans the columns, and then more, of each row that a query gives, into what
// next returns.
func scanRows[R any](ctx context.Context, conn driver.Conn, query string, args []any, columns []column[R], more []any, next func() *R, take func(*R) error) error {
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	dests := make([]any, len(columns), len(columns)+len(more))
	dests = append(dests, more...)
	for rows.Next() {
		row := next()
		for i, c := range columns {
			dests[i] = c.dest(row)
		}
		if err := rows.Scan(dests...); err != nil {
			return err
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return rows.Err()
}
