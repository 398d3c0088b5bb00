package attribution

import (
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Executions that the application states itself.

// statesStep: on a model, tool or HTTP span, step names where the call belongs.
func statesStep(n *node) bool { return n.Step != "" && !n.ContractSpan && !n.Heartbeat }

func statesExecution(n *node) bool {
	return statesStep(n) && n.Role != schema.RoleAuxiliary && !n.isCall() && !n.isSend()
}

// placeExplicitSpans puts the application's own spans of a step into the node run
// of that step they lie in. A framework's spans are never the active context, so
// that an application's spans become siblings of the graph: two views of one thing.
func (a *account) placeExplicitSpans() {
	byStep := make(map[string][]*execution)
	for _, e := range a.executions {
		byStep[e.step] = append(byStep[e.step], e)
	}
	if len(byStep) == 0 {
		return
	}
	for _, list := range byStep {
		slices.SortFunc(list, compareExecutions)
	}
	into := make(map[*node]*node)
	for _, n := range a.tree.nodes {
		if !statesStep(n) || len(byStep[n.Step]) == 0 || n.task != nil || below(n, func(p *node) bool { return p.task != nil || p.Step == n.Step }) {
			continue
		}
		host := a.hostOf(n, byStep[n.Step])
		if host == nil {
			continue
		}
		to := host.node
		for { // the deepest framework span that holds it
			i := slices.IndexFunc(to.children, func(c *node) bool {
				return c.Role == schema.RoleChain && c.Scope == host.node.Scope && a.tree.covers(c.Span, n.Span) && len(c.children) > 0
			})
			if i < 0 {
				break
			}
			to = to.children[i]
		}
		into[n] = to
	}
	if len(into) == 0 {
		return
	}
	// What the framework saw of such a span lies in it.
	views := make(map[*node]*node)
	for n, to := range into {
		for _, c := range to.children {
			if _, taken := views[c]; c != n && c.Scope == to.Scope && a.tree.covers(n.Span, c.Span) && (c.isCall() || n.Role != schema.RoleModel) && (!taken || compareNodes(n, views[c]) < 0) {
				views[c] = n
			}
		}
	}
	a.tree.move(into)
	a.tree.move(views)
	a.tree.order(len(a.tree.nodes))
}

// hostOf is the latest of the node runs (in time's order) that holds n in time.
func (a *account) hostOf(n *node, runs []*execution) *execution {
	i, _ := slices.BinarySearchFunc(runs, n.StartNs+a.tree.slack, func(e *execution, at int64) int {
		if e.start <= at {
			return -1
		}
		return 1
	})
	for j := i - 1; j >= 0 && j >= i-maxOpen; j-- {
		if e := runs[j]; e.trace == n.TraceID && a.tree.covers(e.node.Span, n.Span) {
			return e
		}
	}
	return nil
}

// below tells whether a span above n satisfies test.
func below(n *node, test func(*node) bool) bool {
	for p := n.parent; p != nil; p = p.parent {
		if test(p) {
			return true
		}
	}
	return false
}

func (a *account) findExplicitExecutions() {
	outermost := make(map[string]*node) // of each step, the last span that began outside the one before
	stands := func(n *node) {
		if have := outermost[n.home.step]; have == nil || !have.holdsNode(n) {
			outermost[n.home.step] = n
		}
	}
	for _, n := range a.tree.nodes {
		if !statesExecution(n) || n.home != nil {
			continue
		}
		if above := outermost[n.Step]; above != nil && above.holdsNode(n) {
			continue // below one of the same step: it names where it belongs
		}
		if host := n.exec; host != nil && host.engine && n.parent == host.node && a.namesUnit(n, host) {
			host.step, host.named = n.Step, true // the only one directly below a unit of work: one execution
			stands(host.node)
			continue
		}
		// Explicit spans inside a node run of the same step are its executions.
		e := a.add(execution{step: n.Step, node: n})
		if host := n.exec; host != nil && host.engine && host.step == n.Step {
			host.view = true
			if host.own == nil {
				host.own = e
			}
		}
		stands(n)
	}
}

// namesUnit tells whether step span n, directly below an engine's unit of work, is
// that unit under the application's own name for it.
func (a *account) namesUnit(n *node, host *execution) bool {
	if n.Attempt > 0 || n.RetryLayer != "" || !strings.EqualFold(n.Step, host.step) && host.node.Dialect != "temporal" {
		return false
	}
	for _, c := range host.node.children {
		if c != n && statesExecution(c) {
			return false
		}
	}
	return true
}

// findStepsOfCalls makes executions of calls that name a step with no step span
// around them: the calls of one step under one parent are one execution.
func (a *account) findStepsOfCalls() {
	type place struct {
		trace  schema.TraceID
		parent schema.SpanID
		step   string
	}
	made := make(map[place]*execution)
	for _, n := range a.tree.nodes {
		if !statesStep(n) || statesExecution(n) || n.Role == schema.RoleAuxiliary || a.inStep(n) {
			continue
		}
		key := place{n.TraceID, n.ParentID, n.Step}
		e, ok := made[key]
		if !ok {
			e = a.add(execution{step: n.Step, trace: n.TraceID, start: n.StartNs, end: n.EndNs, unfinished: n.orphan})
			made[key] = e
		}
		e.join(n)
	}
}

// inStep tells whether n lies in an execution of the step that it names.
func (a *account) inStep(n *node) bool {
	for p := n; p != nil; p = p.parent {
		if p.exec != nil && p.exec.step == n.Step {
			return true
		}
	}
	return false
}
