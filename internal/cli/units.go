package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// unseen stands for a number that the instrumentation does not show.
const unseen = "–"

func count(n int) string { return strconv.Itoa(n) }

// observed prints a layer's retries; partly marks a lower bound.
func observed(n *int, partly bool) string {
	switch {
	case n == nil:
		return unseen
	case partly:
		return "≥" + strconv.Itoa(*n)
	default:
		return strconv.Itoa(*n)
	}
}

func percent(share float64) string {
	if share > 0 && share < 0.005 {
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", share*100)
}

// big prints a count of tokens in at most five characters.
func big(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%.3gk", float64(n)/1e3)
	default:
		return fmt.Sprintf("%.3gM", float64(n)/1e6)
	}
}

// milliseconds prints a length of time in the unit that reads best.
func milliseconds(ms float64) string {
	switch {
	case ms <= 0 || math.IsNaN(ms):
		return "0"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 60_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	default:
		d := time.Duration(ms * float64(time.Millisecond)).Round(time.Second)
		if whole, ok := strings.CutSuffix(d.String(), "m0s"); ok {
			return whole + "m"
		}
		return d.String()
	}
}

// wastedTokens says what lost attempts cost in tokens, and where that is not known.
func wastedTokens(w attribution.Wasted) string {
	known := big(w.Input + w.Output)
	switch {
	case w.UnknownCalls == 0:
		return known
	case w.Input+w.Output == 0:
		return "?"
	default:
		return known + "+?"
	}
}

func errorName(class string, status int) string {
	switch {
	case class == "" && status == 0:
		return "unnamed error"
	case status == 0:
		return clean(class)
	case class == "":
		return "HTTP " + strconv.Itoa(status)
	default:
		return clean(class) + " " + strconv.Itoa(status)
	}
}

// plural says "1 run" or "2 runs".
func plural(n int, one string) string { return plural2(n, one, one+"s") }

// plural2 is plural for words that do not end in s.
func plural2(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
