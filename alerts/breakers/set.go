package breakers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

const (
	// maxProviders bounds the breakers: providers are named by spans.
	maxProviders = 1000
	// idleAfter is how long a closed breaker without requests is remembered.
	idleAfter = time.Hour
)

// Set holds the breakers of all providers. Its methods may be called at the same time.
type Set struct {
	settings Settings
	keep     func([]Transition, []Breaker) // nil: nobody keeps them

	evaluation sync.Mutex // held by who changes breakers, while it reads

	mu        sync.Mutex
	breakers  map[string]*entry
	leftOff   int       // providers beyond maxProviders, at the last evaluation
	evaluated time.Time // the last instant evaluated
	checked   time.Time // when Evaluate last came to its end
	upTo      time.Time
	feed      feed
}

// entry is a breaker and the probes that were granted here: those of this half-open
// phase whose lease has not ended.
type entry struct {
	Breaker
	leases []time.Time // their ends
}

// New makes a set without breakers. instance tells this set's stream from that of
// another, or of this one before a restart: the instant of the start will do.
func New(settings Settings, instance string) (*Set, error) {
	if err := settings.Validate(); err != nil {
		return nil, fmt.Errorf("breakers: %w", err)
	}
	return &Set{settings: settings, breakers: map[string]*entry{}, feed: newFeed(instance)}, nil
}

// KeepFirst has keep called with the transitions of each evaluated second, and the breakers
// that they lead to in the same order, before any client can hear or see them. Call it
// before the first Evaluate.
func (s *Set) KeepFirst(keep func([]Transition, []Breaker)) { s.keep = keep }

// Settings are those of all its breakers.
func (s *Set) Settings() Settings { return s.settings }

// Evaluate brings the breakers up to now: one step for each whole second since the last
// evaluation, so that one that was held up comes to the same as one that was not, as
// long as it missed less than a window. upTo is the instant up to which the reader has
// all that the store has, zero (Go's or Unix's) if it has read nothing; now is of the same clock. Where
// the data end before now the evaluation does, and where they are stale it does nothing.
// The breakers stay as they were when the reader fails.
func (s *Set) Evaluate(ctx context.Context, reader signals.Reader, upTo, now time.Time) ([]Transition, error) {
	s.evaluation.Lock()
	defer s.evaluation.Unlock()
	var transitions []Transition
	if !s.settings.stale(upTo, now) {
		end := earliest(upTo, now).UTC().Truncate(time.Second)
		instant := s.evaluated.Add(time.Second)
		if s.evaluated.IsZero() || end.Sub(s.evaluated) > s.settings.Window {
			instant = end
		}
		for ; !instant.After(end); instant = instant.Add(time.Second) {
			stepped, err := s.step(ctx, reader, instant)
			if err != nil {
				return transitions, err
			}
			transitions = append(transitions, stepped...)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.upTo = now, upTo
	return transitions, nil
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// step evaluates all breakers at an instant.
func (s *Set) step(ctx context.Context, reader signals.Reader, instant time.Time) ([]Transition, error) {
	last := s.held()
	window := instant.Add(-s.settings.Window)
	starts := map[time.Time]map[string]Counts{window: nil}
	for _, b := range last {
		starts[s.settings.countFrom(b, instant)] = nil
	}
	for from := range starts {
		counts, err := count(ctx, reader, from, instant)
		if notHeld := new(signals.NotHeldError); from.Before(window) && errors.As(err, &notHeld) {
			// A cache that is short of memory holds less than half-open may last.
			counts, err = count(ctx, reader, window, instant)
		}
		if err != nil {
			return nil, err
		}
		starts[from] = counts
	}
	leftOff := 0
	for provider := range starts[window] {
		switch _, ok := last[provider]; {
		case ok:
		case len(last) >= maxProviders:
			leftOff++
		default:
			last[provider] = newBreaker(provider, instant)
		}
	}

	// Only Restore changes breakers beside this, and it waits for the evaluation.
	var transitions []Transition
	var changed []Breaker
	changes := map[string]*Transition{}
	for _, provider := range slices.Sorted(maps.Keys(last)) {
		b := last[provider]
		next, transition := s.settings.Next(b, instant, starts[s.settings.countFrom(b, instant)][provider])
		last[provider] = next
		if transition != nil {
			changes[provider] = transition
			transitions, changed = append(transitions, *transition), append(changed, next)
		}
	}
	if len(transitions) > 0 && s.keep != nil {
		s.keep(transitions, changed)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluated, s.leftOff = instant, leftOff
	for _, provider := range slices.Sorted(maps.Keys(last)) {
		next := last[provider]
		if next.State == Closed && next.Streak == 0 && instant.Sub(latest(next.LastRequest, next.Since)) > idleAfter {
			delete(s.breakers, provider)
			continue
		}
		held := s.breakers[provider]
		if held == nil {
			held = &entry{}
			s.breakers[provider] = held
		}
		held.Breaker = next
		if transition := changes[provider]; transition != nil {
			held.leases = nil
			s.feed.publish(kindTransition, change{*transition, s.view(held, instant, false)})
		}
	}
	return transitions, nil
}

// count asks for the requests of every provider over (from, to].
func count(ctx context.Context, reader signals.Reader, from, to time.Time) (map[string]Counts, error) {
	counts := map[string]Counts{}
	for _, signal := range []signals.Signal{signals.ServerErrorRatio, signals.ThrottledRatio} {
		samples, err := reader.Window(ctx, signals.Query{
			Signal: signal, ToNs: to.UnixNano(), WindowNs: int64(to.Sub(from)), GroupBy: []signals.Dimension{signals.Provider},
		})
		if err != nil {
			return nil, fmt.Errorf("count %s over %s: %w", signal, to.Sub(from), err)
		}
		for _, sample := range samples {
			provider := sample.Labels.Provider
			if provider == "" || provider == signals.Other {
				continue // nobody asks for it
			}
			c := counts[provider]
			if signal == signals.ServerErrorRatio {
				c.Requests, c.ServerErrors = sample.Denominator, sample.Numerator
			} else {
				c.Throttled = sample.Numerator
			}
			counts[provider] = c
		}
	}
	return counts, nil
}

func (s *Set) held() map[string]Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[string]Breaker, len(s.breakers))
	for provider, entry := range s.breakers {
		held[provider] = entry.Breaker
	}
	return held
}

// Snapshot is all that a set must not forget, as plain data.
type Snapshot struct {
	Breakers []Breaker `json:"breakers"` // by provider
}

// Snapshot takes one.
func (s *Set) Snapshot() Snapshot {
	held := s.held()
	snapshot := Snapshot{Breakers: make([]Breaker, 0, len(held))}
	for _, provider := range slices.Sorted(maps.Keys(held)) {
		snapshot.Breakers = append(snapshot.Breakers, held[provider])
	}
	return snapshot
}

// Restore adopts of a snapshot, its own or another collector's, each breaker that is
// further on than the one held: one that opened more often, or came further since. Sets
// that restore each other's snapshots agree. It reports whether any breaker changed.
func (s *Set) Restore(snapshot Snapshot) bool {
	s.evaluation.Lock()
	defer s.evaluation.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	adopted := false
	for _, b := range snapshot.Breakers {
		held := s.breakers[b.Provider]
		if !b.sound(s.settings) || held == nil && len(s.breakers) >= maxProviders || held != nil && !b.ahead(held.Breaker) {
			continue
		}
		b.History = slices.Clone(b.History)
		s.breakers[b.Provider] = &entry{Breaker: b}
		adopted = true
	}
	if adopted {
		s.feed.publish(kindState, nil)
	}
	return adopted
}

// sound tells whether a breaker of a snapshot can be one of ours.
func (b Breaker) sound(s Settings) bool {
	known := b.State == Closed || b.State == Open || b.State == HalfOpen
	return b.Provider != "" && known && !b.Since.IsZero() && b.RetryAt.Sub(b.Since) <= s.CooldownMax
}

// Close ends the streams of all subscribers. There are no more after it.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.close()
}

// stale tells whether data that end at upTo are too old to decide anything now.
func (s Settings) stale(upTo, now time.Time) bool {
	return upTo.Unix() <= 0 || now.Sub(upTo) > s.StaleAfter
}
