package gates

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The published examples of Newcombe (1998), table II, method 10, at 95 % two-sided.
func TestNewcombeSaysWhatThePaperSays(t *testing.T) {
	z := quantile(0.975)
	assert.InDelta(t, 1.959964, z, 1e-6)
	for _, c := range []struct {
		canary, baseline Counts
		upper            float64
	}{
		{Counts{56, 70}, Counts{48, 80}, 0.3339},
		{Counts{9, 10}, Counts{3, 10}, 0.8090},
		{Counts{5, 56}, Counts{0, 29}, 0.1926},
	} {
		assert.InDelta(t, c.upper, newcombeUpper(c.canary, c.baseline, z), 5e-5, "%v", c)
	}
}

// The lady who tastes tea: three of four cups right, by chance 17 times in 70.
func TestFisherSaysWhatTheLadyShows(t *testing.T) {
	assert.InDelta(t, 17.0/70, fisher(Counts{3, 4}, Counts{1, 4}), 1e-12)
	assert.InDelta(t, 1.0/70, fisher(Counts{4, 4}, Counts{0, 4}), 1e-12)
	assert.InDelta(t, 1, fisher(Counts{0, 4}, Counts{4, 4}), 1e-12)
	assert.InDelta(t, 1, fisher(Counts{0, 4}, Counts{0, 4}), 1e-12)
}

// An oracle in whole numbers: the sum of the ways to choose.
func TestFisherEqualsTheExactSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		canary, baseline := drawCounts(t, "canary", 300), drawCounts(t, "baseline", 300)
		failures := canary.Failed + baseline.Failed
		ways := func(k int64) *big.Int {
			return new(big.Int).Mul(new(big.Int).Binomial(canary.Total, k), new(big.Int).Binomial(baseline.Total, failures-k))
		}
		sum := new(big.Int)
		for k := canary.Failed; k <= min(canary.Total, failures); k++ {
			sum.Add(sum, ways(k))
		}
		want, _ := new(big.Rat).SetFrac(sum, new(big.Int).Binomial(canary.Total+baseline.Total, failures)).Float64()
		require.InDelta(t, want, fisher(canary, baseline), 1e-9)
	})
}

func TestLargeCountsAreComparedToo(t *testing.T) {
	c := compare(Counts{50_500, 5_000_000}, Counts{50_000, 5_000_000}, DefaultFalsePass)
	assert.InDelta(t, 0.0577, c.PValue, 0.001, "as the normal distribution says: z = 1.585 with the correction for continuity")
	assert.InDelta(t, 0.0002, c.UpperBound, 0.0001)
	for _, v := range []float64{c.Difference, c.UpperBound, c.PValue} {
		assert.False(t, math.IsNaN(v))
	}
}

func drawCounts(t *rapid.T, name string, most int64) Counts {
	total := rapid.Int64Range(1, most).Draw(t, name+" total")
	return Counts{rapid.Int64Range(0, total).Draw(t, name+" failed"), total}
}
