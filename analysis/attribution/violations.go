package attribution

import (
	"math/bits"
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// Which execution a contract violation belongs to that no execution of its node encloses.

// violatedSteps are the executions of steps that violations name, made when they are asked for.
type violatedSteps struct {
	groups map[string][]*execution // of each step, in time's order
	traces map[string]map[schema.TraceID]*openTimes
}

// of is the executions of a step by their trace.
func (v *violatedSteps) of(a *account, step string) map[schema.TraceID]*openTimes {
	if byTrace, ok := v.traces[step]; ok {
		return byTrace
	}
	if v.groups == nil {
		v.traces = make(map[string]map[schema.TraceID]*openTimes)
		v.groups = make(map[string][]*execution)
		for _, g := range a.bySteps(isView) {
			v.groups[g.name] = g.executions
		}
	}
	byTrace := make(map[schema.TraceID]*openTimes)
	v.traces[step] = byTrace
	for _, e := range v.groups[step] {
		times := byTrace[e.trace]
		if times == nil {
			times = &openTimes{}
			byTrace[e.trace] = times
		}
		times.executions = append(times.executions, e)
	}
	return byTrace
}

// openTimes finds which of some executions, in time's order, was open at an instant: to
// visit all of them for each violation costs their square.
type openTimes struct {
	executions []*execution
	latest     []int64 // a tree of their ends, its leaves from size on: each node the later of the two below it
	size       int
}

// at is the last execution that was open at an instant, else the last that began before it.
func (t *openTimes) at(instant int64) *execution {
	if t == nil {
		return nil
	}
	begun, _ := slices.BinarySearchFunc(t.executions, instant, func(e *execution, at int64) int {
		if e.start <= at {
			return -1
		}
		return 1
	})
	if begun == 0 {
		return nil
	}
	if last := t.executions[begun-1]; last.end >= instant {
		return last
	}
	if i := t.lastOpen(begun, instant); i >= 0 {
		return t.executions[i]
	}
	return t.executions[begun-1]
}

// lastOpen is the place of the last of the first executions that had not ended at an
// instant, -1 if all had.
func (t *openTimes) lastOpen(first int, instant int64) int {
	if t.latest == nil {
		t.size = 1 << bits.Len(uint(len(t.executions))) // one leaf to spare at least, from which the way up begins
		t.latest = make([]int64, 2*t.size)
		for i := range t.latest {
			t.latest[i] = -1 << 63
		}
		for i, e := range t.executions {
			t.latest[t.size+i] = e.end
		}
		for i := t.size - 1; i > 0; i-- {
			t.latest[i] = max(t.latest[2*i], t.latest[2*i+1])
		}
	}
	for i := t.size + first; i > 1; i /= 2 {
		if i%2 == 0 || t.latest[i-1] < instant {
			continue
		}
		for i--; i < t.size; { // what lies left of the way up holds it: down to its last leaf
			if i = 2*i + 1; t.latest[i] < instant {
				i--
			}
		}
		return i - t.size
	}
	return -1
}
