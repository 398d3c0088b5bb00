package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Executions that an engine's task ids tell of.

// isHook tells an agent middleware's hooks, which show as nodes and are no steps.
func isHook(name string) bool {
	for _, hook := range [...]string{".before_agent", ".before_model", ".after_agent", ".after_model"} {
		if strings.HasSuffix(name, hook) {
			return true
		}
	}
	return false
}

// internalNode tells an engine's own nodes from the user's.
func internalNode(name string) bool {
	return strings.HasPrefix(name, "__") || isHook(name)
}

// errorHandled is the task that an error handler's node ran for, "" if n is none:
// its namespace is the failed task's own with the handler's added.
func errorHandled(n *node) string {
	if !strings.HasPrefix(n.Node, "__") || !strings.Contains(n.Node, "error_handler") {
		return ""
	}
	return namespace(n.task.name())
}

// taskStep is the node's name in the last segment of a task key, "" where the
// segment carries no task id.
func taskStep(task string) string {
	last := task[strings.LastIndexByte(task, '|')+1:]
	if i := strings.IndexByte(last, ':'); i > 0 {
		return last[:i]
	}
	return ""
}

// isNodeRun: metadata is inherited by all descendants, so a node's own run is the
// span of the node's name whose parent belongs to another task.
func isNodeRun(n *node) bool {
	if n.shadow || n.task == nil || n.Node == "" || n.NodeRun == schema.FlagNo || n.Hidden || internalNode(n.Node) {
		return false
	}
	if n.Role != schema.RoleChain && n.Role != schema.RoleOther {
		return false
	}
	if n.parent != nil && n.parent.task == n.task {
		return false
	}
	return n.NodeRun == schema.FlagYes || n.Name == n.Node
}

func (a *account) findEngineExecutions() {
	tasks := &a.tree.tasks
	tasks.begin()
	var handlers []*node
	for _, n := range a.tree.nodes {
		if isNodeRun(n) {
			tasks.note(n.task, a.add(execution{step: n.Node, node: n, task: n.task, engine: true}))
		} else if errorHandled(n) != "" && (n.parent == nil || n.parent.task != n.task) {
			handlers = append(handlers, n)
		}
	}
	// An error handler is no step: it tells that the task used up its attempts, and
	// what it does is the failed step's.
	for _, n := range handlers {
		if e := tasks.noted(tasks.find(n.TraceID, errorHandled(n))); e != nil {
			e.handled = true
			n.home = e
		}
	}
}

// dropSecondView forgets one of two instrumentations that report the same tasks: the
// one that shows fewer, or of equals the one whose scope's name comes later.
func (a *account) dropSecondView() {
	scopes := make(map[string]int)
	tasks := &a.tree.tasks
	tasks.begin()
	double := false
	for _, e := range a.executions {
		scopes[e.node.Scope]++
		first := tasks.noted(e.task.anywhere)
		if first == nil {
			tasks.note(e.task.anywhere, e)
		} else if first.node.Scope != e.node.Scope && (first.trace == e.trace || e.start <= first.end && first.start <= e.end) {
			double = true
		}
	}
	if !double {
		return
	}
	best := ""
	for scope, n := range scopes {
		if best == "" || n > scopes[best] || n == scopes[best] && scope > best {
			best = scope
		}
	}
	kept := a.executions[:0]
	for _, e := range a.executions {
		if e.node.Scope == best {
			kept = append(kept, e)
		} else {
			e.node.home = nil
		}
	}
	a.executions = kept
	// What the other saw of a graph is no work of its own.
	for _, n := range a.tree.nodes {
		_, seen := scopes[n.Scope]
		n.shadow = n.parent != nil && n.parent.shadow && n.Scope == n.parent.Scope || seen && n.Scope != best && (n.task != nil || n.GraphRoot)
	}
}

// findOrphanedExecutions finds executions whose own span never came but whose
// children did, and the executions around them.
func (a *account) findOrphanedExecutions() {
	tasks := &a.tree.tasks
	tasks.hold(a.executions)
	abandoned := abandonedByTask(a.executions)
	for _, n := range a.tree.nodes {
		if n.shadow || n.task == nil || n.Node == "" || internalNode(n.Node) || n.parent != nil && n.parent.task == n.task {
			continue
		}
		if n.exec != nil && (n.exec.task == n.task || below(n, func(p *node) bool { return p.task == n.task })) {
			continue
		}
		// What an abandoned attempt still does when its run is over has no parent at all.
		if n.ParentID.IsZero() {
			if attempts := abandoned[n.task.anywhere]; attempts != nil {
				if late := attempts.before(n.StartNs, n.TraceID); late != nil {
					late.members = append(late.members, n)
					n.home = late
					continue
				}
			}
		}
		e := lastBefore(n.task.executions, n.StartNs)
		if e == nil || n.StartNs >= e.end { // none, or none that was still running
			if e = n.task.unseen; e == nil {
				step := taskStep(n.task.key)
				if step == "" {
					step = n.Node
				}
				e = a.add(execution{step: step, trace: n.TraceID, task: n.task, engine: true, start: n.StartNs, end: n.EndNs})
				n.task.unseen = e
			}
		}
		if n.home == nil {
			e.join(n)
		}
	}
	// A namespace names the tasks around it: those that no span shows have not ended.
	for _, e := range slices.Clone(a.executions) {
		for key := namespace(e.task.name()); key != ""; key = namespace(key) {
			step := taskStep(key)
			if step == "" || internalNode(step) {
				continue
			}
			around := tasks.of(e.trace, key)
			if last := lastBefore(around.executions, e.start); last != nil && e.start <= last.end {
				continue
			}
			if outer := around.unseen; outer != nil {
				outer.start, outer.end = min(outer.start, e.start), max(outer.end, e.end)
			} else if known := around.executions; len(known) == 0 || e.start > known[len(known)-1].end {
				around.unseen = a.add(execution{step: step, trace: e.trace, task: around, engine: true, start: e.start, end: e.end})
			}
		}
	}
}

// lastBefore is the execution, of a list in time's order, that had begun last at an
// instant; of several the first.
func lastBefore(list []*execution, instant int64) *execution {
	after, _ := slices.BinarySearchFunc(list, instant, func(e *execution, at int64) int {
		if e.start <= at {
			return -1
		}
		return 1
	})
	if after == 0 {
		return nil
	}
	first, _ := slices.BinarySearchFunc(list[:after], list[after-1].start, func(e *execution, at int64) int { return cmp.Compare(e.start, at) })
	return list[first]
}

// outerTask is the execution of the task around e's own, by its namespace: tasks of
// the functional API are siblings of their entrypoint.
func (a *account) outerTask(e *execution) *execution {
	for key := namespace(e.task.name()); key != ""; key = namespace(key) {
		if around := a.tree.tasks.find(e.trace, key); around != nil {
			if outer := lastBefore(around.executions, e.start); outer != nil {
				return outer
			}
		}
	}
	return nil
}
