package ruletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/rules"
)

// Result is what came of one test.
type Result struct {
	Name     string // "" where the test has none
	Line     int    // of the file of tests
	Failures []Failure
}

// Failure is an expectation that was not met.
type Failure struct {
	At    time.Duration // since the test's start
	Line  int
	Lines []string // what was expected, what came, and what the rules saw
}

// start is when tests begin. No test can tell.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs all tests, every second from the start to the last expectation. The error
// says what could not be run; a failed expectation is none.
func (s *Suite) Run(ctx context.Context) ([]Result, error) {
	results := make([]Result, 0, len(s.tests))
	for i := range s.tests {
		result, err := s.run(ctx, &s.tests[i])
		if err != nil {
			return results, fmt.Errorf("run the test on line %d: %w", s.tests[i].line, err)
		}
		results = append(results, result)
	}
	return results, nil
}

func (s *Suite) run(ctx context.Context, t *test) (Result, error) {
	result := Result{Name: t.name, Line: t.line}
	feed := newFeed(t, start.UnixNano())
	var now, last time.Duration
	evaluator := rules.NewEvaluator(s.rules, feed, rules.Options{Lag: func(context.Context) (time.Duration, error) {
		for _, l := range t.lags {
			if l.holds(now) {
				return now - l.from + time.Second, nil
			}
		}
		return 0, nil
	}})
	for _, e := range t.expect {
		last = max(last, e.at)
	}
	seen := seen{fired: map[string]int64{}}
	for ; now <= last; now += time.Second {
		if err := ctx.Err(); err != nil {
			return result, fmt.Errorf("evaluate %s after the start: %w", strictyaml.Short(now), err)
		}
		paused := slices.ContainsFunc(t.pauses, func(p pause) bool { return p.holds(now) })
		if !paused {
			instant := start.Add(now)
			if err := feed.advance(instant.UnixNano()); err != nil {
				return result, err
			}
			out, err := evaluator.Eval(ctx, instant)
			if err != nil && !errors.Is(err, rules.ErrInstantPassed) {
				return result, err //nolint:wrapcheck // it says what and when
			}
			seen.note(out)
		}
		for i := range t.expect {
			if e := &t.expect[i]; e.at == now {
				seen.states = evaluator.Snapshot().Alerts
				if lines := e.compare(&seen); len(lines) > 0 {
					result.Failures = append(result.Failures, Failure{At: now, Line: e.line, Lines: lines})
				}
			}
		}
	}
	return result, nil
}

// seen is what the evaluations said until an instant.
type seen struct {
	out    rules.Evaluation // the last
	states []rules.AlertState
	fired  map[string]int64 // by rule
}

func (s *seen) note(out rules.Evaluation) {
	s.out = out
	for i := range out.Transitions {
		if out.Transitions[i].To == rules.StateFiring {
			s.fired[out.Transitions[i].Rule]++
		}
	}
}

// actual is one alert as it came.
type actual struct {
	state rules.AlertState
	alert *rules.Alert // nil of a pending one
	taken bool
}

// compare says in lines what differs, nothing if nothing does.
func (e *expectation) compare(s *seen) (lines []string) {
	if e.fired.Given() && s.fired[e.rule] != e.fired.V {
		lines = append(lines, fmt.Sprintf("%s: expected to have fired %s, it fired %s", e.rule, times(e.fired.V), times(s.fired[e.rule])))
	}
	if e.said {
		lines = append(lines, e.compareAlerts(s)...)
	}
	if len(lines) > 0 {
		lines = append(lines, e.samples(s)...)
	}
	return lines
}

func (e *expectation) compareAlerts(s *seen) (lines []string) {
	states := map[rules.State]bool{rules.StateFiring: true}
	for i := range e.alerts {
		states[e.alerts[i].state] = true
	}
	var came []*actual
	for i := range s.states {
		state := s.states[i]
		if states[state.State] && (e.rule == "" || state.Rule == e.rule) {
			a := &actual{state: state}
			for j := range s.out.Alerts {
				if alert := &s.out.Alerts[j]; alert.Rule == state.Rule && alert.Group == state.Group && maps.Equal(alert.Labels, state.Labels) {
					a.alert = alert
				}
			}
			came = append(came, a)
		}
	}
	for i := range e.alerts {
		want := &e.alerts[i]
		j := slices.IndexFunc(came, func(a *actual) bool { return !a.taken && want.is(a) })
		if j < 0 {
			lines = append(lines, fmt.Sprintf("%s: expected %s %s, it is not", want.rule, want.state, labelText(want.labels)))
			continue
		}
		came[j].taken = true
		lines = append(lines, want.differences(came[j])...)
	}
	for _, a := range came {
		if !a.taken {
			lines = append(lines, fmt.Sprintf("%s: %s %s, which was not expected", a.state.Rule, a.state.State, labelText(a.state.Labels)))
		}
	}
	return lines
}

// is tells whether an alert is the one that is expected, whatever it says.
func (want *expectedAlert) is(a *actual) bool {
	if a.state.Rule != want.rule || a.state.State != want.state {
		return false
	}
	return labelText(a.state.Labels) == labelText(want.labels)
}

func (want *expectedAlert) differences(a *actual) (lines []string) {
	at := fmt.Sprintf("%s %s", want.rule, labelText(want.labels))
	if want.failed.Given() && want.failed.V != a.state.Numerator || want.total.Given() && want.total.V != a.state.Denominator {
		lines = append(lines, fmt.Sprintf("%s: expected %s of %s, it says %d of %d", at, orAny(want.failed), orAny(want.total), a.state.Numerator, a.state.Denominator))
	}
	if len(want.annotations) == 0 {
		return lines
	}
	if a.alert == nil {
		return append(lines, at+": an alert that is pending has no annotations yet")
	}
	texts := a.alert.Annotations(rules.Explanation{})
	for _, name := range slices.Sorted(maps.Keys(want.annotations)) {
		if texts[name] != want.annotations[name] {
			lines = append(lines, fmt.Sprintf("%s: the annotation %s differs", at, name),
				fmt.Sprintf("  expected  %q", want.annotations[name]), fmt.Sprintf("  it says   %q", texts[name]))
		}
	}
	return lines
}

func orAny(v strictyaml.Value[int64]) string {
	if !v.Given() {
		return "any number"
	}
	return fmt.Sprint(v.V)
}

// samples says what the rules saw at the last evaluation.
func (e *expectation) samples(s *seen) (lines []string) {
	const most = 5
	of := map[string]bool{e.rule: e.rule != ""}
	for i := range e.alerts {
		of[e.alerts[i].rule] = true
	}
	for _, sample := range s.out.Samples {
		if !of[sample.Rule] {
			continue
		}
		if len(lines) == most {
			return append(lines, "saw …")
		}
		labels := map[string]string{}
		for _, d := range sample.Signal.Dimensions() {
			if value := sample.Labels.Get(d); value != "" {
				labels[string(d)] = value
			}
		}
		lines = append(lines, fmt.Sprintf("saw %s %s: %d of %d (%.4g %%), %s", sample.Rule, labelText(labels), sample.Numerator, sample.Denominator, sample.Ratio()*100, sample.State))
	}
	if len(lines) == 0 {
		lines = append(lines, "saw no data")
	}
	return lines
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// String is the failure as it is printed.
func (f Failure) String() string {
	return fmt.Sprintf("line %d, at %s:\n    %s", f.Line, strictyaml.Short(f.At), strings.Join(f.Lines, "\n    "))
}
