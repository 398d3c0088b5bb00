package dashboards

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestColoursAreToldApart by people with and without full sight of colours. Sight is
// simulated with the matrices of Machado, Oliveira and Fernandes (2009) at severity
// 1.0; the distance is CIE76 in L*a*b*, of which 2.3 can just be noticed.
func TestColoursAreToldApart(t *testing.T) {
	t.Parallel()
	sights := map[string][3][3]float64{
		"all":          {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	}
	for _, group := range groups {
		for name, sight := range sights {
			for i, one := range group {
				for _, other := range group[:i] {
					assert.Greater(t, distance(seen(t, one, sight), seen(t, other, sight)), 12.0, "%s and %s with %s", one, other, name)
				}
			}
		}
	}
}

// TestColoursShowOnBothThemes, against Grafana's dark and light panels.
func TestColoursShowOnBothThemes(t *testing.T) {
	t.Parallel()
	whole := [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}
	luminance := func(hex string) float64 {
		c := seen(t, hex, whole)
		return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
	}
	contrast := func(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }
	for _, group := range groups {
		for _, colour := range group {
			assert.Greater(t, contrast(luminance(colour), luminance("#181B1F")), 2.0, "%s on dark", colour)
			assert.Greater(t, contrast(luminance(colour), luminance("#FFFFFF")), 2.0, "%s on light", colour)
		}
	}
	// Tables and tiles write words and numbers that matter in these.
	for _, colour := range []string{colourFirstTry, colourWarning, colourBreach, colourOrphaned, colourHandled, colourPlain, colourCall, colourOrchestrator} {
		assert.Greater(t, contrast(luminance(colour), luminance("#181B1F")), 3.0, "%s on dark", colour)
		assert.Greater(t, contrast(luminance(colour), luminance("#FFFFFF")), 3.0, "%s on light", colour)
	}
}

// seen is a colour in linear light, as somebody with this sight has it.
func seen(t *testing.T, hex string, sight [3][3]float64) [3]float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex[1:], 16, 32)
	require.NoError(t, err)
	var linear, out [3]float64
	for i := range linear {
		v := float64(n>>(16-8*i)&255) / 255
		if v <= 0.04045 {
			linear[i] = v / 12.92
		} else {
			linear[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	for i, row := range sight {
		out[i] = min(1, max(0, row[0]*linear[0]+row[1]*linear[1]+row[2]*linear[2]))
	}
	return out
}

func distance(a, b [3]float64) float64 {
	one, other := lab(a), lab(b)
	return math.Hypot(math.Hypot(one[0]-other[0], one[1]-other[1]), one[2]-other[2])
}

// lab is L*a*b* under D65.
func lab(c [3]float64) [3]float64 {
	f := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	x := f((0.4124564*c[0] + 0.3575761*c[1] + 0.1804375*c[2]) / 0.95047)
	y := f(0.2126729*c[0] + 0.7151522*c[1] + 0.0721750*c[2])
	z := f((0.0193339*c[0] + 0.1191920*c[1] + 0.9503041*c[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}
