package attribution

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// The order of the rows of a run: by time, each after the one that encloses it.

// rowPlace is what decides the place of a row, gathered beforehand and without pointers.
type rowPlace struct {
	start, end int64
	span       uint64 // its id, 0 without one
	depth      int32  // of an execution
	at         int32  // among the executions, and behind them the calls
}

// orderRows is the order of the executions and calls, as rowAt takes them: by their
// start, of one instant the executions by their depth and then the calls, the longer
// ones first, then by what they are.
func (a *account) orderRows() []int32 {
	places := make([]rowPlace, 0, len(a.executions)+len(a.calls))
	for i, e := range a.executions {
		if !e.view {
			places = append(places, rowPlace{start: e.start, end: e.end, span: spanOf(e.node), depth: int32(e.depth()), at: int32(i)})
		}
	}
	executions := places
	for i, c := range a.calls {
		places = append(places, rowPlace{start: c.start, end: c.end, span: spanOf(c.node), at: int32(len(a.executions) + i)})
	}
	calls := places[len(executions):]
	// Each of the two is nearly in order already, which sorting makes use of; both together are not.
	oneTrace := len(a.group.traces) == 1
	compare := func(x, y rowPlace) int {
		switch {
		case x.start != y.start:
			return cmp.Compare(x.start, y.start)
		case x.depth != y.depth:
			return cmp.Compare(x.depth, y.depth)
		case x.end != y.end:
			return cmp.Compare(y.end, x.end)
		case oneTrace && x.span != y.span: // the branches of a fan-out begin and end together
			return cmp.Compare(x.span, y.span)
		}
		return a.compareRows(x.at, y.at)
	}
	slices.SortFunc(executions, compare)
	slices.SortFunc(calls, compare)
	order := make([]int32, 0, len(places))
	for _, c := range calls {
		for len(executions) > 0 && executions[0].start <= c.start {
			order, executions = append(order, executions[0].at), executions[1:]
		}
		order = append(order, c.at)
	}
	for _, e := range executions {
		order = append(order, e.at)
	}
	return order
}

// spanOf is the id of a row's span, 0 if it has none.
func spanOf(n *node) uint64 {
	if n == nil {
		return 0
	}
	return spanKey(n.SpanID)
}

// rowAt is the execution or the call that a row of writeRows stands for.
func (a *account) rowAt(at int32) (*execution, *callAttempt) {
	if int(at) < len(a.executions) {
		return a.executions[at], nil
	}
	return nil, a.calls[int(at)-len(a.executions)]
}

// compareRows orders rows of one instant and length.
func (a *account) compareRows(x, y int32) int {
	identity := func(e *execution, c *callAttempt) (trace schema.TraceID, span schema.SpanID, name string) {
		var n *node
		if e != nil {
			trace, n = e.trace, e.node
		} else {
			trace, n = c.exec.trace, c.node
		}
		if n != nil {
			span = n.SpanID
		}
		return trace, span, rowName(e, c)
	}
	trace, span, name := identity(a.rowAt(x))
	otherTrace, otherSpan, otherName := identity(a.rowAt(y))
	return cmp.Or(bytes.Compare(trace[:], otherTrace[:]), bytes.Compare(span[:], otherSpan[:]), strings.Compare(name, otherName), cmp.Compare(x, y))
}

func rowName(e *execution, c *callAttempt) string {
	if e != nil {
		return e.step
	}
	return string(c.grain) + c.charge
}
