package attributor

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/retryledger/retryledger/internal/selfmetrics"
	"github.com/retryledger/retryledger/schema"
)

// metrics count what the passes do.
type metrics struct {
	traces, runs, failed, frozen, tooLarge, storeErrors, conflicts, broken metric.Int64Counter

	delay metric.Float64Histogram
	kept  *selfmetrics.Log // the delay, kept in the store
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("github.com/retryledger/retryledger/analysis/attributor")
	m := &metrics{kept: selfmetrics.New()}
	var errs []error
	for _, c := range []struct {
		counter           *metric.Int64Counter
		name, unit, about string
	}{
		{&m.traces, "retryledger_attribution_traces", "{trace}", "Rows of the ledger written, one for each trace of each account."},
		{&m.runs, "retryledger_attribution_runs", "{run}", "Runs accounted for, again each time spans arrived."},
		{&m.failed, "retryledger_attribution_failed_traces", "{trace}", "Traces whose attribution failed."},
		{&m.frozen, "retryledger_attribution_frozen_traces", "{trace}", "Traces whose spans are partly past their retention, so that the ledger was kept as it was."},
		{&m.tooLarge, "retryledger_attribution_too_large_traces", "{trace}", "Traces with more spans than a run may have."},
		{&m.conflicts, "retryledger_attribution_conflicting_spans", "{span}", "Rows that say other things of a span than another row of its id, again each time their run is accounted for."},
		{&m.broken, "retryledger_attribution_broken_identities", "{run}", "Runs whose numbers broke the named identity of the ledger: a defect of retryledger."},
		{&m.storeErrors, "retryledger_attribution_store_errors", "{pass}", "Passes that the store did not let through."},
	} {
		var err error
		*c.counter, err = meter.Int64Counter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.about))
		errs = append(errs, err)
	}
	var err error
	m.delay, err = meter.Float64Histogram("retryledger_attribution_delay", metric.WithUnit("s"),
		metric.WithDescription("From the receipt of a trace's last span to the row of the ledger that knows it."),
		metric.WithExplicitBucketBoundaries(0.25, 0.5, 1, 2, 5, 10, 30, 60, 300))
	return m, errors.Join(append(errs, err)...)
}

// add takes what a pass did that ended now.
func (m *metrics) add(ctx context.Context, r Result, err error, now time.Time) {
	for _, received := range r.Received {
		delay := max(0, time.Duration(now.UnixNano()-received)).Seconds()
		m.delay.Record(ctx, delay)
		m.kept.Add(schema.MetricAttributionDelay, delay)
	}
	m.traces.Add(ctx, int64(r.Traces))
	m.runs.Add(ctx, int64(r.Runs))
	m.failed.Add(ctx, int64(r.Failed))
	m.frozen.Add(ctx, int64(r.Frozen))
	m.tooLarge.Add(ctx, int64(r.TooLarge))
	m.conflicts.Add(ctx, int64(r.Conflicts))
	for identity, n := range r.Broken {
		m.broken.Add(ctx, int64(n), metric.WithAttributes(attribute.String("identity", string(identity))))
	}
	if err != nil && ctx.Err() == nil {
		m.storeErrors.Add(ctx, 1)
	}
}
