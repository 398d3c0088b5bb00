package alerter

import (
	"sync/atomic"
	"time"
)

// storeClock is the store's clock as it goes between two looks at it.
type storeClock struct {
	now   func() time.Time // ours
	ahead atomic.Int64     // of ours, nanoseconds
}

// set takes the store's time; at is ours of the same moment.
func (c *storeClock) set(store, at time.Time) { c.ahead.Store(int64(store.Sub(at))) }

// Now is the store's time.
func (c *storeClock) Now() time.Time { return c.now().Add(time.Duration(c.ahead.Load())).UTC() }
