package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// MaxReplay is the longest time that a replay covers.
const MaxReplay = 31 * 24 * time.Hour

const (
	// maxEvaluations bounds a replay: a day is evaluated every second, seven every seventh.
	maxEvaluations = 86_400
	// maxIncidents bounds the alerts that are listed one by one; all are counted.
	maxIncidents = 1000
	// maxHistory bounds what is held of the past at a time, in tallies of 24 bytes.
	maxHistory = 4_000_000
)

// Replay says what rules would have fired on the ledger's past, had they been evaluated
// then on what the ledger knows now: late spans count as if they had been in time.
type Replay struct {
	Since       time.Time      `json:"since"`
	Until       time.Time      `json:"until"`
	StepSeconds float64        `json:"step_seconds"` // between two evaluations; an alert shorter than this may be missed
	Evaluations int            `json:"evaluations"`
	Rules       []ReplayedRule `json:"rules"`     // in their order
	Incidents   []Incident     `json:"incidents"` // in the order in which they fired
	More        bool           `json:"more"`      // there are more incidents than are listed
}

// ReplayedRule is what one rule came to.
type ReplayedRule struct {
	Rule      string `json:"rule"`
	Condition string `json:"condition"`
	Fired     int    `json:"fired"`
	// FiringSeconds adds up over the groups; LongestSeconds is of one alert.
	FiringSeconds  float64 `json:"firing_seconds"`
	LongestSeconds float64 `json:"longest_seconds"`
	// HighestRatio is the highest that any evaluation saw of a large enough sample; null:
	// none was large enough. A threshold above it never fires.
	HighestRatio *float64 `json:"highest_ratio"`
}

// Incident is one alert from its firing to its end.
type Incident struct {
	Rule        string         `json:"rule"`
	Group       signals.Labels `json:"group"`
	StartsAt    time.Time      `json:"starts_at"`
	EndsAt      *time.Time     `json:"ends_at"` // null: it still fires at the end
	Numerator   int64          `json:"numerator"`
	Denominator int64          `json:"denominator"` // of the evaluation that fired
}

// ReplayOf evaluates rules on the ledger's past, (since, until] in whole seconds. Rules
// on stalls are left out: the past knows no stalls.
func ReplayOf(ctx context.Context, conn driver.Conn, set *rules.Set, since, until time.Time) (Replay, error) {
	return replayOf(ctx, conn, set, since, until, maxHistory)
}

func replayOf(ctx context.Context, conn driver.Conn, set *rules.Set, since, until time.Time, limit int) (Replay, error) {
	since, until = since.UTC().Truncate(time.Second), until.UTC().Truncate(time.Second)
	seconds := int64(until.Sub(since) / time.Second)
	step := time.Duration(max(1, (seconds+maxEvaluations-1)/maxEvaluations)) * time.Second
	r := &replaying{
		replay: Replay{Since: since, Until: until, StepSeconds: step.Seconds(), Rules: []ReplayedRule{}, Incidents: []Incident{}},
		byRule: map[string]int{}, open: map[rules.Key]opened{},
	}
	keep := signals.Keep(set.Windows())
	longest := slices.Max(append(slices.Collect(maps.Values(keep)), 0))
	for _, rule := range set.Rules() {
		if rule.Signal.Dimensions() == nil {
			continue // a stall
		}
		r.byRule[rule.Name] = len(r.replay.Rules)
		r.replay.Rules = append(r.replay.Rules, ReplayedRule{Rule: rule.Name, Condition: rule.Condition()})
		r.minSamples = append(r.minSamples, rule.MinSamples)
	}
	past := &history{conn: conn, keep: keep, limit: limit}
	cache := signals.NewCache(keep, signals.Limits{})
	evaluator := rules.NewEvaluator(set, cache, rules.Options{StallAfter: max(10*time.Second, 3*step)})
	// Alerts may fire at the beginning already: the windows are filled before it.
	cache.Advance(since.UnixMicro())
	instant := since.Add(step)
	// All at once if it fits, for each look costs a scan of the ledger; else half of it.
	length := until.Sub(since) + longest
	for from := since.Add(-longest); from.Before(until); {
		length = min(length, until.Sub(from))
		enough, err := past.read(ctx, from, from.Add(length))
		if err != nil {
			return Replay{}, fmt.Errorf("replay the rules: %w", err)
		}
		if !enough && length > time.Second {
			length = (length / 2).Truncate(time.Second)
			continue
		}
		from = from.Add(length)
		for ; !instant.After(from); instant = instant.Add(step) {
			cache.Advance(instant.UnixMicro())
			past.pour(cache, instant)
			evaluation, err := evaluator.Eval(ctx, instant)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return Replay{}, fmt.Errorf("replay the rules: %w", err)
			}
			r.take(evaluation)
		}
		past.pour(cache, from)
		if len(past.tallies) < past.limit/4 {
			length *= 2
		}
	}
	return r.end(until), nil
}

type replaying struct {
	replay     Replay
	byRule     map[string]int
	minSamples []int64 // by the place of the rule
	open       map[rules.Key]opened
	incidents  []Incident // the first that fired
	fired      int
}

// opened is an alert that fires: where it is listed, -1 where it is not, and since when.
type opened struct {
	at    int
	since time.Time
}

func (r *replaying) take(evaluation rules.Evaluation) {
	r.replay.Evaluations++
	for i := range evaluation.Samples {
		s := &evaluation.Samples[i]
		at := r.byRule[s.Rule]
		if s.Denominator < max(1, r.minSamples[at]) {
			continue
		}
		rule := &r.replay.Rules[at]
		if ratio := s.Ratio(); rule.HighestRatio == nil || ratio > *rule.HighestRatio {
			rule.HighestRatio = &ratio
		}
	}
	for i := range evaluation.Transitions {
		t := &evaluation.Transitions[i]
		at, counted := r.byRule[t.Rule]
		if !counted {
			continue
		}
		key := rules.Key{Rule: t.Rule, Group: t.Group}
		switch {
		case t.To == rules.StateFiring:
			r.replay.Rules[at].Fired++
			r.fired++
			listed := -1
			if len(r.incidents) < maxIncidents {
				listed = len(r.incidents)
				r.incidents = append(r.incidents, Incident{
					Rule: t.Rule, Group: t.Group, StartsAt: t.StartsAt, Numerator: t.Numerator, Denominator: t.Denominator,
				})
			}
			r.open[key] = opened{listed, t.StartsAt}
		case t.From == rules.StateFiring:
			began := r.open[key]
			if began.at >= 0 {
				r.incidents[began.at].EndsAt = &t.At
			}
			r.over(at, t.At.Sub(began.since))
			delete(r.open, key)
		}
	}
}

func (r *replaying) over(rule int, lasted time.Duration) {
	of := &r.replay.Rules[rule]
	of.FiringSeconds += lasted.Seconds()
	of.LongestSeconds = max(of.LongestSeconds, lasted.Seconds())
}

func (r *replaying) end(until time.Time) Replay {
	for key, began := range r.open {
		r.over(r.byRule[key.Rule], until.Sub(began.since))
	}
	slices.SortStableFunc(r.incidents, func(a, b Incident) int {
		return cmp.Or(a.StartsAt.Compare(b.StartsAt), cmp.Compare(a.Rule, b.Rule), a.Group.Compare(b.Group))
	})
	r.replay.More = r.fired > maxIncidents
	r.replay.Incidents = append(r.replay.Incidents, r.incidents...)
	return r.replay
}
