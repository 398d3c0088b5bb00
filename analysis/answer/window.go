package answer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadInstant is returned for a text that names no instant.
var ErrBadInstant = errors.New("write an instant as 2026-01-31T12:00:00Z, or how long ago as 90m, 24h or 7d")

// earliest and latest are as far as instants go: the ledger counts nanoseconds since
// the epoch in 64 bits, which end some months further out.
var (
	earliest = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// ParseInstant reads an RFC 3339 instant, or how long before now: a Go duration, or a
// number of days such as 7d. An instant before 1678 or after 2262 becomes the nearest
// between: nothing lies beyond.
func ParseInstant(text string, now time.Time) (time.Time, error) {
	if instant, err := time.Parse(time.RFC3339, text); err == nil {
		switch {
		case instant.Before(earliest):
			return earliest, nil
		case instant.After(latest):
			return latest, nil
		}
		return instant, nil
	}
	ago, err := parseAgo(text)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%q: %w", text, ErrBadInstant)
	}
	return now.Add(-ago), nil
}

func parseAgo(text string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(text, "d")
	if !isDays {
		ago, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("read a duration: %w", err)
		}
		return ago, nil
	}
	const day, most = 24 * time.Hour, 100 * 365
	n, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, fmt.Errorf("read a number of days: %w", err)
	}
	if n < 0 || n > most {
		return 0, ErrBadInstant
	}
	return time.Duration(n * float64(day)), nil
}
