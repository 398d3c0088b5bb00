package ingest

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/selfmetrics"
	"github.com/retryledger/retryledger/schema"
)

const scopeName = "github.com/retryledger/retryledger/ingest"

// telemetry is what the exporter says about itself.
type telemetry struct {
	accepted    metric.Int64Counter
	refused     metric.Int64Counter
	inserted    metric.Int64Counter
	retries     metric.Int64Counter
	deadLetters metric.Int64Counter
	lostLetters metric.Int64Counter
	replayed    metric.Int64Counter
	bounded     metric.Int64Counter
	mended      metric.Int64Counter
	insertTime  metric.Float64Histogram
	kept        *selfmetrics.Log // the same, kept in the store

	meter        metric.Meter
	registration metric.Registration
}

func newTelemetry(provider metric.MeterProvider) (*telemetry, error) {
	t := &telemetry{meter: provider.Meter(scopeName), kept: selfmetrics.New()}
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := t.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	t.accepted = counter("retryledger_ingest_spans_accepted", "{span}", "Spans that were acknowledged: their rows are in the journal.")
	t.refused = counter("retryledger_ingest_spans_refused", "{span}", "Spans that were not acknowledged because the journal could not take them, by reason; senders are told to try again.")
	t.inserted = counter("retryledger_ingest_rows_inserted", "{row}", "Rows that the store has taken.")
	t.retries = counter("retryledger_ingest_insert_retries", "{insert}", "Inserts that failed and are tried again.")
	t.deadLetters = counter("retryledger_ingest_dead_letters", "{item}", "Spans, rows and stretches of the journal that could not be kept, by kind and cause.")
	t.lostLetters = counter("retryledger_ingest_dead_letters_lost", "{item}", "Dead letters that could not be written, or were displaced by newer ones, by reason.")
	t.bounded = counter("retryledger_ingest_names_bounded", "{span}", "Spans with a name that is kept as (other), because their service has more names than max_step_names.")
	t.mended = counter("retryledger_ingest_spans_mended", "{span}", "Spans with a text that is kept with U+FFFD in it: it was no UTF-8, or came so.")
	t.replayed = counter("retryledger_ingest_dead_letters_replayed", "{row}", "Rows of dead letters that were taken again because somebody asked for it.")
	var err error
	t.insertTime, err = t.meter.Float64Histogram("retryledger_ingest_insert_duration", metric.WithUnit("s"),
		metric.WithDescription("How long an insert took, failed ones included."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60))
	return t, errors.Join(append(errs, err)...)
}

// observe reports the journal's fill until stop.
func (t *telemetry) observe(j *journal.Journal, now func() time.Time) error {
	t.kept.BeforeEach(func() {
		s := j.Stats()
		t.kept.Add(schema.MetricJournalWaiting, float64(s.UnconfirmedBytes))
		t.kept.Add(schema.MetricJournalAge, waited(s, now()))
	})
	var errs []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	size := gauge("retryledger_ingest_journal_size", "By", "Size of the journal's segments.")
	waiting := gauge("retryledger_ingest_journal_unconfirmed_size", "By", "Size of what is in the journal and not yet in the store.")
	aside := gauge("retryledger_ingest_journal_set_aside_size", "By", "Size of the segments kept because of damage.")
	segments := gauge("retryledger_ingest_journal_segments", "{segment}", "Segments of the journal.")
	age, err := t.meter.Float64ObservableGauge("retryledger_ingest_journal_oldest_unconfirmed_age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest row that is not yet in the store has waited; 0 when none waits."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	t.registration, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := j.Stats()
		o.ObserveInt64(size, s.Bytes)
		o.ObserveInt64(waiting, s.UnconfirmedBytes)
		o.ObserveInt64(aside, s.SetAsideBytes)
		o.ObserveInt64(segments, int64(s.Segments))
		o.ObserveFloat64(age, waited(s, now()))
		return nil
	}, size, waiting, aside, segments, age)
	return err
}

// waited is how many seconds the oldest row that is not in the store has waited.
func waited(s journal.Stats, now time.Time) float64 {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest).Seconds())
}

func (t *telemetry) stop() error {
	if t.registration == nil {
		return nil
	}
	return t.registration.Unregister()
}

func (t *telemetry) addDeadLetters(ctx context.Context, kind deadletter.Kind, cause deadletter.Cause, n int) {
	t.deadLetters.Add(ctx, int64(n), metric.WithAttributes(attribute.String("kind", string(kind)), attribute.String("cause", string(cause))))
	t.kept.Add(schema.MetricDeadLetters, float64(n))
}

func (t *telemetry) addLostLetters(n int, reason string) {
	t.lostLetters.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("reason", reason)))
}
