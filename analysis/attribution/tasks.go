package attribution

import (
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
	if i := strings.LastIndexByte(n.TaskKey, '|'); i > 0 {
		return n.TaskKey[:i]
	}
	return ""
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
	if n.shadow || n.TaskKey == "" || n.Node == "" || n.NodeRun == schema.FlagNo || n.Hidden || internalNode(n.Node) {
		return false
	}
	if n.Role != schema.RoleChain && n.Role != schema.RoleOther {
		return false
	}
	if n.parent != nil && n.parent.TaskKey == n.TaskKey {
		return false
	}
	return n.NodeRun == schema.FlagYes || n.Name == n.Node
}

func (a *account) findEngineExecutions() {
	last := make(map[taskOf]*execution)
	var handlers []*node
	for _, n := range a.tree.nodes {
		if isNodeRun(n) {
			last[taskOf{n.TraceID, n.TaskKey}] = a.add(&execution{step: n.Node, node: n, task: n.TaskKey, engine: true})
		} else if errorHandled(n) != "" && (n.parent == nil || n.parent.TaskKey != n.TaskKey) {
			handlers = append(handlers, n)
		}
	}
	// An error handler is no step: it tells that the task used up its attempts, and
	// what it does is the failed step's.
	for _, n := range handlers {
		if e := last[taskOf{n.TraceID, errorHandled(n)}]; e != nil {
			e.handled = true
			n.home = e
		}
	}
}

// dropSecondView forgets one of two instrumentations that report the same tasks: the
// one that shows fewer, or of equals the one whose scope's name comes later.
func (a *account) dropSecondView() {
	scopes := make(map[string]int)
	byTask := make(map[string]*execution)
	double := false
	for _, e := range a.executions {
		scopes[e.node.Scope]++
		first, ok := byTask[e.task]
		if !ok {
			byTask[e.task] = e
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
		n.shadow = n.parent != nil && n.parent.shadow && n.Scope == n.parent.Scope || seen && n.Scope != best && (n.TaskKey != "" || n.GraphRoot)
	}
}

// findOrphanedExecutions finds executions whose own span never came but whose
// children did, and the executions around them.
func (a *account) findOrphanedExecutions() {
	known := make(map[taskOf][]*execution)
	anywhere := make(map[string][]*execution)
	for _, e := range a.executions {
		if e.task != "" {
			anywhere[e.task] = append(anywhere[e.task], e)
			known[taskOf{e.trace, e.task}] = append(known[taskOf{e.trace, e.task}], e)
		}
	}
	unknown := make(map[taskOf]*execution)
	for _, n := range a.tree.nodes {
		if n.shadow || n.TaskKey == "" || n.Node == "" || internalNode(n.Node) || n.parent != nil && n.parent.TaskKey == n.TaskKey {
			continue
		}
		if n.exec != nil && (n.exec.task == n.TaskKey || below(n, func(p *node) bool { return p.TaskKey == n.TaskKey })) {
			continue
		}
		key := taskOf{n.TraceID, n.TaskKey}
		// What an abandoned attempt still does when its run is over has no parent at all.
		if late := abandonedBefore(anywhere[n.TaskKey], n); n.ParentID.IsZero() && late != nil {
			late.members = append(late.members, n)
			n.home = late
			continue
		}
		e := lastBefore(known[key], n.StartNs)
		if e == nil || n.StartNs >= e.end { // none, or none that was still running
			if e = unknown[key]; e == nil {
				step := taskStep(n.TaskKey)
				if step == "" {
					step = n.Node
				}
				e = a.add(&execution{step: step, trace: n.TraceID, task: n.TaskKey, engine: true, start: n.StartNs, end: n.EndNs})
				unknown[key] = e
			}
		}
		if n.home == nil {
			e.join(n)
		}
	}
	// A namespace names the tasks around it: those that no span shows have not ended.
	for _, e := range slices.Clone(a.executions) {
		for task := e.task; ; {
			i := strings.LastIndexByte(task, '|')
			if i < 0 {
				break
			}
			task = task[:i]
			step, key := taskStep(task), taskOf{e.trace, task}
			if step == "" || internalNode(step) {
				continue
			}
			if around := lastBefore(known[key], e.start); around != nil && e.start <= around.end {
				continue
			}
			if outer := unknown[key]; outer != nil {
				outer.start, outer.end = min(outer.start, e.start), max(outer.end, e.end)
			} else if len(known[key]) == 0 || e.start > known[key][len(known[key])-1].end {
				unknown[key] = a.add(&execution{step: step, trace: e.trace, task: task, engine: true, start: e.start, end: e.end})
			}
		}
	}
}

// abandonedBefore is the last execution, in another trace, that did not end well before n began.
func abandonedBefore(list []*execution, n *node) *execution {
	var best *execution
	for _, e := range list {
		s := e.node.Span
		if e.trace != n.TraceID && e.start <= n.StartNs && (s.Failed || s.Flow == schema.FlowCancelled) && (best == nil || e.start > best.start) {
			best = e
		}
	}
	return best
}

// lastBefore is the execution that had begun last at an instant.
func lastBefore(list []*execution, instant int64) *execution {
	var best *execution
	for _, e := range list {
		if e.start <= instant && (best == nil || e.start > best.start) {
			best = e
		}
	}
	return best
}

// taskOf is one task within one trace.
type taskOf struct {
	trace schema.TraceID
	task  string
}

// outerTask is the execution of the task around e's own, by its namespace: tasks of
// the functional API are siblings of their entrypoint.
func outerTask(byTask map[taskOf][]*execution, e *execution) *execution {
	for task := e.task; ; {
		i := strings.LastIndexByte(task, '|')
		if i < 0 {
			return nil
		}
		task = task[:i]
		if outer := lastBefore(byTask[taskOf{e.trace, task}], e.start); outer != nil {
			return outer
		}
	}
}
