package alerter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

const (
	// interval is the time between evaluations, by the store's clock.
	interval = time.Second
	// patience bounds what one pass waits for the store: an evaluation that is late is
	// better told as stalled than waited for.
	patience = 5 * time.Second
	// stateEvery is how often the state is kept where nothing changed, so that a restart
	// knows since when nothing was evaluated.
	stateEvery = 10 * time.Second
	// leftOffEvery is how often the log says that a rule leaves groups off.
	leftOffEvery = 10 * time.Minute
)

// watch evaluates the rules, pass by pass.
type watch struct {
	conn      connect
	file      *rulesFile
	receivers *watchedFile // Alertmanager's configuration
	live      *liveSignals
	reading   *reading
	lag       *lagReading
	evaluator *rules.Evaluator
	deliverer delivery.Deliverer
	explainer *explainer
	archive   *archive
	breakers  *breakerKeeper
	state     stateFile
	clock     *storeClock
	link      func(fingerprint string) string
	metrics   *metrics
	log       *zap.Logger

	restored  bool
	pending   *rules.Set // read from the file, in force once its windows are filled
	instant   time.Time  // of the last pass, by the store's clock
	at        time.Time  // of the last pass, by ours
	keptAt    time.Time  // when the state was kept, by the store's clock
	troubles  troubles
	deletions deletions
	leftOff   map[string]time.Time // by rule: when the log last said that it leaves groups off

	mu   sync.Mutex
	last outcome
}

// outcome is what the last pass came to, for those who ask.
type outcome struct {
	evaluation  rules.Evaluation
	set         *rules.Set                   // in force
	annotations map[uint64]map[string]string // of what is delivered, by fingerprint
	explained   explanations                 // of what fires
	rulesError  string                       // why the rules file was not taken
}

// inForce are the rules that are evaluated.
func (w *watch) inForce() *rules.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.set
}

// alerts is the state of all alerts, for people.
func (w *watch) alerts() report.Alerts {
	snapshot := w.evaluator.Snapshot()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	out := report.Alerts{
		StalledSeconds: last.evaluation.Stalled.Seconds(), RulesError: last.rulesError, Rules: len(last.set.Rules()), Alerts: []report.Alert{},
	}
	if !snapshot.Instant.IsZero() {
		out.EvaluatedAt = &snapshot.Instant
		out.StalledSeconds = max(0, w.clock.Now().Sub(snapshot.Instant).Seconds())
	}
	for _, l := range last.evaluation.LeftOff {
		if out.LeftOff == nil {
			out.LeftOff = map[string]int{}
		}
		out.LeftOff[l.Rule] = l.Groups
	}
	for i := range snapshot.Alerts {
		s := &snapshot.Alerts[i]
		f := fingerprint(s.Labels)
		alert := report.AlertOf(s, f, last.explained.of(s.Rule, s.Group), last.annotations[f])
		if s.State == rules.StateFiring {
			alert.Muted = w.deliverer.Muted(s.Labels)
		}
		out.Alerts = append(out.Alerts, alert)
	}
	order := map[string]int{string(rules.StateFiring): 0, string(rules.StatePending): 1, string(rules.StateResolved): 2}
	slices.SortStableFunc(out.Alerts, func(a, b report.Alert) int { return order[a.State] - order[b.State] })
	return out
}

// pass evaluates once. now is our clock's. It returns how long to wait for the next.
func (w *watch) pass(ctx context.Context, now time.Time) time.Duration {
	began := time.Now() // for the metrics alone
	rulesError := w.reload(ctx)
	conn, instant, err := w.refresh(ctx)
	read, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err != nil {
		// Without the store's clock, ours says how much time went by.
		if w.instant.IsZero() {
			instant = now
		} else {
			instant = w.instant.Add(now.Sub(w.at))
		}
	} else {
		w.clock.set(instant, now)
	}
	pause := instant.Truncate(interval).Add(interval).Sub(instant)
	if err == nil && w.pending != nil && w.live.prepared() {
		w.evaluator.Reload(w.pending)
		w.mu.Lock()
		w.last.set = w.pending
		w.mu.Unlock()
		w.pending = nil
	}
	if err == nil && !w.restored {
		err = w.restore(read, conn, instant)
	}
	if !w.restored && err != nil {
		// Nothing may be evaluated before it is known what fires already.
		w.troubles.tell(w.log, "No alert rule is evaluated, for the store did not do its part.", err)
		w.metrics.evaluated(ctx, rules.Evaluation{}, time.Since(began).Seconds(), true)
		return interval
	}
	if !w.at.IsZero() && !instant.Truncate(interval).After(w.instant.Truncate(interval)) && w.instant.Sub(instant) < interval {
		return max(pause, interval/20) // the same second again
	}
	w.instant, w.at = instant, now
	if err == nil {
		w.followDeletions(read, conn, instant)
	}

	w.reading.err = err
	evaluation, err := w.evaluator.Eval(read, instant)
	if err != nil {
		w.troubles.tell(w.log, "The alert rules could not be evaluated; what fires goes on firing.", err)
	} else {
		w.troubles.over(w.log, "The alert rules are evaluated again.")
	}
	w.mu.Lock()
	w.last.evaluation, w.last.rulesError = evaluation, rulesError
	set := w.last.set
	w.mu.Unlock()
	w.settle(ctx, conn, evaluation, set)
	w.tellLeftOff(evaluation)
	w.breakers.pass(ctx, conn, w.reading, w.live.UpTo(), w.clock.Now())
	w.metrics.evaluated(ctx, evaluation, time.Since(began).Seconds(), err != nil)
	return max(pause, interval/20)
}

// tellLeftOff logs, now and then, which rules have more groups than they may.
func (w *watch) tellLeftOff(evaluation rules.Evaluation) {
	for _, l := range evaluation.LeftOff {
		if told, ever := w.leftOff[l.Rule]; ever && evaluation.Instant.Sub(told) < leftOffEvery {
			continue
		}
		w.leftOff[l.Rule] = evaluation.Instant
		w.log.Warn("An alert rule has more groups than its max_groups, and leaves some off: raise it, filter by where, or group by less.",
			zap.String("rule", l.Rule), zap.Int("left_off", l.Groups))
	}
}

// settle keeps what an evaluation said and tells those who are to be told.
func (w *watch) settle(ctx context.Context, conn driver.Conn, evaluation rules.Evaluation, set *rules.Set) {
	// First the state, then the delivery: what is told again after a crash is known to
	// Alertmanager, what is never told is lost.
	if len(evaluation.Transitions) > 0 {
		w.archive.change(evaluation.Transitions)
		_ = w.keepState()
		w.keptAt = evaluation.Instant
	} else if evaluation.Instant.Sub(w.keptAt) >= stateEvery || evaluation.Instant.Before(w.keptAt) {
		w.state.writeBeside(w.toKeep(), w.stateKept)
		w.keptAt = evaluation.Instant
	}
	explained := w.explainer.explain(ctx, conn, evaluation)
	w.archive.explain(explained)
	alerts := deliverables(evaluation, explained, w.link)
	if err := w.deliverer.Put(ctx, alerts...); err != nil && ctx.Err() == nil {
		w.log.Error("Alerts could not be handed to delivery; they are handed over again at the next evaluation.", zap.Error(err))
	}
	w.mu.Lock()
	w.last.explained = explained
	w.last.annotations = make(map[uint64]map[string]string, len(alerts))
	for i := range alerts {
		w.last.annotations[fingerprint(alerts[i].Labels)] = alerts[i].Annotations
	}
	w.mu.Unlock()
	w.archive.add(evaluation, set)
	if conn == nil {
		return
	}
	if err := w.archive.keep(ctx, conn, evaluation.Instant); err != nil && ctx.Err() == nil {
		w.log.Warn("What the alert rules saw could not be kept in the store; it is tried again.", zap.Error(err))
	}
	w.tellLost(ctx)
}

// toKeep is what may not be forgotten, as it is now.
func (w *watch) toKeep() state {
	return state{
		Snapshot: w.evaluator.Snapshot(), Transitions: slices.Clone(w.archive.transitions),
		BreakerTransitions: slices.Clone(w.breakers.waiting), Breakers: w.breakers.ofWaiting(),
	}
}

// keepState writes the state file, and tells of it if that fails.
func (w *watch) keepState() error {
	w.state.wait()
	err := w.state.write(w.toKeep())
	w.stateKept(err)
	return err
}

func (w *watch) stateKept(err error) {
	if err != nil {
		w.log.Error("The state of the alerts could not be kept; after a restart it is taken from the store.", zap.Error(err))
	}
}

// tellLost counts what is not kept.
func (w *watch) tellLost(ctx context.Context) {
	lost := w.archive.lost + w.archive.lostChanges + w.breakers.lost
	if lost == 0 {
		return
	}
	w.metrics.lost.Add(ctx, int64(lost))
	w.log.Error("The store was away for so long that a part of what the alert rules saw is not kept: the oldest.",
		zap.Int("samples", w.archive.lost), zap.Int("changes_of_alerts", w.archive.lostChanges), zap.Int("changes_of_breakers", w.breakers.lost))
	w.archive.lost, w.archive.lostChanges, w.breakers.lost = 0, 0, 0
}

// reload takes the rules file's changes. It returns why they were not taken, if so.
func (w *watch) reload(ctx context.Context) string {
	if w.receivers.changed() {
		if err := w.deliverer.Reload(ctx); err != nil {
			w.log.Error("Alerts are delivered as before, for Alertmanager's configuration has a mistake.", zap.Error(err))
		} else {
			w.log.Info("Alertmanager's configuration was read again.", zap.String("file", w.receivers.path))
		}
	}
	set, err := w.file.changed()
	if err != nil {
		w.log.Error("The alert rules that were loaded before go on.", zap.Error(err))
	}
	if set != nil {
		w.live.prepare(set)
		w.pending = set
		w.log.Info("The alert rules were read again.", zap.String("file", w.file.path), zap.Int("rules", len(set.Rules())))
	}
	return w.file.failure
}

// refresh brings the signals up to date. It returns the store's time, and no connection
// where the store does not answer: it is not asked for more in that pass.
func (w *watch) refresh(ctx context.Context) (driver.Conn, time.Time, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := w.conn(within)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("evaluate the alert rules: %w", err)
	}
	w.lag.begin(within, conn)
	w.breakers.look(ctx, conn, w.clock.Now())
	instant, err := w.live.refresh(ctx, conn)
	w.lag.finish()
	if err != nil {
		return nil, time.Time{}, err
	}
	return conn, instant, nil
}

// restore takes up the state that was kept, by this collector or by any on the store.
func (w *watch) restore(ctx context.Context, conn driver.Conn, instant time.Time) error {
	kept, found, err := w.state.read()
	if err != nil {
		w.log.Warn("The state of the alerts is taken from the store.", zap.Error(err))
	}
	w.archive.transitions = nil // of a try before this one
	if kept.Transitions, err = w.withoutDeleted(ctx, conn, kept.Transitions); err != nil {
		return fmt.Errorf("take up the changes of alerts that the store may lack: %w", err)
	}
	if err := w.archive.takeUp(ctx, conn, kept.Transitions); err != nil {
		return fmt.Errorf("take up the changes of alerts that the store may lack: %w", err)
	}
	snapshot := kept.Snapshot
	if found {
		// Others on the store may have come further while this collector was away.
		later, err := schema.AlertTransitions(ctx, conn, schema.AlertFilter{Since: snapshot.Instant.Add(interval), Limit: 1})
		if err != nil {
			return fmt.Errorf("take up the alerts that fire: %w", err)
		}
		found = len(later) == 0
	}
	if !found {
		if snapshot, err = w.archive.state(ctx, conn); err != nil {
			return fmt.Errorf("take up the alerts that fire: %w", err)
		}
	}
	if snapshot.Instant.After(instant) {
		snapshot.Instant = instant.Add(-interval) // by another store's clock, or one that was mended
	}
	if err := w.evaluator.Restore(snapshot); err != nil {
		w.log.Error("The state of the alerts that was kept cannot be used; alerts begin anew.", zap.Error(err))
	}
	if err := w.explainer.restore(ctx, conn, &snapshot); err != nil {
		return fmt.Errorf("take up what is behind the alerts that fire: %w", err)
	}
	if err := w.breakers.restore(ctx, conn, &kept); err != nil {
		return err
	}
	w.restored = true
	return nil
}

// end keeps what was not kept yet.
func (w *watch) end(ctx context.Context) {
	w.live.abandon()
	w.explainer.end()
	w.breakers.end()
	if !w.restored {
		return
	}
	changes := len(w.archive.transitions) + len(w.breakers.waiting)
	unkept := w.keepState()
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	conn, err := w.conn(ctx)
	if err == nil {
		err = errors.Join(w.archive.flush(ctx, conn), w.breakers.keep(ctx, conn))
	}
	if err != nil {
		_ = w.archive.wait()
		w.archive.lost += len(w.archive.samples)
		if unkept != nil {
			w.archive.lostChanges += len(w.archive.transitions)
			w.breakers.lost += len(w.breakers.waiting)
		}
		w.log.Warn("The last of what the alert rules saw is not in the store. Changes of alerts and breakers are written at the next start; what each evaluation counted is not kept.", zap.Error(err))
	}
	if len(w.archive.transitions)+len(w.breakers.waiting) < changes {
		_ = w.keepState()
	}
	w.tellLost(ctx)
}

// reading is the evaluator's reader: the live signals, or why they are too old to be
// judged.
type reading struct {
	live *liveSignals
	err  error // set before each evaluation
}

// Window implements signals.Reader.
func (r *reading) Window(ctx context.Context, q signals.Query) ([]signals.Sample, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.live.Window(ctx, q)
}

// lagReading is how far the ledger is behind the spans that are in the store. It is
// asked for beside the read of the signals, for the store works on both at once.
type lagReading struct {
	conn  connect
	asked sync.WaitGroup
	began time.Time
	fresh bool // lag and err are of this pass
	lag   time.Duration
	err   error
}

// begin asks, until finish.
func (l *lagReading) begin(ctx context.Context, conn driver.Conn) {
	l.began = time.Now()
	l.asked.Go(func() { l.lag, l.err = schema.AttributionLag(ctx, conn) })
}

// finish waits for the answer. One that was given long ago, for the windows had to be
// filled, is not used.
func (l *lagReading) finish() {
	l.asked.Wait()
	l.fresh = time.Since(l.began) < interval
}

// read is the answer of this pass, once; without one the store is asked.
func (l *lagReading) read(ctx context.Context) (time.Duration, error) {
	if l.fresh {
		l.fresh = false
		return l.lag, l.err
	}
	c, err := l.conn(ctx)
	if err != nil {
		return 0, err
	}
	return schema.AttributionLag(ctx, c) //nolint:wrapcheck // schema says what was attempted
}

// troubles tells of a trouble once, however long it lasts.
type troubles struct{ told string }

func (t *troubles) tell(log *zap.Logger, sentence string, err error) {
	if errors.Is(err, context.Canceled) || t.told == sentence {
		return
	}
	t.told = sentence
	log.Warn(sentence, zap.Error(err))
}

func (t *troubles) over(log *zap.Logger, sentence string) {
	if t.told != "" {
		log.Info(sentence)
	}
	t.told = ""
}
