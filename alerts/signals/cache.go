package signals

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryledger/retryledger/schema"
)

// Keep says which signals a cache holds, and for how long a window over each.
type Keep map[Signal]time.Duration

// MaxWindow is the longest window that a cache may be asked to hold.
const MaxWindow = time.Hour

// Limits bound a cache's memory. Zero means the default.
type Limits struct {
	// Series is the number of label sets over all signals that are told apart. Further
	// ones are counted under the step and provider Other, and if those are too many
	// still, under the service Other.
	Series int
	// Traces is the number of traces whose rows are remembered, so that a later row can
	// replace them. Beyond it the oldest are forgotten, and windows that begin before the
	// end of a forgotten one are refused.
	Traces int
}

// The limits where none are set. A trace takes about 250 bytes, and a label set half a
// kilobyte for each half minute in which it has events.
const (
	DefaultSeries = 20_000
	DefaultTraces = 1_000_000
)

// Other stands in labels for what a cache does not tell apart.
const Other = "(other)"

// Cache holds the recent events of the ledger as sums per second, and what each trace
// contributed, so that a row that replaces another takes its events with it. Its
// answers are those of the rows that it was given, the largest version of each trace,
// in whatever order they came: a row with a smaller version holds nothing that was
// received later, so that when a trace is forgotten, none of its older rows matters.
// It is safe for concurrent use.
type Cache struct {
	keep    [signalCount]int64 // seconds, 0 of a signal that is not held
	longest int64              // seconds, of keep
	limits  Limits

	mu       sync.RWMutex
	now      int64 // store's time, seconds: what is too old by it is gone
	upToUs   int64 // store's time: what was written until then is in
	heldFrom int64 // seconds: windows must begin here or later
	nextID   uint32
	series   map[seriesKey]*series
	byID     map[uint32]*series
	bySignal [signalCount][]*series
	places   map[place]*located // a short way to series
	traces   map[schema.TraceID]held
	due      map[int64][]schema.TraceID // by the second of held.last
	swept    int64                      // due is empty up to here
	folded   int64
	kept     slabs // what traces contributed

	putting putting
}

// putting is what Cache.put works with, from one row to the next.
type putting struct {
	number  uint64 // of the row, from 1
	last    int64  // second of its last event, or now if that is later
	scratch []contribution
	encoded []byte
	recent  [2]struct { // the last place without a provider, and with one
		place place
		at    *located
	}
	take func(occurrence)
}

// located is the series of the events of one place.
type located struct {
	labels Labels
	series [signalCount]*series // nil: not looked up yet
}

// lag is by how many seconds a question may be late, and ahead by how many an event may
// lie in the future of the store's clock.
const (
	lag   = 60
	ahead = 3600
)

type seriesKey struct {
	signal int
	labels Labels
}

// held is what a trace's row contributed. It holds no pointer, so that a million of them
// cost the garbage collector nothing.
type held struct {
	version       schema.LedgerVersion
	last          int64 // seconds: of its last event, or when it was given, whichever is later
	contributions piece // see putIn
}

// contribution is what a row adds to one second of one series.
type contribution struct {
	series                 *series
	second                 int64
	unsettled              bool
	numerator, denominator int64
}

// NewCache makes an empty cache.
func NewCache(keep Keep, limits Limits) *Cache {
	if limits.Series <= 0 {
		limits.Series = DefaultSeries
	}
	if limits.Traces <= 0 {
		limits.Traces = DefaultTraces
	}
	c := &Cache{
		limits: limits, series: make(map[seriesKey]*series), byID: make(map[uint32]*series), places: make(map[place]*located),
		traces: make(map[schema.TraceID]held), due: make(map[int64][]schema.TraceID),
	}
	c.putting.take = c.take
	for signal, window := range keep {
		if at := placeOf(signal); at >= 0 {
			c.keep[at] = seconds(min(window, MaxWindow))
			c.longest = max(c.longest, c.keep[at])
		}
	}
	return c
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return secondOf(int64(d)) }

// secondOf is the second in which an instant lies: whole seconds belong to the
// second that they end, as windows do.
func secondOf(ns int64) int64 {
	s := ns / secondNs
	if ns%secondNs > 0 {
		s++
	}
	return s
}

// Advance tells the cache the store's time, in microseconds since the epoch. What is
// older than the windows it holds is dropped.
func (c *Cache) Advance(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(us / 1e6)
}

func (c *Cache) advance(now int64) {
	if now <= c.now {
		return
	}
	before := c.now
	c.now = now
	c.forget(now - c.longest - lag)
	if now/blockSeconds != before/blockSeconds {
		c.dropBlocks()
	}
}

// forget drops the traces whose last event lies at until or before.
func (c *Cache) forget(until int64) {
	if until-c.swept > int64(len(c.due)) {
		for second := range c.due {
			if second <= until {
				c.forgetSecond(second)
			}
		}
	} else {
		for second := c.swept + 1; second <= until; second++ {
			c.forgetSecond(second)
		}
	}
	c.swept = max(c.swept, until)
}

func (c *Cache) forgetSecond(second int64) {
	for _, id := range c.due[second] {
		if h, ok := c.traces[id]; ok && h.last <= second {
			c.kept.drop(h.contributions)
			delete(c.traces, id)
		}
	}
	delete(c.due, second)
}

func (c *Cache) dropBlocks() {
	dropped := len(c.series)
	for key, s := range c.series {
		s.drop(c.now - c.keep[key.signal] - lag)
		if len(s.blocks) > 0 {
			continue
		}
		delete(c.series, key)
		delete(c.byID, s.id)
		c.bySignal[key.signal] = slices.DeleteFunc(c.bySignal[key.signal], func(o *series) bool { return o == s })
	}
	if len(c.series) < dropped {
		c.forgetPlaces()
	}
}

// forgetPlaces lets series be looked up anew, for some are gone or too many are known.
func (c *Cache) forgetPlaces() {
	clear(c.places)
	clear(c.putting.recent[:])
}

// UpTo is the store's time, in microseconds since the epoch, up to which everything
// that was written is in; 0 before the first read of a Feed.
func (c *Cache) UpTo() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.upToUs
}

// Stats say how much a cache holds.
type Stats struct {
	Traces, Series int
	Folded         int64 // events that were counted under Other
	HeldFromS      int64 // windows that begin earlier, in seconds since the epoch, are refused; 0 if memory sufficed
}

// Stats are the cache's own numbers.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Stats{Traces: len(c.traces), Series: len(c.series), Folded: c.folded, HeldFromS: c.heldFrom}
}

// Put takes a row in, unless the cache has that trace by this or a larger version.
func (c *Cache) Put(b *schema.Brief) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.traces[b.TraceID]
	if known && b.Version.Compare(old.version) <= 0 {
		return
	}
	c.takeOut(c.kept.get(old.contributions))
	c.kept.drop(old.contributions)
	p := &c.putting
	p.number++
	p.last, p.scratch = c.now, p.scratch[:0]
	each(b, p.take)
	h := held{version: b.Version, last: p.last, contributions: c.putIn()}
	c.traces[b.TraceID] = h
	if !known || h.last != old.last {
		c.due[h.last] = append(c.due[h.last], b.TraceID)
	}
	for second := c.swept + 1; len(c.traces) > c.limits.Traces && second <= h.last; second++ {
		c.forget(second)
		c.heldFrom = max(c.heldFrom, second)
	}
}

// take notes an occurrence of the row that is put. What a row adds to one second of a
// series is mostly noted next to each other, and is one contribution then.
func (c *Cache) take(o occurrence) {
	second, ok := c.takes(o.signal, o.atNs)
	if !ok {
		return
	}
	p, s := &c.putting, c.seriesOf(&o)
	p.last = max(p.last, second)
	if s.notedIn == p.number {
		if n := &p.scratch[s.notedAt]; n.second == second && n.unsettled == o.unsettled {
			n.numerator += o.numerator
			n.denominator += o.denominator
			return
		}
	}
	s.notedIn, s.notedAt = p.number, len(p.scratch)
	p.scratch = append(p.scratch, contribution{s, second, o.unsettled, o.numerator, o.denominator})
}

// takes tells in which second an event counts, and whether any window may ask for it.
func (c *Cache) takes(signal int, atNs int64) (second int64, ok bool) {
	keep := c.keep[signal]
	second = secondOf(atNs)
	return second, keep > 0 && second >= 0 && second > c.now-keep-lag && second <= c.now+ahead
}

// Add takes in an event of the past, of which no other row will say anything else.
func (c *Cache) Add(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	signal := placeOf(e.Signal)
	if signal < 0 {
		return
	}
	if second, ok := c.takes(signal, e.AtNs); ok {
		s, _ := c.seriesNamed(signal, e.Labels)
		s.add(second, e.Unsettled, e.Numerator, e.Denominator)
	}
}

// putIn adds what was noted to the series, and keeps what takes it out again.
func (c *Cache) putIn() piece {
	p := &c.putting
	encoded := p.encoded[:0]
	second := int64(0)
	for i := range p.scratch {
		n := &p.scratch[i]
		n.series.add(n.second, n.unsettled, n.numerator, n.denominator)
		encoded = binary.AppendUvarint(encoded, uint64(n.series.id)<<1|uint64(one(n.unsettled)))
		encoded = binary.AppendVarint(encoded, n.second-second)
		encoded = binary.AppendUvarint(encoded, uint64(n.numerator))
		encoded = binary.AppendUvarint(encoded, uint64(n.denominator))
		second = n.second
	}
	p.encoded = encoded
	if cap(p.scratch) > 1<<16 { // one huge run is no reason to keep as much
		p.scratch, p.encoded = nil, nil
	}
	return c.kept.put(encoded)
}

// takeOut undoes what putIn did. What is gone by its age stays gone.
func (c *Cache) takeOut(encoded []byte) {
	second := int64(0)
	next := func() uint64 {
		v, n := binary.Uvarint(encoded)
		encoded = encoded[n:]
		return v
	}
	for len(encoded) > 0 {
		id := next()
		delta, n := binary.Varint(encoded)
		encoded = encoded[n:]
		second += delta
		numerator, denominator := int64(next()), int64(next())
		if s := c.byID[uint32(id>>1)]; s != nil {
			s.remove(second, id&1 == 1, numerator, denominator)
		}
	}
}

// seriesOf is where an occurrence counts.
func (c *Cache) seriesOf(o *occurrence) *series {
	key := o.place()
	recent := &c.putting.recent[0]
	if key.provider != noWord {
		recent = &c.putting.recent[1]
	}
	if recent.at == nil || recent.place != key {
		at := c.places[key]
		if at == nil {
			if len(c.places) >= 2*c.limits.Series {
				c.forgetPlaces()
			}
			at = &located{labels: key.labels()}
			c.places[key] = at
		}
		recent.place, recent.at = key, at
	}
	if s := recent.at.series[o.signal]; s != nil {
		return s
	}
	s, folded := c.seriesNamed(o.signal, recent.at.labels)
	if !folded {
		recent.at.series[o.signal] = s
	}
	return s
}

// seriesNamed is that of a signal and labels, which is made if there is none; folded
// tells whether it counts other labels too.
func (c *Cache) seriesNamed(signal int, labels Labels) (s *series, folded bool) {
	if s := c.series[seriesKey{signal, labels}]; s != nil {
		return s, false
	}
	if len(c.series) >= c.limits.Series {
		c.folded++
		folded = true
		labels = labels.folded(signal, Step, Provider)
		if len(c.series) >= 2*c.limits.Series { // the services themselves are too many
			labels = labels.folded(signal, Dimensions()...)
		}
		if s := c.series[seriesKey{signal, labels}]; s != nil {
			return s, true
		}
	}
	c.nextID++
	s = &series{id: c.nextID, labels: labels}
	c.series[seriesKey{signal, labels}] = s
	c.byID[s.id] = s
	c.bySignal[signal] = append(c.bySignal[signal], s)
	return s, folded
}

// folded are the labels with Other in those of the dimensions that a signal has.
func (l Labels) folded(signal int, dimensions ...Dimension) Labels {
	for _, d := range dimensions {
		if slices.Contains(definitions[signal].dimensions, d) {
			l = l.With(d, Other)
		}
	}
	return l
}

// NotHeldError says that a cache cannot answer a query.
type NotHeldError struct {
	Signal Signal
	Why    string
}

// Error says what to do.
func (e *NotHeldError) Error() string {
	return fmt.Sprintf("the window of %s cannot be answered: %s", e.Signal, e.Why)
}

// Window answers a query. The error is a *NotHeldError where the cache does not hold
// what it would need.
func (c *Cache) Window(_ context.Context, q Query) ([]Sample, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	signal, keep := placeOf(q.Signal), int64(0)
	if signal >= 0 {
		keep = c.keep[signal]
	}
	to, from := q.ToNs/secondNs, (q.ToNs-q.WindowNs)/secondNs
	switch {
	case keep == 0:
		return nil, &NotHeldError{q.Signal, "no rule that is loaded watches it"}
	case q.ToNs%secondNs != 0 || q.WindowNs%secondNs != 0 || q.SettleNs%secondNs != 0 || q.WindowNs <= 0:
		return nil, &NotHeldError{q.Signal, "instants and windows are whole seconds, and a window is one second at least"}
	case to-from > keep:
		return nil, &NotHeldError{q.Signal, fmt.Sprintf("it is longer than %s, the longest of the rules that are loaded", time.Duration(keep*secondNs))}
	case from < c.now-keep-lag:
		return nil, &NotHeldError{q.Signal, fmt.Sprintf("it begins before %s, and what is older is gone", time.Unix(c.now-keep-lag, 0).UTC().Format(time.DateTime))}
	case from < c.heldFrom:
		return nil, &NotHeldError{q.Signal, fmt.Sprintf("it begins before %s, and of what is older traces had to be forgotten: "+
			"raise the number of traces that are held (%d), or use a shorter window", time.Unix(c.heldFrom, 0).UTC().Format(time.DateTime), c.limits.Traces)}
	}
	samples := []Sample{}
	places := make(map[Labels]int) // in samples
	for _, s := range c.bySignal[signal] {
		if !matches(s.labels, q.Where) {
			continue
		}
		n := s.sum(from, to, to-q.Settle()/secondNs)
		if n == (sums{}) {
			continue
		}
		var labels Labels
		for _, d := range q.GroupBy {
			labels = labels.With(d, s.labels.Get(d))
		}
		at, known := places[labels]
		if !known {
			at = len(samples)
			places[labels] = at
			samples = append(samples, Sample{Labels: labels})
		}
		samples[at].Numerator += n.numerator
		samples[at].Denominator += n.denominator
	}
	slices.SortFunc(samples, func(a, b Sample) int { return a.Labels.Compare(b.Labels) })
	return samples, nil
}

func matches(labels Labels, where map[Dimension]Matcher) bool {
	for d, m := range where {
		if !m.Matches(labels.Get(d)) {
			return false
		}
	}
	return true
}

// Compare orders labels dimension by dimension.
func (l Labels) Compare(o Labels) int {
	return cmp.Or(strings.Compare(l.Service, o.Service), strings.Compare(l.Environment, o.Environment), strings.Compare(l.Version, o.Version),
		strings.Compare(l.Step, o.Step), strings.Compare(l.Provider, o.Provider))
}
