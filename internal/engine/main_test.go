//go:build linux || darwin

package engine_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/internal/engine"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		parentMain(dir)
	}
	if task := os.Getenv(strangerEnv); task != "" {
		strangerMain(task)
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, o *clickhouse.Options) driver.Conn {
	t.Helper()
	conn, err := clickhouse.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func as(e *engine.Engine, user, password string) *clickhouse.Options {
	o := e.ClientOptions()
	o.Auth.Username, o.Auth.Password = user, password
	return o
}

func exec(t testing.TB, conn driver.Conn, queries ...string) {
	t.Helper()
	for _, q := range queries {
		require.NoError(t, conn.Exec(context.Background(), q), q)
	}
}

// one scans the single value of a query.
func one[T any](t testing.TB, conn driver.Conn, query string) (v T) {
	t.Helper()
	require.NoError(t, conn.QueryRow(context.Background(), query).Scan(&v), query)
	return v
}

// eventually retries fn, which has no side effects, until it succeeds.
func eventually(t testing.TB, within time.Duration, what string, fn func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
	}
}
