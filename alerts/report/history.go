package report

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// history reads the ledger's events chunk by chunk, each event in the one chunk in
// which it lies, and pours them into a cache in the order of time. So a trace that is
// in many chunks counts once, and a cache of the past holds no more than a live one.
type history struct {
	conn  driver.Conn
	keep  signals.Keep
	limit int // tallies that are held

	from    int64 // second before the first
	series  map[seriesKey]uint32
	keys    []seriesKey // by the numbers of series
	tallies []tally     // by moment, once the chunk is read
	poured  int         // so many are in the cache
}

type seriesKey struct {
	signal signals.Signal
	labels signals.Labels
}

// tally is the sums of one moment: a second of one series, settled or not.
type tally struct {
	moment                 uint64 // second of the chunk << 33 | series << 1 | unsettled
	numerator, denominator int64
}

// maxKeys bounds the sets of labels of one chunk.
const maxKeys = 100_000

var errTooMuch = errors.New("the chunk holds too much")

// read takes in what lies in (from, to], whole seconds, in place of the chunk before.
// It returns false where that is more than may be held.
func (h *history) read(ctx context.Context, from, to time.Time) (bool, error) {
	h.from, h.series, h.keys, h.tallies, h.poured = from.Unix(), map[seriesKey]uint32{}, nil, h.tallies[:0], 0
	full := h.limit
	err := schema.LedgerBetween(ctx, h.conn, from, to, func(b *schema.Brief) error {
		for _, e := range signals.EventsOf(b) {
			if _, watched := h.keep[e.Signal]; watched && e.AtNs > from.UnixNano() && e.AtNs <= to.UnixNano() {
				h.add(e)
			}
		}
		if len(h.tallies) < full && len(h.keys) < maxKeys {
			return nil
		}
		h.merge()
		if to.Sub(from) > time.Second && (len(h.tallies) > h.limit/4*3 || len(h.keys) >= maxKeys) {
			return errTooMuch
		}
		full = max(h.limit, 2*len(h.tallies))
		return nil
	})
	if errors.Is(err, errTooMuch) {
		return false, nil
	}
	if err != nil {
		return false, err //nolint:wrapcheck // schema says what was attempted
	}
	h.merge()
	return true, nil
}

func (h *history) add(e signals.Event) {
	key := seriesKey{e.Signal, e.Labels}
	n, known := h.series[key]
	if !known {
		n = uint32(len(h.keys))
		h.series[key] = n
		h.keys = append(h.keys, key)
	}
	second := (e.AtNs+int64(time.Second)-1)/int64(time.Second) - h.from
	moment := uint64(second)<<33 | uint64(n)<<1
	if e.Unsettled {
		moment |= 1
	}
	h.tallies = append(h.tallies, tally{moment, e.Numerator, e.Denominator})
}

// merge sorts the tallies by time and adds up those of one moment.
func (h *history) merge() {
	slices.SortFunc(h.tallies, func(a, b tally) int { return cmp.Compare(a.moment, b.moment) })
	merged := h.tallies[:0]
	for _, t := range h.tallies {
		if last := len(merged) - 1; last >= 0 && merged[last].moment == t.moment {
			merged[last].numerator += t.numerator
			merged[last].denominator += t.denominator
			continue
		}
		merged = append(merged, t)
	}
	h.tallies = merged
}

// pour gives the cache what lies before or at an instant and was not given yet.
func (h *history) pour(cache *signals.Cache, instant time.Time) {
	for ; h.poured < len(h.tallies); h.poured++ {
		t := h.tallies[h.poured]
		second := h.from + int64(t.moment>>33)
		if second > instant.Unix() {
			return
		}
		key := h.keys[uint32(t.moment>>1)]
		cache.Add(signals.Event{
			Signal: key.signal, Labels: key.labels, AtNs: second * int64(time.Second),
			Numerator: t.numerator, Denominator: t.denominator, Unsettled: t.moment&1 == 1,
		})
	}
}
