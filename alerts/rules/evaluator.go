package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Options are the settings of an Evaluator. A zero field is its default.
type Options struct {
	// StallAfter is the longest time between evaluations that still counts as
	// evaluating; what lies farther apart has a gap between. It also is how far the ledger
	// may be behind before missing data may be late data. Default 10 s.
	StallAfter time.Duration
	// EndsAfter is how far ahead the EndsAt of a firing alert lies: a pause of
	// evaluations, a restart too, that is shorter resolves nothing. Default 15 minutes.
	EndsAfter time.Duration
	// KeepResolved is how long a resolved alert is told as resolved. Default 15 minutes.
	KeepResolved time.Duration
	// Lag says how far the ledger is behind the spans that were acknowledged; nil where
	// nobody knows. Its error fails the evaluation as a Reader's does.
	Lag func(ctx context.Context) (time.Duration, error)
}

// ErrInstantPassed is Eval's refusal of an instant that is not after the last one: a
// clock that steps back never evaluates twice.
var ErrInstantPassed = errors.New("the instant is not after the last evaluation")

// Evaluator evaluates a set of rules, instant after instant, and holds the state of
// their alerts. Its methods may be called concurrently; evaluations exclude each other.
type Evaluator struct {
	reader  signals.Reader
	options Options

	next       atomic.Pointer[Set] // what the next evaluation uses
	evaluating sync.Mutex          // one evaluation at a time

	mu        sync.Mutex // guards what follows; never held while reading
	set       *Set       // of the last evaluation
	alerts    map[string]map[signals.Labels]*alert
	ended     []*alert         // resolved, of rules that are gone or were another
	judged    map[string]int64 // when the data of each rule were last read
	evaluated int64            // the last instant that was evaluated
	called    int64            // the last instant that was asked for
	latest    int64            // no instant that is told lies before it
	stalled   int64            // since the last evaluation that succeeded, by the instants asked for
	backlog   backlog
}

// NewEvaluator returns an evaluator without any state.
func NewEvaluator(set *Set, reader signals.Reader, options Options) *Evaluator {
	options.StallAfter = cmp.Or(options.StallAfter, 10*time.Second)
	options.EndsAfter = cmp.Or(options.EndsAfter, 15*time.Minute)
	options.KeepResolved = cmp.Or(options.KeepResolved, 15*time.Minute)
	e := &Evaluator{reader: reader, options: options, set: set, alerts: map[string]map[signals.Labels]*alert{}}
	e.next.Store(set)
	return e
}

// Reload replaces the rules. It takes effect as a whole at the next evaluation that
// succeeds: alerts of rules that watch the same keep their state and are judged by the
// new numbers from then on; those of rules that are gone, or whose signal, groups,
// filters or labels changed, resolve, and begin anew if they still breach.
func (e *Evaluator) Reload(set *Set) { e.next.Store(set) }

// Eval evaluates all rules at an instant, cut to whole seconds: windows are (instant −
// window, instant].
//
// Where a rule's data cannot be read, nothing about its alerts changes: those that fire
// go on firing, and the time counts towards nothing but the rules on stalls. The
// evaluation is valid then too, and has to be delivered; the error says what failed. The
// same holds for all rules at an instant that is not after the last one, with
// ErrInstantPassed.
func (e *Evaluator) Eval(ctx context.Context, instant time.Time) (Evaluation, error) {
	e.evaluating.Lock()
	defer e.evaluating.Unlock()
	instant = instant.Truncate(time.Second)
	set := e.next.Load()

	e.mu.Lock()
	passed := instant.UnixNano() <= e.evaluated
	e.mu.Unlock()
	var read readings
	err := ErrInstantPassed
	if !passed {
		read, err = e.read(ctx, set, instant)
	}
	wrapped := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("evaluate the alert rules at %s: %w", instant.UTC().Format(time.RFC3339), err)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.elapse(instant.UnixNano())
	out := Evaluation{Instant: instant, Stalled: time.Duration(e.stalled)}
	if err != nil {
		e.judgeStall(EvaluationStalled, out.Stalled, c, &out)
		e.close(c.at, &out)
		return out, wrapped(err)
	}
	c.behind = read.lag > e.options.StallAfter
	e.backlog.note(read.lag, c)
	e.adopt(set, c, &out)
	judged := make(map[string]int64, len(set.rules))
	for _, r := range set.rules {
		if watchesItself(r.Signal) {
			continue
		}
		last, known := e.judged[r.Name]
		if _, failed := read.failed[r.query]; failed {
			if !known {
				last = c.at
			}
			judged[r.Name] = last
			out.Stalled = max(out.Stalled, time.Duration(c.at-last))
			continue
		}
		own := c
		own.gap = c.gap || known && c.at-last > int64(e.options.StallAfter)
		e.judge(r, read.samples[r.query], own, &out)
		judged[r.Name] = c.at
	}
	e.judged = judged
	e.judgeStall(EvaluationStalled, out.Stalled, c, &out)
	e.judgeStall(IngestStalled, read.lag, c, &out)
	e.evaluated, e.stalled = c.at, 0
	e.close(c.at, &out)
	return out, wrapped(read.errors(set))
}

// Forget drops alerts without a word: no transition says that they ended, and no later
// evaluation tells them. One that still breaches begins anew.
func (e *Evaluator) Forget(keys []Key) {
	e.evaluating.Lock()
	defer e.evaluating.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		delete(e.alerts[key.Rule], key.Group)
		e.ended = slices.DeleteFunc(e.ended, func(a *alert) bool { return a.rule.Name == key.Rule && a.group == key.Group })
	}
}

// readings are all that one evaluation knows from outside.
type readings struct {
	samples map[string][]signals.Sample // by Rule.query
	failed  map[string]error            // by Rule.query
	lag     time.Duration
}

// errors are the failures of single rules' questions.
func (r *readings) errors(set *Set) error {
	var all []error
	told := map[string]bool{}
	for _, rule := range set.rules {
		if err := r.failed[rule.query]; err != nil && !told[rule.query] {
			told[rule.query] = true
			all = append(all, fmt.Errorf("read the %s of the rule %s: %w", rule.Signal, rule.Name, err))
		}
	}
	return errors.Join(all...)
}

// read reads what the rules need. Its error means that nothing could be read: a
// question that fails while others are answered is the matter of its rules.
func (e *Evaluator) read(ctx context.Context, set *Set, instant time.Time) (readings, error) {
	read := readings{samples: make(map[string][]signals.Sample, len(set.rules)), failed: map[string]error{}}
	for _, r := range set.rules {
		if _, done := read.samples[r.query]; done || read.failed[r.query] != nil || watchesItself(r.Signal) {
			continue
		}
		samples, err := e.reader.Window(ctx, r.Query(instant))
		if err != nil {
			if ctx.Err() != nil {
				return readings{}, fmt.Errorf("read the %s of the rule %s: %w", r.Signal, r.Name, err)
			}
			read.failed[r.query] = err
			continue
		}
		read.samples[r.query] = samples
	}
	if len(read.failed) > 0 && len(read.samples) == 0 {
		return readings{}, read.errors(set)
	}
	if e.options.Lag != nil {
		lag, err := e.options.Lag(ctx)
		if err != nil {
			return readings{}, fmt.Errorf("read how far the ledger is behind: %w", err)
		}
		read.lag = lag
	}
	return read, nil
}

// elapse takes note of an instant that was asked for.
func (e *Evaluator) elapse(instant int64) circumstance {
	if e.called != 0 && instant > e.called {
		e.stalled += instant - e.called
	}
	e.called = instant
	e.latest = max(e.latest, instant)
	c := circumstance{at: e.latest}
	limit := int64(e.options.StallAfter)
	c.gap = e.stalled > limit || e.evaluated != 0 && c.at-e.evaluated > limit
	return c
}

// adopt makes set the rules, and ends the alerts that it has no place for.
func (e *Evaluator) adopt(set *Set, c circumstance, out *Evaluation) {
	rules := make(map[string]*Rule, len(set.rules))
	for _, r := range set.rules {
		rules[r.Name] = r
	}
	for _, name := range slices.Sorted(maps.Keys(e.alerts)) {
		r := rules[name]
		for _, a := range inOrder(e.alerts[name]) {
			if r != nil && (a.rule == r || a.isOf(r)) {
				a.rule, a.restored = r, false
				continue
			}
			if from := a.state; from != StateResolved {
				why := ReasonRemoved
				if r != nil {
					why = ReasonChanged
				}
				a.end(c.at)
				out.Transitions = append(out.Transitions, a.transition(c, from, why, 0, 0, 0))
			}
			delete(e.alerts[name], a.group)
			if a.state == StateResolved {
				e.ended = append(e.ended, a)
			}
		}
	}
	e.ended = e.ended[max(0, len(e.ended)-MaxGroups):]
	e.set = set
}

// judge takes a rule's samples through its alerts.
func (e *Evaluator) judge(r *Rule, samples []signals.Sample, c circumstance, out *Evaluation) {
	active := e.alerts[r.Name]
	kept, left := r.keep(samples, active)
	first := len(out.Transitions)
	seen := 0
	for _, s := range kept {
		a := active[s.Labels]
		if a != nil {
			seen++
		}
		o := r.observe(s.Numerator, s.Denominator)
		if a == nil && o == seesBreach {
			if a = e.open(r, s.Labels); a == nil {
				left++
			}
		}
		state := StateInactive
		if a != nil {
			e.observe(a, o, c, s.Numerator, s.Denominator, 0, out)
			if a.state != StateResolved {
				state = a.state
			}
		}
		if o != seesNothing {
			out.Samples = append(out.Samples, Sample{
				Rule: r.Name, Signal: r.Signal, Labels: s.Labels, Numerator: s.Numerator, Denominator: s.Denominator, State: state,
			})
		}
	}
	if seen < len(active) {
		for group, a := range active {
			_, has := slices.BinarySearchFunc(kept, group, func(s signals.Sample, l signals.Labels) int { return s.Labels.Compare(l) })
			if !has {
				e.observe(a, seesNothing, c, 0, 0, 0, out)
			}
		}
		slices.SortFunc(out.Transitions[first:], func(a, b Transition) int { return a.Group.Compare(b.Group) })
	}
	if left > 0 {
		out.LeftOff = append(out.LeftOff, LeftOff{r.Name, left})
	}
}

// judgeStall takes how long something has stalled through the rules on it.
func (e *Evaluator) judgeStall(signal signals.Signal, lasted time.Duration, c circumstance, out *Evaluation) {
	for _, r := range e.set.rules {
		if r.Signal != signal {
			continue
		}
		o := seesRecovery
		a := e.alerts[r.Name][signals.Labels{}]
		// What fires goes on; a backlog may go down before it is told.
		patient := signal == IngestStalled && (a == nil || a.state != StateFiring) && e.backlog.goesDown(r.Window, c.at)
		if lasted > r.Window && !patient {
			o = seesBreach
			if a == nil {
				a = e.open(r, signals.Labels{})
			}
		}
		if a != nil {
			e.observe(a, o, c, 0, 0, lasted, out)
		}
	}
}

// open begins to track a group; nil if the rule has as many alerts as it may. The
// oldest resolved one makes room.
func (e *Evaluator) open(r *Rule, group signals.Labels) *alert {
	active := e.alerts[r.Name]
	if active == nil {
		active = map[signals.Labels]*alert{}
		e.alerts[r.Name] = active
	}
	if len(active) >= r.MaxGroups {
		var oldest *alert
		for _, a := range active {
			if a.state == StateResolved && (oldest == nil || cmp.Or(cmp.Compare(a.resolved, oldest.resolved), a.group.Compare(oldest.group)) < 0) {
				oldest = a
			}
		}
		if oldest == nil {
			return nil
		}
		delete(active, oldest.group)
	}
	a := &alert{rule: r, group: group, state: StateInactive}
	active[group] = a
	return a
}

// observe is one step of one alert's state machine.
func (e *Evaluator) observe(a *alert, o observation, c circumstance, numerator, denominator int64, lasted time.Duration, out *Evaluation) {
	from := a.state
	if from == StateResolved {
		from = StateInactive
	}
	if saw := o.reason(); saw != a.seen {
		a.seen, a.seenSince = saw, c.at
	}
	if o == seesBreach {
		a.saw(c.at, numerator, denominator, lasted)
	} else {
		lasted = 0
	}
	if changed, why := a.step(o, c); changed {
		out.Transitions = append(out.Transitions, a.transition(c, from, why, numerator, denominator, lasted))
	}
}

// close forgets what is over and lists what has to be delivered.
func (e *Evaluator) close(at int64, out *Evaluation) {
	over := func(a *alert) bool {
		return a.state == StateInactive || a.state == StateResolved && at-a.resolved >= int64(e.options.KeepResolved)
	}
	e.ended = slices.DeleteFunc(e.ended, func(a *alert) bool {
		// An alert with the same labels that fires again is told instead.
		now := e.alerts[a.rule.Name][a.group]
		return over(a) || now != nil && now.state == StateFiring && maps.Equal(now.rule.alertLabels(a.group), a.rule.alertLabels(a.group))
	})
	for _, a := range e.ended {
		out.Alerts = append(out.Alerts, a.deliverable(at, int64(e.options.EndsAfter)))
	}
	for _, r := range e.set.rules {
		for _, a := range inOrder(e.alerts[r.Name]) {
			if over(a) {
				delete(e.alerts[r.Name], a.group)
			} else if a.state != StatePending {
				out.Alerts = append(out.Alerts, a.deliverable(at, int64(e.options.EndsAfter)))
			}
		}
		if len(e.alerts[r.Name]) == 0 {
			delete(e.alerts, r.Name)
		}
	}
}

// inOrder are a rule's alerts by their groups.
func inOrder(alerts map[signals.Labels]*alert) []*alert {
	return slices.SortedFunc(maps.Values(alerts), func(a, b *alert) int { return a.group.Compare(b.group) })
}
