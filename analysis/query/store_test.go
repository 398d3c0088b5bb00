package query_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

// day is when the captures are moved to.
var day = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stored is a store with the ledger of captures, and the same ledger in memory.
type stored struct {
	asker  query.Asker
	conn   driver.Conn
	ledger attribution.Ledger
}

// store fills a fresh database with captures, each under ids of its own, in two
// services, a minute apart.
func store(t *testing.T, captures []capturetest.Capture) stored {
	t.Helper()
	db := enginetest.Database(t)
	ctx := context.Background()
	require.NoError(t, schema.Migrate(ctx, db.Conn, schema.MigrateOptions{}))
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
		service := []string{"checkout", "billing"}[i%2]
		replay.Rewrite(requests, replay.NewIdentities([16]byte{byte(i), byte(i >> 8)}), day.Add(time.Duration(i)*time.Minute), service)
		for _, td := range requests {
			rows, _ := dialect.Normalise(td, day.Add(24*time.Hour).UnixNano())
			spans = append(spans, rows...)
		}
	}
	opts := attribution.Defaults()
	opts.AtNs = day.Add(24 * time.Hour).UnixNano()
	account := attribution.Account(spans, opts)
	rows, err := ledger.Rows(account, traces(spans))
	require.NoError(t, err)
	require.NoError(t, schema.InsertSpans(ctx, db.Conn, spans))
	require.NoError(t, schema.InsertLedger(ctx, db.Conn, rows))
	return stored{conn: db.Conn, asker: query.New(db.Conn, query.Limits{Timeout: time.Minute, MaxRows: 1_000_000}), ledger: account}
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

func asJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	require.NoError(t, err)
	return string(text)
}

func ask[T any](t testing.TB, question func(context.Context) (T, error)) T {
	t.Helper()
	found, err := question(context.Background())
	require.NoError(t, err)
	return found
}
