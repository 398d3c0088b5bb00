package gates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func rule(threshold float64) Rule {
	return Rule{
		Threshold: threshold, Margin: threshold, MinSamples: DefaultMinSamples(threshold),
		FalseFail: DefaultFalseFail, FalsePass: DefaultFalsePass,
	}
}

func TestBoundariesWithoutABaseline(t *testing.T) {
	for _, c := range []struct {
		failed, total int64
		decision      Decision
		cause         Cause
	}{
		{0, 0, Inconclusive, CauseNoData},
		{0, 1, Inconclusive, CauseSampleTooSmall},
		{1, 1, Inconclusive, CauseSampleTooSmall},
		{99, 99, Inconclusive, CauseSampleTooSmall},
		{0, 100, Pass, CauseWithinThreshold},
		{1, 100, Pass, CauseWithinThreshold}, // exactly at 1 %
		{2, 100, Fail, CauseAboveThreshold},
		{1, 101, Pass, CauseWithinThreshold},
		{3, 300, Pass, CauseWithinThreshold}, // exactly at 1 %
		{3, 299, Fail, CauseAboveThreshold},  // just above
		{100, 100, Fail, CauseAboveThreshold},
		{10_000, 1_000_000, Pass, CauseWithinThreshold},
		{10_001, 1_000_000, Fail, CauseAboveThreshold},
	} {
		got := rule(0.01).Judge(Counts{c.failed, c.total}, nil)
		assert.Equal(t, Verdict{c.decision, c.cause, nil}, got, "%d of %d", c.failed, c.total)
	}
}

func TestBoundariesWithABaseline(t *testing.T) {
	for _, c := range []struct {
		canary, baseline Counts
		decision         Decision
		cause            Cause
	}{
		{Counts{0, 0}, Counts{0, 1000}, Inconclusive, CauseNoData},
		{Counts{1, 1}, Counts{0, 100_000}, Inconclusive, CauseSampleTooSmall},
		{Counts{2, 100}, Counts{0, 0}, Fail, CauseAboveThreshold},
		{Counts{2, 100}, Counts{99, 99}, Fail, CauseAboveThreshold}, // too small to excuse it
		{Counts{0, 100}, Counts{0, 99}, Inconclusive, CauseBaselineTooSmall},
		{Counts{0, 100}, Counts{0, 100}, Inconclusive, CauseUnclear}, // up to 2.6 points worse
		{Counts{0, 1000}, Counts{0, 1000}, Pass, CauseNotWorse},
		{Counts{2, 100}, Counts{1, 1000}, Inconclusive, CauseUnclear}, // above 1 %, and yet chance
		{Counts{4, 100}, Counts{1, 1000}, Fail, CauseWorse},
		{Counts{30, 10_000}, Counts{3, 10_000}, Pass, CauseNotWorse}, // ten times as many, and yet within the margin
		{Counts{500, 1000}, Counts{500, 1000}, Inconclusive, CauseUnclear},
		{Counts{50_000, 100_000}, Counts{50_000, 100_000}, Inconclusive, CauseAboveLikeBaseline}, // the provider is down
		{Counts{50_000, 100_000}, Counts{0, 100_000}, Fail, CauseWorse},
		{Counts{0, 1000}, Counts{100, 1000}, Pass, CauseNotWorse},
	} {
		got := rule(0.01).Judge(c.canary, &c.baseline)
		assert.Equal(t, c.decision, got.Decision, "%v", c)
		assert.Equal(t, c.cause, got.Cause, "%v", c)
	}
}

func TestDefaultMinSamples(t *testing.T) {
	for threshold, want := range map[float64]int64{0: 50, 0.5: 50, 0.02: 50, 0.01: 100, 0.007: 143, 0.003: 334, 0.001: 1000, 1e-9: 1_000_000} {
		assert.Equal(t, want, DefaultMinSamples(threshold), threshold)
	}
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.Float64Range(1e-5, 0.999).Draw(t, "threshold")
		n := DefaultMinSamples(threshold)
		require.LessOrEqual(t, 1/float64(n), threshold, "one failure alone is not above the threshold")
		if n > 50 {
			require.Greater(t, 1/float64(n-1), threshold, "and no smaller sample would do")
		}
	})
}

var rank = map[Decision]int{Pass: 0, Inconclusive: 1, Fail: 2}

func drawRule(t *rapid.T) Rule {
	return Rule{
		Threshold: rapid.Float64Range(0, 0.3).Draw(t, "threshold"), Margin: rapid.Float64Range(0, 0.3).Draw(t, "margin"),
		MinSamples: rapid.Int64Range(leastSamples, 200).Draw(t, "least"),
		FalseFail:  rapid.Float64Range(0.001, 0.2).Draw(t, "false fail"), FalsePass: rapid.Float64Range(0.001, 0.2).Draw(t, "false pass"),
	}
}

func TestMoreFailuresNeverMakeTheDecisionBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, n := drawRule(t), rapid.Int64Range(0, 400).Draw(t, "total")
		var baseline *Counts
		if rapid.Bool().Draw(t, "has a baseline") {
			b := drawCounts(t, "baseline", 2000)
			baseline = &b
		}
		last := Verdict{Decision: Pass}
		for failed := range n + 1 {
			v := r.Judge(Counts{failed, n}, baseline)
			require.GreaterOrEqual(t, rank[v.Decision], rank[last.Decision], "%d of %d after %v: %v", failed, n, last, v)
			last = v
		}
	})
}

// TestMoreFailuresOfTheBaselineNeverFailACanary that did not fail before.
func TestMoreFailuresOfTheBaselineNeverFailACanary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, canary, n := drawRule(t), drawCounts(t, "canary", 1000), rapid.Int64Range(1, 400).Draw(t, "baseline total")
		last := Verdict{Decision: Fail}
		for failed := range n + 1 {
			v := r.Judge(canary, &Counts{failed, n})
			require.LessOrEqual(t, rank[v.Decision], rank[last.Decision], "%d of %d after %v: %v", failed, n, last, v)
			last = v
		}
	})
}

func TestOneOfOneNeverFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		require.Equal(t, Inconclusive, r.Judge(Counts{1, 1}, nil).Decision)
		baseline := drawCounts(t, "baseline", 1_000_000)
		require.Equal(t, Inconclusive, r.Judge(Counts{1, 1}, &baseline).Decision)
	})
}

// TestACanaryLikeItsBaselineSeldomFails, computed exactly: the probability of all
// counts that fail, at every rate, is at most FalseFail.
func TestACanaryLikeItsBaselineSeldomFails(t *testing.T) {
	r := rule(0.01)
	worst := 0.0
	for _, n := range [][2]int64{{100, 100}, {100, 400}, {150, 110}} {
		fails := map[[2]int64]bool{}
		for a := range n[0] + 1 {
			for b := range n[1] + 1 {
				if r.Judge(Counts{a, n[0]}, &Counts{b, n[1]}).Decision == Fail {
					fails[[2]int64{a, b}] = true
				}
			}
		}
		require.NotEmpty(t, fails)
		for _, p := range []float64{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9} {
			sum := 0.0
			for counts := range fails {
				sum += binomial(n[0], counts[0], p) * binomial(n[1], counts[1], p)
			}
			worst = max(worst, sum)
			require.LessOrEqual(t, sum, r.FalseFail, "%v at %v", n, p)
		}
	}
	t.Logf("at most %.4f", worst)
}

// TestACanaryWorseByTheMarginSeldomPasses, computed exactly. Newcombe's bound is an
// approximation: it may be missed a fifth more often than it says.
func TestACanaryWorseByTheMarginSeldomPasses(t *testing.T) {
	r := rule(0.05)
	worst := 0.0
	for _, n := range [][2]int64{{100, 100}, {200, 400}, {300, 150}} {
		for _, p := range []float64{0.001, 0.01, 0.02, 0.05, 0.1, 0.3} {
			sum := 0.0
			for a := range n[0] + 1 {
				for b := range n[1] + 1 {
					if r.Judge(Counts{a, n[0]}, &Counts{b, n[1]}).Decision == Pass {
						sum += binomial(n[0], a, p+r.Margin) * binomial(n[1], b, p)
					}
				}
			}
			worst = max(worst, sum)
			require.LessOrEqual(t, sum, 1.2*r.FalsePass, "%v at %v", n, p)
		}
	}
	t.Logf("at most %.4f", worst)
}

func binomial(n, k int64, p float64) float64 {
	return math.Exp(logChoose(n, k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// TestSimulatedReleases: of releases of the sizes that pipelines have, those like their
// baseline do not fail, bad ones do not pass, and large samples decide.
func TestSimulatedReleases(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(n int64, p float64) Counts {
		c := Counts{Total: n}
		for range n {
			if random.Float64() < p {
				c.Failed++
			}
		}
		return c
	}
	const trials = 1000
	r := rule(0.01)
	for _, c := range []struct {
		canary, baseline float64
		n, m             int64
		least, most      map[Decision]int
	}{
		{0.002, 0.002, 300, 3000, nil, map[Decision]int{Fail: trials / 50}},
		{0.005, 0.005, 5000, 5000, map[Decision]int{Pass: trials * 95 / 100}, map[Decision]int{Fail: trials / 50}},
		{0.2, 0.2, 500, 500, nil, map[Decision]int{Fail: trials / 50, Pass: 0}}, // the provider is down
		{0.05, 0.002, 1000, 1000, map[Decision]int{Fail: trials * 99 / 100}, map[Decision]int{Pass: 0}},
	} {
		t.Run(fmt.Sprint(c.canary, " of ", c.n, " against ", c.baseline, " of ", c.m), func(t *testing.T) {
			got := map[Decision]int{}
			for range trials {
				baseline := draw(c.m, c.baseline)
				got[r.Judge(draw(c.n, c.canary), &baseline).Decision]++
			}
			t.Log(got)
			for decision, n := range c.least {
				assert.GreaterOrEqual(t, got[decision], n, decision)
			}
			for decision, n := range c.most {
				assert.LessOrEqual(t, got[decision], n, decision)
			}
		})
	}
}
