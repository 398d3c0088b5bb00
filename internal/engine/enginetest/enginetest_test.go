package enginetest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDatabaseIsEmptyAndItsOwn(t *testing.T) {
	a, b := enginetest.Database(t), enginetest.Database(t)
	ctx := context.Background()
	require.NotEqual(t, a.Name, b.Name)
	require.NoError(t, a.Conn.Exec(ctx, "CREATE TABLE t (x UInt64) ENGINE = MergeTree ORDER BY x"))
	require.NoError(t, a.Conn.Exec(ctx, "INSERT INTO t SELECT number FROM numbers(1000)"))
	var n uint64
	require.NoError(t, a.Conn.QueryRow(ctx, "SELECT count() FROM t").Scan(&n))
	require.Equal(t, uint64(1000), n)
	require.Error(t, b.Conn.QueryRow(ctx, "SELECT count() FROM t").Scan(&n), "the other database has no such table")
}
