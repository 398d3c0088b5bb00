package attributor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/internal/ledgerstore"
	"github.com/retryledger/retryledger/schema"
)

// longestPause bounds the wait after a pass that the store did not let through.
const longestPause = 10 * time.Second

// shutdownWithin bounds the wait for an account at work.
const shutdownWithin = 5 * time.Second

// attributor runs a Runner until it is shut down.
type attributor struct {
	config  *Config
	log     *zap.Logger
	metrics *metrics

	runner *Runner
	stop   context.CancelFunc
	loop   sync.WaitGroup
}

var _ extensioncapabilities.Dependent = (*attributor)(nil)

func newAttributor(config *Config, settings extension.Settings) (*attributor, error) {
	m, err := newMetrics(settings.MeterProvider)
	if err != nil {
		return nil, err
	}
	return &attributor{config: config, log: settings.Logger, metrics: m}, nil
}

// Dependencies lets the store start before and end after.
func (a *attributor) Dependencies() []component.ID { return []component.ID{a.config.Store} }

// Start begins to look for runs that received spans, once the store is up.
func (a *attributor) Start(ctx context.Context, host component.Host) error {
	store, err := ledgerstore.From(host, a.config.Store)
	if err != nil {
		return err
	}
	a.begin(ctx, store.Conn)
	return nil
}

func (a *attributor) begin(ctx context.Context, conn func(context.Context) (driver.Conn, error)) {
	a.runner = NewRunner(a.config, conn, a.log)
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	a.loop.Go(func() { a.run(ctx) })
	a.loop.Go(func() { a.sumUp(ctx, conn) })
	a.loop.Go(func() { a.metrics.kept.Run(ctx, conn, a.log) })
}

func (a *attributor) run(ctx context.Context) {
	ticker := time.NewTicker(a.config.Interval)
	defer ticker.Stop()
	pause := a.config.Interval
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for behind := true; behind; {
			result, err := a.runner.Pass(ctx, time.Now())
			a.metrics.add(ctx, result, err, time.Now())
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				a.log.Warn("The ledger stands still, for the store did not do its part. Attribution tries again.", zap.Error(err))
				pause = min(2*pause, max(longestPause, a.config.Interval))
				ticker.Reset(pause)
				break
			}
			if pause != a.config.Interval {
				pause = a.config.Interval
				ticker.Reset(pause)
			}
			behind = result.Behind
		}
	}
}

// Sums of hours are built this often, so many at once: where a store of years is new to
// it, one statement reads it all.
const (
	sumUpEvery  = time.Minute
	sumUpAtOnce = 20_000
)

// sumUp builds the sums of the hours that have settled, from which long ranges are
// answered. Without them answers are the same, and slow.
func (a *attributor) sumUp(ctx context.Context, conn func(context.Context) (driver.Conn, error)) {
	ticker := time.NewTicker(sumUpEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c, err := conn(ctx)
		if err == nil {
			_, err = schema.BuildUsageHours(ctx, c, schema.UsageSettle, sumUpAtOnce)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("The sums of hours were not built; questions about long ranges take longer. They are tried again.", zap.Error(err))
		}
	}
}

// Shutdown ends the loop, a pass at work included: what it had not written is found
// again at the next start.
func (a *attributor) Shutdown(ctx context.Context) error {
	if a.stop == nil {
		return nil
	}
	a.stop()
	a.stop = nil
	// Every wait on the store ends at once. Only an account may not: it is pure
	// computation, and a run can be large.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.loop.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(shutdownWithin):
		return fmt.Errorf("the account of a run took longer than %s and was left behind; it is made again at the next start", shutdownWithin)
	}
	// The progress is written down so that the next start need not look for it.
	// A store that is not there takes nothing and is not waited for.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := a.runner.Record(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		a.log.Info("How far attribution has come was not written down; the next start looks again.", zap.Error(err))
	}
	return nil
}
