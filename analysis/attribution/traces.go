package attribution

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// The spans of each trace: each identity once, in order, with the place of its parent.

// spanList is spans in the order of compareSpans, each identity once.
type spanList struct {
	spans   []*schema.Span
	parents []int32 // by position: the position of the parent, -1 if it is not among them or is the span itself
}

// splitByTrace gives every trace its spans, the traces by the start of their first
// span. Spans with one identity count once: of two contents the later end wins, then
// the larger content hash, whose highest byte is how much it says, never the arrival.
func splitByTrace(spans []schema.Span) []spanList {
	if len(spans) == 0 {
		return nil
	}
	// Positions, not pointers: what holds no pointers costs the collector nothing.
	traces := make(map[schema.TraceID]int32)
	of := make([]int32, len(spans))
	var counts []int32
	at := int32(-1) // the trace of the span before, nearly always the same
	for i := range spans {
		if i == 0 || spans[i].TraceID != spans[i-1].TraceID {
			known, ok := traces[spans[i].TraceID]
			if !ok {
				known = int32(len(counts))
				traces[spans[i].TraceID] = known
				counts = append(counts, 0)
			}
			at = known
		}
		of[i] = at
		counts[at]++
	}
	members := make([]int32, len(spans)) // by trace, in the order they came
	next := make([]int32, len(counts))
	for t, from := 1, int32(0); t < len(counts); t++ {
		from += counts[t-1]
		next[t] = from
	}
	for i, t := range of {
		members[next[t]] = int32(i)
		next[t]++
	}
	lists := make([]spanList, len(counts))
	index := spanIndex{spans: make([]*schema.Span, len(spans)), parents: make([]int32, len(spans))}
	for t := range lists {
		lists[t] = index.order(spans, members[next[t]-counts[t]:next[t]])
	}
	slices.SortFunc(lists, func(a, b spanList) int { return compareSpans(a.spans[0], b.spans[0]) })
	return lists
}

// spanIndex finds the spans of one trace by their ids.
type spanIndex struct {
	at     map[uint64]int32
	keys   []spanOrder
	sorted []int32
	// What is left of the lists of all traces: one allocation of each kind.
	spans   []*schema.Span
	parents []int32
}

// spanOrder is what decides the place of a span among those of its trace.
type spanOrder struct {
	start, end int64
	id         uint64
	at         int32 // in the spans of all traces
	first      int32 // its place before it was sorted
}

// maxReused bounds the index that is used again for the next trace: clearing a map
// costs what its largest use did.
const maxReused = 1024

func (x *spanIndex) reset(size int) {
	if x.at == nil || len(x.at) > maxReused {
		x.at = make(map[uint64]int32, size)
		return
	}
	clear(x.at)
}

func spanKey(id schema.SpanID) uint64 { return binary.BigEndian.Uint64(id[:]) }

// order makes the list of one trace, whose spans are those at the positions members.
func (x *spanIndex) order(spans []schema.Span, members []int32) spanList {
	x.reset(len(members))
	keys := slices.Grow(x.keys[:0], len(members))
	for _, m := range members {
		s := &spans[m]
		id := spanKey(s.SpanID)
		j, ok := x.at[id]
		if !ok {
			x.at[id] = int32(len(keys))
			keys = append(keys, spanOrder{s.StartNs, s.EndNs, id, m, int32(len(keys))})
			continue
		}
		if have := &spans[keys[j].at]; s.EndNs > have.EndNs || s.EndNs == have.EndNs && s.ContentHash > have.ContentHash {
			keys[j] = spanOrder{s.StartNs, s.EndNs, id, m, j}
		}
	}
	slices.SortFunc(keys, func(a, b spanOrder) int {
		switch {
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		case a.end != b.end:
			return cmp.Compare(a.end, b.end)
		}
		return cmp.Compare(a.id, b.id)
	})
	n := len(keys)
	list := spanList{x.spans[:n:n], x.parents[:n:n]}
	x.spans, x.parents = x.spans[n:], x.parents[n:]
	x.keys, x.sorted = keys, slices.Grow(x.sorted[:0], n)[:n]
	sorted := x.sorted
	for i, k := range keys {
		list.spans[i] = &spans[k.at]
		sorted[k.first] = int32(i)
	}
	for i, s := range list.spans {
		list.parents[i] = -1
		if s.ParentID.IsZero() || s.ParentID == s.SpanID {
			continue
		}
		if parent, ok := x.at[spanKey(s.ParentID)]; ok {
			list.parents[i] = sorted[parent]
		}
	}
	return list
}

// merge makes one list of those of several traces.
func merge(lists []spanList) spanList {
	if len(lists) == 1 {
		return lists[0]
	}
	size := 0
	for _, l := range lists {
		size += len(l.spans)
	}
	all := make([]*schema.Span, 0, size)
	parents := make([]int32, 0, size) // by position before sorting
	for _, l := range lists {
		base := int32(len(all))
		all = append(all, l.spans...)
		for _, p := range l.parents {
			if p >= 0 {
				p += base
			}
			parents = append(parents, p)
		}
	}
	// What decides is gathered first: a comparison that reads two rows costs two misses of the cache.
	type key struct {
		start, end int64
		at         int32
	}
	keys := make([]key, size)
	for i, s := range all {
		keys[i] = key{s.StartNs, s.EndNs, int32(i)}
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		case a.end != b.end:
			return cmp.Compare(a.end, b.end)
		}
		return compareSpans(all[a.at], all[b.at])
	})
	out := spanList{make([]*schema.Span, size), make([]int32, size)}
	sorted := make([]int32, size)
	for i, k := range keys {
		out.spans[i] = all[k.at]
		sorted[k.at] = int32(i)
	}
	for i, k := range keys {
		if out.parents[i] = parents[k.at]; out.parents[i] >= 0 {
			out.parents[i] = sorted[out.parents[i]]
		}
	}
	return out
}

// compareSpans orders spans by time, and those of one instant by identity, so that
// no result depends on the order of arrival.
func compareSpans(a, b *schema.Span) int {
	switch {
	case a.StartNs != b.StartNs:
		return cmp.Compare(a.StartNs, b.StartNs)
	case a.EndNs != b.EndNs:
		return cmp.Compare(a.EndNs, b.EndNs)
	case a.TraceID != b.TraceID:
		return bytes.Compare(a.TraceID[:], b.TraceID[:])
	}
	return bytes.Compare(a.SpanID[:], b.SpanID[:])
}
