package signals_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// Traffic of the benchmarks: 10,000 spans/s are 1,000 traces/s of ten spans, of which
// every second one is written twice, for its last span comes a second later.
const (
	tracesPerSecond = 1000
	rewritten       = 500
	filledSeconds   = 200
)

// traffic makes the row of trace n, whose last span ended at ns: three steps with a
// model call each, of which some fail and are retried or replaced by a fallback.
func traffic(n int, ns int64, random *rand.Rand) schema.LedgerRow {
	row := schema.LedgerRow{
		State: schema.StateAttributed, Spans: 10, Version: schema.LedgerVersion{InsertedUs: ns / 1000, Spans: 10},
		FirstEndNs: ns - 3*second, LastEndNs: ns, LastReceivedNs: ns + second/10, InsertTokens: []uint64{uint64(n), uint64(n) + 1},
	}
	binary.BigEndian.PutUint64(row.TraceID[:], random.Uint64())
	binary.BigEndian.PutUint64(row.TraceID[8:], uint64(n))
	row.Runs = []schema.RunRow{{
		RunID: row.TraceID.String(), Service: fmt.Sprint("service-", n%5), Version: fmt.Sprint("1.", n%2), Environment: "production", Completion: "complete",
		Anchor: true, TraceIDs: []schema.TraceID{row.TraceID}, JoinedBy: "trace", Outcome: "ok", RunLimit: 12, StepLimit: 3, Deliveries: 1, Spans: 10,
		Dialects: []string{"openinference"}, StartNs: ns - 4*second, EndNs: ns,
	}}
	tokens := func(n int64) *int64 { return &n }
	for i := range 3 {
		step := fmt.Sprintf("step-%d", (n+i*5)%12)
		end := ns - int64(2-i)*second
		provider := []string{"openai", "anthropic", "aws.bedrock"}[(n+i)%3]
		visit := schema.OperationRow{Index: uint32(2 * i), Step: step, Grain: "execution", Outcome: "succeeded_first_try", Attempts: 1, StartNs: end - second, EndNs: end, Settled: true}
		call := schema.OperationRow{
			Index: uint32(2*i + 1), Step: step, Grain: "call", Outcome: "succeeded_first_try", Attempts: 1, Provider: provider,
			StartNs: end - second, EndNs: end, CountsInStep: true, Settled: true,
		}
		execution := schema.AttemptRow{Index: uint32(3 * i), Grain: "execution", Step: step, Name: step, Parent: -1, Operation: int64(2 * i), Ordinal: 1, Evidence: "structure", Ending: "succeeded", StartNs: end - second, EndNs: end, Counted: true, ViewOf: -1}
		first := schema.AttemptRow{
			Index: uint32(3*i + 1), Grain: "call", Step: step, Name: "ChatOpenAI", Parent: int64(3 * i), Operation: int64(2*i + 1), Ordinal: 1, Evidence: "structure", Ending: "succeeded",
			Model: "gpt-4o", Provider: provider, StartNs: end - second, EndNs: end - second/2, InputTokens: tokens(120), OutputTokens: tokens(35), Counted: true, Request: true, ViewOf: -1,
		}
		row.Attempts = append(row.Attempts, execution)
		if random.IntN(10) == 0 {
			first.Ending, first.ErrorClass, first.HTTPStatus, first.Wasted, first.InputTokens, first.OutputTokens = "failed", "RateLimitError", 429, true, nil, nil
			row.Attempts = append(row.Attempts, first)
			call.Outcome, call.Attempts, call.Retries = "succeeded_after_retry", 2, 1
			first.Index, first.Ordinal, first.Charge, first.Ending, first.ErrorClass, first.HTTPStatus, first.Wasted = first.Index+1, 2, "call", "succeeded", "", 0, false
			if random.IntN(5) == 0 {
				call.Outcome, call.Retries, call.Fallbacks, first.Charge = "succeeded_by_fallback", 0, 1, "fallback"
			}
		}
		row.Attempts = append(row.Attempts, first)
		row.Operations = append(row.Operations, visit, call)
		row.Steps = append(row.Steps, schema.StepRow{Step: step, Executions: 1, Visits: 1, Operations: 1, Calls: 1, Outcome: "succeeded_first_try", Factorisation: "1", StepLimit: 3, StartNs: end - second, EndNs: end})
	}
	return row
}

func secondsOfTraffic(from, seconds int, endNs int64) []schema.LedgerRow {
	random := rand.New(rand.NewPCG(1, uint64(from)))
	rows := make([]schema.LedgerRow, 0, seconds*tracesPerSecond)
	for i := range seconds * tracesPerSecond {
		ns := endNs - int64(seconds*tracesPerSecond-1-i)*second/tracesPerSecond
		rows = append(rows, traffic(from+i, ns, random))
	}
	return rows
}

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
	now := clock(b, db.Conn)
	var last []schema.LedgerRow // what the next second writes again
	for s := 10; s <= filledSeconds; s += 10 {
		rows := secondsOfTraffic((s-10)*tracesPerSecond, 10, now*1000-int64(filledSeconds-s)*second)
		require.NoError(b, schema.InsertLedger(b.Context(), db.Conn, rows))
		last = slices.Clone(rows[len(rows)-rewritten:])
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
	evaluations := 0
	step := func() {
		due := time.Now().Add(time.Second)
		us := clock(b, db.Conn)
		rows := secondsOfTraffic((filledSeconds+evaluations)*tracesPerSecond, 1, us*1000)
		for i := range last {
			last[i].Version.InsertedUs = us
		}
		require.NoError(b, schema.InsertLedger(b.Context(), db.Conn, append(rows[:len(rows):len(rows)], last...)))
		last = rows[:rewritten]
		evaluations++
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
func full(b *testing.B, seconds int) (*signals.Cache, int64) {
	b.Helper()
	now := int64(1_800_000_000)
	cache := signals.NewCache(packKeep(), signals.Limits{})
	for s := range seconds {
		cache.Advance((now + int64(s)) * 1e6)
		for _, row := range secondsOfTraffic(s*tracesPerSecond, 1, (now+int64(s))*second) {
			cache.Put(&row)
		}
	}
	return cache, now + int64(seconds) - 1
}

// BenchmarkTwoHundredRules is the windows of 200 rules over a full cache.
func BenchmarkTwoHundredRules(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cache, now := full(b, 660)
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
	cache, now := full(b, 30)
	rows := secondsOfTraffic(30*tracesPerSecond, 1, now*second)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		row := &rows[i%len(rows)]
		row.Version.InsertedUs++
		cache.Put(row)
		i++
	}
}
