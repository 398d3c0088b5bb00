package alerter

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/internal/selfmetrics"
	"github.com/retryledger/retryledger/schema"
)

// metrics count what the evaluations do.
type metrics struct {
	evaluations, failures, transitions, leftOff, lost metric.Int64Counter
	duration                                          metric.Float64Histogram
	firing                                            metric.Int64Gauge
	kept                                              *selfmetrics.Log // some of them, kept in the store
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("github.com/retryledger/retryledger/alerts/alerter")
	m := &metrics{kept: selfmetrics.New()}
	var errs []error
	for _, c := range []struct {
		counter           *metric.Int64Counter
		name, unit, about string
	}{
		{&m.evaluations, "retryledger_alerts_evaluations", "{evaluation}", "Evaluations of all rules."},
		{&m.failures, "retryledger_alerts_failed_evaluations", "{evaluation}", "Evaluations that could not read the signals."},
		{&m.transitions, "retryledger_alerts_transitions", "{transition}", "Changes of an alert's state, by the state it came to."},
		{&m.leftOff, "retryledger_alerts_left_off_groups", "{group}", "Groups that were not judged, for their rule has more than max_groups."},
		{&m.lost, "retryledger_alerts_lost_records", "{record}", "Samples and transitions that were not kept, for the store was away for too long."},
	} {
		var err error
		*c.counter, err = meter.Int64Counter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.about))
		errs = append(errs, err)
	}
	var err error
	m.duration, err = meter.Float64Histogram("retryledger_alerts_evaluation_duration", metric.WithUnit("s"),
		metric.WithDescription("Time of one evaluation, the read of what changed in the ledger included."))
	errs = append(errs, err)
	m.firing, err = meter.Int64Gauge("retryledger_alerts_firing", metric.WithUnit("{alert}"), metric.WithDescription("Alerts that fire."))
	return m, errors.Join(append(errs, err)...)
}

func (m *metrics) evaluated(ctx context.Context, evaluation rules.Evaluation, seconds float64, failed bool) {
	m.evaluations.Add(ctx, 1)
	if failed {
		m.failures.Add(ctx, 1)
		m.kept.Add(schema.MetricEvaluationsFailed, 1)
	}
	m.duration.Record(ctx, seconds)
	m.kept.Add(schema.MetricEvaluationTime, seconds)
	for i := range evaluation.Transitions {
		m.transitions.Add(ctx, 1, metric.WithAttributes(attribute.String("to", string(evaluation.Transitions[i].To))))
	}
	for _, l := range evaluation.LeftOff {
		m.leftOff.Add(ctx, int64(l.Groups), metric.WithAttributes(attribute.String("rule", l.Rule)))
	}
	firing := int64(0)
	for i := range evaluation.Alerts {
		if evaluation.Alerts[i].State == rules.StateFiring {
			firing++
		}
	}
	m.firing.Record(ctx, firing)
}
