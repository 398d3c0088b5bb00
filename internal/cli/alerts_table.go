package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/signals"
)

// stalledAfter is for how long rules may not be evaluated before a reader should know.
const stalledAfter = 10 // seconds

// alerts prints the alerts that there are, and what casts doubt on them.
func (p printer) alerts(found report.Alerts) {
	doubts := func(sentence string) { p.line(p.paint(sentence, text.FgYellow)); p.blank() }
	switch {
	case found.EvaluatedAt == nil:
		doubts("No rule has been evaluated yet: the store is not ready. The collector's log says why.")
	case found.StalledSeconds >= stalledAfter:
		doubts(fmt.Sprintf("Rules have not been evaluated for %s, since %s: what fires is held, nothing new can begin. The collector's log says why.",
			shortSeconds(found.StalledSeconds), instant(*found.EvaluatedAt)))
	}
	if found.RulesError != "" {
		doubts("The rules file was refused, and the rules that were loaded before go on: " + clean(found.RulesError))
	}
	for _, rule := range slices.Sorted(maps.Keys(found.LeftOff)) {
		doubts(fmt.Sprintf("%s of the rule %s left out: it has more than its max_groups.", plural(found.LeftOff[rule], "group"), clean(rule)))
	}
	if len(found.Alerts) == 0 {
		p.line(fmt.Sprintf("No alert fires or is about to. %s watched.", plural2(found.Rules, "rule is", "rules are")))
		return
	}
	each := func(cell func(*report.Alert) string) []string {
		cells := make([]string, len(found.Alerts))
		for i := range found.Alerts {
			cells[i] = cell(&found.Alerts[i])
		}
		return cells
	}
	p.table([]column{
		{title: "rule", left: true, cells: each(func(a *report.Alert) string { return clean(a.Rule) })},
		{title: "state", left: true, cells: each(func(a *report.Alert) string {
			state := p.paintAlert(a.State)
			if a.Held != "" {
				state += ", held"
			}
			if a.Muted != "" {
				state += ", " + clean(a.Muted)
			}
			return state
		})},
		{title: "severity", name: "severity", left: true, drop: 30, cells: each(func(a *report.Alert) string { return clean(a.Labels["severity"]) })},
		{title: "where", name: "where", left: true, drop: 90, cells: each(func(a *report.Alert) string { return p.where(a.Group) })},
		{title: "failed of total", name: "failed of total", drop: 80, cells: each(func(a *report.Alert) string {
			return measuredOf(a, found.EvaluatedAt)
		})},
		{title: "since", name: "since", left: true, drop: 70, cells: each(func(a *report.Alert) string { return alertSince(a, found.EvaluatedAt) })},
		{title: "most frequent error", name: "most frequent error", left: true, drop: 60, cells: each(func(a *report.Alert) string { return topErrorOf(a, found.EvaluatedAt) })},
		{title: "fingerprint", left: true, cells: each(func(a *report.Alert) string { return clean(a.Fingerprint) })},
	})
	p.blank()
	p.line("Why one of them: " + p.command("retryledger alerts why "+clean(found.Alerts[0].Fingerprint)))
}

// paintAlert names an alert's state.
func (p printer) paintAlert(state string) string {
	colour := map[string]text.Color{"firing": text.FgRed, "pending": text.FgYellow, "resolved": text.FgGreen}
	if c, ok := colour[state]; ok {
		return p.paint(state, c)
	}
	return clean(state)
}

// roomy is from how many cells on a terminal has room for the names of dimensions.
const roomy = 120

// where names a group, on a narrow terminal by its values alone.
func (p printer) where(group signals.Labels) string {
	var named, values []string
	for _, d := range signals.Dimensions() {
		if value := group.Get(d); value != "" {
			named = append(named, string(d)+"="+clean(value))
			values = append(values, clean(value))
		}
	}
	if p.width > 0 && p.width < roomy {
		return strings.Join(values, " / ")
	}
	return strings.Join(named, " ")
}

// measured says what was judged: of a stall how long it lasted. threshold is a ratio, below
// 0 where it is not known.
func measured(numerator, denominator int64, threshold, lastedSeconds float64) string {
	switch {
	case lastedSeconds > 0:
		return "for " + shortSeconds(lastedSeconds)
	case denominator == 0:
		return "no data"
	}
	return fmt.Sprintf("%s of %s (%s)", big(numerator), big(denominator), shareBeside(float64(numerator)/float64(denominator), threshold))
}

// measuredOf is measured, of an alert that is held with the instant of its numbers and
// what is seen since.
func measuredOf(a *report.Alert, now *time.Time) string {
	numbers := measured(a.Numerator, a.Denominator, a.Threshold, a.LastedSeconds)
	if a.Held == "" || a.CountedAt == nil || a.HeldSince == nil {
		return numbers
	}
	return numbers + " at " + clock(*a.CountedAt, now) + ", " + heldText(a.Held) + " since " + clock(*a.HeldSince, now)
}

// heldText is what is seen of an alert that is held.
func heldText(held string) string { return clean(strings.ReplaceAll(held, "_", " ")) }

// share is a ratio as a percentage of three digits.
func share(ratio float64) string {
	percentage := strconv.FormatFloat(ratio*100, 'g', 3, 64)
	if ratio >= 10 {
		percentage = strconv.FormatFloat(ratio*100, 'f', 0, 64)
	}
	return percentage + " %"
}

// shareBeside is share, with more digits where it would look equal to a threshold that it
// is not.
func shareBeside(ratio, threshold float64) string {
	if said := share(ratio); said != share(threshold) {
		return said
	}
	return signals.Percent(ratio, threshold)
}

func shortSeconds(seconds float64) string {
	return shortTime(time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond))
}

func topError(class string, n int64) string {
	if class == "" {
		return ""
	}
	if n == 0 {
		return clean(class)
	}
	return fmt.Sprintf("%s ×%d", clean(class), n)
}

// topErrorOf says when its count was, where that is another moment than the numbers'.
func topErrorOf(a *report.Alert, now *time.Time) string {
	top := topError(a.TopError, a.TopErrorCount)
	if top == "" || a.ExplainedAt == nil || a.CountedAt == nil || a.ExplainedAt.Equal(*a.CountedAt) {
		return top
	}
	return top + " at " + clock(*a.ExplainedAt, now)
}

// alertSince is when an alert came into its state, without the day where that is today.
func alertSince(a *report.Alert, now *time.Time) string {
	for _, at := range []*time.Time{a.ResolvedAt, a.StartsAt, a.Since} {
		if at == nil {
			continue
		}
		return clock(*at, now)
	}
	return ""
}

// clock is an instant, without the day where that is today.
func clock(at time.Time, now *time.Time) string {
	if now != nil && at.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return at.UTC().Format("15:04:05Z")
	}
	return instant(at)
}

// alertHistory prints changes, the latest first.
func (p printer) alertHistory(found report.History, rule string) {
	in := windowText(found.Since, found.Until, "")
	if rule != "" {
		in += " of the rule " + clean(rule)
	}
	if len(found.Transitions) == 0 {
		p.line("No alert changed its state " + in + ". Widen the window with --since.")
		return
	}
	p.line(fmt.Sprintf("%s %s", plural(len(found.Transitions), "change"), in))
	p.blank()
	p.transitions(found.Transitions, true)
	if found.More {
		p.blank()
		p.line("There are older ones; --limit shows more.")
	}
}

// transitions prints a line a change; ofMany tells which alert each belongs to.
func (p printer) transitions(changes []report.Transition, ofMany bool) {
	each := func(cell func(*report.Transition) string) []string {
		cells := make([]string, len(changes))
		for i := range changes {
			cells[i] = cell(&changes[i])
		}
		return cells
	}
	columns := []column{{title: "at", left: true, cells: each(func(t *report.Transition) string { return instant(t.At) })}}
	if ofMany {
		columns = append(columns,
			column{title: "rule", name: "rule", left: true, drop: 95, cells: each(func(t *report.Transition) string { return clean(t.Rule) })},
			column{title: "where", name: "where", left: true, drop: 90, cells: each(func(t *report.Transition) string { return p.where(t.Group) })})
	}
	columns = append(columns,
		column{title: "became", left: true, cells: each(func(t *report.Transition) string { return p.paintAlert(t.To) })},
		column{title: "for", name: "reason", left: true, drop: 50, cells: each(func(t *report.Transition) string { return clean(strings.ReplaceAll(t.Reason, "_", " ")) })},
		column{title: "failed of total", name: "failed of total", drop: 80, cells: each(func(t *report.Transition) string {
			return measured(t.Numerator, t.Denominator, t.Threshold, t.LastedSeconds)
		})},
		column{title: "most frequent error", name: "most frequent error", left: true, drop: 30, cells: each(func(t *report.Transition) string { return topError(t.TopError, t.TopErrorCount) })})
	if ofMany {
		columns = append(columns, column{title: "fingerprint", left: true, cells: each(func(t *report.Transition) string { return clean(t.Fingerprint) })})
	}
	p.table(columns)
}
