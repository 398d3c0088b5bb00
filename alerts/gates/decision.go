// Package gates answers whether a release may go on: pass, fail or inconclusive.
package gates

// Decision is the answer of a gate.
type Decision string

// The decisions. Inconclusive is an answer of its own: too little is known to let the
// release go on, and too little to take it back.
const (
	Pass         Decision = "pass"
	Fail         Decision = "fail"
	Inconclusive Decision = "inconclusive"
)

// Cause says for programs what a decision rests on; Answer.Reason says it to people.
type Cause string

// The causes, each of one decision.
const (
	CauseWithinThreshold Cause = "within_threshold"        // pass, no baseline was asked for
	CauseNotWorse        Cause = "not_worse_than_baseline" // pass
	CauseAboveThreshold  Cause = "above_threshold"         // fail, there is no baseline to compare with
	CauseWorse           Cause = "worse_than_baseline"     // fail

	CauseUnavailable       Cause = "unavailable"                   // inconclusive: nothing can be read
	CauseStale             Cause = "stale"                         // inconclusive: what can be read is too old
	CauseNoData            Cause = "no_data"                       // inconclusive: nothing of this version ended in the window
	CauseSampleTooSmall    Cause = "sample_too_small"              // inconclusive
	CauseBaselineTooSmall  Cause = "baseline_too_small"            // inconclusive: within the threshold, but there is no baseline to compare with
	CauseUnclear           Cause = "difference_unclear"            // inconclusive: equal rates explain the counts, and so does a release that is worse by the margin
	CauseAboveLikeBaseline Cause = "above_threshold_like_baseline" // inconclusive: too many fail, but no more than of the baseline
)

// Counts are the things of one version that ended in the window, and how many of them
// failed.
type Counts struct {
	Failed int64
	Total  int64
}

// Ratio is the share that failed; of nothing it is 0.
func (c Counts) Ratio() float64 {
	if c.Total <= 0 {
		return 0
	}
	return float64(c.Failed) / float64(c.Total)
}

// Rule is how counts are judged.
type Rule struct {
	// Threshold is the highest ratio that passes, of 1. A ratio strictly above it fails.
	Threshold float64
	// Margin is by how much more the canary may fail than the baseline, as a difference
	// of ratios, of 1.
	Margin float64
	// MinSamples is the smallest number of things of the canary, and of a baseline, that
	// says anything.
	MinSamples int64
	// FalseFail bounds how often a canary that is like its baseline fails, of 1.
	FalseFail float64
	// FalsePass bounds how often a canary that fails by Margin more often than its
	// baseline passes, of 1.
	FalsePass float64
}

// The defaults of a Rule.
const (
	DefaultThreshold = 0.01
	DefaultFalseFail = 0.01
	DefaultFalsePass = 0.05
)

// DefaultMinSamples is the smallest sample in which one failure alone is not above the
// threshold, and at least 50: with a threshold of 1 % it is 100.
func DefaultMinSamples(threshold float64) int64 {
	const least, most = 50, 1_000_000
	n := int64(least)
	if threshold > 0 && threshold < 1 {
		n = int64(min(1/threshold, most))
	}
	for n < most && 1/float64(n) > threshold && threshold > 0 {
		n++
	}
	return max(n, least)
}

// Verdict is what a Rule says of counts.
type Verdict struct {
	Decision   Decision
	Cause      Cause
	Comparison *Comparison // nil: nothing was compared
}

// Judge decides. Without a baseline the canary fails if its ratio is strictly above
// the threshold. With one, the two are compared, because what both suffer from, such as
// a provider that is down, is not the release's doing:
//
//   - it passes if it is shown to fail by less than Margin more often, and is within
//     the threshold;
//   - it fails if chance does not explain that it fails more often;
//   - else it is inconclusive.
//
// A baseline with fewer than MinSamples cannot excuse a canary above the threshold, nor
// vouch for one within it. More failures of the canary, all else equal, never make the
// decision better.
func (r Rule) Judge(canary Counts, baseline *Counts) Verdict {
	switch {
	case canary.Total <= 0:
		return Verdict{Inconclusive, CauseNoData, nil}
	case canary.Total < r.MinSamples:
		return Verdict{Inconclusive, CauseSampleTooSmall, nil}
	}
	above := canary.Ratio() > r.Threshold
	if baseline == nil || baseline.Total < r.MinSamples {
		switch {
		case above:
			return Verdict{Fail, CauseAboveThreshold, nil}
		case baseline != nil:
			return Verdict{Inconclusive, CauseBaselineTooSmall, nil}
		}
		return Verdict{Pass, CauseWithinThreshold, nil}
	}
	c := compare(canary, *baseline, r.FalsePass)
	switch {
	case c.UpperBound < r.Margin && !above:
		return Verdict{Pass, CauseNotWorse, c}
	case c.UpperBound < r.Margin:
		return Verdict{Inconclusive, CauseAboveLikeBaseline, c}
	case c.PValue <= r.FalseFail:
		return Verdict{Fail, CauseWorse, c}
	}
	return Verdict{Inconclusive, CauseUnclear, c}
}
