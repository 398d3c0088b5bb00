package alerter

import (
	"context"
	"math"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/common/model"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// maxWaiting bounds the samples, and the transitions, that wait for a store that is
// away; the oldest go first. As many again may be on their way.
const maxWaiting = 100_000

const (
	// samplesEvery is how often samples are written where no alert changes: an insert each
	// second would cost the store more than all else that an idle evaluation does.
	samplesEvery = 5 * time.Second
	// samplesAtOnce are written sooner.
	samplesAtOnce = 10_000
)

// archive keeps in the store what the evaluations said: changes before the evaluation is
// over, samples beside the next ones. It is not safe for concurrent use.
type archive struct {
	writer      string // names this collector
	samples     []schema.AlertSample
	transitions []schema.AlertTransition
	lost        int       // since the last look
	writtenAt   time.Time // instant of the latest samples that were due

	underWay []schema.AlertSample // samples that are written beside
	written  chan error           // one value when they are, or could not be; nil: none are under way
}

// add takes what an evaluation said, to be written by the next flush.
func (a *archive) add(evaluation rules.Evaluation, set *rules.Set, explained explanations) {
	byName := make(map[string]*rules.Rule)
	for _, r := range set.Rules() {
		byName[r.Name] = r
	}
	for i := range evaluation.Samples {
		s := &evaluation.Samples[i]
		row := schema.AlertSample{
			Instant: evaluation.Instant, Rule: s.Rule, Signal: string(s.Signal), Group: schema.AlertGroup(s.Labels),
			Numerator: s.Numerator, Denominator: s.Denominator, State: string(s.State),
		}
		if r := byName[s.Rule]; r != nil {
			row.WindowS, row.Threshold, row.MinSamples = uint32(r.Window/time.Second), r.Threshold.Ratio(), r.MinSamples
		}
		a.samples = append(a.samples, row)
	}
	for i := range evaluation.Transitions {
		t := &evaluation.Transitions[i]
		x := explained.of(t.Rule, t.Group)
		a.transitions = append(a.transitions, schema.AlertTransition{
			At: t.At, Rule: t.Rule, Signal: string(t.Signal), Group: schema.AlertGroup(t.Group),
			Fingerprint: fingerprint(t.Labels), Labels: t.Labels, From: string(t.From), To: string(t.To), Reason: string(t.Reason),
			Since: t.Since, StartsAt: t.StartsAt, WindowS: uint32(t.Window / time.Second), Numerator: t.Numerator, Denominator: t.Denominator,
			Threshold: t.Threshold.Ratio(), MinSamples: t.MinSamples, LastedMs: t.Lasted.Milliseconds(),
			TopError: x.TopError, TopErrorCount: x.TopErrorCount, Runs: x.Runs, Writer: a.writer,
		})
	}
	a.samples, a.lost = latest(a.samples, a.lost)
	a.transitions, a.lost = latest(a.transitions, a.lost)
}

func latest[R any](rows []R, lost int) ([]R, int) {
	over := max(0, len(rows)-maxWaiting)
	return rows[over:], lost + over
}

// keep writes what is due: changes of alerts at once, and with them the numbers of all
// rules at that instant; other samples now and then. Samples are written beside what
// comes next. The error may be of those that an earlier call began to write.
func (a *archive) keep(ctx context.Context, conn driver.Conn, instant time.Time) error {
	var failed error
	select {
	case err := <-a.written:
		failed = a.finished(err)
	default: // none are under way, or not written yet
	}
	changed := len(a.transitions) > 0
	due := changed || len(a.samples) >= samplesAtOnce || instant.Sub(a.writtenAt) >= samplesEvery || instant.Before(a.writtenAt)
	if !due || failed != nil {
		return failed
	}
	if err := a.keepTransitions(ctx, conn); err != nil {
		return err
	}
	if a.written != nil {
		a.writtenAt = time.Time{} // when those are written
		return nil
	}
	if len(a.samples) == 0 {
		return nil
	}
	a.writtenAt = instant
	a.underWay, a.samples = a.samples, nil
	written := make(chan error, 1)
	a.written = written
	go func(samples []schema.AlertSample) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		written <- schema.InsertAlertSamples(ctx, conn, samples)
	}(a.underWay)
	return nil
}

// finished takes note of what became of the samples that were under way. After an error
// they wait again; rows that are written twice stand once.
func (a *archive) finished(err error) error {
	if err != nil {
		a.samples, a.lost = latest(append(a.underWay, a.samples...), a.lost)
		a.writtenAt = time.Time{}
	}
	a.underWay, a.written = nil, nil
	return err
}

// wait lets the samples that are under way come to their end.
func (a *archive) wait() error {
	if a.written == nil {
		return nil
	}
	return a.finished(<-a.written)
}

func (a *archive) keepTransitions(ctx context.Context, conn driver.Conn) error {
	if len(a.transitions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := schema.InsertAlertTransitions(ctx, conn, a.transitions); err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	a.transitions = nil
	return nil
}

// flush writes all that waits, and what could not be written beside. After an error it
// waits on.
func (a *archive) flush(ctx context.Context, conn driver.Conn) error {
	_ = a.wait() // what failed is written again here
	if err := a.keepTransitions(ctx, conn); err != nil {
		return err
	}
	if len(a.samples) == 0 {
		return nil
	}
	if err := schema.InsertAlertSamples(ctx, conn, a.samples); err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	a.samples = nil
	return nil
}

// stateOf is the state that the transitions in the store led to: what any collector on
// it came to last.
func stateOf(ctx context.Context, conn driver.Conn) (rules.Snapshot, error) {
	last, err := schema.LastAlertInstant(ctx, conn)
	if err != nil {
		return rules.Snapshot{}, err //nolint:wrapcheck // schema says what was attempted
	}
	rows, err := schema.AlertTransitions(ctx, conn, schema.AlertFilter{})
	if err != nil {
		return rules.Snapshot{}, err //nolint:wrapcheck // schema says what was attempted
	}
	transitions := make([]rules.Transition, len(rows))
	for i := range rows {
		transitions[i] = transitionOf(&rows[i])
		if rows[i].At.After(last) {
			last = rows[i].At
		}
	}
	return rules.SnapshotOf(last, transitions), nil
}

func transitionOf(row *schema.AlertTransition) rules.Transition {
	return rules.Transition{
		At: row.At, Rule: row.Rule, Signal: signals.Signal(row.Signal), Group: signals.Labels(row.Group), Labels: row.Labels,
		From: rules.State(row.From), To: rules.State(row.To), Reason: rules.Reason(row.Reason), Since: row.Since, StartsAt: row.StartsAt,
		Numerator: row.Numerator, Denominator: row.Denominator, Threshold: rules.Threshold(math.Round(row.Threshold * 1e6)),
		Window: time.Duration(row.WindowS) * time.Second, MinSamples: row.MinSamples, Lasted: time.Duration(row.LastedMs) * time.Millisecond,
	}
}

// fingerprint names an alert as Alertmanager does.
func fingerprint(labels map[string]string) uint64 {
	set := make(model.LabelSet, len(labels))
	for name, value := range labels {
		set[model.LabelName(name)] = model.LabelValue(value)
	}
	return uint64(set.Fingerprint())
}
