package gates

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// sentence says why the decision is what it is, with its numbers.
func (a Answer) sentence() string {
	const more = "Wait, send more traffic, or widen the window."
	window := duration(time.Duration(a.WindowSeconds) * time.Second)
	canary := fmt.Sprintf("%s of %s over %s is %s", a.Signal, a.Canary.Version, window, a.Canary.share(a.Threshold))
	threshold, baseline := percent(a.Threshold, a.Canary.Ratio), ""
	if a.Baseline != nil {
		baseline = a.Baseline.share(a.Threshold) + " of " + a.Baseline.Version
	}
	switch a.Cause {
	case CauseUnavailable:
		return "Nothing can be read: the collector is starting, or its store cannot be reached. Ask again, or see the collector's log."
	case CauseStale:
		return fmt.Sprintf("The data end at %s, too long ago to judge by. The collector's log says what holds them up.", a.DataUpTo.Format(time.RFC3339))
	case CauseNoData:
		return fmt.Sprintf("%s of %s: nothing of %s ended in %s. Send traffic to it, widen the window, or check service.name and service.version of its spans.",
			a.Signal, a.Canary.Version, a.Service, window)
	case CauseSampleTooSmall:
		return fmt.Sprintf("%s, too few to judge by: at least %d are wanted. %s", canary, a.MinSamples, more)
	case CauseWithinThreshold:
		return fmt.Sprintf("%s, not above %s.", canary, threshold)
	case CauseAboveThreshold:
		if a.Baseline != nil {
			return fmt.Sprintf("%s, above %s, and %s is too small a baseline to excuse it.", canary, threshold, baseline)
		}
		return fmt.Sprintf("%s, above %s.", canary, threshold)
	case CauseBaselineTooSmall:
		return fmt.Sprintf("%s, not above %s, but %s is too small a baseline to compare with: at least %d are wanted. Check its version, or widen the window.",
			canary, threshold, baseline, a.MinSamples)
	case CauseWorse:
		return fmt.Sprintf("%s, against %s. If the two were alike, so many would fail with a probability of %s.",
			canary, baseline, probability(a.Comparison.PValue))
	case CauseNotWorse:
		if a.Comparison.UpperBound < 0 {
			return fmt.Sprintf("%s, against %s: better by at least %s.", canary, baseline, points(-a.Comparison.UpperBound))
		}
		return fmt.Sprintf("%s, against %s: worse by at most %s, less than the %s allowed.",
			canary, baseline, points(a.Comparison.UpperBound), points(a.Margin))
	case CauseAboveLikeBaseline:
		return fmt.Sprintf("%s, above %s, but not worse than %s. Mend what both suffer from, or raise the threshold if this is their normal.",
			canary, threshold, baseline)
	case CauseUnclear:
		return fmt.Sprintf("%s, against %s: it may be as good, and may be worse by up to %s, more than the %s allowed. %s",
			canary, baseline, points(a.Comparison.UpperBound), points(a.Margin), more)
	}
	return ""
}

// share writes a side's numbers, so that the share reads as other than threshold where it is.
func (s Side) share(threshold float64) string {
	if s.Ratio == nil {
		return "unknown (none)"
	}
	return fmt.Sprintf("%s (%d of %d)", signals.Percent(*s.Ratio, threshold), s.Failed, s.Total)
}

// percent writes a threshold beside the share that it is compared with, nil for none.
func percent(threshold float64, share *float64) string {
	if share == nil {
		return signals.Percent(threshold, threshold)
	}
	return signals.Percent(threshold, *share)
}

// points writes a difference of ratios in percentage points.
func points(difference float64) string {
	if text := digits(difference * 100); text != "1" {
		return text + " points"
	}
	return "1 point"
}

func probability(p float64) string {
	if p < 0.0001 {
		return "less than 0.0001"
	}
	return digits(p)
}

func digits(x float64) string {
	if x != 0 {
		scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
		x = math.Round(x*scale) / scale
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// duration writes whole seconds without parts that are 0: 3m, not 3m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
