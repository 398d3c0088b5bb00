// Package rules says when an alert fires: rules in a file, their evaluation over
// signals at an instant, and the state machine behind each alert.
//
// It does no I/O and reads no clock. The same data at the same instants give the same
// states, in every process.
package rules

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// The signals of the evaluation itself. A rule on one of them has neither threshold
// nor groups: it fires when what it watches lasts longer than the rule's window.
const (
	// EvaluationStalled is how long rules, all or some, could not be evaluated.
	EvaluationStalled signals.Signal = "evaluation_stalled"
	// IngestStalled is how far the ledger is behind the spans that were acknowledged.
	IngestStalled signals.Signal = "ingest_stalled"
)

// watchesItself tells whether a signal is one of the evaluation's own.
func watchesItself(s signals.Signal) bool { return s == EvaluationStalled || s == IngestStalled }

// Bounds of a rule. A file that is outside them is refused.
const (
	MaxRules         = 500
	MaxFileBytes     = 1 << 20
	MinWindow        = time.Second
	MaxWindow        = time.Hour
	MaxFor           = 24 * time.Hour
	MinKeepFiringFor = 10 * time.Second // below, a value around its threshold notifies every few seconds
	MaxKeepFiringFor = 24 * time.Hour
	MinSettle        = time.Second
	MaxSettle        = 5 * time.Minute
	MaxMinSamples    = 1_000_000_000_000_000
	MaxGroups        = 10_000
)

// What a rule has where neither it nor its file's defaults say otherwise. min_samples
// and keep_firing_for depend on the rule: see compile.
const defaultMaxGroups = 1000

// Threshold is a ratio in millionths, so that "exactly at" is exact. It is at least 0
// and below 1.
type Threshold int64

// ParseThreshold reads a percentage such as "2 %" or "0.5%", with at most four decimals.
func ParseThreshold(text string) (Threshold, error) {
	number, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0, fmt.Errorf("%q has no unit: write a percentage such as 2 %%", text)
	}
	number = strings.TrimSpace(number)
	whole, decimals, point := strings.Cut(number, ".")
	if len(decimals) > 4 || point && decimals == "" || len(whole) > 3 || whole == "" || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no percentage: write digits with at most four decimals, such as 2 %% or 0.5 %%", text)
	}
	millionths, err := strconv.ParseInt(whole+decimals+strings.Repeat("0", 4-len(decimals)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no percentage: write one such as 2 %%", text)
	}
	if millionths >= 1_000_000 {
		return 0, fmt.Errorf("%q can never be exceeded by a share: write a percentage below 100 %%", text)
	}
	return Threshold(millionths), nil
}

// String is the percentage, as it is written in a rule.
func (t Threshold) String() string {
	text := strconv.FormatFloat(float64(t)/1e4, 'f', 4, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}

// Ratio is the threshold as a number between 0 and 1.
func (t Threshold) Ratio() float64 { return float64(t) / 1e6 }

// below tells whether numerator ÷ denominator is strictly above the threshold,
// without rounding.
func (t Threshold) below(numerator, denominator int64) bool {
	if numerator <= 0 || denominator <= 0 {
		return false
	}
	leftHigh, leftLow := bits.Mul64(uint64(numerator), 1_000_000)
	rightHigh, rightLow := bits.Mul64(uint64(denominator), uint64(t))
	return leftHigh > rightHigh || leftHigh == rightHigh && leftLow > rightLow
}

// Rule is one rule as it is evaluated: its file's defaults are in it.
type Rule struct {
	Name       string
	Signal     signals.Signal
	Threshold  Threshold
	Window     time.Duration // (instant − Window, instant]; of a stall the length it may have
	GroupBy    []signals.Dimension
	Where      map[signals.Dimension]Matcher
	MinSamples int64 // in units of the signal's denominator
	For        time.Duration
	// KeepFiringFor is the hold: how long an alert goes on firing without a breach.
	KeepFiringFor time.Duration
	// Settle is how long a failure that is not known to be final waits for another attempt.
	Settle      time.Duration
	MaxGroups   int // groups that are kept of one evaluation, and alerts at a time
	Labels      map[string]string
	Annotations map[string]string // templates, as they are written
	// DefaultPack tells whether the rule comes from the default pack, changed or not.
	DefaultPack bool

	templates map[string]*annotation
	query     string // of two rules with the same, one read serves both
	identity  string // what makes its alerts the same alerts after a reload
}

func (r *Rule) finish() {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %d %q", r.Signal, r.Window, r.Settle, r.GroupBy)
	where := r.whereText()
	b.WriteString(where)
	r.query = b.String()
	b.Reset()
	fmt.Fprintf(&b, "%s %q%s", r.Signal, r.GroupBy, where)
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		fmt.Fprintf(&b, " %s=%q", name, r.Labels[name])
	}
	r.identity = b.String()
}

func (r *Rule) whereText() string {
	var b strings.Builder
	for _, d := range signals.Dimensions() {
		if m, ok := r.Where[d]; ok {
			fmt.Fprintf(&b, " %s%s", d, m)
		}
	}
	return b.String()
}

// Query is what the rule asks of a reader at an instant.
func (r *Rule) Query(instant time.Time) signals.Query {
	q := signals.Query{Signal: r.Signal, ToNs: instant.UnixNano(), WindowNs: int64(r.Window), GroupBy: r.GroupBy, SettleNs: int64(r.Settle)}
	if len(r.Where) > 0 {
		q.Where = make(map[signals.Dimension]signals.Matcher, len(r.Where))
		for d, m := range r.Where {
			q.Where[d] = m
		}
	}
	return q
}

// Condition says in words when the rule fires.
func (r *Rule) Condition() string {
	if watchesItself(r.Signal) {
		return fmt.Sprintf("%s for more than %s", r.Signal, strictyaml.Short(r.Window))
	}
	text := fmt.Sprintf("%s above %s over %s", r.Signal, r.Threshold, strictyaml.Short(r.Window))
	if where := r.whereText(); where != "" {
		text += " where" + where
	}
	if len(r.GroupBy) > 0 {
		names := make([]string, len(r.GroupBy))
		for i, d := range r.GroupBy {
			names[i] = string(d)
		}
		text += " by " + strings.Join(names, ", ")
	}
	if r.For > 0 {
		text += " for " + strictyaml.Short(r.For)
	}
	return text
}

// alertLabels are the labels of the rule's alert on one group: alertname, the
// dimensions that it is grouped by where they have a value, and the rule's own.
func (r *Rule) alertLabels(group signals.Labels) map[string]string {
	all := make(map[string]string, len(r.Labels)+len(r.GroupBy)+1)
	maps.Copy(all, r.Labels)
	for _, d := range r.GroupBy {
		if value := group.Get(d); value != "" {
			all[string(d)] = value
		}
	}
	all[alertName] = r.Name
	return all
}

// alertName is the label that Alertmanager knows an alert by.
const alertName = "alertname"

// Set is the rules of one file together with the default pack, all of them valid.
// It does not change.
type Set struct {
	rules    []*Rule
	disabled []string
	blank    bool
}

// Blank tells whether the file has no key at all, as one that is being written.
func (s *Set) Blank() bool { return s.blank }

// Rules are the rules that are evaluated, in the order of the default pack, then of the file.
func (s *Set) Rules() []*Rule { return slices.Clone(s.rules) }

// Disabled names the rules that the file switched off.
func (s *Set) Disabled() []string { return slices.Clone(s.disabled) }

// Windows are how far back the rules look, for each signal that any of them watches.
func (s *Set) Windows() map[signals.Signal]time.Duration {
	longest := map[signals.Signal]time.Duration{}
	for _, r := range s.rules {
		if !watchesItself(r.Signal) {
			longest[r.Signal] = max(longest[r.Signal], r.Window)
		}
	}
	return longest
}
