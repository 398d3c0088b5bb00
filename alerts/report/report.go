// Package report says what the alerts came to, as the JSON of the API: what fires, what
// changed and why, the rules in force, and what rules would have fired in the past.
package report

import (
	"strconv"
	"time"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// The paths of the API.
const (
	AlertsPath  = "/api/v1/alerts"
	HistoryPath = "/api/v1/alerts/history"
	RulesPath   = "/api/v1/rules"
	ReplayPath  = "/api/v1/rules/replay"
)

// Alert is an alert as it is now.
type Alert struct {
	Fingerprint string            `json:"fingerprint"` // of its labels, as Alertmanager and amtool have it
	Rule        string            `json:"rule"`
	Signal      string            `json:"signal"`
	State       string            `json:"state"` // pending, firing or resolved
	Group       signals.Labels    `json:"group"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Since       *time.Time        `json:"since,omitempty"`     // when the breach began
	StartsAt    *time.Time        `json:"starts_at,omitempty"` // when it fired
	ResolvedAt  *time.Time        `json:"resolved_at,omitempty"`

	// Of an alert that fires though no breach is seen any more, within its keep_firing_for:
	// what is seen (no_data, too_few_samples or recovered), and since when.
	Held      string     `json:"held,omitempty"`
	HeldSince *time.Time `json:"held_since,omitempty"`

	// Muted is why nobody is told of an alert that fires: silenced or inhibited. Empty too where
	// other Alertmanagers decide that.
	Muted string `json:"muted,omitempty"`

	// Of the last evaluation that saw the breach.
	CountedAt     *time.Time `json:"counted_at,omitempty"`
	Numerator     int64      `json:"numerator"`
	Denominator   int64      `json:"denominator"`
	Ratio         float64    `json:"ratio"`
	Threshold     float64    `json:"threshold"` // a ratio
	WindowSeconds float64    `json:"window_seconds"`
	// LastedSeconds is how long a stall has lasted; 0 of rules that count.
	LastedSeconds float64 `json:"lasted_seconds,omitempty"`

	// What is behind it, of an alert that fires: at first, after a minute, and again ever more
	// seldom, every ten minutes at last. The count is of that moment, not of CountedAt.
	ExplainedAt   *time.Time `json:"explained_at,omitempty"`
	TopError      string     `json:"top_error,omitempty"` // the most frequent
	TopErrorCount int64      `json:"top_error_count,omitempty"`
	Runs          []string   `json:"runs,omitempty"` // ids of examples
}

// Alerts is the answer of AlertsPath.
type Alerts struct {
	EvaluatedAt *time.Time `json:"evaluated_at"` // by the store's clock; null: never yet
	// StalledSeconds is for how long no evaluation succeeded; below a few seconds all is well.
	StalledSeconds float64        `json:"stalled_seconds"`
	RulesError     string         `json:"rules_error,omitempty"` // why a change of the rules file was not taken
	Rules          int            `json:"rules"`
	LeftOff        map[string]int `json:"left_off_groups,omitempty"` // by rule: groups beyond its max_groups
	Alerts         []Alert        `json:"alerts"`                    // those that fire first, then pending, then resolved of the last minutes
}

// Transition is a change of an alert's state.
type Transition struct {
	At            time.Time         `json:"at"`
	Fingerprint   string            `json:"fingerprint"`
	Rule          string            `json:"rule"`
	Signal        string            `json:"signal"`
	Group         signals.Labels    `json:"group"`
	Labels        map[string]string `json:"labels"`
	From          string            `json:"from"`
	To            string            `json:"to"`
	Reason        string            `json:"reason"`
	StartsAt      *time.Time        `json:"starts_at,omitempty"`
	Numerator     int64             `json:"numerator"`
	Denominator   int64             `json:"denominator"`
	Ratio         *float64          `json:"ratio"` // null: no data
	Threshold     float64           `json:"threshold"`
	WindowSeconds float64           `json:"window_seconds"`
	MinSamples    int64             `json:"min_samples"`
	LastedSeconds float64           `json:"lasted_seconds,omitempty"`
	TopError      string            `json:"top_error,omitempty"`
	TopErrorCount int64             `json:"top_error_count,omitempty"`
	Runs          []string          `json:"runs"`
}

// History is the answer of HistoryPath, the latest change first.
type History struct {
	Since       *time.Time   `json:"since"`
	Until       *time.Time   `json:"until"`
	Transitions []Transition `json:"transitions"`
	More        bool         `json:"more"` // there are older ones beyond the limit
}

// Sample is what one evaluation counted.
type Sample struct {
	Instant     time.Time `json:"instant"`
	Numerator   int64     `json:"numerator"`
	Denominator int64     `json:"denominator"`
	Ratio       float64   `json:"ratio"`
	State       string    `json:"state"`
}

// Why is one alert with its changes and the numbers around the last one: the answer of
// AlertsPath/FINGERPRINT.
type Why struct {
	Condition   string       `json:"condition,omitempty"` // of the rule as it is now; "" where it is gone
	Transitions []Transition `json:"transitions"`         // the latest first
	Samples     []Sample     `json:"samples"`             // from a window before it last began, until it ended or now
	Held        string       `json:"held,omitempty"`      // as of the alert in AlertsPath
	HeldSince   *time.Time   `json:"held_since,omitempty"`
	LeftOff     *Period      `json:"left_off,omitempty"` // in the middle, where that is long
}

// Period is a time of which samples are not listed.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Rule is a rule in force.
type Rule struct {
	Name          string            `json:"name"`
	Condition     string            `json:"condition"`
	Signal        string            `json:"signal"`
	Threshold     float64           `json:"threshold"`
	WindowSeconds float64           `json:"window_seconds"`
	GroupBy       []string          `json:"group_by"`
	MinSamples    int64             `json:"min_samples"`
	ForSeconds    float64           `json:"for_seconds"`
	KeepSeconds   float64           `json:"keep_firing_for_seconds"`
	Labels        map[string]string `json:"labels"`
	DefaultPack   bool              `json:"default_pack"`
}

// Rules is the answer of RulesPath.
type Rules struct {
	Rules    []Rule   `json:"rules"`
	Disabled []string `json:"disabled"`
}

// RulesOf are the rules of a set.
func RulesOf(set *rules.Set) Rules {
	out := Rules{Rules: []Rule{}, Disabled: append([]string{}, set.Disabled()...)}
	for _, r := range set.Rules() {
		groupBy := make([]string, len(r.GroupBy))
		for i, d := range r.GroupBy {
			groupBy[i] = string(d)
		}
		out.Rules = append(out.Rules, Rule{
			Name: r.Name, Condition: r.Condition(), Signal: string(r.Signal), Threshold: r.Threshold.Ratio(),
			WindowSeconds: r.Window.Seconds(), GroupBy: groupBy, MinSamples: r.MinSamples, ForSeconds: r.For.Seconds(),
			KeepSeconds: r.KeepFiringFor.Seconds(), Labels: r.Labels, DefaultPack: r.DefaultPack,
		})
	}
	return out
}

// TransitionOf is a transition as it is kept in the store.
func TransitionOf(t *schema.AlertTransition) Transition {
	out := Transition{
		At: t.At, Fingerprint: Fingerprint(t.Fingerprint), Rule: t.Rule, Signal: t.Signal, Group: signals.Labels(t.Group), Labels: t.Labels,
		From: t.From, To: t.To, Reason: t.Reason, StartsAt: orNull(t.StartsAt), Numerator: t.Numerator, Denominator: t.Denominator,
		Threshold: t.Threshold, WindowSeconds: float64(t.WindowS), MinSamples: t.MinSamples, LastedSeconds: float64(t.LastedMs) / 1e3,
		TopError: t.TopError, TopErrorCount: t.TopErrorCount, Runs: append([]string{}, t.Runs...),
	}
	if t.Denominator > 0 {
		ratio := float64(t.Numerator) / float64(t.Denominator)
		out.Ratio = &ratio
	}
	return out
}

func sampleOf(s *schema.AlertSample) Sample {
	out := Sample{Instant: s.Instant, Numerator: s.Numerator, Denominator: s.Denominator, State: s.State}
	if s.Denominator > 0 {
		out.Ratio = float64(s.Numerator) / float64(s.Denominator)
	}
	return out
}

// AlertOf is an alert's state; what is behind it and its annotations are those of an
// alert that is delivered.
func AlertOf(s *rules.AlertState, fingerprint uint64, behind rules.Explanation, annotations map[string]string) Alert {
	out := Alert{
		Fingerprint: Fingerprint(fingerprint), Rule: s.Rule, Signal: string(s.Signal), State: string(s.State), Group: s.Group,
		Labels: s.Labels, Annotations: annotations, Since: orNull(s.Since), StartsAt: orNull(s.StartsAt), ResolvedAt: orNull(s.ResolvedAt),
		Held: string(s.Held), HeldSince: orNull(s.HeldSince),
		CountedAt: orNull(s.BreachAt), Numerator: s.Numerator, Denominator: s.Denominator, Threshold: s.Threshold.Ratio(), WindowSeconds: s.Window.Seconds(),
		LastedSeconds: s.Lasted.Seconds(), ExplainedAt: orNull(behind.At), TopError: behind.TopError, TopErrorCount: behind.TopErrorCount, Runs: behind.Runs,
	}
	if s.Denominator > 0 {
		out.Ratio = float64(s.Numerator) / float64(s.Denominator)
	}
	return out
}

// Fingerprint writes an alert's fingerprint as Alertmanager does.
func Fingerprint(f uint64) string {
	const digits = 16
	text := strconv.FormatUint(f, 16)
	for len(text) < digits {
		text = "0" + text
	}
	return text
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
