package admission

import (
	"sync"
	"time"
)

// outcome is how a message went that was let in.
type outcome int

const (
	taken   outcome = iota // it was acknowledged
	refused                // its sender was asked to try again
	neither                // it says nothing: wrong, or cut off
)

// reason says why a message was not let in.
type reason string

const (
	full        reason = "max_in_flight"        // as many as the setting allows are under way
	lowered     reason = "refusals"             // as many as allowed after refusals are under way
	decodedFull reason = "max_decoded_mib"      // it would take too much together with those under way
	admitted    reason = ""                     // it is let in
	calm               = time.Second            // without a refusal, the number grows by one a message
	pause              = 100 * time.Millisecond // between two times that the number is halved
	forgotten          = 10 * time.Second       // without a refusal, what was refused before says nothing any more
)

// gate bounds how many messages are under way. The number adapts as TCP's window does
// (additive increase, multiplicative decrease): it is halved when messages are refused
// further in, by the memory limiter, a full journal or for what they would take decoded,
// and grows again with those that are taken. So what cannot be taken is turned away before
// it is read, which costs next to nothing; reading and decoding it first would cost as much
// as taking it, and many senders that come again would leave no time for anything else.
type gate struct {
	now func() time.Time
	max int

	mu       sync.Mutex
	limit    float64 // 1 to max
	underWay int
	last     time.Time // when limit was last halved
}

func newGate(maxInFlight int, now func() time.Time) *gate {
	return &gate{now: now, max: maxInFlight, limit: float64(maxInFlight)}
}

// enter lets a message in, whose end leave must be told of, or says why not.
func (g *gate) enter() reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now().Sub(g.last) >= forgotten {
		g.limit = float64(g.max)
	}
	switch {
	case g.underWay >= g.max:
		return full
	case g.underWay >= int(g.limit):
		return lowered
	}
	g.underWay++
	return admitted
}

// leave ends a message that was let in.
func (g *gate) leave(how outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay--
	now := g.now()
	switch how {
	case taken:
		if step := 1 / g.limit; now.Sub(g.last) < calm {
			g.limit += step
		} else {
			g.limit++
		}
		g.limit = min(g.limit, float64(g.max))
	case refused:
		if now.Sub(g.last) >= pause {
			g.limit, g.last = max(1, g.limit/2), now
		}
	case neither:
	}
}
