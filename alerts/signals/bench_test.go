package signals_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/internal/traffic"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// filledSeconds is for how long the store has taken traffic.
const filledSeconds = 200

// pack are the questions of the default rules.
func pack(toS int64) []signals.Query {
	q := func(s signals.Signal, window time.Duration, by ...signals.Dimension) signals.Query {
		return signals.Query{Signal: s, ToNs: toS * second, WindowNs: int64(window), GroupBy: by}
	}
	return []signals.Query{
		q(signals.OperationErrorRatio, 2*time.Minute, signals.Service, signals.Step),
		q(signals.FallbackRatio, 2*time.Minute, signals.Service, signals.Step),
		q(signals.OperationErrorRatio, 3*time.Minute, signals.Service, signals.Version),
		q(signals.ServerErrorRatio, 30*time.Second, signals.Provider),
		q(signals.RetryRatio, 5*time.Minute, signals.Service),
		q(signals.RetryRatio, 5*time.Minute, signals.Service),
		q(signals.BudgetExhaustedRatio, 10*time.Minute, signals.Service),
		q(signals.IncompleteRunRatio, 10*time.Minute, signals.Service),
		q(signals.ContractViolationRatio, 5*time.Minute, signals.Service, signals.Step),
	}
}

// two hundred questions: the pack's, over other windows and groups.
func many(toS int64) []signals.Query {
	var list []signals.Query
	for i := 0; len(list) < 200; i++ {
		for _, q := range pack(toS) {
			q.WindowNs = min(q.WindowNs, int64(1+i%10)*int64(time.Minute))
			q.GroupBy = [][]signals.Dimension{q.GroupBy, {signals.Service, signals.Version}, {signals.Service}, nil}[i%4]
			list = append(list, q)
		}
	}
	return list[:200]
}

// packKeep is what the pack needs.
func packKeep() signals.Keep {
	keep := make(signals.Keep)
	for _, q := range pack(0) {
		keep[q.Signal] = max(keep[q.Signal], time.Duration(q.WindowNs))
	}
	return keep
}

// BenchmarkEvaluationStep is one evaluation over a store that takes 10,000 spans/s: the
// read of what the last second changed, and all windows of the default pack.
func BenchmarkEvaluationStep(b *testing.B) {
	db := migrated(b)
	source := traffic.New(1)
	var again []schema.LedgerRow // what the next second writes again
	now := time.UnixMicro(clock(b, db.Conn))
	for s := range filledSeconds {
		rows := source.Second(now.Add(time.Duration(s-filledSeconds) * time.Second))
		require.NoError(b, schema.InsertLedger(b.Context(), db.Conn, rows))
		again = rows[:traffic.RewrittenPerSecond]
	}
	cache := signals.NewCache(packKeep(), signals.Limits{})
	feed := signals.NewFeed(cache)
	started := time.Now()
	p, err := feed.Read(b.Context(), db.Conn)
	require.NoError(b, err)
	b.Logf("filled from %d rows in %s", p.Rows, time.Since(started).Round(time.Millisecond))
	var feeding, windows, ours time.Duration
	var engine atomic.Int64
	ctx := clickhouse.Context(b.Context(), clickhouse.WithProfileEvents(func(events []clickhouse.ProfileEvent) {
		for _, e := range events {
			if e.Name == "OSCPUVirtualTimeMicroseconds" && e.ThreadID == 0 {
				engine.Add(e.Value)
			}
		}
	}))
	rowsRead := 0
	step := func() {
		due := time.Now().Add(time.Second)
		us := clock(b, db.Conn)
		rows := source.Second(time.UnixMicro(us))
		for i := range again {
			again[i].Version.InsertedUs = us
		}
		for batch := range slices.Chunk(slices.Concat(rows, again), traffic.Batch) {
			require.NoError(b, schema.InsertLedger(b.Context(), db.Conn, batch))
		}
		again = rows[:traffic.RewrittenPerSecond]
		time.Sleep(time.Until(due)) // so that a read looks back on as many writes as in earnest
	}
	for range 12 { // until the overlap holds only writes of such seconds
		step()
		_, err := feed.Read(b.Context(), db.Conn)
		require.NoError(b, err)
	}
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		step()
		b.StartTimer()
		began, used := time.Now(), processTime(b)
		p, err := feed.Read(ctx, db.Conn)
		require.NoError(b, err)
		read := time.Now()
		for _, q := range pack(p.UpToUs / 1e6) {
			_, err := cache.Window(b.Context(), q)
			require.NoError(b, err)
		}
		feeding += read.Sub(began)
		windows += time.Since(read)
		ours += processTime(b) - used
		rowsRead += p.Rows
	}
	b.ReportMetric(float64(feeding.Microseconds())/1000/float64(b.N), "ms-read/op")
	b.ReportMetric(float64(windows.Microseconds())/1000/float64(b.N), "ms-windows/op")
	b.ReportMetric(float64(ours.Microseconds())/1000/float64(b.N), "cpu-ms/op") // on a busy machine, what a quiet one would take
	b.ReportMetric(float64(engine.Load())/1000/float64(b.N), "engine-cpu-ms/op")
	b.ReportMetric(float64(rowsRead)/float64(b.N), "rows/op")
}

// processTime is the processors' time that this process has used.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// full is a cache with minutes of traffic.
func full(source *traffic.Traffic, seconds int) (*signals.Cache, int64) {
	now := int64(1_800_000_000)
	cache := signals.NewCache(packKeep(), signals.Limits{})
	for range seconds {
		now++
		cache.Advance(now * 1e6)
		for _, row := range source.Second(time.Unix(now, 0)) {
			cache.Put(schema.BriefOf(&row))
		}
	}
	return cache, now
}

// BenchmarkTwoHundredRules is the windows of 200 rules over a full cache.
func BenchmarkTwoHundredRules(b *testing.B) {
	var before, after runtime.MemStats
	source := traffic.New(1)
	runtime.GC()
	runtime.ReadMemStats(&before)
	cache, now := full(source, 660)
	runtime.GC()
	runtime.ReadMemStats(&after)
	list := many(now)
	for b.Loop() {
		for _, q := range list {
			if _, err := cache.Window(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-held")
	b.ReportMetric(float64(cache.Stats().Traces), "traces-held")
	b.ReportMetric(float64(cache.Stats().Series), "series-held")
}

// BenchmarkPut is one row that is taken in, and one that replaces another.
func BenchmarkPut(b *testing.B) {
	source := traffic.New(1)
	cache, now := full(source, 30)
	var briefs []*schema.Brief
	for _, row := range source.Second(time.Unix(now, 0)) {
		briefs = append(briefs, schema.BriefOf(&row))
	}
	i := 0
	b.ReportAllocs()
	used := processTime(b)
	for b.Loop() {
		brief := briefs[i%len(briefs)]
		brief.Version.InsertedUs++
		cache.Put(brief)
		i++
	}
	b.ReportMetric(float64((processTime(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
