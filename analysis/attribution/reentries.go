package attribution

import (
	"math"
	"slices"
	"strings"
)

// Which execution of its step an entry repeats.

// openExecutions are the executions of a step that a later one may repeat, in time's order.
type openExecutions struct {
	unsuccessful []openExecution // they failed or never ended: any later entry may repeat them
	all          []openExecution // only an entry that states a number may repeat a success
	numbered     bool            // there are such entries
}

type openExecution struct {
	*execution
	earliest int64 // none that is or stands before it ended earlier
}

func (o *openExecutions) add(e *execution) {
	if o.numbered {
		o.all = withEnd(o.all, e)
	}
	if e.failed || e.ending != EndingSucceeded {
		o.unsuccessful = withEnd(o.unsuccessful, e)
	}
}

func withEnd(list []openExecution, e *execution) []openExecution {
	earliest := e.end
	if len(list) > 0 {
		earliest = min(earliest, list[len(list)-1].earliest)
	}
	return append(list, openExecution{e, earliest})
}

// isNumbered tells an entry that states a number no engine's task tells of.
func isNumbered(e *execution) bool { return e.task == nil && e.attempt >= 2 }

// maxOpen bounds how far back the repeated execution is looked for, so that the cost
// of a run stays linear in its size.
const maxOpen = 512

// candidates visits what e may repeat, the latest first, and forgets what is repeated
// already. What had not ended by an instant need not be visited.
func (o *openExecutions) candidates(e *execution, by int64, visit func(*execution)) {
	list := &o.unsuccessful
	if isNumbered(e) {
		list = &o.all
	}
	for i, seen := len(*list)-1, 0; i >= 0 && seen < maxOpen; i-- {
		if (*list)[i].earliest > by {
			return // nor had any before it
		}
		p := (*list)[i].execution
		if p.next != nil {
			*list = slices.Delete(*list, i, i+1) // near the end: what is repeated is recent
			continue
		}
		seen++
		visit(p)
	}
}

// abandoned finds the attempt before a numbered one that still runs beside it.
func (a *account) abandoned(e *execution, open *openExecutions) *execution {
	if e.task != nil || e.attempt < 2 {
		return nil
	}
	var best *execution
	open.candidates(e, math.MaxInt64, func(p *execution) {
		if best == nil && p.ordinal == e.attempt-1 && p.outer == e.outer && p.trace == e.trace && p.start <= e.start && (e.item() == 0 || p.item() == 0 || e.item() == p.item()) {
			best = p
		}
	})
	return best
}

// outerRepeat is the layer in which a step around p was repeated by the one around e.
func outerRepeat(e, p *execution) Layer {
	for x, y := e.outer, p.outer; x != nil && y != nil && x != y; x, y = x.outer, y.outer {
		if x.prev == y {
			return x.charge
		}
	}
	return ""
}

// workflowRepeat is the layer in which an engine executed the workflow around p again:
// a second run of one start is the engine's policy for whole runs, of one child's
// start a policy for that child, which is a unit of work like a step.
func workflowRepeat(e, p *execution) Layer {
	x, y := workflowAbove(e), workflowAbove(p)
	if x == nil || y == nil || x == y || x.TraceID != y.TraceID || x.ParentID != y.ParentID {
		return ""
	}
	if x.parent != nil && strings.HasPrefix(x.parent.Name, "StartChildWorkflow:") {
		return LayerNode
	}
	return LayerWorker
}

func workflowAbove(e *execution) *node {
	if e.node == nil {
		return nil
	}
	for n := e.node.parent; n != nil; n = n.parent {
		if n.Dialect == "temporal" && strings.HasPrefix(n.Name, "RunWorkflow:") {
			return n
		}
	}
	return nil
}

// reentered finds the execution that e repeats as a new entry into its step.
func (a *account) reentered(e *execution, open *openExecutions) *execution {
	var best *execution
	bestScore := -1
	open.candidates(e, endedBy(e, a.tree.slack), func(p *execution) {
		if p.counter || !e.startsAfter(p, a.tree.slack) || a.fannedOut(e, p) || !a.invitesRepeat(e, p) {
			return
		}
		if e.item() != 0 && p.item() != 0 && e.item() != p.item() || otherInput(e, p) {
			return // another item of a loop
		}
		if repeatedAround(e, p) {
			return // what repeats it is charged already: one decision, one charge
		}
		score := 0
		if e.item() != 0 && e.item() == p.item() {
			score += 4
		}
		if e.outer == p.outer {
			score += 2
		}
		if e.attempt >= 2 && p.ordinal == e.attempt-1 {
			score++
		}
		// Of equals the latest: the earlier ones were left behind.
		if score > bestScore {
			best, bestScore = p, score
		}
	})
	return best
}

// endedBy is the last end of what e may start after (startsAfter). Times at the ends of
// their range would wrap around: nothing is left out then.
func endedBy(e *execution, slack int64) int64 {
	if e.start > math.MaxInt64-slack {
		return math.MaxInt64
	}
	return e.start + slack
}

// otherInput tells two calls of a function for different inputs from a repeat: tasks
// of the functional API, functions marked as steps, and graphs that a step invokes once per item. The input of a
// graph's node is the state, which differs in any repeat.
func otherInput(e, p *execution) bool {
	x, y := e.node, p.node
	if x == nil || y == nil || e.task == nil && !e.function || e.outer != p.outer {
		return false
	}
	if x.GraphStep > 0 { // a node: its graph's own input tells
		x, y = x.parent, y.parent
		if x == nil || y == nil || x == y || e.outer == nil || x.isExecution() || y.isExecution() {
			return false
		}
	}
	return x.InputHash != 0 && y.InputHash != 0 && x.InputHash != y.InputHash
}

// repeatedAround tells whether e lies in a call that repeats the call that p lies in.
func repeatedAround(e, p *execution) bool {
	if e.node == nil || p.node == nil {
		return false
	}
	for x := e.node.parent; x != nil; x = x.parent {
		if x.again == nil {
			continue
		}
		for y := p.node.parent; y != nil; y = y.parent {
			for u := x.again; u != nil; u = u.again {
				if u == y {
					return true
				}
			}
		}
	}
	return false
}

func (e *execution) item() uint64 {
	if e.node == nil {
		return 0
	}
	return e.node.ItemHash
}

// invitesRepeat tells whether a later entry e after p is a repeat of p.
func (a *account) invitesRepeat(e, p *execution) bool {
	switch {
	case p.ending == EndingInterrupted:
		return false
	case e.task == nil && e.attempt >= 2: // an explicit number counts whatever came before
		return p.ordinal < e.attempt && !a.delivered(e, p) || p.failed
	case e.attempt == 1 && e.task == nil && p.failed:
		return true // a new round that counts from one again
	case p.failed:
		return true
	case a.delivered(e, p):
		return p.ending == EndingUnknown || p.ending == EndingFailed
	}
	return false
}

// fannedOut tells whether e and p are branches of one fan-out: tasks of one superstep
// of one graph, or lie in such branches. They are no repeats of each other.
func (a *account) fannedOut(e, p *execution) bool {
	for x, y := e, p; x != nil && y != nil && x != y; x, y = x.outer, y.outer {
		if x.trace != y.trace || x.task == nil || y.task == nil || x.task == y.task {
			continue
		}
		if x.node != nil && y.node != nil && x.node.ParentID == y.node.ParentID && x.node.GraphStep > 0 && x.node.GraphStep == y.node.GraphStep {
			return true
		}
	}
	// Entries inside steps that ran side by side belong to different branches.
	if e.outer != nil && p.outer != nil && e.outer != p.outer && e.outer.step == p.outer.step && !e.outer.startsAfter(p.outer, a.tree.slack) {
		return true
	}
	return false
}
