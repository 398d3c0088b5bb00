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
	limit int // sums that are held

	series map[seriesKey]uint32
	keys   []seriesKey // by the numbers of series
	sums   map[moment]sums
	order  []moment // of sums
	poured int      // so many of order are in the cache
}

type seriesKey struct {
	signal signals.Signal
	labels signals.Labels
}

// moment is a second of one series.
type moment struct {
	second    int64
	series    uint32
	unsettled bool
}

type sums struct{ numerator, denominator int64 }

var errTooMuch = errors.New("the chunk holds too much")

// read takes in what lies in (from, to], whole seconds, in place of the chunk before.
// It returns false where that is more than may be held.
func (h *history) read(ctx context.Context, from, to time.Time) (bool, error) {
	h.series, h.keys, h.sums, h.order, h.poured = map[seriesKey]uint32{}, nil, map[moment]sums{}, nil, 0
	err := schema.LedgerBetween(ctx, h.conn, from, to, func(row *schema.LedgerRow) error {
		for _, e := range signals.Events(row) {
			if _, watched := h.keep[e.Signal]; watched && e.AtNs > from.UnixNano() && e.AtNs <= to.UnixNano() {
				h.add(e)
			}
		}
		if len(h.sums) > h.limit && to.Sub(from) > time.Second {
			return errTooMuch
		}
		return nil
	})
	if errors.Is(err, errTooMuch) {
		return false, nil
	}
	if err != nil {
		return false, err //nolint:wrapcheck // schema says what was attempted
	}
	for m := range h.sums {
		h.order = append(h.order, m)
	}
	slices.SortFunc(h.order, func(a, b moment) int { return cmp.Compare(a.second, b.second) })
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
	m := moment{second: (e.AtNs + int64(time.Second) - 1) / int64(time.Second), series: n, unsettled: e.Unsettled}
	s := h.sums[m]
	h.sums[m] = sums{s.numerator + e.Numerator, s.denominator + e.Denominator}
}

// pour gives the cache what lies before or at an instant and was not given yet.
func (h *history) pour(cache *signals.Cache, instant time.Time) {
	for ; h.poured < len(h.order) && h.order[h.poured].second <= instant.Unix(); h.poured++ {
		m := h.order[h.poured]
		key, s := h.keys[m.series], h.sums[m]
		cache.Add(signals.Event{
			Signal: key.signal, Labels: key.labels, AtNs: m.second * int64(time.Second),
			Numerator: s.numerator, Denominator: s.denominator, Unsettled: m.unsettled,
		})
	}
}
