package selfmetrics_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/internal/selfmetrics"
	"github.com/retryledger/retryledger/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWrites: measurements of one name become one row; what could not be written is part
// of the next write.
func TestWrites(t *testing.T) {
	store := storetest.Empty(t)
	log := selfmetrics.New()
	require.NoError(t, log.Write(t.Context(), store.Conn), "nothing is no row")
	log.BeforeEach(func() { log.Add("fill", 7) })
	log.Add("spans", 3)
	log.Add("spans", 5)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, log.Write(gone, store.Conn))
	log.Add("spans", 4)
	require.NoError(t, log.Write(t.Context(), store.Conn))
	log.Add("spans", 1)
	require.NoError(t, log.Write(t.Context(), store.Conn))

	rows, err := store.Conn.Query(t.Context(), "SELECT name, times, total, largest FROM self_metrics WHERE writer = ? ORDER BY at, name, total", selfmetrics.Writer())
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	type row struct {
		name           string
		times          uint64
		total, largest float64
	}
	var found []row
	for rows.Next() {
		var r row
		require.NoError(t, rows.Scan(&r.name, &r.times, &r.total, &r.largest))
		found = append(found, r)
	}
	require.NoError(t, rows.Err())
	require.ElementsMatch(t, []row{{"fill", 2, 14, 7}, {"spans", 3, 12, 5}, {"fill", 1, 7, 7}, {"spans", 1, 1, 1}}, found)
}

// TestRunEnds while the store is not there.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			selfmetrics.New().Run(ctx, func(context.Context) (driver.Conn, error) {
				close(asked)
				return nil, errors.New("away")
			}, zap.NewNop())
		}()
		<-asked
		cancel()
		<-done
	})
}
