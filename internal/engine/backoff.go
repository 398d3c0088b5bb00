package engine

import "time"

const (
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 30 * time.Second
	// backoffReset is how long an engine must have run for its next crash to
	// count as the first one again.
	backoffReset = time.Minute
)

// backoff gives the waits between restarts: they double up to backoffMax, and
// each is cut by up to a half at random so that several collectors on one
// machine do not start their engines at one instant.
type backoff struct {
	random func() float64 // in [0, 1)
	wait   time.Duration
}

func newBackoff(random func() float64) *backoff { return &backoff{random: random} }

func (b *backoff) next() time.Duration {
	if b.wait == 0 {
		b.wait = backoffFirst
	} else {
		b.wait = min(2*b.wait, backoffMax)
	}
	return b.wait - time.Duration(b.random()*float64(b.wait/2))
}

func (b *backoff) reset() { b.wait = 0 }
