package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Who repeated a step, and which of several steps is charged.

// placeViolations gives each contract violation to the execution it belongs to: the
// one of its node that was open at its time, else the last before it. Within one
// execution a violation counts once, however many spans repeat it.
func (a *account) placeViolations() {
	type once struct {
		exec           *execution
		node, key, dir string
	}
	seen := make(map[once]bool)
	byStep := make(map[string][]*execution)
	for _, e := range a.executions {
		byStep[e.step] = append(byStep[e.step], e)
	}
	for _, n := range a.tree.nodes {
		for _, v := range n.Violations {
			e := enclosingStep(n, v.Node)
			if e == nil {
				e = executionAt(byStep[v.Node], n.TraceID, v.TimeNs)
			}
			if e != nil {
				e.violated = true
			}
			id := once{e, v.Node, v.Key, v.Direction}
			if seen[id] {
				continue
			}
			seen[id] = true
			a.violations = mergeViolation(a.violations, v, n.TraceID, 1)
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

// executionAt is the execution (of one step, in time's order) open at an instant, else the last before it.
func executionAt(list []*execution, trace schema.TraceID, instant int64) *execution {
	var open, before *execution
	for _, e := range list {
		if e.trace != trace || e.view || e.start > instant {
			continue
		}
		if e.end >= instant {
			open = e
		}
		before = e
	}
	if open != nil {
		return open
	}
	return before
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

// chargeExecutions decides for every execution whether it is a visit or a repeat,
// and in which layer.
func (a *account) chargeExecutions() {
	a.failedModel = make(map[*execution]bool)
	for _, c := range a.calls {
		if c.grain == GrainCall && c.failed {
			a.failedModel[c.exec] = true
		}
	}
	bySteps := make(map[string][]*execution)
	var steps []string
	for _, e := range a.executions {
		a.judge(e)
		if _, ok := bySteps[e.step]; !ok {
			steps = append(steps, e.step)
		}
		bySteps[e.step] = append(bySteps[e.step], e)
	}
	a.passFailureIn()
	// Outer steps first, and node runs before the application's own spans inside them:
	// the layer that repeated what is around a step is the layer that repeated it.
	depth := make(map[string]int, len(steps))
	for _, step := range steps {
		depth[step] = bySteps[step][0].depth()
	}
	slices.SortFunc(steps, func(x, y string) int { return cmp.Or(cmp.Compare(depth[x], depth[y]), strings.Compare(x, y)) })
	for _, step := range steps {
		var views, own []*execution
		for _, e := range bySteps[step] {
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

func (e *execution) depth() int {
	n := 0
	for o := e.outer; o != nil; o = o.outer {
		n++
	}
	return n
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

// chargeStep charges the executions of one step, in time's order.
func (a *account) chargeStep(list []*execution) {
	byTask := make(map[string]*execution) // the last attempt of a task
	var open openExecutions
	for _, e := range list {
		e.ordinal = max(1, e.attempt)
		p := byTask[e.task]
		switch {
		case e.task != "" && p != nil:
			a.repeatTask(e, p)
		default:
			if p = a.reentered(e, &open); p == nil {
				p = a.abandoned(e, &open)
			}
			if p != nil {
				a.repeatEntry(e, p)
			} else if e.task == "" && e.attempt >= 2 {
				a.missing(e)
			}
		}
		if e.task != "" {
			byTask[e.task] = e
		}
		open.add(e)
	}
}

// openExecutions are the executions of a step that a later one may repeat, in time's order.
type openExecutions struct {
	unsuccessful []*execution // they failed or never ended: any later entry may repeat them
	all          []*execution // only an entry that states a number may repeat a success
}

func (o *openExecutions) add(e *execution) {
	o.all = append(o.all, e)
	if e.failed || e.ending != EndingSucceeded {
		o.unsuccessful = append(o.unsuccessful, e)
	}
}

// maxOpen bounds how far back the repeated execution is looked for, so that the cost
// of a run stays linear in its size.
const maxOpen = 512

// candidates visits what e may repeat, the latest first, and forgets what is repeated already.
func (o *openExecutions) candidates(e *execution, visit func(*execution)) {
	list := &o.unsuccessful
	if e.task == "" && e.attempt >= 2 {
		list = &o.all
	}
	for i, seen := len(*list)-1, 0; i >= 0 && seen < maxOpen; i-- {
		p := (*list)[i]
		if p.next != nil {
			*list = slices.Delete(*list, i, i+1) // near the end: what is repeated is recent
			continue
		}
		seen++
		visit(p)
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
	case e.task == "" && e.attempt >= 2:
		layer = LayerNode // a number is a policy's
	}
	if e.task == "" && e.attempt == 0 {
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

// countedExecutions brings to life the executions that a step's own counter tells of,
// where it says that a layer of steps repeated it (retry.layer beside retry.count).
func (a *account) countedExecutions() {
	for _, e := range slices.Clone(a.executions) {
		if e.node == nil || e.view || !stepLayer(e.layer) || e.next != nil && len(e.node.RetryEvents) > 0 {
			continue
		}
		count := min(max(len(e.node.RetryEvents), int(e.node.RetryCount)), maxRepeats)
		if count <= 0 {
			continue
		}
		prev, charge, evidence := e.prev, e.charge, e.evidence
		for i := range count {
			lost := &execution{step: e.step, trace: e.trace, counter: true, outer: e.outer, start: e.start, end: e.start, ending: EndingUnknown, ordinal: i + 1}
			if i == 0 {
				lost.prev, lost.charge, lost.evidence = prev, charge, evidence
				if prev != nil {
					prev.next = lost
				}
			} else {
				link(lost, prev, e.layer, EvidenceAttribute)
			}
			a.executions = append(a.executions, lost)
			prev = lost
		}
		link(e, prev, e.layer, EvidenceAttribute)
		e.counted = true
	}
}

// abandoned finds the attempt before a numbered one that still runs beside it.
func (a *account) abandoned(e *execution, open *openExecutions) *execution {
	if e.task != "" || e.attempt < 2 {
		return nil
	}
	var best *execution
	open.candidates(e, func(p *execution) {
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
	open.candidates(e, func(p *execution) {
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

// otherInput tells two calls of a function for different inputs from a repeat: tasks
// of the functional API, and graphs that a step invokes once per item. The input of a
// graph's node is the state, which differs in any repeat.
func otherInput(e, p *execution) bool {
	x, y := e.node, p.node
	if x == nil || y == nil || e.task == "" || e.outer != p.outer {
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
	case e.task == "" && e.attempt >= 2: // an explicit number counts whatever came before
		return p.ordinal < e.attempt && !a.delivered(e, p) || p.failed
	case e.attempt == 1 && e.task == "" && p.failed:
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
		if x.trace != y.trace || x.task == "" || y.task == "" || x.task == y.task {
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

// missing brings to life the attempts before e that only e's number tells of.
func (a *account) missing(e *execution) {
	if e.attempt > maxGap {
		return
	}
	layer := LayerNode
	if e.layer == LayerOrchestrator || e.layer == LayerWorker {
		layer = e.layer
	}
	var p *execution
	for n := 1; n < e.attempt; n++ {
		lost := &execution{step: e.step, trace: e.trace, counter: true, outer: e.outer, start: e.start, end: e.start,
			ending: EndingUnknown, ordinal: n, attempt: n, evidence: e.evidence}
		if p != nil {
			link(lost, p, layer, e.evidence)
		}
		a.executions = append(a.executions, lost)
		p = lost
	}
	link(e, p, layer, Evidence(e.node.AttemptEvidence))
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

// chargeCounters adds the repeats that only events, counters or texts tell of. Where
// an attempt shows twice, the larger number counts, once.
func (a *account) chargeCounters() {
	seen := make(map[*node]map[Layer]int) // charges at or below a span, by layer
	fallbacks := make(map[*node]int)
	for _, c := range a.calls {
		if c.charge == "" || c.node == nil {
			continue
		}
		for n := c.node; n != nil; n = n.parent {
			if c.charge == ChargeFallback {
				fallbacks[n]++
			} else {
				if seen[n] == nil {
					seen[n] = make(map[Layer]int)
				}
				seen[n][Layer(c.charge)]++
			}
			if n.isExecution() || n.home != nil && n.home == c.exec {
				break
			}
		}
	}
	var marks []*node // spans that stand beside the attempts they tell of
	for _, n := range a.tree.nodes {
		switch {
		case n.exec == nil:
		case n.Role == schema.RoleAuxiliary && (n.RetryCount > 0 || n.FallbackEvents > 0):
			marks = append(marks, n)
		default:
			a.chargeCounter(n, seen[n])
			for range int(n.FallbackEvents) - fallbacks[n] {
				a.spanlessFallback(n)
			}
		}
	}
	a.chargeMarks(marks)
}

// chargeMarks charges what marks tell of beyond what the attempts of their execution show.
func (a *account) chargeMarks(marks []*node) {
	if len(marks) == 0 {
		return
	}
	type charge struct {
		exec *execution
		what string
	}
	shown := make(map[charge]int)
	for _, c := range a.calls {
		shown[charge{c.exec, c.charge}]++
	}
	for _, n := range marks {
		what := charge{n.exec, string(layerOf(n))}
		if n.FallbackEvents > 0 {
			what.what = ChargeFallback
		}
		switch {
		case shown[what] > 0:
			shown[what]--
		case n.FallbackEvents > 0:
			a.spanlessFallback(n)
		default:
			a.spanless(n.exec, layerOf(n), n.EndNs, EvidenceAttribute, n.ErrorClass, int(n.HTTPStatus), nil)
		}
	}
}

func (a *account) spanlessFallback(n *node) {
	c := a.spanless(n.exec, "", n.EndNs, EvidenceEvent, "", 0, operationOf(n))
	c.charge, c.from, c.reason = ChargeFallback, n.FallbackFrom, n.FallbackReason
}

func (a *account) chargeCounter(n *node, seen map[Layer]int) {
	layer := layerOf(n)
	if n.isExecution() && n.home.counted {
		return
	}
	if n.isCall() {
		layer = LayerTransport // repeats inside one call
		if l := Layer(n.RetryLayer); l == LayerCall {
			layer = l
		}
	}
	count := max(len(n.RetryEvents), int(n.RetryCount))
	if count > int(n.RetryCount) && !n.isCall() && (n.continued || n.isExecution() && n.home.next != nil && n.home.next.charge != "") {
		count-- // the event announces the next attempt, which has a span of its own
	}
	evidence := EvidenceEvent
	if int(n.RetryCount) > len(n.RetryEvents) {
		evidence = EvidenceAttribute
		if a.markedBefore(n) {
			return
		}
	}
	if n.ResendCount > 0 && (n.isCall() || !n.isSend()) && int(n.ResendCount) > count {
		count, layer, evidence = int(n.ResendCount), LayerTransport, EvidenceAttribute
	}
	// A text counts all attempts of all layers below it.
	if stated := int(n.StatedAttempts) - 1; stated > count && stated > seen[LayerCall]+seen[LayerTransport] && n.home != nil {
		count, layer, evidence = stated, LayerCall, EvidenceMessage
	}
	extra := min(count-seen[layer], maxRepeats)
	for i := range extra {
		instant, class, status := n.EndNs, "", 0
		if at := len(n.RetryEvents) - extra + i; evidence == EvidenceEvent && at >= 0 {
			ev := n.RetryEvents[at]
			instant, class, status = ev.TimeNs, ev.ErrorClass, int(ev.HTTPStatus)
		}
		a.spanless(n.exec, layer, instant, evidence, class, status, operationOf(n))
	}
}

// markedBefore: one re-prompt answers all tools of a turn that asked for it, so that
// of several marked siblings between two model calls the first counts.
func (a *account) markedBefore(n *node) bool {
	if n.Role != schema.RoleTool || Layer(n.RetryLayer) != LayerCall || n.parent == nil {
		return false
	}
	for i := slices.Index(n.parent.children, n) - 1; i >= 0; i-- {
		switch c := n.parent.children[i]; {
		case c.Role == schema.RoleModel:
			return false
		case c.Role == schema.RoleTool && Layer(c.RetryLayer) == LayerCall && c.RetryCount == n.RetryCount:
			return true
		}
	}
	return false
}

// maxRepeats bounds the attempts that one counter may bring to life.
const maxRepeats = 10_000

// operationOf is the operation that a span's own counter counts repeats of.
func operationOf(n *node) *operation {
	if n.attempt != nil {
		return n.attempt.op.resolve()
	}
	return nil
}
