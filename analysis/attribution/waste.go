package attribution

import "slices"

// lostAttempt is an outermost attempt that did not contribute to a success.
type lostAttempt struct {
	step       string
	start, end int64
	exec       *execution   // the row that its time stands on: an execution's,
	call       *callAttempt // or a call's
}

// markWaste finds what lay below lost attempts, and the time of the outermost ones,
// each instant counted once per step.
func (a *account) markWaste() {
	var outermost []*lostAttempt
	for _, e := range a.executions {
		if e.lost && !e.view && !insideLost(e.outer) {
			outermost = append(outermost, &lostAttempt{step: e.step, start: e.start, end: e.end, exec: e})
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
				outermost = append(outermost, &lostAttempt{step: n.exec.step, start: n.StartNs, end: n.EndNs, call: row})
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
func countOnce(lost []*lostAttempt) {
	byStep := make(map[string][]*lostAttempt)
	for _, l := range lost {
		byStep[l.step] = append(byStep[l.step], l)
	}
	for _, list := range byStep {
		slices.SortStableFunc(list, func(x, y *lostAttempt) int {
			if x.start != y.start {
				if x.start < y.start {
					return -1
				}
				return 1
			}
			return int(max(-1, min(1, x.end-y.end)))
		})
		var until int64
		for _, l := range list {
			own := max(0, l.end-max(l.start, until))
			until = max(until, l.end)
			if l.exec != nil {
				l.exec.wastedNs += own
			} else {
				l.call.wastedNs += own
			}
		}
	}
}
