package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Snapshot is the state of an evaluator as plain data, for a file or a table. With
// the same rules, an evaluator that restores it says what the one that made it would.
type Snapshot struct {
	// Instant is that of the last evaluation. Nothing at or before it is evaluated again.
	Instant time.Time    `json:"instant"`
	Alerts  []AlertState `json:"alerts"` // of rules that are gone, then by rule name and group
}

// AlertState is one alert in a snapshot. Zero times are "none".
type AlertState struct {
	Rule   string            `json:"rule"`
	Signal signals.Signal    `json:"signal"`
	Group  signals.Labels    `json:"group"`
	Labels map[string]string `json:"labels"` // of the alert
	State  State             `json:"state"`  // pending, firing or resolved

	Since      time.Time `json:"since,omitzero"`
	StartsAt   time.Time `json:"starts_at,omitzero"`
	CalmSince  time.Time `json:"calm_since,omitzero"`
	ResolvedAt time.Time `json:"resolved_at,omitzero"`

	// Of an alert that fires though no breach is seen any more, within its hold: what is
	// seen (no_data, too_few_samples or recovered), and since when.
	Held      Reason    `json:"held,omitempty"`
	HeldSince time.Time `json:"held_since,omitzero"`

	// Of the last breach, for the alert's texts.
	BreachAt    time.Time     `json:"breach_at,omitzero"`
	Numerator   int64         `json:"numerator"`
	Denominator int64         `json:"denominator"`
	Lasted      time.Duration `json:"lasted,omitzero"`
	Threshold   Threshold     `json:"threshold_millionths"`
	Window      time.Duration `json:"window"`
}

// Snapshot is the state after the last evaluation.
func (e *Evaluator) Snapshot() Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Snapshot{Instant: instantOf(e.evaluated), Alerts: []AlertState{}}
	all := slices.Clone(e.ended)
	for _, name := range slices.Sorted(maps.Keys(e.alerts)) {
		all = append(all, inOrder(e.alerts[name])...)
	}
	for _, a := range all {
		held, heldSince := a.held()
		s.Alerts = append(s.Alerts, AlertState{
			Rule: a.rule.Name, Signal: a.rule.Signal, Group: a.group, Labels: a.rule.alertLabels(a.group), State: a.state,
			Since: instantOf(a.since), StartsAt: instantOf(a.fired), CalmSince: instantOf(a.calm), ResolvedAt: instantOf(a.resolved),
			Held: held, HeldSince: instantOf(heldSince),
			BreachAt: instantOf(a.breach), Numerator: a.numerator, Denominator: a.denominator, Lasted: a.lasted,
			Threshold: a.rule.Threshold, Window: a.rule.Window,
		})
	}
	return s
}

// Restore replaces the state of an evaluator that has not evaluated anything yet. What
// happened while nothing ran is a gap, but no stall: a restart fires no rule on stalls.
// Alerts of rules that there are no more resolve at the next evaluation.
func (e *Evaluator) Restore(s Snapshot) error {
	set := e.next.Load()
	rules := make(map[string]*Rule, len(set.rules))
	for _, r := range set.rules {
		rules[r.Name] = r
	}
	alerts := map[string]map[signals.Labels]*alert{}
	var ended []*alert
	for i := range s.Alerts {
		a, err := s.Alerts[i].alert()
		if err != nil {
			return err
		}
		r := rules[a.rule.Name]
		switch {
		case r != nil && a.isOf(r):
			a.rule, a.restored = r, false
		case a.state == StateResolved:
			ended = append(ended, a)
			continue
		}
		if alerts[a.rule.Name] == nil {
			alerts[a.rule.Name] = map[signals.Labels]*alert{}
		}
		alerts[a.rule.Name][a.group] = a
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.called != 0 {
		return fmt.Errorf("restore the state of the alerts: rules were evaluated already at %s", instantOf(e.called).Format(time.RFC3339))
	}
	e.alerts, e.ended, e.set = alerts, ended, set
	e.evaluated = nanoseconds(s.Instant)
	e.latest = e.evaluated
	return nil
}

// SnapshotOf is the state that transitions led to, in any order, with the instant of
// the last evaluation. It lacks what no transition says: when a hold began. That hold
// starts anew.
func SnapshotOf(last time.Time, transitions []Transition) Snapshot {
	ordered := slices.Clone(transitions)
	slices.SortStableFunc(ordered, func(a, b Transition) int { return a.At.Compare(b.At) })
	states := map[Key]AlertState{}
	for i := range ordered {
		t := &ordered[i]
		k := Key{t.Rule, t.Group}
		s := states[k]
		if t.To == StateInactive {
			delete(states, k)
			continue
		}
		s.Rule, s.Signal, s.Group, s.Labels, s.State = t.Rule, t.Signal, t.Group, t.Labels, t.To
		s.Since, s.StartsAt, s.ResolvedAt, s.CalmSince = t.Since, t.StartsAt, time.Time{}, time.Time{}
		s.Threshold, s.Window = t.Threshold, t.Window
		if t.To == StateResolved {
			s.ResolvedAt = t.At
		} else {
			s.BreachAt, s.Numerator, s.Denominator, s.Lasted = t.At, t.Numerator, t.Denominator, t.Lasted
		}
		states[k] = s
	}
	out := Snapshot{Instant: last, Alerts: slices.Collect(maps.Values(states))}
	slices.SortFunc(out.Alerts, func(a, b AlertState) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), a.Group.Compare(b.Group))
	})
	return out
}

// alert is the alert with a rule that stands for its own.
func (s *AlertState) alert() (*alert, error) {
	a := &alert{
		rule: s.rule(), restored: true, group: s.Group, state: s.State,
		since: nanoseconds(s.Since), fired: nanoseconds(s.StartsAt), calm: nanoseconds(s.CalmSince), resolved: nanoseconds(s.ResolvedAt),
		seen: s.Held, seenSince: nanoseconds(s.HeldSince),
		breach: nanoseconds(s.BreachAt), numerator: s.Numerator, denominator: s.Denominator, lasted: s.Lasted,
	}
	switch s.State {
	case StatePending, StateFiring, StateResolved:
	default:
		return nil, fmt.Errorf("restore the alert of %s: %q is no state of an alert", s.Rule, s.State)
	}
	if s.State == StatePending && a.since == 0 || s.State != StatePending && a.fired == 0 || s.State == StateResolved && a.resolved == 0 {
		return nil, fmt.Errorf("restore the alert of %s: it is %s, and does not say since when", s.Rule, s.State)
	}
	if a.breach == 0 {
		a.breach = max(a.fired, a.since)
	}
	return a, nil
}

// rule stands for the alert's rule where there is none like it any more.
func (s *AlertState) rule() *Rule {
	r := &Rule{
		Name: s.Rule, Signal: s.Signal, Threshold: s.Threshold, Window: s.Window, Labels: map[string]string{},
		Annotations: builtInAnnotations, templates: builtInTemplates(),
	}
	for name, value := range s.Labels {
		if !ownLabel(name) {
			r.Labels[name] = value
		}
	}
	for _, d := range signals.Dimensions() {
		if s.Group.Get(d) != "" {
			r.GroupBy = append(r.GroupBy, d)
		}
	}
	r.finish()
	return r
}

// isOf tells whether the alert, by what it watches and by its labels, is one of r's.
func (a *alert) isOf(r *Rule) bool {
	return a.rule.identity == r.identity ||
		// A restored alert does not know its rule's filters and empty groups.
		a.restored && a.rule.Signal == r.Signal && maps.Equal(a.rule.alertLabels(a.group), r.alertLabels(a.group))
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
