package attributor

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/schema"
)

// group is the traces that one account has to see together: all that one run may
// have. They may turn out to be several runs.
type group struct {
	traces []*schema.TraceSpans // by id
	spans  int
}

// maxRounds bounds the chain of traces that know each other only through others.
const maxRounds = 16

// errCut says that not everything that belongs to the seeds was read.
var errCut = errors.New("the traces that join these have more spans than one run may have")

// gather reads the seeds and every trace that may belong to one of their runs.
// With schema.ErrTooManySpans the seeds alone are too many. With errCut the groups
// are what was read before the limit.
func (r *Runner) gather(ctx context.Context, conn driver.Conn, seeds []schema.TraceID) ([]group, error) {
	limit := r.config.MaxSpansPerRun
	read, err := schema.SpansOfTraces(ctx, conn, seeds, limit)
	if err != nil {
		return nil, err
	}
	w := widening{
		joinNs: int64(r.config.JoinWindow), idleNs: int64(r.config.IdleLimit), maxTraces: r.config.MaxTracesPerRun,
		read: read, runs: make(map[uint64]*holders), tasks: make(map[uint64]*holders), alone: make(map[uint64]*holders),
	}
	fresh := make([]schema.TraceID, 0, len(read))
	for id := range read {
		fresh = append(fresh, id)
	}
	for range maxRounds {
		fresh, err = w.joining(ctx, conn, fresh)
		if err != nil {
			return nil, err
		}
		if len(fresh) == 0 {
			return w.groups(), nil
		}
		more, err := schema.SpansOfTraces(ctx, conn, fresh, limit-w.spans())
		if errors.Is(err, schema.ErrTooManySpans) {
			return w.groups(), errCut
		}
		if err != nil {
			return nil, err
		}
		fresh = fresh[:0]
		for id, t := range more {
			read[id] = t
			fresh = append(fresh, id)
		}
	}
	return w.groups(), errCut
}

// widening finds the traces that share a run id, a task or a thread of lone steps.
type widening struct {
	joinNs    int64
	idleNs    int64
	maxTraces int
	read      map[schema.TraceID]*schema.TraceSpans
	runs      map[uint64]*holders // by the key of a run id
	tasks     map[uint64]*holders // by the key of a task
	alone     map[uint64]*holders // by the key of a thread whose steps are traces of their own
}

// holders are the traces that were read and have a key, and when.
type holders struct {
	traces          []schema.TraceID
	firstNs, lastNs int64
}

func (w *widening) spans() (n int) {
	for _, t := range w.read {
		n += len(t.Spans)
	}
	return n
}

// joining are the traces that share a key with the fresh ones and are not read yet.
func (w *widening) joining(ctx context.Context, conn driver.Conn, fresh []schema.TraceID) ([]schema.TraceID, error) {
	var runs, tasks, alone []uint64
	firstNs, lastNs := int64(math.MaxInt64), int64(math.MinInt64)
	firstAlone, lastAlone := firstNs, lastNs
	for _, id := range fresh {
		t := w.read[id]
		for i := range t.Spans {
			s := &t.Spans[i]
			run, task, thread := s.JoinKeys()
			if run != 0 && hold(w.runs, run, s) {
				runs = append(runs, run)
				firstNs, lastNs = min(firstNs, w.runs[run].firstNs), max(lastNs, w.runs[run].lastNs)
			}
			if task != 0 && hold(w.tasks, task, s) {
				tasks = append(tasks, task)
			}
			if thread != 0 && hold(w.alone, thread, s) {
				alone = append(alone, thread)
				firstAlone, lastAlone = min(firstAlone, w.alone[thread].firstNs), max(lastAlone, w.alone[thread].lastNs)
			}
		}
	}
	slices.Sort(runs)
	slices.Sort(tasks)
	byRun, err := schema.TracesOfKeys(ctx, conn, slices.Compact(runs), minus(firstNs, w.joinNs), plus(lastNs, w.joinNs), w.maxTraces)
	if err != nil {
		return nil, err
	}
	byRun = slices.DeleteFunc(byRun, func(k schema.KeyedTrace) bool {
		h := w.runs[k.Key]
		return k.LastEndNs < minus(h.firstNs, w.joinNs) || k.FirstEndNs > plus(h.lastNs, w.joinNs)
	})
	// A person may answer days later, so a task joins over any gap.
	byTask, err := schema.TracesOfKeys(ctx, conn, slices.Compact(tasks), math.MinInt64, math.MaxInt64, w.maxTraces)
	if err != nil {
		return nil, err
	}
	slices.Sort(alone)
	byThread, err := schema.TracesOfKeys(ctx, conn, slices.Compact(alone), minus(firstAlone, w.idleNs), plus(lastAlone, w.idleNs), w.maxTraces)
	if err != nil {
		return nil, err
	}
	byThread = slices.DeleteFunc(byThread, func(k schema.KeyedTrace) bool {
		h := w.alone[k.Key]
		return k.LastEndNs < minus(h.firstNs, w.idleNs) || k.FirstEndNs > plus(h.lastNs, w.idleNs)
	})
	found := make(map[schema.TraceID]struct{})
	for _, k := range slices.Concat(byRun, byTask, byThread) {
		if _, ok := w.read[k.TraceID]; !ok {
			found[k.TraceID] = struct{}{}
		}
	}
	ids := make([]schema.TraceID, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	return ids, nil
}

// hold notes that the span's trace has the key, and tells whether that may lead to
// other traces than before: it is new or reaches further in time.
func hold(of map[uint64]*holders, key uint64, s *schema.Span) bool {
	first, last := min(s.StartNs, s.EndNs), s.EndNs
	h, known := of[key]
	if !known {
		of[key] = &holders{[]schema.TraceID{s.TraceID}, first, last}
		return true
	}
	if h.traces[len(h.traces)-1] != s.TraceID {
		h.traces = append(h.traces, s.TraceID)
	}
	wider := first < h.firstNs || last > h.lastNs
	h.firstNs, h.lastNs = min(h.firstNs, first), max(h.lastNs, last)
	return wider
}

func minus(ns, window int64) int64 {
	if ns < math.MinInt64+window {
		return math.MinInt64
	}
	return ns - window
}

func plus(ns, window int64) int64 {
	if ns > math.MaxInt64-window {
		return math.MaxInt64
	}
	return ns + window
}

// groups are the traces that hang together by shared keys, in an order that does
// not depend on how they were found.
func (w *widening) groups() []group {
	parent := make(map[schema.TraceID]schema.TraceID, len(w.read))
	var find func(id schema.TraceID) schema.TraceID
	find = func(id schema.TraceID) schema.TraceID {
		up, ok := parent[id]
		if !ok || up == id {
			return id
		}
		root := find(up)
		parent[id] = root
		return root
	}
	for _, of := range []map[uint64]*holders{w.runs, w.tasks, w.alone} {
		for _, h := range of {
			for _, id := range h.traces[1:] {
				a, b := find(h.traces[0]), find(id)
				if bytes.Compare(b[:], a[:]) < 0 {
					a, b = b, a
				}
				if a != b {
					parent[b] = a
				}
			}
		}
	}
	byRoot := make(map[schema.TraceID]*group)
	for id, t := range w.read {
		root := find(id)
		g := byRoot[root]
		if g == nil {
			g = &group{}
			byRoot[root] = g
		}
		g.traces = append(g.traces, t)
		g.spans += len(t.Spans)
	}
	groups := make([]group, 0, len(byRoot))
	for _, g := range byRoot {
		slices.SortFunc(g.traces, func(a, b *schema.TraceSpans) int { return bytes.Compare(a.TraceID[:], b.TraceID[:]) })
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return bytes.Compare(a.traces[0].TraceID[:], b.traces[0].TraceID[:])
	})
	return groups
}
