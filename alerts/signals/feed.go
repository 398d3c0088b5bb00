package signals

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/schema"
)

// Overlap is how much longer than the last read a read looks back: a write becomes
// visible after its time, and another store's clock may differ by as much.
const Overlap = 10 * time.Second

// Feed reads the ledger's changes into a cache. It keeps nothing that a new one, on
// a new cache, would not find again. It is not safe for concurrent use.
type Feed struct {
	cache     *Cache
	watermark int64            // store's time, microseconds: what was visible then is in
	seen      map[uint64]int64 // writes of the overlap: id → when
	ids       []uint64         // of seen, reused
	found     []schema.Write   // of one read, reused
}

// NewFeed makes a feed that fills cache.
func NewFeed(cache *Cache) *Feed { return &Feed{cache: cache, seen: make(map[uint64]int64)} }

// Progress is what one read found.
type Progress struct {
	UpToUs int64 // store's time: everything that was visible then is in the cache
	Rows   int   // rows of the ledger that were read
}

// Read takes in what was written since the last read; the first read takes in
// everything that lies in the cache's windows. After an error the cache stands where
// it stood, or a little further, and the next Read goes on from there.
func (f *Feed) Read(ctx context.Context, conn driver.Conn) (Progress, error) {
	now, err := schema.Clock(ctx, conn)
	if err != nil {
		return Progress{}, err //nolint:wrapcheck // schema says what was attempted
	}
	f.cache.Advance(now)
	p := Progress{UpToUs: now}
	if f.watermark == 0 {
		since := time.UnixMicro(now).Add(-time.Duration(f.cache.longest+lag) * time.Second)
		err = schema.LedgerSince(ctx, conn, since, func(b *schema.Brief) error {
			p.Rows++
			f.cache.Put(b)
			return nil
		})
		if err != nil {
			return p, fmt.Errorf("fill the signals' windows: %w", err)
		}
	} else {
		f.ids = f.ids[:0]
		for id, at := range f.seen {
			if at <= f.watermark-Overlap.Microseconds() {
				delete(f.seen, id)
				continue
			}
			f.ids = append(f.ids, id)
		}
		f.found = f.found[:0]
		err = schema.LedgerWrites(ctx, conn, f.watermark-Overlap.Microseconds(), f.ids, func(b *schema.Brief, w schema.Write) error {
			p.Rows++
			if n := len(f.found); n == 0 || f.found[n-1] != w {
				f.found = append(f.found, w)
			}
			f.cache.Put(b)
			return nil
		})
		if err != nil {
			return p, fmt.Errorf("bring the signals' windows up to date: %w", err)
		}
		for _, w := range f.found { // not before all of their rows are in
			f.seen[w.ID] = w.At
		}
	}
	f.watermark = max(f.watermark, now)
	f.cache.reached(f.watermark)
	return p, nil
}

func (c *Cache) reached(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upToUs = us
}
