package attribution

import (
	"cmp"
	"slices"
)

// lostAttempt is an outermost attempt that did not contribute to a success.
type lostAttempt struct {
	step       int32 // its number
	start, end int64
	exec       *execution   // the row that its time stands on: an execution's,
	call       *callAttempt // or a call's
}

// markWaste finds what lay below lost attempts, and the time of the outermost ones,
// each instant counted once per step.
func (a *account) markWaste() {
	lost := 0
	for _, e := range a.executions {
		if e.lost {
			lost++
		}
	}
	outermost := make([]lostAttempt, 0, lost)
	for _, e := range a.executions {
		if e.lost && !e.view && !insideLost(e.outer) {
			outermost = append(outermost, lostAttempt{step: e.number, start: e.start, end: e.end, exec: e})
		}
	}
	for _, n := range a.tree.nodes {
		if n.exec == nil {
			continue
		}
		switch {
		case n.parent != nil && n.parent.lost && !n.isExecution():
			n.lost = true
		case insideLost(n.exec):
			n.lost = true
		case n.unitLost || n.attempt != nil && n.attempt.failed:
			n.lost = true
			if row := orAttempt(n.attempt, n.lead); row != nil {
				outermost = append(outermost, lostAttempt{step: n.exec.number, start: n.StartNs, end: n.EndNs, call: row})
			}
		}
	}
	for _, c := range a.calls {
		if c.node != nil {
			c.wasted = c.node.lost
		} else {
			c.wasted = insideLost(c.exec)
		}
		if c.unit != nil && c.unit.parent != nil && c.unit.parent.lost || c.node == nil {
			c.waitNs = 0 // inside an outer lost attempt, whose time holds it
		}
	}
	for _, e := range a.executions {
		e.wasted = insideLost(e)
		if e.prev != nil && e.charge != "" && !insideLost(e.outer) {
			e.waitNs = max(0, e.start-e.prev.end)
		}
	}
	countOnce(outermost)
}

// insideLost tells whether e is a lost attempt or lies in one.
func insideLost(e *execution) bool {
	var near [16]*execution // enough for nearly all, and no allocation
	path := near[:0]
	inside := false
	for o := e; o != nil && !inside; o = o.outer {
		if o.lostKnown {
			inside = o.insideLost
			break
		}
		inside = o.lost && !o.view
		path = append(path, o)
	}
	for _, o := range path {
		o.lostKnown, o.insideLost = true, inside
	}
	return inside
}

func orAttempt(c, other *callAttempt) *callAttempt {
	if c != nil {
		return c
	}
	return other
}

// countOnce gives every lost attempt the part of its time that no other of its step has.
func countOnce(lost []lostAttempt) {
	order := make([]int32, len(lost)) // positions: to move what holds pointers costs more
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		x, y := &lost[i], &lost[j]
		switch {
		case x.step != y.step:
			return cmp.Compare(x.step, y.step)
		case x.start != y.start:
			return cmp.Compare(x.start, y.start)
		case x.end != y.end:
			return cmp.Compare(x.end, y.end)
		}
		return cmp.Compare(i, j)
	})
	step, until := int32(-1), int64(0)
	for _, i := range order {
		l := &lost[i]
		if l.step != step {
			step, until = l.step, 0
		}
		own := max(0, l.end-max(l.start, until))
		until = max(until, l.end)
		if l.exec != nil {
			l.exec.wastedNs += own
		} else {
			l.call.wastedNs += own
		}
	}
}
