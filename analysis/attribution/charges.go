package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Who repeated a step, and which of several steps is charged.

// chargeExecutions decides for every execution whether it is a visit or a repeat,
// and in which layer.
func (a *account) chargeExecutions() {
	a.failedModel = make(map[*execution]bool)
	for _, c := range a.calls {
		if c.grain == GrainCall && c.failed {
			a.failedModel[c.exec] = true
		}
	}
	for _, e := range a.executions {
		a.judge(e)
	}
	a.passFailureIn()
	// Outer steps first, and node runs before the application's own spans inside them:
	// the layer that repeated what is around a step is the layer that repeated it.
	steps := a.bySteps(none)
	slices.SortFunc(steps, func(x, y stepGroup) int {
		return cmp.Or(cmp.Compare(x.executions[0].depth(), y.executions[0].depth()), strings.Compare(x.name, y.name))
	})
	for _, step := range steps {
		if !slices.ContainsFunc(step.executions, isView) {
			a.chargeStep(step.executions)
			continue
		}
		var views, own []*execution
		for _, e := range step.executions {
			if e.view {
				views = append(views, e)
			} else {
				own = append(own, e)
			}
		}
		a.chargeStep(views)
		a.chargeStep(own)
	}
	a.chargeOnce()
	a.countedExecutions()
	slices.SortFunc(a.executions, compareExecutions)
}

// depth is the number of executions around e.
func (e *execution) depth() int {
	var near [16]*execution // enough for nearly all, and no allocation
	path := near[:0]
	n := -1
	for o := e; o != nil; o = o.outer {
		if o.depthKnown {
			n = o.levels
			break
		}
		path = append(path, o)
	}
	for _, o := range slices.Backward(path) {
		n++
		o.depthKnown, o.levels = true, n
	}
	return n
}

// chargeStep charges the executions of one step, in time's order.
func (a *account) chargeStep(list []*execution) {
	tasks := &a.tree.tasks
	tasks.begin()
	open := openExecutions{numbered: slices.ContainsFunc(list, isNumbered)}
	for _, e := range list {
		e.ordinal = max(1, e.attempt)
		var p *execution // the attempt of its task before it
		if e.task != nil {
			// A delivery goes on from its own attempt, whatever another does at the same time.
			if p = tasks.notedHere(e.task); p == nil {
				p = tasks.noted(e.task.anywhere)
			} else if other := p.next; other != nil && other.prev == p && other.trace != e.trace {
				other.prev, other.charge, other.evidence = nil, "", "" // a visit beside p, which goes on
			}
		}
		switch {
		case p != nil:
			a.repeatTask(e, p)
		default:
			if p = a.reentered(e, &open); p == nil {
				p = a.abandoned(e, &open)
			}
			if p != nil {
				a.repeatEntry(e, p)
			} else if e.task == nil && e.attempt >= 2 {
				a.missing(e)
			}
		}
		if e.task != nil {
			tasks.note(e.task.anywhere, e)
			tasks.noteHere(e.task, e)
		}
		open.add(e)
	}
}

// repeatTask links e to p, the attempt of the same task before it.
func (a *account) repeatTask(e, p *execution) {
	if p.ending == EndingInterrupted {
		return // resuming after an interrupt is a visit
	}
	layer := LayerNode
	switch {
	case a.delivered(e, p), e.node != nil && p.node != nil && e.node.parent != nil && p.node.parent != nil && e.node.parent != p.node.parent:
		// A later trace, or the graph was invoked again and went on from its checkpoint.
		layer = LayerWorker
		if !p.failed && (p.ending == EndingSucceeded || p.ending == EndingCancelled) {
			return // it had succeeded, or somebody stopped it: visited, not retried
		}
	}
	if p.ending == EndingCancelled {
		p.ending = EndingFailed // cancelled by its own timeout: a lost attempt
	}
	link(e, p, layer, EvidenceStructure)
}

// delivered tells whether e belongs to a later delivery of the run than p: a later
// trace, unless the traces are one run's only because every step is one of its own.
func (a *account) delivered(e, p *execution) bool {
	return e.trace != p.trace && a.group.joinedBy != "inferred"
}

// stepLayer tells the layers that repeat whole executions.
func stepLayer(l Layer) bool { return l == LayerNode || l == LayerOrchestrator || l == LayerWorker }

func link(e, p *execution, layer Layer, evidence Evidence) {
	e.prev, e.charge, e.evidence = p, layer, evidence
	p.next = e
	if e.attempt == 0 {
		e.ordinal = 1
		if layer == LayerNode {
			e.ordinal = p.ordinal + 1
		}
	}
}

// repeatEntry links e to the failed execution of its step that it repeats.
func (a *account) repeatEntry(e, p *execution) {
	layer, evidence := LayerOrchestrator, EvidenceStructure
	switch {
	case a.delivered(e, p):
		layer = LayerWorker
	case outerRepeat(e, p) != "":
		layer = outerRepeat(e, p)
	case workflowRepeat(e, p) != "":
		layer = workflowRepeat(e, p)
	case e.node != nil && e.node.Dialect == "openlit" && e.outer == p.outer && e.node.ParentID == p.node.ParentID:
		layer = LayerNode // no task ids: siblings without anything between are an engine's
	case e.task == nil && e.attempt >= 2:
		layer = LayerNode // a number is a policy's
	}
	if e.task == nil && e.attempt == 0 {
		evidence = EvidenceInferred
	}
	if p.told {
		evidence = EvidenceOutput
	}
	if e.attempt >= 2 && e.node != nil {
		evidence = Evidence(e.node.AttemptEvidence)
	}
	if stepLayer(e.layer) {
		layer = e.layer
		if e.attempt < 2 {
			evidence = EvidenceAttribute
		}
	}
	if e.node != nil && e.node.Fallback >= 1 && e.attempt < 2 { // the application says that it switched
		link(e, p, "", EvidenceAttribute)
		e.fallback = true
		return
	}
	link(e, p, layer, evidence)
}

// chargeOnce keeps one charge for one decision: when a step that holds others is
// entered again because a step inside it failed, the innermost step is charged in
// the layer that decided, and the outer entry is a visit.
func (a *account) chargeOnce() {
	repeatedInside := make(map[*execution]bool) // e: something in e repeats what failed in the execution that e repeats
	for _, in := range a.executions {
		if in.prev == nil {
			continue
		}
		x, y := in.outer, in.prev.outer
		for x != nil && y != nil && x != y {
			if x.prev == y && !x.view {
				repeatedInside[x] = true
			}
			x, y = x.outer, y.outer
		}
	}
	for e := range repeatedInside {
		e.charge = ""
	}
}
