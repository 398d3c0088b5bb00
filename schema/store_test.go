package schema

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

// migrated is a fresh database with the current schema.
func migrated(t testing.TB) *enginetest.DB {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{SpanRetention: 10_000 * 24 * time.Hour}))
	return db
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano()

// plainSpan is span n of trace n/100, as an instrumentation that says little writes it.
func plainSpan(n int) Span {
	s := Span{
		StartNs: noon + int64(n)*1e6, EndNs: noon + int64(n)*1e6 + 5e5, ReceivedNs: noon + int64(n)*1e6 + 1e9,
		Service: "shop", Scope: "app", Dialect: "plain", Name: "work", Role: RoleChain,
		GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1,
		InputTokens: Unknown, OutputTokens: Unknown, CostUSD: math.NaN(),
		ContentHash: uint64(n) * 0x9e3779b97f4a7c15,
	}
	binary.BigEndian.PutUint64(s.TraceID[8:], uint64(n/100+1)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(s.SpanID[:], uint64(n+1)*0x9e3779b97f4a7c15)
	return s
}

func TestInsertSpansTwiceKeepsOne(t *testing.T) {
	db := migrated(t)
	spans := []Span{plainSpan(1), plainSpan(2)}
	for range 2 {
		require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, spans))
	}
	var n uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count() FROM spans FINAL").Scan(&n))
	require.EqualValues(t, 2, n)
}
