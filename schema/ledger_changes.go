package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Write is one row as it was written: the same trace and version written again is
// the same write.
type Write struct {
	ID int64 // of the trace and its version
	At int64 // when, in microseconds since the epoch by the store's clock
}

// LedgerWrites hands each row that was written after afterUs (microseconds since the
// epoch by the store's clock) to take, but for the writes that have the IDs of seen.
// Rows that others have replaced may come too. They are brief, see briefColumns. An
// error of take ends it.
//
// A row may become visible after one that was written later: ask for some time
// before the last answer again.
func LedgerWrites(ctx context.Context, conn driver.Conn, afterUs int64, seen []int64, take func(*LedgerRow, Write) error) error {
	table, err := ext.NewTable("seen", ext.Column("id", "Int64"))
	if err != nil {
		return fmt.Errorf("name the writes that were seen: %w", err)
	}
	for _, id := range seen {
		if err := table.Append(id); err != nil {
			return fmt.Errorf("name the writes that were seen: %w", err)
		}
	}
	var w Write
	const id = "reinterpretAsInt64(cityHash64(trace_id, version))"
	err = readRows(clickhouse.Context(ctx, clickhouse.WithExternalTable(table)), conn,
		"SELECT "+readList(briefColumns)+", "+id+", toUnixTimestamp64Micro(written_at) FROM ledger"+
			" PREWHERE written_at > fromUnixTimestamp64Micro(?, 'UTC') AND "+id+" NOT IN seen",
		[]any{afterUs}, briefColumns, []any{&w.ID, &w.At}, func(row *briefRow) error {
			unpacked, err := row.unpack()
			if err != nil {
				return err
			}
			return take(unpacked, w)
		})
	if err != nil {
		return fmt.Errorf("read what was written into the ledger: %w", err)
	}
	return nil
}

// LedgerSince hands the current row of each trace that had a span or was written
// after since to take. They are brief, see briefColumns. An error of take ends it.
func LedgerSince(ctx context.Context, conn driver.Conn, since time.Time, take func(*LedgerRow) error) error {
	err := readRows(ctx, conn, "SELECT "+readList(briefColumns)+" FROM ledger FINAL"+
		" WHERE last_end_ns > ? OR written_at > fromUnixTimestamp64Micro(?, 'UTC')",
		[]any{since.UnixNano(), since.UnixMicro()}, briefColumns, nil, func(row *briefRow) error {
			unpacked, err := row.unpack()
			if err != nil {
				return err
			}
			return take(unpacked)
		})
	if err != nil {
		return fmt.Errorf("read the ledger since %s: %w", since.UTC().Format(time.DateTime), err)
	}
	return nil
}

// eventSlack is by how much an event of a trace may lie before the end of its first
// span: an attempt known from an event ends within a span.
const eventSlack = time.Hour

// LedgerBetween hands the current row of each trace that may have something that ended
// in (from, to] to take. They are brief, see briefColumns. An error of take ends it.
func LedgerBetween(ctx context.Context, conn driver.Conn, from, to time.Time, take func(*LedgerRow) error) error {
	err := readRows(ctx, conn, "SELECT "+readList(briefColumns)+" FROM ledger FINAL WHERE last_end_ns > ? AND first_end_ns <= ?",
		[]any{from.UnixNano(), to.Add(eventSlack).UnixNano()}, briefColumns, nil, func(row *briefRow) error {
			unpacked, err := row.unpack()
			if err != nil {
				return err
			}
			return take(unpacked)
		})
	if err != nil {
		return fmt.Errorf("read the ledger from %s to %s: %w", from.UTC().Format(time.DateTime), to.UTC().Format(time.DateTime), err)
	}
	return nil
}

// readRows scans the columns, and then more, of each row that a query gives.
func readRows[R any](ctx context.Context, conn driver.Conn, query string, args []any, columns []column[R], more []any, take func(*R) error) error {
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	dests := make([]any, len(columns), len(columns)+len(more))
	dests = append(dests, more...)
	for rows.Next() {
		var row R
		for i, c := range columns {
			dests[i] = c.dest(&row)
		}
		if err := rows.Scan(dests...); err != nil {
			return err
		}
		if err := take(&row); err != nil {
			return err
		}
	}
	return rows.Err()
}
