package attribution

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// execution is one physical execution of a step.
type execution struct {
	step       string
	number     int32 // of its step, by numberSteps
	node       *node // its own span; nil where that never came or no span stands for it
	trace      schema.TraceID
	task       *task      // what all attempts of its task share, nil without an engine
	engine     bool       // known by an engine's task id
	site       bool       // a call site standing in for a step
	function   bool       // a function that the application marked, standing in for a step
	unfinished bool       // its calls came, what is around them never did
	counter    bool       // known only because a later attempt's number says it was there
	named      bool       // an engine's, under the name that the application gives it
	view       bool       // a node run whose executions the application's own spans show: their container
	own        *execution // of a view, the first that it contains
	outer      *execution
	inner      []*execution
	members    []*node  // the spans that hang directly below it, where it has no span of its own
	member     [1]*node // the place of the first of them
	start      int64
	end        int64

	attempt  int // stated ordinal, 0 if none
	evidence Evidence
	layer    Layer // stated

	// Charges, filled in by chargeExecutions.
	prev     *execution // whose repeat it is
	next     *execution // its repeat
	charge   Layer      // "" for a visit
	ordinal  int
	fallback bool // it is a fallback's candidate, by the application's word
	counted  bool // its counter's repeats are charged

	failed     bool // it failed, for the question whether a later entry is a retry
	lost       bool // it did not contribute to a success
	told       bool // only its output said so
	violated   bool // a contract violation belongs to it
	flow       schema.ControlFlow
	ending     Ending
	handled    bool
	errorClass string
	httpStatus int

	nest       int8 // how far cutNests is
	depthKnown bool // depth is counted
	levels     int  // executions around it
	lostKnown  bool // insideLost is decided
	insideLost bool // it is a lost attempt or lies in one

	wasted   bool  // it lies in a lost attempt, or is one
	wastedNs int64 // its own part of the time of outermost lost attempts
	waitNs   int64 // since the end of the attempt it repeats

	limits    map[Layer]int  // attempts that each layer allows, as spans in it state
	calls     []*callAttempt // by writeRows
	callCount int
	index     int // in Run.Attempts
	hidden    layerSet
	numbered  bool // its clients number their attempts
}

// startsAfter tells whether e began when other had ended, give or take the clocks' grain.
func (e *execution) startsAfter(other *execution, slack int64) bool {
	return e.start >= other.end-slack && e.start >= other.start
}

// findExecutions finds every execution of every step: node runs, the application's
// own step spans, executions known through their children only, and call sites that
// stand in for steps.
func (a *account) findExecutions() {
	a.findEngineExecutions()
	a.dropSecondView()
	a.placeExplicitSpans()
	a.nest()
	a.findExplicitExecutions()
	a.nest()
	a.findOrphanedExecutions()
	a.nest()
	a.findStepsOfCalls()
	a.nest()
	if a.findFunctionSteps() {
		a.nest()
	}
	a.findCallSites()
	a.nest()
	a.nestExecutions()
	slices.SortFunc(a.executions, compareExecutions)
	a.numberSteps()
}

func compareExecutions(x, y *execution) int {
	switch {
	case x.start != y.start:
		return cmp.Compare(x.start, y.start)
	case x.end != y.end:
		return cmp.Compare(x.end, y.end)
	case x.trace != y.trace:
		return bytes.Compare(x.trace[:], y.trace[:])
	case x.step != y.step:
		return strings.Compare(x.step, y.step)
	case x.task != y.task:
		return strings.Compare(x.task.name(), y.task.name())
	}
	return compareIdentity(x.node, y.node)
}

func compareIdentity(x, y *node) int {
	var a, b schema.SpanID
	if x != nil {
		a = x.SpanID
	}
	if y != nil {
		b = y.SpanID
	}
	return bytes.Compare(a[:], b[:])
}

// add makes an execution known: a copy of from.
func (a *account) add(from execution) *execution {
	e := a.newExecutions.next()
	*e = from
	if e.node != nil {
		e.start, e.end = e.node.StartNs, e.node.EndNs
		e.trace = e.node.TraceID
		e.attempt = int(e.node.Attempt)
		e.evidence = Evidence(e.node.AttemptEvidence)
		e.layer = Layer(e.node.RetryLayer)
		e.node.home = e
	}
	for _, m := range e.members {
		m.home = e
	}
	a.executions = append(a.executions, e)
	return e
}

// join adds a span that hangs directly below e, whose own span never came.
func (e *execution) join(n *node) {
	if e.members == nil {
		e.members = e.member[:0] // nearly always the only one: no allocation
	}
	e.members = append(e.members, n)
	e.start, e.end = min(e.start, n.StartNs), max(e.end, n.EndNs)
	n.home = e
}

// nest finds for every span the innermost execution that it is or lies in.
func (a *account) nest() {
	for _, n := range a.tree.nodes {
		switch {
		case n.home != nil:
			n.exec = n.home
		case n.parent != nil:
			n.exec = n.parent.exec
		default:
			n.exec = nil
		}
	}
}

// nestExecutions finds for every execution the one around it.
func (a *account) nestExecutions() {
	a.tree.tasks.hold(a.executions)
	for _, e := range a.executions {
		top := e.node
		if top == nil && len(e.members) > 0 {
			top = e.members[0]
		}
		if top != nil && top.parent != nil {
			e.outer = top.parent.exec
		}
		if e.outer == nil {
			e.outer = a.outerTask(e)
		}
	}
	a.cutNests()
	for _, e := range a.executions {
		if e.outer != nil {
			e.outer.inner = append(e.outer.inner, e)
		}
	}
}

// cutNests leaves no execution inside itself: spans with forged parents or tasks may
// say so of each other.
func (a *account) cutNests() {
	const walked, sound = 1, 2
	var path []*execution
	for _, e := range a.executions {
		path = path[:0]
		for x := e; x != nil && x.nest != sound; x = x.outer {
			x.nest = walked
			path = append(path, x)
			if x.outer != nil && x.outer.nest == walked {
				x.outer = nil
			}
		}
		for _, x := range path {
			x.nest = sound
		}
	}
}
