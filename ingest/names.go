package ingest

import (
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/schema"
)

// otherName stands for the names that a service has too many of, as alerts have it.
const otherName = "(other)"

const (
	// namesKept is how long a name is known at least after it was last seen.
	namesKept = time.Hour
	// manyServices is how many services can have all the names that they may have.
	manyServices = 100
)

// nameBound bounds how many names the steps and the spans of a service may have at a time:
// each is a row in what is summed up by step, and an entry in dictionaries. Names that
// are in use stay; it is the new ones that are too many.
type nameBound struct {
	limit int // of one service's steps, and of its spans

	mu                sync.Mutex
	began             int64 // when current was begun, nanoseconds since the epoch
	current, previous map[uint64]struct{}
	counts            map[uint64]int // of current, by service and kind
}

func newNameBound(limit int) *nameBound {
	return &nameBound{limit: limit, current: map[uint64]struct{}{}, counts: map[uint64]int{}}
}

// The kinds of names.
const (
	nameOfStep = 's'
	nameOfSpan = 'n'
)

// bound replaces the names in rows that are too many, and returns in how many rows, and
// the service of one of them.
func (k *nameBound) bound(rows []schema.Span, nowNs int64) (bounded int, service string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if age := nowNs - k.began; age < 0 || age >= int64(namesKept) {
		k.began, k.previous = nowNs, k.current
		k.current, k.counts = map[uint64]struct{}{}, map[uint64]int{}
	}
	for i := range rows {
		row := &rows[i]
		var gone []string
		replace := func(name *string, kind byte) {
			if *name != "" && *name != otherName && !k.admits(row.Service, kind, *name) {
				gone = append(gone, *name)
				*name = otherName
			}
		}
		own := row.Node != "" && row.Name == row.Node // a node's own run is told by this
		replace(&row.Step, nameOfStep)
		replace(&row.Node, nameOfStep)
		if own {
			row.Name = row.Node
		} else {
			replace(&row.Name, nameOfSpan)
		}
		replaced := len(gone)
		for j := range row.Violations {
			replace(&row.Violations[j].Node, nameOfStep)
		}
		for j := range row.UnfinishedSteps {
			replace(&row.UnfinishedSteps[j], nameOfStep)
		}
		if len(gone) == 0 {
			continue
		}
		if replaced > 0 { // steps that share the bucket are no repeats of each other
			row.ItemHash = dialect.ItemOf(row.ItemHash, gone[:replaced]...)
		}
		row.ContentHash = row.Hash()
		bounded, service = bounded+1, row.Service
	}
	return bounded, service
}

// admits tells whether a name may be kept. k.mu is held.
func (k *nameBound) admits(service string, kind byte, name string) bool {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(service)
	_, _ = d.Write([]byte{0, kind})
	group := d.Sum64()
	_, _ = d.WriteString(name)
	key := d.Sum64()
	if _, known := k.current[key]; known {
		return true
	}
	if _, known := k.previous[key]; !known && (k.counts[group] >= k.limit || len(k.current) >= manyServices*k.limit) {
		return false
	}
	k.current[key] = struct{}{}
	k.counts[group]++
	return true
}
