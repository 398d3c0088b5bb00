package query_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
)

// stored is a store with the ledger of captures, and the same ledger in memory.
type stored struct {
	asker  query.Asker
	conn   driver.Conn
	ledger attribution.Ledger
}

func store(t *testing.T, captures []capturetest.Capture) stored {
	t.Helper()
	s := storetest.Of(t, captures, "checkout", "billing")
	return stored{conn: s.Conn, asker: query.New(s.Conn, query.Limits{Timeout: time.Minute, MaxRows: 1_000_000}), ledger: s.Ledger}
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
