package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Question asks whether a version of a service may go on.
type Question struct {
	Service     string
	Environment string // "": any
	Version     string // the canary's
	Baseline    string // "": none
	Signal      signals.Signal
	Window      time.Duration // whole seconds
	Rule        Rule
}

// Signals are those a gate judges by: the ones that count things of which each fails
// or does not. Retries per operation and shares of tokens have no such things, so that
// no sample of them is large or small.
func Signals() []signals.Signal {
	return slices.DeleteFunc(signals.All(), func(s signals.Signal) bool {
		return s == signals.RetryRatio || s == signals.WastedTokenRatio
	})
}

// Keep is what a cache must hold for gates whose longest window is maxWindow.
func Keep(maxWindow time.Duration) signals.Keep {
	keep := signals.Keep{}
	for _, signal := range Signals() {
		keep[signal] = maxWindow
	}
	return keep
}

// Side is what is known of one version.
type Side struct {
	Version string   `json:"version"`
	Failed  int64    `json:"failed"`
	Total   int64    `json:"total"`
	Ratio   *float64 `json:"ratio"` // of 1; null: there is nothing to share
}

// Answer is a decision with all that it rests on.
type Answer struct {
	Decision Decision `json:"decision"`
	Reason   string   `json:"reason"` // a sentence
	Cause    Cause    `json:"cause"`

	Service     string         `json:"service"`
	Environment string         `json:"environment"` // "": any
	Signal      signals.Signal `json:"signal"`
	Canary      Side           `json:"canary"`
	Baseline    *Side          `json:"baseline"`   // null: none was asked for
	Comparison  *Comparison    `json:"comparison"` // null: nothing was compared

	Threshold     float64 `json:"threshold"` // of 1
	Margin        float64 `json:"margin"`    // of 1
	MinSamples    int64   `json:"min_samples"`
	WindowSeconds int64   `json:"window_seconds"`

	// Instant is the end of the window, which is (Instant − WindowSeconds, Instant].
	Instant  time.Time  `json:"instant"`
	DataUpTo *time.Time `json:"data_up_to"` // all until then has been read; null: nothing has
}

// Canary answers a question from what a reader holds. upTo is the instant up to which
// the reader has all that the store has, zero (Go's or Unix's) if it has read nothing; now
// is of the same clock. The window ends at the earlier of the two. Data that end more than staleAfter
// before now decide nothing, and neither does a reader that cannot answer: its error is
// returned beside the answer, which is inconclusive.
func Canary(ctx context.Context, reader signals.Reader, q Question, upTo, now time.Time, staleAfter time.Duration) (Answer, error) {
	a := Answer{
		Service: q.Service, Environment: q.Environment, Signal: q.Signal, Canary: Side{Version: q.Version},
		Threshold: q.Rule.Threshold, Margin: q.Rule.Margin, MinSamples: q.Rule.MinSamples,
		WindowSeconds: int64(q.Window / time.Second), Instant: now.UTC().Truncate(time.Second),
	}
	if q.Baseline != "" {
		a.Baseline = &Side{Version: q.Baseline}
	}
	if upTo.Unix() <= 0 {
		return a.conclude(Verdict{Decision: Inconclusive, Cause: CauseUnavailable}), nil
	}
	upTo = upTo.UTC()
	a.DataUpTo = &upTo
	if upTo.Before(now) {
		a.Instant = upTo.Truncate(time.Second)
	}
	if now.Sub(upTo) > staleAfter {
		return a.conclude(Verdict{Decision: Inconclusive, Cause: CauseStale}), nil
	}
	canary, baseline, err := count(ctx, reader, q, a.Instant)
	if err != nil {
		a = a.conclude(Verdict{Decision: Inconclusive, Cause: CauseUnavailable})
		if notHeld := new(signals.NotHeldError); errors.As(err, &notHeld) {
			a.Reason = "T" + strings.TrimPrefix(notHeld.Error(), "t") + "."
		}
		return a, err
	}
	a.Canary = side(q.Version, canary)
	if q.Baseline == "" {
		return a.conclude(q.Rule.Judge(canary, nil)), nil
	}
	against := side(q.Baseline, baseline)
	a.Baseline = &against
	return a.conclude(q.Rule.Judge(canary, &baseline)), nil
}

func count(ctx context.Context, reader signals.Reader, q Question, instant time.Time) (canary, baseline Counts, err error) {
	versions := oneOf{q.Version}
	if q.Baseline != "" {
		versions = append(versions, q.Baseline)
	}
	where := map[signals.Dimension]signals.Matcher{signals.Service: oneOf{q.Service}, signals.Version: versions}
	if q.Environment != "" {
		where[signals.Environment] = oneOf{q.Environment}
	}
	samples, err := reader.Window(ctx, signals.Query{
		Signal: q.Signal, ToNs: instant.UnixNano(), WindowNs: int64(q.Window),
		GroupBy: []signals.Dimension{signals.Version}, Where: where,
	})
	if err != nil {
		return canary, baseline, fmt.Errorf("count %s of service %s over %s: %w", q.Signal, q.Service, q.Window, err)
	}
	for _, sample := range samples {
		switch counts := (Counts{Failed: sample.Numerator, Total: sample.Denominator}); sample.Labels.Version {
		case q.Version:
			canary = counts
		case q.Baseline:
			baseline = counts
		}
	}
	return canary, baseline, nil
}

type oneOf []string

func (o oneOf) Matches(value string) bool { return slices.Contains(o, value) }

func side(version string, c Counts) Side {
	s := Side{Version: version, Failed: c.Failed, Total: c.Total}
	if c.Total > 0 {
		ratio := c.Ratio()
		s.Ratio = &ratio
	}
	return s
}

// conclude enters a verdict and says why.
func (a Answer) conclude(v Verdict) Answer {
	a.Decision, a.Cause, a.Comparison = v.Decision, v.Cause, v.Comparison
	a.Reason = a.sentence()
	return a
}
