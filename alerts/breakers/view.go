package breakers

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// View is what clients are told of one breaker.
type View struct {
	Provider string    `json:"provider"`
	State    State     `json:"state"`
	Why      string    `json:"why"` // a sentence
	Since    time.Time `json:"since"`
	// Stale: nothing recent enough is known to say more than closed.
	Stale bool `json:"stale"`
	// ProbesAllowed is how many requests may go now: 0 while open, null (any number)
	// while closed. While half-open ask for one by POST, so that clients together send no
	// more.
	ProbesAllowed *int64 `json:"probes_allowed"`
	// RetryAt is when an open breaker becomes half-open; null in other states.
	RetryAt *time.Time `json:"retry_at"`

	// Counts are over (From, To]: the window while closed or open, the time since it is
	// half-open while half-open.
	Counts
	ServerErrorRatio *float64  `json:"server_error_ratio"` // of 1; null: no request ended
	From             time.Time `json:"from"`
	To               time.Time `json:"to"`

	Trips   int64        `json:"trips"`             // how often it has opened
	History []Transition `json:"history,omitempty"` // the oldest first; not in streams
}

// Views are all breakers.
type Views struct {
	Stale     bool       `json:"stale"`      // nothing recent enough is known: all are closed
	DataUpTo  *time.Time `json:"data_up_to"` // null: nothing was read yet
	Threshold float64    `json:"threshold"`  // of 1
	Window    float64    `json:"window_seconds"`
	// MinRequests and Probes are Settings'.
	MinRequests int64  `json:"min_requests"`
	Probes      int64  `json:"probes"`
	Breakers    []View `json:"breakers"` // by provider
	// BreakersLeftOff counts providers beyond the 1000 that are kept: they have no breaker.
	BreakersLeftOff int `json:"breakers_left_off"`
}

// Views are the breakers as they are now.
func (s *Set) Views(now time.Time, history bool) Views {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := Views{
		Stale: s.staleAt(now), Threshold: s.settings.Threshold, Window: s.settings.Window.Seconds(),
		MinRequests: s.settings.MinRequests, Probes: s.settings.Probes,
		Breakers: make([]View, 0, len(s.breakers)), BreakersLeftOff: s.leftOff,
	}
	if s.upTo.Unix() > 0 {
		upTo := s.upTo.UTC()
		views.DataUpTo = &upTo
	}
	for _, provider := range slices.Sorted(maps.Keys(s.breakers)) {
		views.Breakers = append(views.Breakers, s.shown(s.breakers[provider], now, history))
	}
	return views
}

// View is the breaker of one provider as it is now; that of a provider of which nothing
// is known is closed and stale.
func (s *Set) View(provider string, now time.Time) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.breakers[provider]
	if !ok {
		return View{
			Provider: provider, State: Closed, Stale: true, Since: now.UTC().Truncate(time.Second),
			Why: "No request to this provider is known, so nothing speaks against one.",
		}
	}
	return s.shown(held, now, true)
}

// Stale tells whether nothing recent enough is known to decide anything.
func (s *Set) Stale(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.staleAt(now)
}

// staleAt is also true when evaluations have stopped.
func (s *Set) staleAt(now time.Time) bool {
	return s.evaluated.IsZero() || s.settings.stale(earliest(s.upTo, s.checked), now)
}

func (s *Set) shown(held *entry, now time.Time, history bool) View {
	v := s.view(held, now, history)
	if s.staleAt(now) {
		v.Why = fmt.Sprintf("The data end at %s, so nothing is known that speaks against a request. Then it was %s: %s",
			held.At.Format(time.RFC3339), held.State, held.Why)
		v.State, v.Stale, v.ProbesAllowed, v.RetryAt = Closed, true, nil, nil
	}
	return v
}

func (s *Set) view(held *entry, now time.Time, history bool) View {
	b := held.Breaker
	v := View{
		Provider: b.Provider, State: b.State, Why: b.Why, Since: b.Since, Counts: b.Counts, From: b.From, To: b.At, Trips: b.Trips,
	}
	if b.Counts.Requests > 0 {
		ratio := b.Counts.ratio()
		v.ServerErrorRatio = &ratio
	}
	if history {
		v.History = slices.Clone(b.History)
	}
	switch b.State {
	case Open:
		retryAt, none := b.RetryAt, int64(0)
		v.RetryAt, v.ProbesAllowed = &retryAt, &none
	case HalfOpen:
		left := s.probesLeft(held, now)
		v.ProbesAllowed = &left
	}
	return v
}

// probesLeft is how many probes may be granted: as many as still decide, less those
// that are under way.
func (s *Set) probesLeft(held *entry, now time.Time) int64 {
	underWay := int64(0)
	for _, end := range held.leases {
		if now.Before(end) {
			underWay++
		}
	}
	return max(0, s.settings.Probes-underWay)
}

// Permit is the answer to a client that is about to send a request.
type Permit struct {
	Granted bool `json:"granted"`
	Breaker View `json:"breaker"`
}

// Permit asks whether a request to a provider may go now. While the breaker is
// half-open at most Probes permits are granted within ProbeLease.
func (s *Set) Permit(provider string, now time.Time) Permit {
	s.mu.Lock()
	held, ok := s.breakers[provider]
	granted := true
	if ok && !s.staleAt(now) {
		switch held.State {
		case Open:
			granted = false
		case HalfOpen:
			if granted = s.probesLeft(held, now) > 0; granted {
				held.leases = append(slices.DeleteFunc(held.leases, func(end time.Time) bool { return !now.Before(end) }), now.Add(s.settings.ProbeLease))
			}
		}
	}
	s.mu.Unlock()
	return Permit{Granted: granted, Breaker: s.View(provider, now)}
}
