// Package storetest gives tests a store that holds the ledger of captures, and the
// same ledger in memory.
package storetest

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

// Day is when the captures are moved to: the first one ends about then, each further
// one a minute later.
var Day = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Store is a store and what it holds.
type Store struct {
	Conn   driver.Conn
	Name   string // of the database
	Ledger attribution.Ledger
	Rows   []schema.LedgerRow // the same, as the store has it
	Spans  []schema.Span      // what it rests on
}

// forever is longer than these tests will be run after Day.
const forever = 50 * 365 * 24 * time.Hour

// Empty is a fresh database with the schema, which keeps rows of Day.
func Empty(t testing.TB) Store {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(context.Background(), db.Conn, schema.MigrateOptions{SpanRetention: forever, LedgerRetention: forever}))
	return Store{Conn: db.Conn, Name: db.Name}
}

// Of fills a fresh database with captures, each under ids of its own, in the named
// services by turns. The fifth, tenth, … are of a sampled source.
func Of(t testing.TB, captures []capturetest.Capture, services ...string) Store {
	t.Helper()
	var spans []schema.Span
	for i, capture := range captures {
		var requests []ptrace.Traces
		for _, name := range capture.Files {
			file, err := os.Open(name)
			require.NoError(t, err)
			_, err = otlpfile.Read(file, 0, func(td ptrace.Traces) error {
				requests = append(requests, td)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		replay.Rewrite(requests, replay.NewIdentities([16]byte{byte(i), byte(i >> 8)}), Day.Add(time.Duration(i)*time.Minute), services[i%len(services)])
		for _, td := range requests {
			rows, _ := dialect.Normalise(td, Day.Add(24*time.Hour).UnixNano())
			for j := range rows {
				rows[j].Sampled = i%5 == 4
			}
			spans = append(spans, rows...)
		}
	}
	return OfSpans(t, spans)
}

// OfSpans fills a fresh database with spans and their ledger, a day after Day.
func OfSpans(t testing.TB, spans []schema.Span) Store {
	t.Helper()
	store := Empty(t)
	ctx := context.Background()
	opts := attribution.Defaults()
	opts.AtNs = Day.Add(24 * time.Hour).UnixNano()
	store.Ledger = attribution.Account(spans, opts)
	rows, err := ledger.Rows(store.Ledger, traces(spans))
	require.NoError(t, err)
	require.NoError(t, schema.InsertSpans(ctx, store.Conn, rand.Uint64, spans))
	require.NoError(t, schema.InsertLedger(ctx, store.Conn, rows))
	store.Rows, store.Spans = rows, spans
	return store
}

// traces are the ledger's rows before attribution.
func traces(spans []schema.Span) []schema.LedgerRow {
	at := map[schema.TraceID]int{}
	seen := map[[24]byte]bool{}
	var rows []schema.LedgerRow
	for _, span := range spans {
		i, ok := at[span.TraceID]
		if !ok {
			i = len(rows)
			at[span.TraceID] = i
			rows = append(rows, schema.LedgerRow{TraceID: span.TraceID, FirstEndNs: span.EndNs, Version: schema.LedgerVersion{InsertedUs: 1}})
		}
		row := &rows[i]
		row.FirstEndNs = min(row.FirstEndNs, span.EndNs)
		row.LastEndNs = max(row.LastEndNs, span.EndNs)
		row.LastReceivedNs = max(row.LastReceivedNs, span.ReceivedNs)
		if id := [24]byte(append(span.TraceID[:], span.SpanID[:]...)); !seen[id] {
			seen[id] = true
			row.Spans++
		}
	}
	return rows
}
