package alerter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// fillWithin bounds the read that fills the windows: at 10,000 spans/s they hold a
// million rows, which take longer than what a second changed.
const fillWithin = 10 * time.Minute

// errNotRead is the answer of signals that no read of the ledger has filled yet.
var errNotRead = errors.New("the ledger was not read yet")

// liveSignals are the signals' windows, brought up to date by refresh. Windows may be
// asked for at any time, by anybody; all else is for the one who refreshes.
type liveSignals struct {
	always signals.Keep // what is held whatever the rules are
	limits signals.Limits
	log    *zap.Logger

	cache atomic.Pointer[signals.Cache] // nil before the first read
	feed  *signals.Feed
	keep  signals.Keep

	next  *filling // holds what rules that are not in force yet need; nil: nothing
	stale bool     // rows that the cache in use counts are gone from the ledger
}

// filling is a cache that is filled beside the one in use, for that can take longer
// than evaluations may wait.
type filling struct {
	cache *signals.Cache
	feed  *signals.Feed
	keep  signals.Keep
	stop  context.CancelFunc // nil while nothing fills it
	done  chan error         // one value when it is filled, or could not be
}

func newLiveSignals(set *rules.Set, always signals.Keep, limits signals.Limits, log *zap.Logger) *liveSignals {
	l := &liveSignals{always: always, limits: limits, log: log}
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

// prepare lets the next refreshes hold what other rules need. They may be in force when
// prepared says so.
func (l *liveSignals) prepare(set *rules.Set) {
	l.abandon()
	keep := needs(set, l.always)
	if l.feed != nil && !l.stale && holds(l.keep, keep) {
		return
	}
	l.hold(keep)
}

// refill lets the next refreshes fill the windows anew, for rows of the ledger are gone.
func (l *liveSignals) refill() {
	if l.feed == nil {
		return // nothing is filled yet
	}
	keep := l.keep
	if l.next != nil {
		keep = l.next.keep
	}
	l.abandon()
	l.stale = true
	l.hold(keep)
}

func (l *liveSignals) hold(keep signals.Keep) {
	cache := signals.NewCache(keep, l.limits)
	l.next = &filling{cache: cache, feed: signals.NewFeed(cache), keep: keep, done: make(chan error, 1)}
}

// prepared tells whether all that was prepared for is held.
func (l *liveSignals) prepared() bool { return l.next == nil }

// abandon ends a filling that nobody waits for any more.
func (l *liveSignals) abandon() {
	if l.next != nil && l.next.stop != nil {
		l.next.stop()
		if err := <-l.next.done; err != nil {
			l.log.Debug("The windows of alert rules that changed again are not filled.", zap.Error(err))
		}
	}
	l.next = nil
}

// refresh reads what changed in the ledger. It returns the store's time of the read. The
// first one fills the windows, and takes its time.
func (l *liveSignals) refresh(ctx context.Context, conn driver.Conn) (time.Time, error) {
	if l.feed == nil {
		return l.fill(ctx, conn)
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	progress, err := l.feed.Read(within, conn)
	if err != nil {
		return time.Time{}, refreshError(err)
	}
	if l.next != nil {
		l.fillBeside(ctx, within, conn)
	}
	return time.UnixMicro(progress.UpToUs).UTC(), nil
}

func (l *liveSignals) fill(ctx context.Context, conn driver.Conn) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	filled, err := l.next.feed.Read(ctx, conn)
	if err != nil {
		return time.Time{}, refreshError(err)
	}
	progress, err := l.next.feed.Read(ctx, conn) // what was written meanwhile
	if err != nil {
		return time.Time{}, refreshError(err)
	}
	l.log.Debug("The alerts' windows are filled.", zap.Int("rows", filled.Rows))
	l.use()
	return time.UnixMicro(progress.UpToUs).UTC(), nil
}

// fillBeside begins to fill what is next, or takes it into use when it is filled.
func (l *liveSignals) fillBeside(ctx, within context.Context, conn driver.Conn) {
	next := l.next
	if next.stop == nil {
		filling, stop := context.WithTimeout(ctx, fillWithin)
		next.stop = stop
		go func() {
			_, err := next.feed.Read(filling, conn)
			next.done <- err
		}()
		return
	}
	select {
	case err := <-next.done:
		next.stop()
		next.stop = nil
		if err == nil {
			_, err = next.feed.Read(within, conn) // what was written meanwhile
		}
		if err != nil {
			l.log.Warn("The windows of alert rules could not be filled anew, for new rules or after a deletion; it is tried again, and those from before go on.", zap.Error(err))
			return
		}
		l.use()
	default:
	}
}

// use takes what is next into use.
func (l *liveSignals) use() {
	l.feed, l.keep = l.next.feed, l.next.keep
	l.cache.Store(l.next.cache)
	l.next, l.stale = nil, false
}

func refreshError(err error) error {
	return fmt.Errorf("bring the alerts' signals up to date: %w", err)
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
