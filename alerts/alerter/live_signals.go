package alerter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// errNotRead is the answer of signals that no read of the ledger has filled yet.
var errNotRead = errors.New("the ledger was not read yet")

// liveSignals are the signals' windows, brought up to date by refresh. Windows may be
// asked for at any time, by anybody; all else is for the one who refreshes.
type liveSignals struct {
	always signals.Keep // what is held whatever the rules are
	limits signals.Limits

	cache atomic.Pointer[signals.Cache] // nil before the first read
	feed  *signals.Feed
	keep  signals.Keep

	next     *signals.Cache // holds what rules that are not in force yet need
	nextFeed *signals.Feed
	nextKeep signals.Keep
}

func newLiveSignals(set *rules.Set, always signals.Keep, limits signals.Limits) *liveSignals {
	l := &liveSignals{always: always, limits: limits}
	l.prepare(set)
	return l
}

// Window implements signals.Reader.
func (l *liveSignals) Window(ctx context.Context, q signals.Query) ([]signals.Sample, error) {
	cache := l.cache.Load()
	if cache == nil {
		return nil, errNotRead
	}
	return cache.Window(ctx, q) //nolint:wrapcheck // it says what is not held
}

// UpTo is the store's time up to which the ledger has been read, the zero time before
// the first read.
func (l *liveSignals) UpTo() time.Time {
	if cache := l.cache.Load(); cache != nil {
		return time.UnixMicro(cache.UpTo()).UTC()
	}
	return time.Time{}
}

// prepare lets the next refresh hold what other rules need too, beside what is in use.
func (l *liveSignals) prepare(set *rules.Set) {
	keep := needs(set, l.always)
	if l.feed != nil && holds(l.keep, keep) {
		l.next, l.nextFeed = nil, nil
		return
	}
	l.nextKeep = keep
	l.next = signals.NewCache(keep, l.limits)
	l.nextFeed = signals.NewFeed(l.next)
}

// refresh reads what changed in the ledger. It returns the store's time of the read.
func (l *liveSignals) refresh(ctx context.Context, conn driver.Conn) (time.Time, error) {
	feed := l.feed
	if l.next != nil {
		feed = l.nextFeed
	}
	progress, err := feed.Read(ctx, conn)
	if err != nil {
		return time.Time{}, fmt.Errorf("bring the alerts' signals up to date: %w", err)
	}
	if l.next != nil {
		l.cache.Store(l.next)
		l.feed, l.keep = l.nextFeed, l.nextKeep
		l.next, l.nextFeed, l.nextKeep = nil, nil, nil
	}
	return time.UnixMicro(progress.UpToUs).UTC(), nil
}

// needs is what the rules of a set look at.
func needs(set *rules.Set, always signals.Keep) signals.Keep {
	keep := signals.Keep{}
	for signal, window := range always {
		keep[signal] = window
	}
	for signal, window := range set.Windows() {
		keep[signal] = max(keep[signal], window)
	}
	return keep
}

// holds tells whether what is held is enough for what is needed.
func holds(held, needed signals.Keep) bool {
	for signal, window := range needed {
		if held[signal] < window {
			return false
		}
	}
	return true
}
