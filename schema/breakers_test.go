package schema_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

func TestTheBreakerThatIsFurtherOnWins(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	rows := []schema.BreakerRow{
		{Provider: "openai", At: at.Add(time.Minute), Trips: 2, State: "older trips, later change"},
		{Provider: "openai", At: at, Trips: 3, State: "more trips"},
		{Provider: "anthropic", At: at, Trips: 1, State: "open"},
		{Provider: "anthropic", At: at.Add(time.Second), Trips: 1, State: "half open"},
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} {
		for _, i := range order {
			require.NoError(t, schema.InsertBreakers(t.Context(), db.Conn, rows[i:i+1]))
		}
		found, err := schema.Breakers(t.Context(), db.Conn)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Equal(t, "half open", found[0].State)
		require.Equal(t, "more trips", found[1].State)
		require.Equal(t, at, found[1].At)
	}
}

func TestBreakerTransitionsOfTwoCollectorsStandOnce(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	change := schema.BreakerTransition{
		At: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Provider: "openai", From: "closed", To: "open", Why: "because",
		Requests: 100, ServerErrors: 16, Throttled: 3, Writer: "one",
	}
	require.NoError(t, schema.InsertBreakerTransitions(t.Context(), db.Conn, []schema.BreakerTransition{change}))
	change.Writer = "two"
	require.NoError(t, schema.InsertBreakerTransitions(t.Context(), db.Conn, []schema.BreakerTransition{change}))
	var n uint64
	var errors int64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT count(), max(server_errors) FROM breaker_transitions FINAL").Scan(&n, &errors))
	require.EqualValues(t, 1, n)
	require.EqualValues(t, 16, errors)
}
