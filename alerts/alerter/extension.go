package alerter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/gates"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/api"
	"github.com/retryledger/retryledger/internal/ledgerstore"
	"github.com/retryledger/retryledger/internal/selfmetrics"
)

const (
	// folder is where the state of alerts and of Alertmanager is, below the data folder.
	folder    = "alerts"
	stateName = "state.json"
	// prefix is where Alertmanager's API is served.
	prefix = "/alertmanager"
	// stallAfter is by how much the ledger may be behind before missing data may be late
	// data. What it has reached is written down every two seconds.
	stallAfter = 10 * time.Second
)

// alerter is the extension.
type alerter struct {
	config   *Config
	settings extension.Settings

	watch     *watch
	deliverer delivery.Deliverer
	unmeasure func() error
	stop      context.CancelFunc
	loop      sync.WaitGroup
}

var _ extensioncapabilities.Dependent = (*alerter)(nil)

func newAlerter(config *Config, settings extension.Settings) *alerter {
	return &alerter{config: config, settings: settings}
}

// Dependencies lets the store and the API start before and end after.
func (a *alerter) Dependencies() []component.ID { return []component.ID{a.config.Store, a.config.API} }

// Start begins to evaluate. A mistake in the rules or in Alertmanager's configuration
// is told here; a store that is not there yet is waited for.
func (a *alerter) Start(ctx context.Context, host component.Host) (err error) {
	defer func() {
		if err != nil {
			// The Collector does not shut down what did not start.
			err = errors.Join(fmt.Errorf("start the alerts: %w", err), a.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	store, err := ledgerstore.From(host, a.config.Store)
	if err != nil {
		return err //nolint:wrapcheck // it says what is missing
	}
	router, err := api.RouterFrom(host, a.config.API)
	if err != nil {
		return err //nolint:wrapcheck // it says what is missing
	}
	dir := filepath.Join(store.DataDir(), folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err //nolint:wrapcheck // it names the folder
	}
	deliverer, err := delivery.New(&a.config.Delivery, delivery.Settings{
		DataDir: dir, RoutePrefix: prefix, ExternalURL: router.URL(), EvaluationInterval: interval, Telemetry: a.settings.TelemetrySettings,
	})
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong
	}
	if a.watch, err = newWatch(a.config, store.Conn, deliverer, dir, router.URL(), a.settings); err != nil {
		return err
	}
	if err := deliverer.Start(ctx, host); err != nil {
		return err //nolint:wrapcheck // it says what is wrong
	}
	a.deliverer = deliverer
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	if err := a.serve(router, store.Conn, loop.Done()); err != nil {
		return err
	}
	a.loop.Go(func() { a.run(loop) })
	a.loop.Go(func() { a.watch.metrics.kept.Run(loop, store.Conn, a.settings.Logger) })
	return nil
}

type connect = func(context.Context) (driver.Conn, error)

func newWatch(config *Config, conn connect, deliverer delivery.Deliverer, dir, url string, settings extension.Settings) (*watch, error) {
	file := &rulesFile{path: config.RulesFile}
	set, err := file.load()
	if err != nil {
		return nil, err
	}
	meters, err := newMetrics(settings.MeterProvider)
	if err != nil {
		return nil, err
	}
	writer := selfmetrics.Writer()
	clock := &storeClock{now: time.Now}
	breakerSet, err := breakers.New(config.Breakers, clock.Now().Format(time.RFC3339Nano))
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong
	}
	always := gates.Keep(config.MaxGateWindow)
	for signal, window := range config.Breakers.Keep() {
		always[signal] = max(always[signal], window)
	}
	live := newLiveSignals(set, always, signals.Limits{Series: config.MaxSeries, Traces: config.MaxTraces}, settings.Logger)
	r, lag := &reading{live: live}, &lagReading{conn: conn}
	w := &watch{
		conn: conn, file: file, receivers: watchFile(config.Delivery.ConfigFile), live: live, reading: r, lag: lag, deliverer: deliverer, clock: clock,
		evaluator: rules.NewEvaluator(set, r, rules.Options{StallAfter: stallAfter, Lag: lag.read}),
		explainer: &explainer{dashboard: config.DashboardURL, within: explainWithin, log: settings.Logger}, archive: &archive{writer: writer},
		breakers: &breakerKeeper{set: breakerSet, writer: writer, log: settings.Logger, changed: map[string]breakers.Breaker{}},
		state:    stateFile{path: filepath.Join(dir, stateName)}, metrics: meters, log: settings.Logger,
		link: func(fingerprint string) string { return url + report.AlertsPath + "/" + fingerprint },
		last: outcome{set: set}, leftOff: map[string]time.Time{},
	}
	breakerSet.KeepFirst(func(transitions []breakers.Transition, changed []breakers.Breaker) {
		w.breakers.change(transitions, changed)
		_ = w.keepState()
	})
	return w, nil
}

// serve puts what people ask onto the API.
func (a *alerter) serve(router api.Router, conn connect, ending <-chan struct{}) error {
	w, log := a.watch, a.settings.Logger
	routes := report.Routes(report.Settings{
		Now: w.clock.Now, Alerts: w.alerts, Rules: w.inForce, Conn: conn, Turn: router.Turn, Limits: router.Limits(), Logger: log, Ending: ending,
	})
	routes[gates.Path] = gates.NewHandler(gates.HandlerSettings{
		Reader: w.live, UpTo: w.live.UpTo, Now: w.clock.Now, MaxWindow: a.config.MaxGateWindow, StaleAfter: gates.DefaultStaleAfter, Logger: log,
	})
	ofBreakers := breakers.NewHandler(breakers.HandlerSettings{
		Set: w.breakers.set, Now: w.clock.Now, MaxSubscribers: breakers.DefaultMaxSubscribers, Logger: log,
	})
	routes[breakers.Path], routes[breakers.Path+"/"] = ofBreakers, ofBreakers
	routes[prefix+"/"] = a.deliverer.Handler()
	for pattern, handler := range routes {
		if err := router.Handle(pattern, handler); err != nil {
			return err //nolint:wrapcheck // it names the pattern
		}
	}
	stop, err := breakers.Measure(a.settings.MeterProvider, w.breakers.set, w.clock.Now)
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong
	}
	a.unmeasure = stop
	return nil
}

// run evaluates until ctx ends.
func (a *alerter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(a.watch.pass(ctx, time.Now()))
	}
}

// Shutdown ends the evaluations and then the delivery.
func (a *alerter) Shutdown(ctx context.Context) error {
	var errs []error
	if a.watch != nil {
		a.watch.breakers.set.Close() // the API waits for the streams
	}
	if a.unmeasure != nil {
		errs = append(errs, a.unmeasure())
		a.unmeasure = nil
	}
	if a.stop != nil {
		a.stop()
		a.stop = nil
		a.loop.Wait()
		a.watch.end(ctx)
	}
	if a.deliverer != nil {
		if err := a.deliverer.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop the delivery of alerts: %w", err))
		}
		a.deliverer = nil
	}
	return errors.Join(errs...)
}
