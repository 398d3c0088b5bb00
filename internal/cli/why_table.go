package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/report"
)

// why prints one alert: what it is about, its changes, the numbers, and what to ask next.
func (p printer) why(found report.Why) {
	if len(found.Transitions) == 0 {
		p.line("Nothing is known of this alert.")
		return
	}
	last := &found.Transitions[0]
	head := clean(last.Rule)
	if in := p.where(last.Group); in != "" {
		head += ", " + in
	}
	p.line(fmt.Sprintf("%s: %s since %s", head, p.paintAlert(last.To), instant(last.At)))
	if found.Held != "" && found.HeldSince != nil {
		p.line("It is held: " + heldText(found.Held) + " since " + instant(*found.HeldSince))
	}
	if found.Condition == "" {
		p.line("Its rule is not in force any more.")
	} else {
		condition := "The rule: " + clean(found.Condition)
		if last.MinSamples > 1 {
			condition += fmt.Sprintf(", of %d samples or more", last.MinSamples)
		}
		p.line(condition)
	}
	p.blank()
	p.transitions(found.Transitions, false)
	p.numbers(found)
	p.next(found)
}

// stretch is a time in which the samples said the same.
type stretch struct {
	sample, last report.Sample
	low, high    float64 // ratios
}

// maxStretches bounds the lines of numbers.
const maxStretches = 40

// pause is from how long without samples on it is told: an evaluation that comes late
// leaves a second out.
const pause = 3 * time.Second

// stretches compresses samples: each holds samples of one state whose ratios are on one
// side of the threshold, without a pause, and no more than a twelfth of all.
func stretches(samples []report.Sample, threshold float64) []stretch {
	longest := 10 * time.Second
	if len(samples) > 0 {
		longest = max(longest, samples[len(samples)-1].Instant.Sub(samples[0].Instant)/12)
	}
	var all []stretch
	for _, s := range samples {
		if n := len(all); n > 0 {
			of := &all[n-1]
			if s.Instant.Sub(of.last.Instant) <= pause && of.last.State == s.State &&
				(of.last.Ratio > threshold) == (s.Ratio > threshold) && s.Instant.Sub(of.sample.Instant) <= longest {
				of.last, of.low, of.high = s, min(of.low, s.Ratio), max(of.high, s.Ratio)
				continue
			}
		}
		all = append(all, stretch{sample: s, last: s, low: s.Ratio, high: s.Ratio})
	}
	return all
}

// numbers prints what the evaluations saw, seconds that say the same in one line.
func (p printer) numbers(found report.Why) {
	last := &found.Transitions[0]
	if last.WindowSeconds == 0 || len(found.Samples) == 0 && last.LastedSeconds > 0 {
		return
	}
	p.blank()
	if len(found.Samples) == 0 {
		p.line("The numbers of its evaluations are not kept any more.")
		return
	}
	p.line(fmt.Sprintf("What the evaluations saw, each over %s; the threshold is %s:", shortSeconds(last.WindowSeconds), share(last.Threshold)))
	all := stretches(found.Samples, last.Threshold)
	var at, seconds, ratio, first, state []string
	add := func(a, s, r, f, st string) {
		at, seconds, ratio, first, state = append(at, a), append(seconds, s), append(ratio, r), append(first, f), append(state, st)
	}
	cut := max(0, len(all)-maxStretches)
	for i := range all {
		if cut > 0 && i >= maxStretches/2 && i < maxStretches/2+cut {
			if i == maxStretches/2 {
				add("…", "", fmt.Sprintf("%d more", cut), "", "")
			}
			continue
		}
		s := &all[i]
		if i > 0 && s.sample.Instant.Sub(all[i-1].last.Instant) > pause {
			what := "no data"
			if l := found.LeftOff; l != nil && !l.To.After(s.sample.Instant) && l.To.After(all[i-1].last.Instant) {
				what = "not shown"
			}
			from := all[i-1].last.Instant.Add(time.Second)
			add(instant(from), shortTime(s.sample.Instant.Sub(from)), what, "", "")
		}
		r := shareBeside(s.low, last.Threshold)
		if high := shareBeside(s.high, last.Threshold); high != r {
			r += " to " + high
		}
		add(instant(s.sample.Instant), shortTime(s.last.Instant.Sub(s.sample.Instant)+time.Second), r,
			big(s.sample.Numerator)+" of "+big(s.sample.Denominator), p.paintAlert(s.sample.State))
	}
	p.table([]column{
		{title: "from", left: true, cells: at},
		{title: "for", cells: seconds},
		{title: "ratio", left: true, cells: ratio},
		{title: "at first", name: "at first", drop: 10, cells: first},
		{title: "state", name: "state", left: true, drop: 20, cells: state},
	})
}

// next prints what to type to see more.
func (p printer) next(found report.Why) {
	last := &found.Transitions[0]
	var commands []string
	for i := range found.Transitions {
		if runs := found.Transitions[i].Runs; len(runs) > 0 {
			for _, run := range runs {
				commands = append(commands, "retryledger run "+shellWord(run))
			}
			break
		}
	}
	if service := last.Group.Service; service != "" {
		commands = append(commands, "retryledger top --service "+shellWord(service))
	}
	if last.Group.Provider != "" {
		commands = append(commands, "retryledger breakers "+shellWord(last.Group.Provider))
	}
	commands = append(commands, "retryledger alerts history --rule "+shellWord(last.Rule))
	p.blank()
	p.line("More:")
	for _, c := range commands {
		p.line(p.command(c))
	}
}

// shellWord quotes a text that came with spans, so that a shell takes it as one word.
func shellWord(s string) string {
	s = clean(s)
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:") == "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
