package alerter

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/common/model"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

const (
	// maxWaiting bounds the samples that wait for a store that is away; the oldest go first.
	// As many again may be on their way.
	maxWaiting = 100_000
	// maxChanges bounds the transitions that wait, those of the last evaluation apart; the
	// oldest go first. They are in the state file, which is written anew at each change.
	maxChanges = 10_000
)

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
	transitions []schema.AlertTransition // the oldest first
	lost        int                      // samples, since the last look
	lostChanges int                      // transitions, since the last look
	writtenAt   time.Time                // instant of the latest samples that were due

	underWay []schema.AlertSample // samples that are written beside
	written  chan error           // one value when they are, or could not be; nil: none are under way
}

// change takes the transitions of an evaluation, to be written by the next keep. What is
// behind them is said by explain.
func (a *archive) change(transitions []rules.Transition) {
	a.transitions, a.lostChanges = latest(a.transitions, maxChanges, a.lostChanges)
	for i := range transitions {
		t := &transitions[i]
		a.transitions = append(a.transitions, schema.AlertTransition{
			At: t.At, Rule: t.Rule, Signal: string(t.Signal), Group: schema.AlertGroup(t.Group),
			Fingerprint: fingerprint(t.Labels), Labels: t.Labels, From: string(t.From), To: string(t.To), Reason: string(t.Reason),
			Since: t.Since, StartsAt: t.StartsAt, WindowS: uint32(t.Window / time.Second), Numerator: t.Numerator, Denominator: t.Denominator,
			Threshold: t.Threshold.Ratio(), MinSamples: t.MinSamples, LastedMs: t.Lasted.Milliseconds(), Writer: a.writer,
		})
	}
}

// explain says what is behind the transitions that wait, where they do not say it.
func (a *archive) explain(explained explanations) {
	for i := range a.transitions {
		t := &a.transitions[i]
		x := explained[rules.Key{Rule: t.Rule, Group: signals.Labels(t.Group)}]
		if t.TopError == "" && len(t.Runs) == 0 && !t.StartsAt.IsZero() && t.StartsAt.Equal(x.startsAt) {
			t.TopError, t.TopErrorCount, t.Runs = x.TopError, x.TopErrorCount, x.Runs
		}
	}
}

// add takes the samples of an evaluation, to be written by a later keep.
func (a *archive) add(evaluation rules.Evaluation, set *rules.Set) {
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
	a.samples, a.lost = latest(a.samples, maxWaiting, a.lost)
}

// latest leaves the last rows, so many at most, and counts the others as lost.
func latest[R any](rows []R, most, lost int) ([]R, int) {
	over := max(0, len(rows)-most)
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
	failed = a.keepTransitions(ctx, conn)
	if a.written != nil {
		a.writtenAt = time.Time{} // when those are written
		return failed
	}
	if len(a.samples) == 0 {
		return failed
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
	return failed
}

// finished takes note of what became of the samples that were under way. After an error
// they wait again; rows that are written twice stand once.
func (a *archive) finished(err error) error {
	if err != nil {
		a.samples, a.lost = latest(append(a.underWay, a.samples...), maxWaiting, a.lost)
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
	failed := a.keepTransitions(ctx, conn)
	if len(a.samples) == 0 {
		return failed
	}
	if err := schema.InsertAlertSamples(ctx, conn, a.samples); err != nil {
		return errors.Join(failed, err)
	}
	a.samples = nil
	return failed
}

// takeUp takes the transitions of the state file that the store does not have. Those that
// it has stay as they are there, for they may say more.
func (a *archive) takeUp(ctx context.Context, conn driver.Conn, transitions []schema.AlertTransition) error {
	if len(transitions) == 0 {
		return nil
	}
	filter := schema.AlertFilter{Since: transitions[0].At, Until: transitions[0].At}
	for i := range transitions {
		if at := transitions[i].At; at.Before(filter.Since) {
			filter.Since = at
		} else if at.After(filter.Until) {
			filter.Until = at
		}
	}
	filter.Until = filter.Until.Add(time.Millisecond)
	rows, err := schema.AlertTransitions(ctx, conn, filter)
	if err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	kept := make(map[changeKey]bool, len(rows))
	for i := range rows {
		kept[changeOf(&rows[i])] = true
	}
	for i := range transitions {
		if !kept[changeOf(&transitions[i])] {
			a.transitions = append(a.transitions, transitions[i])
		}
	}
	return nil
}

// changeKey is what tells transitions apart, as the table's key has it.
type changeKey struct {
	at       int64 // milliseconds since the epoch
	rule, to string
	group    schema.AlertGroup
}

func changeOf(t *schema.AlertTransition) changeKey {
	return changeKey{t.At.UnixMilli(), t.Rule, t.To, t.Group}
}

// state is the state that the transitions in the store, and those that wait for it, led to:
// what any collector on it came to last.
func (a *archive) state(ctx context.Context, conn driver.Conn) (rules.Snapshot, error) {
	last, err := schema.LastAlertInstant(ctx, conn)
	if err != nil {
		return rules.Snapshot{}, err //nolint:wrapcheck // schema says what was attempted
	}
	rows, err := schema.AlertTransitions(ctx, conn, schema.AlertFilter{})
	if err != nil {
		return rules.Snapshot{}, err //nolint:wrapcheck // schema says what was attempted
	}
	rows = append(rows, a.transitions...)
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
