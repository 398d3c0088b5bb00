// Package seldom keeps a flood of one thing to one line of the log now and then.
package seldom

import (
	"sync"
	"time"
)

// Every is how often one thing is said.
const Every = 10 * time.Second

// Lines remembers what the log said when. Its keys are words of the program, never of a
// sender, so it stays small. The zero value has said nothing; it is safe for concurrent use.
type Lines struct {
	mu   sync.Mutex
	said map[string]saying
}

type saying struct {
	at    time.Time
	since int // things that were not said
}

// Due tells whether a line about n things of key is due, and how many things went unsaid
// since the last one.
func (l *Lines) Due(key string, n int, now time.Time) (since int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = make(map[string]saying)
	}
	last, ok := l.said[key]
	if waited := now.Sub(last.at); ok && waited >= 0 && waited < Every {
		last.since += n
		l.said[key] = last
		return 0, false
	}
	l.said[key] = saying{at: now}
	return last.since, true
}
