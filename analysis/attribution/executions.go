package attribution

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// execution is one physical execution of a step.
type execution struct {
	step       string
	node       *node // its own span; nil where that never came or no span stands for it
	trace      schema.TraceID
	task       string // what all attempts of its task share, "" without an engine
	engine     bool   // known by an engine's task id
	site       bool   // a call site standing in for a step
	unfinished bool   // its calls came, what is around them never did
	counter    bool   // known only because a later attempt's number says it was there
	named      bool   // an engine's, under the name that the application gives it
	view       bool   // a node run whose executions the application's own spans show: their container
	outer      *execution
	inner      []*execution
	members    []*node // the spans that hang directly below it, where it has no span of its own
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

	wasted   bool  // it lies in a lost attempt, or is one
	wastedNs int64 // its own part of the time of outermost lost attempts
	waitNs   int64 // since the end of the attempt it repeats

	calls    []*callAttempt
	index    int // in Run.Attempts
	hidden   layerSet
	numbered bool // its clients number their attempts
}

// startsAfter tells whether e began when other had ended, give or take the clocks' grain.
func (e *execution) startsAfter(other *execution, slack int64) bool {
	return e.start >= other.end-slack && e.start >= other.start
}

// hookName matches an agent middleware's hooks, which show as nodes and are no steps.
var hookName = regexp.MustCompile(`\.(?:before|after)_(?:agent|model)$`)

// internalNode tells an engine's own nodes from the user's.
func internalNode(name string) bool {
	return strings.HasPrefix(name, "__") || hookName.MatchString(name)
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
	a.findCallSites()
	a.nest()
	a.nestExecutions()
	slices.SortFunc(a.executions, compareExecutions)
}

func compareExecutions(x, y *execution) int {
	return cmp.Or(
		cmp.Compare(x.start, y.start),
		cmp.Compare(x.end, y.end),
		slices.Compare(x.trace[:], y.trace[:]),
		strings.Compare(x.step, y.step),
		strings.Compare(x.task, y.task),
		compareIdentity(x.node, y.node),
	)
}

func compareIdentity(x, y *node) int {
	var a, b schema.SpanID
	if x != nil {
		a = x.SpanID
	}
	if y != nil {
		b = y.SpanID
	}
	return slices.Compare(a[:], b[:])
}

func (a *account) add(e *execution) *execution {
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
	byTask := make(map[taskOf]string)
	double := false
	for _, e := range a.executions {
		scopes[e.node.Scope]++
		key := taskOf{e.trace, e.task}
		if first, ok := byTask[key]; ok && first != e.node.Scope {
			double = true
		} else {
			byTask[key] = e.node.Scope
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
		if !statesStep(n) || len(byStep[n.Step]) == 0 || n.TaskKey != "" || below(n, func(p *node) bool { return p.TaskKey != "" || p.Step == n.Step }) {
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
	a.tree.order()
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
	for _, n := range a.tree.nodes {
		if !statesExecution(n) || n.home != nil {
			continue
		}
		if below(n, func(p *node) bool { return p.home != nil && (!p.home.engine || p.home.named) && p.home.step == n.Step }) {
			continue // below one of the same step: it names where it belongs
		}
		if host := n.exec; host != nil && host.engine && n.parent == host.node && a.namesUnit(n, host) {
			host.step, host.named = n.Step, true // the only one directly below a unit of work: one execution
			continue
		}
		// Explicit spans inside a node run of the same step are its executions.
		if host := n.exec; host != nil && host.engine && host.step == n.Step {
			host.view = true
		}
		a.add(&execution{step: n.Step, node: n})
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

// nestExecutions finds for every execution the one around it.
func (a *account) nestExecutions() {
	byTask := make(map[taskOf][]*execution)
	for _, e := range a.executions {
		if e.task != "" {
			byTask[taskOf{e.trace, e.task}] = append(byTask[taskOf{e.trace, e.task}], e)
		}
	}
	for _, e := range a.executions {
		top := e.node
		if top == nil && len(e.members) > 0 {
			top = e.members[0]
		}
		if top != nil && top.parent != nil {
			e.outer = top.parent.exec
		}
		if e.outer == nil {
			e.outer = outerTask(byTask, e)
		}
		if e.outer != nil {
			e.outer.inner = append(e.outer.inner, e)
		}
	}
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
			e = a.add(&execution{step: n.Step, trace: n.TraceID, start: n.StartNs, end: n.EndNs, unfinished: n.orphan})
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

// findCallSites lets the name of a call site stand in for the step where no step
// encloses a call: the outermost span of the library that made it. Calls of one site
// under one parent, each after a failed one, are one execution.
func (a *account) findCallSites() {
	type place struct {
		trace  schema.TraceID
		parent schema.SpanID
		name   string
	}
	last := make(map[place]*execution)
	tops := make(map[*node]bool)
	var order []*node
	for _, n := range a.tree.nodes {
		if n.exec != nil || !n.isCall() || n.shadow {
			continue
		}
		top, above := n, n
		hook := false // an agent middleware's hook is a call site of its own
		for p := n.parent; p != nil; p = p.parent {
			above = p
			if hook {
				continue
			}
			hook = hookName.MatchString(p.Name)
			if p.Role == schema.RoleChain || p.isCall() {
				top = p
			}
		}
		// The step around a call whose parent has not come yet is not known yet.
		if above.orphan && !above.GraphRoot && a.mayStillRun() {
			continue
		}
		if !tops[top] {
			tops[top] = true
			order = append(order, top)
		}
	}
	slices.SortFunc(order, compareNodes)
	for _, top := range order {
		name := siteName(top)
		key := place{top.TraceID, top.ParentID, numberless(name)}
		if a.group.joinedBy == "inferred" && top.ParentID.IsZero() { // siblings that are traces of their own
			key.trace = schema.TraceID{}
		}
		e := last[key]
		if e == nil || !failedUnit(e.members[len(e.members)-1]) || top.StartNs < e.end-a.tree.slack {
			e = a.add(&execution{step: name, trace: top.TraceID, site: true, start: top.StartNs, end: top.EndNs})
			last[key] = e
		}
		e.join(top)
	}
}

// siteName is the name that a library gives a call site, else the span's own.
func siteName(top *node) string {
	if top.Node != "" && (top.TaskKey == "" || hookName.MatchString(top.Node)) {
		return top.Node
	}
	return top.Name
}

// mayStillRun tells whether spans of the run may be on their way.
func (a *account) mayStillRun() bool {
	var last int64
	for _, n := range a.tree.nodes {
		last = max(last, n.EndNs)
	}
	return a.opts.AtNs-last <= a.opts.OrphanAfterNs
}

var numbers = regexp.MustCompile(`\d+`)

// numberless makes one name of names that differ in a number only.
func numberless(name string) string {
	if !strings.ContainsAny(name, "0123456789") {
		return name
	}
	return strings.TrimSpace(numbers.ReplaceAllString(name, "#"))
}
