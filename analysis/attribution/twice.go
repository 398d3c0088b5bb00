package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// A callback handler that an application registers twice, given to a graph and bound to
// it once more, shows each step, call and tool twice (langfuse #10914).
//
// A second view is told by the engine's task ids and by where it hangs, and by nothing
// else: equal names, inputs, tokens and instants are what a fan-out of equal calls has,
// and a hedged call, and a job that two workers took. An engine hangs the runs of a
// graph's nodes into the run of their graph, and executes a task once at a time. So
// where a graph's run hangs in another beside the run of a task, and holds a run of that
// task by the same instrumentation at that time, it is a view of what it hangs in.
// Handlers that begin traces of their own (in asynchronous code, and in JavaScript) are
// no such case: two workers that resume one thread at the same time look the same.

// twins are two spans of one instrumentation that may be two views of one thing.
type twins struct{ first, second *node }

// noteNodeRun notes n, the run of a node of its task, if it may be a second view of the
// run before it.
func (t *tree) noteNodeRun(n *node) {
	last := n.task.nodeRun
	n.task.nodeRun = n
	if last != nil && n.StartNs < last.EndNs && n.ParentID != last.ParentID && n.Scope == last.Scope && n.Name == last.Name &&
		n.Service == last.Service && n.WorkerID == last.WorkerID {
		t.twins = append(t.twins, twins{last, n})
	}
}

// foldSecondViews leaves one of two views, with all that hangs in either.
func (t *tree) foldSecondViews() {
	var graphs, runs []twins
	known := make(map[*node]bool)
	for _, p := range t.twins {
		graph := p.second.parent
		if !p.hangBeside(graph) {
			p = twins{p.second, p.first}
			if graph = p.second.parent; !p.hangBeside(graph) {
				continue
			}
		}
		switch {
		case graph.parent == nil: // the run that it is a view of has not come yet
			runs = append(runs, p)
		case !known[graph]:
			known[graph] = true
			graphs = append(graphs, twins{graph.parent, graph})
		}
	}
	// Of several views each hangs in the one before: the innermost first.
	slices.SortFunc(graphs, func(p, q twins) int { return compareNodes(q.second, p.second) })
	for _, p := range slices.Concat(graphs, runs) {
		for p.first.twin != nil {
			p.first = p.first.twin
		}
		if p.second.twin != nil || p.first == p.second {
			continue
		}
		if parent := p.second.parent; parent != p.first {
			parent.children = slices.DeleteFunc(parent.children, func(c *node) bool { return c == p.second })
		}
		t.fold(p)
	}
}

// hangBeside tells whether graph, which holds the second run of a node, hangs where the
// first does and is a run of the same graph as what both hang in.
func (p twins) hangBeside(graph *node) bool {
	if graph == nil || graph.Scope != p.second.Scope || graph.NodeRun == schema.FlagYes || graph.task == p.second.task ||
		graph.parent != p.first.parent || graph.ParentID != p.first.ParentID {
		return false
	}
	around := graph.parent
	return around == nil || around.Name == graph.Name && around.Scope == graph.Scope && around.task == graph.task
}

// fold makes one of two views, and of all that both show below them. What one of them
// lacks is left: spans may be lost, and a call may be given one handler alone.
func (t *tree) fold(views twins) {
	stack := []twins{views}
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		first := slices.DeleteFunc(p.first.children, func(c *node) bool { return c == p.second })
		second := p.second.children
		p.second.twin, p.second.parent, p.second.children, p.second.orphan = p.first, nil, nil, false
		t.folded++

		seen := pairViews(first, second)
		for _, c := range second {
			if a, twice := seen[c]; twice {
				stack = append(stack, twins{a, c})
				continue
			}
			c.parent = p.first
			first = append(first, c)
		}
		slices.SortFunc(first, compareNodes)
		p.first.children = first
	}
}

// pairViews pairs what two views hold: equal spans that overlap, in time's order.
func pairViews(first, second []*node) map[*node]*node {
	first, second = slices.Clone(first), slices.Clone(second)
	slices.SortStableFunc(first, compareViews)
	slices.SortStableFunc(second, compareViews)
	pairs := make(map[*node]*node, len(second))
	for i, j := 0, 0; i < len(first) && j < len(second); {
		a, b := first[i], second[j]
		order := compareViews(a, b)
		switch {
		case order < 0 || order == 0 && a.EndNs < b.StartNs:
			i++
		case order > 0 || b.EndNs < a.StartNs:
			j++
		default:
			pairs[b] = a
			i, j = i+1, j+1
		}
	}
	return pairs
}

// compareViews orders spans by what two views of one thing have in common.
func compareViews(a, b *node) int {
	if c := cmp.Or(
		strings.Compare(a.task.name(), b.task.name()), strings.Compare(a.Name, b.Name), strings.Compare(string(a.Role), string(b.Role)),
		cmp.Compare(a.InputHash, b.InputHash), strings.Compare(a.Scope, b.Scope), strings.Compare(a.Model, b.Model),
		strings.Compare(a.ErrorClass, b.ErrorClass), strings.Compare(string(a.Flow), string(b.Flow)),
		cmp.Compare(a.InputTokens, b.InputTokens), cmp.Compare(a.OutputTokens, b.OutputTokens), cmp.Compare(a.stated, b.stated),
	); c != 0 {
		return c
	}
	switch {
	case a.Failed == b.Failed:
		return 0
	case a.Failed:
		return -1
	}
	return 1
}
