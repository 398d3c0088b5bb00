package gates

import "math"

// Comparison is a canary against its baseline over the same window.
type Comparison struct {
	// Difference is the canary's ratio less the baseline's, of 1.
	Difference float64 `json:"difference"`
	// UpperBound is the largest difference that is consistent with the counts, at a
	// one-sided confidence of 1 − Rule.FalsePass.
	UpperBound float64 `json:"upper_bound"`
	// PValue is how probable as many failures of the canary or more are, given all the
	// failures of both, if both fail equally often.
	PValue float64 `json:"p_value"`
}

func compare(canary, baseline Counts, falsePass float64) *Comparison {
	return &Comparison{
		Difference: canary.Ratio() - baseline.Ratio(),
		UpperBound: newcombeUpper(canary, baseline, quantile(1-falsePass)),
		PValue:     fisher(canary, baseline),
	}
}

// fisher is the one-sided P of Fisher's exact test: the probability that, of all
// failures of the two, the canary has as many as it has or more, if failures fall on
// both alike. The test rejects equal rates at most as often as its level says, however
// small the samples, where approximations by the normal distribution reject too often
// while failures are few.
//
// R. A. Fisher, "On the Interpretation of χ² from Contingency Tables, and the
// Calculation of P", Journal of the Royal Statistical Society 85 (1922), 87–94.
func fisher(canary, baseline Counts) float64 {
	n, m := canary.Total, baseline.Total
	failures := canary.Failed + baseline.Failed
	low, high := max(0, failures-m), min(n, failures)
	if canary.Failed <= low {
		return 1
	}
	// The terms of the hypergeometric distribution fall off on both sides of the mean;
	// the tail that starts beyond the mean is summed, so that the terms fall at once.
	mean := float64(n) * float64(failures) / float64(n+m)
	if float64(canary.Failed) > mean {
		return min(1, tail(n, m, failures, canary.Failed, high, 1))
	}
	return max(0, 1-tail(n, m, failures, canary.Failed-1, low, -1))
}

// tail sums the probabilities of from, from ± 1, …, to failures among n, of all the
// failures among n + m.
func tail(n, m, failures, from, to, direction int64) float64 {
	term := math.Exp(logChoose(n, from) + logChoose(m, failures-from) - logChoose(n+m, failures))
	sum := term
	for k := from; k != to; k += direction {
		// The ratio of the probability of k+1 to that of k, or its inverse.
		if direction > 0 {
			term *= float64(n-k) * float64(failures-k) / (float64(k+1) * float64(m-failures+k+1))
		} else {
			term *= float64(k) * float64(m-failures+k) / (float64(n-k+1) * float64(failures-k+1))
		}
		sum += term
		if term < sum*1e-17 {
			break
		}
	}
	return sum
}

func logChoose(n, k int64) float64 {
	return logFactorial(n) - logFactorial(k) - logFactorial(n-k)
}

func logFactorial(n int64) float64 {
	l, _ := math.Lgamma(float64(n) + 1)
	return l
}

// newcombeUpper is the one-sided upper bound of the difference of two ratios, made of
// Wilson's bounds of each.
//
// R. G. Newcombe, "Interval estimation for the difference between independent
// proportions: comparison of eleven methods", Statistics in Medicine 17 (1998),
// 873–890, method 10.
func newcombeUpper(canary, baseline Counts, z float64) float64 {
	p, q := canary.Ratio(), baseline.Ratio()
	_, upper := wilson(canary, z)
	lower, _ := wilson(baseline, z)
	return p - q + math.Hypot(upper-p, q-lower)
}

// wilson are the score bounds of a ratio.
//
// E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical
// Inference", Journal of the American Statistical Association 22 (1927), 209–212.
func wilson(c Counts, z float64) (lower, upper float64) {
	n, p := float64(c.Total), c.Ratio()
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// quantile is the standard normal distribution's.
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
