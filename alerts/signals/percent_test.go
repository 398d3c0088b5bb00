package signals

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		ratio, beside float64
		want          string
	}{
		{23.0 / 153, 0.15, "15.03 %"},
		{0.15, 23.0 / 153, "15 %"},
		{0.15, 0.15, "15 %"},
		{0.25, 0.15, "25 %"},
		{1.0 / 3, 0.15, "33.3 %"},
		{15_000_001.0 / 100_000_000, 0.15, "15.000001 %"},
		{12.345, 0, "1230 %"},
		{0.0000001, 0.5, "0.00001 %"},
		{0, 0, "0 %"},
		{0, 0.1, "0 %"},
		{1, 0.15, "100 %"},
	} {
		assert.Equal(t, c.want, Percent(c.ratio, c.beside), "%v beside %v", c.ratio, c.beside)
	}
}

// What is above a threshold, of the counts that there may be, never reads as equal to it.
func TestPercentTellsSharesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1e9).Draw(t, "total")
		share := float64(rapid.Int64Range(0, total).Draw(t, "failed")) / float64(total)
		threshold := float64(rapid.IntRange(0, 999_999).Draw(t, "threshold")) / 1e6
		if share != threshold {
			assert.NotEqual(t, Percent(share, threshold), Percent(threshold, share))
		}
	})
}
