package report

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/internal/traffic"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/schema"
)

// BenchmarkReplayOfAWeek replays the default pack on seven days with 400,000 traces of
// ten spans, or as many as RETRYLEDGER_BENCH_TRACES says: seven spans a second.
func BenchmarkReplayOfAWeek(b *testing.B) {
	total := 400_000
	if text := os.Getenv("RETRYLEDGER_BENCH_TRACES"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	const week = 7 * 24 * time.Hour
	db := migrated(b)
	end := time.Now().UTC().Truncate(time.Second)
	fill(b, db.Conn, total, end, week)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ReportAllocs()
	most := before.HeapAlloc
	var engine atomic.Int64
	ctx := clickhouse.Context(b.Context(), clickhouse.WithProfileEvents(func(events []clickhouse.ProfileEvent) {
		for _, e := range events {
			if e.Name == "OSCPUVirtualTimeMicroseconds" && e.ThreadID == 0 {
				engine.Add(e.Value)
			}
		}
	}))
	used := processTime(b)
	for b.Loop() {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapAlloc)
				}
			}
		}()
		found, err := ReplayOf(ctx, db.Conn, rules.Default(), end.Add(-week), end)
		close(stop)
		<-done
		require.NoError(b, err)
		require.Equal(b, 86_400, found.Evaluations)
	}
	// On a busy machine, what a quiet one would take.
	b.ReportMetric((processTime(b)-used).Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(engine.Load())/1e6/float64(b.N), "engine-cpu-s/op")
	b.ReportMetric(float64(most-before.HeapAlloc)/(1<<20), "MiB-heap-most")
}

// fill inserts traces that are spread over a period.
func fill(b *testing.B, conn driver.Conn, total int, end time.Time, period time.Duration) {
	b.Helper()
	source := traffic.New(1)
	const batch = 20_000
	rows := make([]schema.LedgerRow, 0, batch)
	for i := range total {
		rows = append(rows, source.Row(end.Add(-period+period*time.Duration(i)/time.Duration(total)).UnixNano()))
		if len(rows) == batch || i == total-1 {
			require.NoError(b, schema.InsertLedger(b.Context(), conn, rows))
			rows = rows[:0]
		}
	}
}

// processTime is the processors' time that this process has used.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
