// Package breakers tells clients which providers to spare: a circuit breaker for each
// provider, opened by the server errors of all pipelines together.
//
// A breaker is a value, and Settings.Next is the whole of its state machine: the next
// value follows from the last, the instant and the counts, so that collectors that
// count the same say the same. Set holds the breakers of all providers, Handler serves
// them.
package breakers

import (
	"fmt"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// State is a breaker's.
type State string

// The states.
const (
	Closed   State = "closed"    // requests go
	Open     State = "open"      // none should
	HalfOpen State = "half_open" // a few may, to find out
)

// historyLimit is how many transitions a breaker keeps.
const historyLimit = 50

// Counts are the requests to a provider that ended. A throttled one (429) is no server
// error; other errors of the asker (4xx) are neither.
type Counts struct {
	Requests     int64 `json:"requests"`
	ServerErrors int64 `json:"server_errors"`
	Throttled    int64 `json:"throttled"`
}

func (c Counts) ratio() float64 {
	if c.Requests <= 0 {
		return 0
	}
	return float64(c.ServerErrors) / float64(c.Requests)
}

// Breaker is one provider's, as plain data. Instants are whole seconds in UTC.
type Breaker struct {
	Provider string    `json:"provider"`
	State    State     `json:"state"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why"` // a sentence
	// Trips is how often it has opened, Streak how often without a recovery between.
	Trips  int64 `json:"trips"`
	Streak int64 `json:"streak"`
	// RetryAt is when an open breaker becomes half-open.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// CountFrom is the start of what counts: what ended before it belongs to an outage
	// that is over.
	CountFrom time.Time `json:"count_from,omitzero"`
	// Counts are those of the last evaluation, over (From, At].
	Counts Counts    `json:"counts"`
	From   time.Time `json:"from"`
	At     time.Time `json:"at"`
	// LastRequest is the last evaluation that counted a request.
	LastRequest time.Time    `json:"last_request"`
	History     []Transition `json:"history"` // the last 50, the oldest first
}

// Transition is a change of state, with what decided it.
type Transition struct {
	Provider string    `json:"provider"`
	From     State     `json:"from"`
	To       State     `json:"to"`
	At       time.Time `json:"at"`
	Why      string    `json:"why"`
	Counts   Counts    `json:"counts"`
}

// newBreaker is a provider's at its first request.
func newBreaker(provider string, instant time.Time) Breaker {
	return Breaker{Provider: provider, State: Closed, Since: instant, Why: "It has not opened since its provider is known."}
}

// countFrom is the start of what a breaker wants counted at an instant.
func (s Settings) countFrom(b Breaker, instant time.Time) time.Time {
	if b.State == HalfOpen {
		return latest(b.Since, instant.Add(-s.longestWindow()))
	}
	return latest(b.CountFrom, instant.Add(-s.Window))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Next is the state machine: the breaker at an instant, given the counts over
// (countFrom, instant], and how it changed, nil if it did not.
//
// While open, nothing that ends matters. While half-open, what ended since it is decides,
// whoever asked for it: the breaker opens again as soon as so many fail that even Probes
// requests would have a share above the threshold, and closes when Probes requests have
// ended. A success of one request closes nothing.
func (s Settings) Next(b Breaker, instant time.Time, c Counts) (Breaker, *Transition) {
	b.Counts, b.From, b.At = c, s.countFrom(b, instant), instant
	if c.Requests > 0 {
		b.LastRequest = instant
	}
	switch b.State {
	case Open:
		if !instant.Before(b.RetryAt) {
			// At the instant that was promised, however late this evaluation is.
			return s.change(b, HalfOpen, b.RetryAt, fmt.Sprintf("The cool-down of %s is over; %d requests may go to find out.",
				strictyaml.Short(b.RetryAt.Sub(b.Since)), s.Probes))
		}
	case HalfOpen:
		elapsed := instant.Sub(b.Since)
		within := fmt.Sprintf("in the %s of being half-open", strictyaml.Short(elapsed))
		switch {
		case float64(c.ServerErrors)/float64(max(c.Requests, s.Probes)) > s.Threshold:
			return s.open(b, instant, c.say(within, "", s.Threshold)+".")
		case c.Requests >= s.Probes:
			return s.change(b, Closed, instant, c.say(within, "", s.Threshold)+".")
		case elapsed >= s.HalfOpenMax:
			return s.change(b, Closed, instant, fmt.Sprintf("%s; there is too little traffic to wait for %d.", c.say(within, "", s.Threshold), s.Probes))
		}
	default:
		if b.Streak > 0 && instant.Sub(b.Since) >= s.CooldownMax {
			b.Streak = 0
		}
		if c.Requests >= s.MinRequests && c.ratio() > s.Threshold {
			return s.open(b, instant, c.say("in "+strictyaml.Short(instant.Sub(b.From)), ", above "+signals.Percent(s.Threshold, c.ratio()), s.Threshold)+".")
		}
	}
	return b, nil
}

func (s Settings) open(b Breaker, instant time.Time, why string) (Breaker, *Transition) {
	b.Trips++
	b.Streak++
	b.RetryAt = instant.Add(s.cooldown(b.Streak))
	opened, transition := s.change(b, Open, instant, why)
	return opened, transition
}

func (s Settings) change(b Breaker, to State, at time.Time, why string) (Breaker, *Transition) {
	t := Transition{Provider: b.Provider, From: b.State, To: to, At: at, Why: why, Counts: b.Counts}
	b.State, b.Since, b.Why = to, at, why
	if to != Open {
		b.RetryAt = time.Time{}
	}
	if to == Closed {
		b.CountFrom = at
	}
	kept := b.History[max(0, len(b.History)-historyLimit+1):]
	b.History = append(append(make([]Transition, 0, len(kept)+1), kept...), t)
	return b, &t
}

// say tells how many requests of how many the provider failed to serve; when says of
// which, note what to think of the share, which reads as other than threshold where it is.
func (c Counts) say(when, note string, threshold float64) string {
	said := fmt.Sprintf("%d of %d requests %s ended in a server error (%s%s)", c.ServerErrors, c.Requests, when, signals.Percent(c.ratio(), threshold), note)
	if c.Throttled > 0 {
		said += fmt.Sprintf("; %d were throttled", c.Throttled)
	}
	return said
}

// ahead tells which of two values of one breaker is further on: the one that opened
// more often; of those, the one that came further since, from open over half-open to
// closed; of those, the one that came there first. Collectors that adopt what is further
// on agree, in whatever order they hear of each other.
func (b Breaker) ahead(of Breaker) bool {
	stage := map[State]int{Open: 0, HalfOpen: 1, Closed: 2}
	switch {
	case b.Trips != of.Trips:
		return b.Trips > of.Trips
	case stage[b.State] != stage[of.State]:
		return stage[b.State] > stage[of.State]
	default:
		return b.Since.Before(of.Since)
	}
}
