// Package syntheticledger fills a store with a large ledger of made-up runs, for
// benchmarks and for tests of what only shows at size. The store makes the rows
// itself, some 100,000 attempts a second and core.
package syntheticledger

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed fill.sql
var fill string

// Options say what to make up. All are required but Version.
type Options struct {
	Seed     string // runs of different seeds are different runs
	Traces   int    // one run each, of about 11 attempts
	From, To time.Time
	Version  int // a higher one replaces the same runs of a lower one
}

// batch is the number of traces of one insert.
const batch = 50_000

// Fill inserts the runs, evenly from From to To, whole traces before To.
func Fill(ctx context.Context, conn driver.Conn, o Options) error {
	for first := 0; first < o.Traces; first += batch {
		err := conn.Exec(ctx, fill,
			clickhouse.Named("seed", o.Seed), clickhouse.Named("traces", uint64(o.Traces)), clickhouse.Named("version", uint64(o.Version)),
			clickhouse.Named("from_ns", o.From.UnixNano()), clickhouse.Named("to_ns", o.To.UnixNano()),
			clickhouse.Named("first", uint64(first)), clickhouse.Named("count", uint64(min(batch, o.Traces-first))))
		if err != nil {
			return fmt.Errorf("make up runs from number %d on: %w", first, err)
		}
	}
	return nil
}
