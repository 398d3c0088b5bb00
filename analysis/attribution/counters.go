package attribution

import (
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// Attempts that only numbers, events, counters or texts tell of.

// countedExecutions brings to life the executions that a step's own counter tells of,
// where it says that a layer of steps repeated it (retry.layer beside retry.count).
func (a *account) countedExecutions() {
	for _, e := range slices.Clone(a.executions) {
		if e.node == nil || e.view || !stepLayer(e.layer) || e.next != nil && len(e.node.RetryEvents) > 0 {
			continue
		}
		count := a.invent(max(len(e.node.RetryEvents), int(e.node.RetryCount)))
		if count <= 0 {
			continue
		}
		prev, charge, evidence := e.prev, e.charge, e.evidence
		for i := range count {
			lost := &execution{step: e.step, number: e.number, trace: e.trace, counter: true, outer: e.outer, start: e.start, end: e.start, ending: EndingUnknown, ordinal: i + 1}
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

// missing brings to life the attempts before e that only e's number tells of.
func (a *account) missing(e *execution) {
	if e.attempt > maxGap || a.invent(e.attempt-1) < e.attempt-1 {
		return
	}
	layer := LayerNode
	if e.layer == LayerOrchestrator || e.layer == LayerWorker {
		layer = e.layer
	}
	var p *execution
	for n := 1; n < e.attempt; n++ {
		lost := &execution{step: e.step, number: e.number, trace: e.trace, counter: true, outer: e.outer, start: e.start, end: e.start,
			ending: EndingUnknown, ordinal: n, attempt: n, evidence: e.evidence}
		if p != nil {
			link(lost, p, layer, e.evidence)
		}
		a.executions = append(a.executions, lost)
		p = lost
	}
	link(e, p, layer, Evidence(e.node.AttemptEvidence))
}

// chargeCounters adds the repeats that only events, counters or texts tell of. Where
// an attempt shows twice, the larger number counts, once.
func (a *account) chargeCounters() {
	for _, c := range a.calls {
		switch {
		case c.node == nil:
		case c.charge == ChargeFallback:
			c.node.fallbacksBelow++
		case c.charge == string(LayerTransport):
			c.node.retriesBelow[0]++
		case c.charge == string(LayerCall):
			c.node.retriesBelow[1]++
		}
	}
	for i := len(a.tree.nodes) - 1; i >= 0; i-- { // children before parents
		if n := a.tree.nodes[i]; n.parent != nil && n.home == nil { // within the execution only
			n.parent.fallbacksBelow += n.fallbacksBelow
			n.parent.retriesBelow[0] += n.retriesBelow[0]
			n.parent.retriesBelow[1] += n.retriesBelow[1]
		}
	}
	var marks []*node // spans that stand beside the attempts they tell of
	for _, n := range a.tree.nodes {
		switch {
		case n.exec == nil:
		case n.Role == schema.RoleAuxiliary && (n.RetryCount > 0 || n.FallbackEvents > 0):
			marks = append(marks, n)
		default:
			a.chargeCounter(n)
			for range int(n.FallbackEvents) - int(n.fallbacksBelow) {
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

func (a *account) chargeCounter(n *node) {
	if len(n.RetryEvents) == 0 && n.RetryCount <= 0 && n.ResendCount <= 0 && n.StatedAttempts <= 1 {
		return
	}
	seen := map[Layer]int{LayerTransport: int(n.retriesBelow[0]), LayerCall: int(n.retriesBelow[1])}
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
	extra := a.invent(count - seen[layer])
	op, first := operationOf(n), 0
	if op == nil && extra > 0 {
		op, first = &operation{exec: n.exec, grain: GrainWork}, 1 // repeats of one thing, whose first try has no row
	}
	for i := range extra {
		instant, class, status := n.EndNs, "", 0
		if at := len(n.RetryEvents) - extra + i; evidence == EvidenceEvent && at >= 0 {
			ev := n.RetryEvents[at]
			instant, class, status = ev.TimeNs, ev.ErrorClass, int(ev.HTTPStatus)
		}
		a.spanless(n.exec, layer, instant, evidence, class, status, op).ordinal += first
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

const (
	// maxRepeats bounds the attempts that one counter may bring to life.
	maxRepeats = 10_000
	// maxInvented bounds those of all the numbers of a run: a few bytes must not fill
	// the memory.
	maxInvented = 100_000
)

// invent is how many of so many attempts that only a number tells of may be brought to life.
func (a *account) invent(attempts int) int {
	n := min(attempts, maxRepeats, maxInvented-a.invented)
	a.invented += max(0, n)
	return n
}

// operationOf is the operation that a span's own counter counts repeats of.
func operationOf(n *node) *operation {
	if n.attempt != nil {
		return n.attempt.op.resolve()
	}
	return nil
}
