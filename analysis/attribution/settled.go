package attribution

import "github.com/retryledger/retryledger/schema"

// Whether a failure is final, as far as spans show. A span is exported when it has
// ended, so a wrapper, step or root that is there can repeat nothing any more.

// settledCall tells whether nothing will repeat a call operation: a retry around it,
// an execution around it, or the run's root has ended.
func (a *account) settledCall(op *operation) bool {
	for e := op.exec; e != nil; e = e.outer {
		if e.node != nil {
			return true
		}
		if len(e.members) > 0 && e.members[0].parent != nil {
			return true // what would repeat it is their common parent's
		}
	}
	if first := op.first; first.unit != nil {
		for n, up := first.unit.parent, 0; n != nil && n.exec == op.exec && up < maxUp; n, up = n.parent, up+1 {
			if n.RetryWrapper || n.usedUp {
				return true
			}
		}
	}
	return a.isOver(op.exec.trace)
}

// maxUp bounds how far up a call's wrapper or model is looked for.
const maxUp = 64

// findEnds notes the traces in which no step will be entered again: the run's flag or
// a root says so. A step's end around another does not, for it may be entered again,
// and such a repeat is charged to the innermost step that failed.
func (a *account) findEnds() {
	a.allOver = a.ended.complete != schema.FlagUnset || a.ended.cancelled || closes(a.ended.root)
	if a.allOver {
		return
	}
	a.over = make(map[schema.TraceID]bool)
	for _, r := range a.tree.roots {
		if a.mayBeRoot(r) && closes(r) {
			a.over[r.TraceID] = true
		}
	}
}

// isOver tells whether no step of a trace will be entered again.
func (a *account) isOver(trace schema.TraceID) bool { return a.allOver || a.over[trace] }

// closes tells whether root n's end is the run's: a step that is a trace of its own
// may be followed by another.
func closes(n *node) bool { return n != nil && !n.StandsAlone() }
