package breakers

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// Settings say when a breaker opens, for how long, and what closes it. Durations are
// whole seconds, because evaluations are.
type Settings struct {
	// Threshold is the highest share of requests that may end in a server error, of 1. A
	// share strictly above it opens the breaker.
	Threshold float64 `mapstructure:"threshold"`
	// Window is how far back requests count.
	Window time.Duration `mapstructure:"window"`
	// MinRequests is the smallest number of requests in the window that may open it.
	MinRequests int64 `mapstructure:"min_requests"`
	// CooldownMin is how long it stays open the first time; each time that it opens again
	// without a recovery between it stays open twice as long, up to CooldownMax. It has
	// recovered when it was closed for CooldownMax.
	CooldownMin time.Duration `mapstructure:"cooldown_min"`
	CooldownMax time.Duration `mapstructure:"cooldown_max"`
	// Probes is how many requests must end while it is half-open before it closes, and
	// how many are let through at a time to find out.
	Probes int64 `mapstructure:"probes"`
	// ProbeLease is how long a probe may take; then another may go in its place.
	ProbeLease time.Duration `mapstructure:"probe_lease"`
	// HalfOpenMax closes a breaker that was half-open for so long without a failure, even
	// if fewer requests than Probes ended: there is too little traffic to wait for more.
	HalfOpenMax time.Duration `mapstructure:"half_open_max"`
	// StaleAfter is how old the newest data may be. Older data decide nothing: every
	// breaker is shown closed and stale.
	StaleAfter time.Duration `mapstructure:"stale_after"`
}

// DefaultSettings open above 15 % of at least 20 requests in 30 seconds, for 10 seconds
// up to 5 minutes, and close after 5 probes.
func DefaultSettings() Settings {
	return Settings{
		Threshold: 0.15, Window: 30 * time.Second, MinRequests: 20,
		CooldownMin: 10 * time.Second, CooldownMax: 5 * time.Minute,
		Probes: 5, ProbeLease: 30 * time.Second, HalfOpenMax: 5 * time.Minute, StaleAfter: 30 * time.Second,
	}
}

// Keep is what a cache must hold for breakers.
func (s Settings) Keep() signals.Keep {
	return signals.Keep{signals.ServerErrorRatio: s.longestWindow(), signals.ThrottledRatio: s.longestWindow()}
}

func (s Settings) longestWindow() time.Duration { return max(s.Window, s.HalfOpenMax+time.Second) }

// Validate says what is wrong, all of it.
func (s Settings) Validate() error {
	const longest, mostProbes = 30 * time.Minute, 1000 // a cache holds windows of an hour at most
	var errs []error
	wrong := func(name, remedy string) { errs = append(errs, errors.New(name+": "+remedy)) }
	if !(s.Threshold > 0 && s.Threshold < 1) {
		wrong("threshold", "write a share of requests above 0 and below 1, such as 0.15 for 15 %")
	}
	if s.MinRequests < 4 {
		wrong("min_requests", "write at least 4: three requests say nothing about a provider")
	}
	if s.Probes < 1 || s.Probes > mostProbes {
		wrong("probes", fmt.Sprintf("write a number of requests from 1 to %d", mostProbes))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"window", s.Window}, {"cooldown_min", s.CooldownMin}, {"cooldown_max", s.CooldownMax},
		{"probe_lease", s.ProbeLease}, {"half_open_max", s.HalfOpenMax}, {"stale_after", s.StaleAfter},
	} {
		if d.d < time.Second || d.d > longest || d.d%time.Second != 0 {
			wrong(d.name, fmt.Sprintf("write whole seconds from 1s to %s", strictyaml.Short(longest)))
		}
	}
	if s.CooldownMin > s.CooldownMax {
		wrong("cooldown_min", "it must not be above cooldown_max")
	}
	return errors.Join(errs...)
}

// cooldown is how long a breaker stays open that opened streak times without a
// recovery between.
func (s Settings) cooldown(streak int64) time.Duration {
	doublings := max(0, streak-1)
	if doublings >= 32 || s.CooldownMin > math.MaxInt64>>doublings {
		return s.CooldownMax
	}
	return min(s.CooldownMax, s.CooldownMin<<doublings)
}
