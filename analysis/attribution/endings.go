package attribution

import (
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// How executions ended, before anyone asks who repeated them.

// placeViolations gives each contract violation to the execution it belongs to: the
// one of its node that was open at its time, else the last before it. Within one
// execution a violation counts once, however many spans repeat it.
func (a *account) placeViolations() {
	type once struct {
		exec           *execution
		node, key, dir string
	}
	var seen map[once]bool
	var steps violatedSteps
	for _, n := range a.tree.nodes {
		for _, v := range n.Violations {
			e := enclosingStep(n, v.Node)
			if e == nil {
				e = steps.of(a, v.Node)[n.TraceID].at(v.TimeNs)
			}
			if e != nil {
				e.violated = true
			}
			id := once{e, v.Node, v.Key, v.Direction}
			if seen[id] {
				continue
			}
			if seen == nil {
				seen = make(map[once]bool)
			}
			seen[id] = true
			a.violations.count(v, n.TraceID)
		}
	}
}

// enclosingStep is the execution of a step that n lies in.
func enclosingStep(n *node, step string) *execution {
	for e := n.exec; e != nil; e = e.outer {
		if e.step == step && !e.view {
			return e
		}
	}
	return nil
}

// judge decides how an execution ended, before anyone asks who repeated it.
func (a *account) judge(e *execution) {
	if e.counter {
		e.ending = EndingUnknown
		return
	}
	if e.node == nil && (e.engine || e.unfinished) {
		e.ending = EndingUnknown // its own span never came
		return
	}
	e.ending = EndingSucceeded
	if e.node == nil { // calls that name a step: the last of them tells
		if last := e.members[len(e.members)-1]; failedUnit(last) {
			e.ending, e.errorClass, e.httpStatus = EndingFailed, last.ErrorClass, int(last.HTTPStatus)
		} else {
			e.flow = last.Flow
		}
	} else {
		s := e.node.Span
		e.flow, e.errorClass, e.httpStatus = s.Flow, s.ErrorClass, int(s.HTTPStatus)
		switch {
		case failedUnit(e.node), e.handled && s.Flow != schema.FlowInterrupt:
			e.ending = EndingFailed
		case s.Flow != schema.FlowNone:
		case (s.OutputFailed || s.StatedExhausted) && s.StepFailed != schema.FlagNo && !a.isContainer(e):
			e.ending, e.told = EndingFailed, s.OutputFailed
			if s.StatedExhausted {
				e.handled = true
			}
		}
	}
	switch e.flow {
	case schema.FlowInterrupt:
		e.ending = EndingInterrupted
	case schema.FlowCancelled, schema.FlowAbandoned:
		e.ending = EndingCancelled
	case schema.FlowNone, schema.FlowCommand:
	}
	e.failed = e.ending == EndingFailed || e.violated
	if e.ending == EndingFailed && e.violated && e.errorClass == "" {
		e.errorClass = "ContractViolation"
	}
	if e.node != nil && e.node.StatedExhausted && !e.node.OutputFailed && !failedUnit(e.node) && !a.failedModel[e] {
		e.failed = e.violated // tools gave up and said so: what an agent does next is its loop, no retry
	}
}

// isContainer: the output of a step that holds others is the accumulated state.
func (a *account) isContainer(e *execution) bool {
	return slices.ContainsFunc(e.inner, func(i *execution) bool { return i.step != e.step })
}

// passFailureIn hands the failure of a node run to the last of the application's own
// executions inside it, which is what failed.
func (a *account) passFailureIn() {
	for _, e := range a.executions {
		if !e.view || !e.failed {
			continue
		}
		for i := len(e.inner) - 1; i >= 0; i-- {
			if in := e.inner[i]; in.step == e.step {
				if !in.failed {
					in.failed, in.ending, in.told = true, e.ending, e.told
				}
				in.handled = in.handled || e.handled
				break
			}
		}
	}
}
