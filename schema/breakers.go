package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// BreakerRow is a provider's circuit breaker as it is kept: the one that opened more
// often wins, then the one that changed later.
type BreakerRow struct {
	Provider string
	At       time.Time // when it changed last, to the millisecond
	Trips    int64
	State    string // JSON

	version uint64
}

// BreakerTransition is one change of a breaker's state. Provider, instant and state that it
// came to tell it from all others.
type BreakerTransition struct {
	At           time.Time `json:"at"` // to the millisecond
	Provider     string    `json:"provider"`
	From         string    `json:"from"`
	To           string    `json:"to"`
	Why          string    `json:"why"`
	Requests     int64     `json:"requests"`
	ServerErrors int64     `json:"server_errors"`
	Throttled    int64     `json:"throttled"`
	Writer       string    `json:"writer"` // which collector made it
}

var breakerColumns = []column[BreakerRow]{
	field("provider", func(b *BreakerRow) *string { return &b.Provider }),
	instant("at", func(b *BreakerRow) *time.Time { return &b.At }),
	field("trips", func(b *BreakerRow) *int64 { return &b.Trips }),
	field("state", func(b *BreakerRow) *string { return &b.State }),
	field("version", func(b *BreakerRow) *uint64 { return &b.version }),
}

var breakerTransitionColumns = []column[BreakerTransition]{
	instant("at", func(t *BreakerTransition) *time.Time { return &t.At }),
	field("provider", func(t *BreakerTransition) *string { return &t.Provider }),
	field("from", func(t *BreakerTransition) *string { return &t.From }),
	field("to", func(t *BreakerTransition) *string { return &t.To }),
	field("why", func(t *BreakerTransition) *string { return &t.Why }),
	field("requests", func(t *BreakerTransition) *int64 { return &t.Requests }),
	field("server_errors", func(t *BreakerTransition) *int64 { return &t.ServerErrors }),
	field("throttled", func(t *BreakerTransition) *int64 { return &t.Throttled }),
	field("writer", func(t *BreakerTransition) *string { return &t.Writer }),
}

// InsertBreakers keeps breakers. It may be repeated.
func InsertBreakers(ctx context.Context, conn driver.Conn, rows []BreakerRow) error {
	const milliseconds = 44 // bits, enough until the year 2500
	for i := range rows {
		rows[i].version = uint64(max(rows[i].Trips, 0))<<milliseconds | uint64(max(rows[i].At.UnixMilli(), 0))&(1<<milliseconds-1)
	}
	return insert(ctx, conn, "breakers", breakerColumns, rows)
}

// Breakers reads the breakers that any collector kept last, by provider.
func Breakers(ctx context.Context, conn driver.Conn) ([]BreakerRow, error) {
	var found []BreakerRow
	err := readRows(ctx, conn, "SELECT "+readList(breakerColumns)+" FROM breakers FINAL ORDER BY provider LIMIT 10000", nil,
		breakerColumns, func(row *BreakerRow) error {
			found = append(found, *row)
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("read the breakers: %w", err)
	}
	return found, nil
}

// InsertBreakerTransitions writes transitions. It may be repeated.
func InsertBreakerTransitions(ctx context.Context, conn driver.Conn, transitions []BreakerTransition) error {
	return insert(ctx, conn, "breaker_transitions", breakerTransitionColumns, transitions)
}
