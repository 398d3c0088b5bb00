package alerter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/internal/traffic"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

// inEarnest is an extension's loop on a store with its own clock, with the default rules.
func inEarnest(b *testing.B) (*alerter, *bed) {
	b.Helper()
	db := enginetest.Database(b)
	require.NoError(b, schema.Migrate(b.Context(), db.Conn, schema.MigrateOptions{}))
	s := &bed{t: b, real: db.Conn, hook: newWebhook(b)}
	dir := b.TempDir()
	config := defaults()
	config.Delivery.ConfigFile = filepath.Join(dir, "alertmanager.yml")
	write(b, config.Delivery.ConfigFile, s.hook.config())
	d, err := delivery.New(&config.Delivery, delivery.Settings{DataDir: dir, RoutePrefix: prefix, Telemetry: componenttest.NewNopTelemetrySettings()})
	require.NoError(b, err)
	settings := extensiontest.NewNopSettings(Type)
	a := newAlerter(config, settings)
	a.watch, err = newWatch(config, func(context.Context) (driver.Conn, error) { return db.Conn, nil }, d, dir, "http://127.0.0.1:4320", settings)
	require.NoError(b, err)
	require.NoError(b, d.Start(context.Background(), componenttest.NewNopHost()))
	a.deliverer = d
	b.Cleanup(func() { require.NoError(b, a.Shutdown(context.Background())) })
	return a, s
}

// BenchmarkBreachToWebhook is the time from a breach in settled rows of the ledger to
// its webhook's arrival, each breach at a random moment of the second.
func BenchmarkBreachToWebhook(b *testing.B) {
	a, s := inEarnest(b)
	loop, stop := context.WithCancel(b.Context())
	a.stop = stop
	a.loop.Go(func() { a.run(loop) })
	require.Eventually(b, func() bool { return !a.watch.live.UpTo().IsZero() }, time.Minute, 10*time.Millisecond)
	random := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	for b.Loop() {
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		service := fmt.Sprintf("service-%d", len(took))
		row := s.row(work{service: service, visits: 50, failed: 2}, time.Now())
		require.NoError(b, schema.InsertLedger(b.Context(), s.real, []schema.LedgerRow{row}))
		breach := time.Unix(0, row.LastEndNs) // earlier than the insert's end
		for key := range s.hook.came {
			if key == "firing step_errors "+service {
				break
			}
		}
		took = append(took, time.Since(breach))
	}
	reportPercentiles(b, took)
}

// handover notes when a pass hands its alerts to delivery: what follows is for later
// readers, the samples' insert every few seconds above all.
type handover struct {
	delivery.Deliverer
	at time.Time
}

func (h *handover) Put(ctx context.Context, alerts ...delivery.Alert) error {
	defer func() { h.at = time.Now() }()
	return h.Deliverer.Put(ctx, alerts...)
}

// filledSeconds is for how long the store of BenchmarkPass has taken traffic.
const filledSeconds = 200

// BenchmarkPass is one pass in a store that takes 10,000 spans/s: what the last second
// changed, the default rules, alerts that fire, and breakers. As in production the
// rows are inserted beside the passes, which come once a second; but between two of them,
// so that the process's time in a pass is that pass's own. What a pass lets be written
// beside, the samples every few seconds, is counted apart.
func BenchmarkPass(b *testing.B) {
	a, s := inEarnest(b)
	source := traffic.New(1)
	var again []schema.LedgerRow // what the next second writes again
	now := time.Now()
	for second := range filledSeconds {
		rows := source.Second(now.Add(time.Duration(second-filledSeconds) * time.Second))
		require.NoError(b, schema.InsertLedger(b.Context(), s.real, rows))
		again = rows[:traffic.RewrittenPerSecond]
	}
	insert := func() {
		rows := source.Second(time.Now())
		for i := range again {
			again[i].Version.InsertedUs = time.Now().UnixMicro()
		}
		for batch := range slices.Chunk(slices.Concat(rows, again), traffic.Batch) {
			require.NoError(b, schema.InsertLedger(b.Context(), s.real, batch))
		}
		again = rows[:traffic.RewrittenPerSecond]
	}
	var engine atomic.Int64
	ctx := clickhouse.Context(b.Context(), clickhouse.WithProfileEvents(func(events []clickhouse.ProfileEvent) {
		for _, e := range events {
			if e.Name == "OSCPUVirtualTimeMicroseconds" && e.ThreadID == 0 {
				engine.Add(e.Value)
			}
		}
	}))
	handed := &handover{Deliverer: a.watch.deliverer}
	a.watch.deliverer = handed
	var used, beside, engineBeside time.Duration
	var took, told []time.Duration
	samples := 0
	pass := func() {
		cpu, began := processTime(b), time.Now()
		a.watch.pass(ctx, time.Now())
		took = append(took, time.Since(began))
		told = append(told, handed.at.Sub(began))
		passed, inEngine := processTime(b), engine.Load()
		used += passed - cpu
		require.NoError(b, a.watch.archive.wait())
		a.watch.state.wait()
		beside += processTime(b) - passed
		engineBeside += time.Duration(engine.Load()-inEngine) * time.Microsecond
		engine.Store(inEngine)
		samples += len(a.watch.last.evaluation.Samples)
	}
	second := func(measured func()) {
		due := time.Now().Add(time.Second)
		insert()
		// What inserts leave to the collector of garbage is no matter of a pass.
		runtime.GC()
		time.Sleep(time.Until(due)) // so that a read looks back on as many writes as in earnest
		measured()
	}
	for range 12 { // until the overlap holds only writes of such seconds
		second(pass)
	}
	used, beside, engineBeside, took, told, samples = 0, 0, 0, nil, nil, 0
	engine.Store(0)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		second(func() { b.StartTimer(); pass() })
	}
	require.NoError(b, a.watch.reading.err)
	reportPercentiles(b, took)
	slices.Sort(told)
	b.ReportMetric(told[len(told)/2].Seconds()*1000, "ms-handed-p50")
	b.ReportMetric(told[len(told)*95/100].Seconds()*1000, "ms-handed-p95")
	// On a busy machine, what a quiet one would take.
	perPass := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N) }
	b.ReportMetric(perPass(used), "cpu-ms/pass")
	b.ReportMetric(perPass(time.Duration(engine.Load())*time.Microsecond), "engine-cpu-ms/pass")
	b.ReportMetric(perPass(beside), "cpu-ms-beside/pass")
	b.ReportMetric(perPass(engineBeside), "engine-cpu-ms-beside/pass")
	b.ReportMetric(float64(samples)/float64(b.N), "samples/pass")
	b.ReportMetric(float64(len(a.watch.last.evaluation.Alerts)), "alerts")
}

func reportPercentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(share float64) float64 {
		return took[min(len(took)-1, int(share*float64(len(took))))].Seconds() * 1000
	}
	b.ReportMetric(at(0.5), "ms-p50")
	b.ReportMetric(at(0.95), "ms-p95")
	b.ReportMetric(at(1), "ms-max")
}

// processTime is the processors' time that this process has used.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
