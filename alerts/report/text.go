package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Text is what a person reads who follows the link of a notification: what the alert is
// about, its changes, and what to type to see more.
func (w *Why) Text() string {
	if len(w.Transitions) == 0 {
		return "Nothing is known of this alert.\n"
	}
	var text strings.Builder
	last := &w.Transitions[0]
	head := last.Rule
	if where := whereText(last.Group); where != "" {
		head += ", " + where
	}
	fmt.Fprintf(&text, "%s: %s since %s\n", printed(head), printed(last.To), instantText(last.At))
	if w.Held != "" && w.HeldSince != nil {
		fmt.Fprintf(&text, "It is held: %s since %s\n", printed(strings.ReplaceAll(w.Held, "_", " ")), instantText(*w.HeldSince))
	}
	if w.Condition == "" {
		text.WriteString("Its rule is not in force any more.\n")
	} else {
		text.WriteString("The rule: " + printed(w.Condition))
		if last.MinSamples > 1 {
			fmt.Fprintf(&text, ", of %d samples or more", last.MinSamples)
		}
		text.WriteString("\n")
	}
	text.WriteString("\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i := range w.Transitions {
		t := &w.Transitions[i]
		saw := "no data"
		switch {
		case t.LastedSeconds > 0:
			saw = "for " + time.Duration(t.LastedSeconds*float64(time.Second)).Round(time.Second).String()
		case t.Ratio != nil:
			saw = fmt.Sprintf("%d of %d (%s)", t.Numerator, t.Denominator, signals.Percent(*t.Ratio, t.Threshold))
		}
		if t.TopError != "" {
			saw += "\tmost frequent: " + printed(t.TopError)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", instantText(t.At), printed(t.To), printed(strings.ReplaceAll(t.Reason, "_", " ")), saw)
	}
	_ = table.Flush() // into memory
	for i := range w.Transitions {
		if runs := w.Transitions[i].Runs; len(runs) > 0 {
			fmt.Fprintf(&text, "\nExamples of runs: %s\n", printed(strings.Join(runs, ", ")))
			break
		}
	}
	fmt.Fprintf(&text, "\nThe numbers of each second:\n  retryledger alerts why %s\n", printed(last.Fingerprint))
	return text.String()
}

// printed leaves out what is no text.
func printed(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func instantText(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05Z") }

func whereText(group signals.Labels) string {
	var named []string
	for _, d := range signals.Dimensions() {
		if value := group.Get(d); value != "" {
			named = append(named, string(d)+"="+value)
		}
	}
	return strings.Join(named, " ")
}
