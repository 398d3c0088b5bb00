package rules

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Evaluation is what all rules say at one instant.
type Evaluation struct {
	Instant time.Time
	// Samples are the numbers that were judged, by rule, then by labels: none where
	// nothing could be read. A group without data has no sample.
	Samples []Sample
	// Transitions are the changes of state, by rule, then by labels.
	Transitions []Transition
	// Alerts are those that fire, and those that resolved within Options.KeepResolved,
	// by rule, then by labels: all that has to be delivered, every time.
	Alerts []Alert
	// LeftOff says for each rule with more groups than max_groups how many were not
	// kept. Those with an alert are kept first, then those that breach with the most
	// failures, then the largest.
	LeftOff []LeftOff
	// Stalled is how long there has been no evaluation before this one, or of a rule whose
	// data cannot be read, whichever is longer; longer than Options.StallAfter it is a gap.
	Stalled time.Duration
}

// Key is what one rule says about one group: an alert, however often it fires.
type Key struct {
	Rule  string
	Group signals.Labels
}

// Sample is one rule's numbers on one group at an evaluation.
type Sample struct {
	Rule                   string
	Signal                 signals.Signal
	Labels                 signals.Labels
	Numerator, Denominator int64
	State                  State // after the evaluation
}

// Ratio is numerator ÷ denominator; both grow with retries, so it may exceed 1.
func (s Sample) Ratio() float64 { return float64(s.Numerator) / float64(s.Denominator) }

// Transition is a change of one alert's state.
type Transition struct {
	At       time.Time
	Rule     string
	Signal   signals.Signal
	Group    signals.Labels
	Labels   map[string]string // of the alert
	From, To State
	Reason   Reason
	// Since is when the breach began, StartsAt when it fired; zero where it has not.
	Since, StartsAt time.Time
	// What was judged: of a resolved alert the numbers that ended it, 0 of 0 for no data.
	Numerator, Denominator int64
	Threshold              Threshold
	Window                 time.Duration
	MinSamples             int64
	// Lasted is how long a stall had lasted when it breached its rule.
	Lasted time.Duration
}

// Alert is an alert to deliver.
type Alert struct {
	Rule   string
	Group  signals.Labels
	Labels map[string]string
	State  State // firing or resolved
	// StartsAt is the instant of the evaluation that fired; it never changes while the
	// alert fires, and the next time is later.
	StartsAt time.Time
	// EndsAt is when the alert resolved. Of one that fires it lies Options.EndsAfter
	// ahead of this evaluation, so that a pause of evaluations does not resolve it.
	EndsAt time.Time
	Facts  Facts

	rule *Rule
}

// Query asks for the numbers that the alert speaks of, for who wants to explain them;
// ok is false of a stall.
func (a *Alert) Query() (q signals.Query, ok bool) {
	if watchesItself(a.rule.Signal) {
		return signals.Query{}, false
	}
	return a.rule.Query(a.Facts.At), true
}

// Annotations are the alert's texts. A template that fails on these facts says so in
// its place: an alert is never lost for its words.
func (a *Alert) Annotations(x Explanation) map[string]string {
	facts := a.Facts.with(x)
	texts := make(map[string]string, len(a.rule.templates))
	for name, template := range a.rule.templates {
		text, err := template.render(facts)
		if err != nil {
			text = err.Error()
		}
		if text != "" {
			texts[name] = text
		}
	}
	return texts
}

// LeftOff is how many groups of one rule an evaluation did not keep.
type LeftOff struct {
	Rule   string
	Groups int
}

// keep cuts a rule's samples to its max_groups and says how many it cut. The order of
// the samples does not change.
func (r *Rule) keep(samples []signals.Sample, active map[signals.Labels]*alert) ([]signals.Sample, int) {
	if len(samples) <= r.MaxGroups {
		return samples, 0
	}
	rank := func(s signals.Sample) int {
		if a := active[s.Labels]; a != nil && a.state != StateResolved {
			return 0
		}
		if r.observe(s.Numerator, s.Denominator) == seesBreach {
			return 1
		}
		return 2
	}
	kept := slices.Clone(samples)
	slices.SortStableFunc(kept, func(a, b signals.Sample) int {
		rankA, rankB := rank(a), rank(b)
		switch {
		case rankA != rankB:
			return rankA - rankB
		case rankA == 1 && a.Numerator != b.Numerator:
			return cmp.Compare(b.Numerator, a.Numerator)
		case a.Denominator != b.Denominator:
			return cmp.Compare(b.Denominator, a.Denominator)
		default:
			return a.Labels.Compare(b.Labels)
		}
	})
	kept = kept[:r.MaxGroups]
	slices.SortFunc(kept, func(a, b signals.Sample) int { return a.Labels.Compare(b.Labels) })
	return kept, len(samples) - r.MaxGroups
}

// transition describes the change of an alert from a state.
func (a *alert) transition(c circumstance, from State, why Reason, numerator, denominator int64, lasted time.Duration) Transition {
	r := a.rule
	return Transition{
		At: instantOf(c.at), Rule: r.Name, Signal: r.Signal, Group: a.group, Labels: r.alertLabels(a.group),
		From: from, To: a.state, Reason: why, Since: instantOf(a.since), StartsAt: instantOf(a.fired),
		Numerator: numerator, Denominator: denominator,
		Threshold: r.Threshold, Window: r.Window, MinSamples: r.MinSamples, Lasted: lasted,
	}
}

// deliverable is the alert as it has to be delivered.
func (a *alert) deliverable(at, endsAfter int64) Alert {
	out := Alert{
		Rule: a.rule.Name, Group: a.group, State: a.state, StartsAt: instantOf(a.fired),
		EndsAt: instantOf(at + endsAfter), rule: a.rule,
		Facts: a.rule.facts(a.group, instantOf(a.fired), instantOf(a.breach), a.numerator, a.denominator, a.lasted),
	}
	if a.state == StateResolved {
		out.EndsAt = instantOf(a.resolved)
	}
	out.Labels = maps.Clone(out.Facts.Labels)
	return out
}

// instantOf is the instant of nanoseconds since the epoch, the zero time of 0.
func instantOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
