package attribution

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// summarise writes the account down as rows and the sums over them.
func (a *account) summarise() Run {
	end := &a.ended
	run := Run{
		RunID: a.group.runID, JoinedBy: a.group.joinedBy, Completion: a.completion(), Spans: len(a.group.spans),
		OrphanSpans: a.tree.orphans, EndNs: end.lastEnd, StartNs: a.group.spans[0].StartNs,
		Steps: []Step{}, ContractViolations: []ContractViolation{}, UnfinishedSteps: []string{}, Dialects: []string{},
	}
	run.Quarantined = quarantined(run.Completion)
	run.TraceIDs = traceNames(a.group.traces)
	a.describe(&run)
	slices.SortFunc(a.violations.list, func(x, y ContractViolation) int {
		return cmp.Or(cmp.Compare(x.TimeNs, y.TimeNs), strings.Compare(x.Node, y.Node), strings.Compare(x.Key, y.Key), strings.Compare(x.Direction, y.Direction))
	})
	run.ContractViolations = append(run.ContractViolations, a.violations.list...)

	a.writeRows(&run)
	a.writeSteps(&run)
	a.writeBudget(&run)
	run.Outcome = a.outcome(&run)
	run.UnfinishedSteps = append(run.UnfinishedSteps, a.unfinishedSteps(&run)...)
	a.countDeliveries(&run)
	run.Warnings = a.warn()
	return run
}

// traceNames writes trace ids, all in one text.
func traceNames(traces []schema.TraceID) []string {
	const size = 2 * len(schema.TraceID{})
	text := make([]byte, 0, size*len(traces))
	for _, t := range traces {
		text = hex.AppendEncode(text, t[:])
	}
	all := string(text)
	names := make([]string, len(traces))
	for i := range names {
		names[i] = all[i*size : (i+1)*size]
	}
	return names
}

// describe takes the run's names from its spans: the root's where it has them, else
// the first span's that has.
func (a *account) describe(run *Run) {
	facts := &a.tree.facts
	run.Service, run.Version, run.Environment, run.ThreadID = facts.service, facts.version, facts.environment, facts.thread
	if root := a.ended.root; root != nil {
		if root.Service != "" {
			run.Service, run.Version, run.Environment = root.Service, root.Version, root.Environment
		}
		run.ThreadID = orText(root.ThreadID, run.ThreadID)
	}
	run.NeedsReview = slices.ContainsFunc(facts.speaking, func(s *schema.Span) bool { return s.NeedsReview })
	run.Sampled = facts.sampled
	run.Dialects = append(run.Dialects, facts.dialects...)
	slices.Sort(run.Dialects)
}

// inside is the application's own execution, of those that a node's run holds, that a
// call at an instant belongs to: the last that had begun, else the first.
func (a *account) inside(host *execution, at int64) *execution {
	holds := func(e *execution) bool {
		return !e.view && e.step == host.step && e.trace == host.trace && (e.outer == host || e.start >= host.start && e.start <= host.end)
	}
	after, _ := slices.BinarySearchFunc(a.executions, at+1, func(e *execution, at int64) int { return cmp.Compare(e.start, at) })
	for i := after - 1; i >= max(0, after-maxSiblings); i-- {
		if holds(a.executions[i]) {
			return a.executions[i]
		}
	}
	for i := after; i < min(len(a.executions), after+maxSiblings); i++ {
		if holds(a.executions[i]) {
			return a.executions[i]
		}
	}
	return host.own
}

// writeRows lists all attempts, by time, each after the one that encloses it.
func (a *account) writeRows(run *Run) {
	operations := 0
	for _, e := range a.executions {
		if !e.view && e.charge == "" && !e.fallback {
			operations++
		}
	}
	for _, c := range a.calls {
		if c.exec.view {
			c.exec = a.inside(c.exec, c.start)
		}
		c.exec.callCount++
	}
	places := make([]*callAttempt, len(a.calls)) // one allocation for all executions
	for _, e := range a.executions {
		e.calls, places = places[:0:e.callCount], places[e.callCount:]
	}
	for _, c := range a.calls {
		c.exec.calls = append(c.exec.calls, c)
		if c.op.resolve().first == c {
			operations++
		}
	}
	rows := a.orderRows()
	for _, n := range a.tree.nodes { // parents before children
		if p := n.parent; p != nil && p.exec == n.exec {
			if n.inside = p.inside; p.attempt != nil && !p.isExecution() {
				n.inside = p.attempt
			}
		}
	}
	for i, at := range rows {
		if e, c := a.rowAt(at); e != nil {
			e.index = i
		} else {
			c.index = i
		}
	}
	run.Attempts = make([]Attempt, 0, len(rows))
	run.Operations = make([]Operation, 0, operations)
	for _, at := range rows {
		e, c := a.rowAt(at)
		if e != nil {
			run.Attempts = append(run.Attempts, a.executionRow(e))
			continue
		}
		op := c.op.resolve()
		if !op.written {
			op.index, op.written = len(run.Operations), true
			run.Operations = append(run.Operations, a.operationRow(op))
		}
		out := a.callRow(c)
		out.Operation = op.index
		run.Attempts = append(run.Attempts, out)
	}
}

// enclosing is the row of the nearest execution around e that is one.
func enclosing(e *execution) int {
	for o := e; o != nil; o = o.outer {
		if !o.view {
			return o.index
		}
	}
	return -1
}

func (a *account) executionRow(e *execution) Attempt {
	out := Attempt{
		Grain: GrainExecution, Step: e.step, Name: e.step, TraceID: e.trace, Parent: enclosing(e.outer), Operation: -1,
		Ordinal: max(1, e.ordinal), Charge: string(e.charge), Evidence: e.evidence, Ending: e.ending, Handled: e.handled,
		StartNs: e.start, EndNs: e.end, InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(),
		Counted: true, Violated: e.violated, Wasted: e.wasted, WastedMs: milliseconds(e.wastedNs), WaitMs: milliseconds(e.waitNs), ViewOf: -1,
	}
	if out.Evidence == "" {
		out.Evidence = EvidenceStructure
	}
	if e.fallback {
		out.Charge, out.FallbackFrom, out.FallbackReason = ChargeFallback, e.node.FallbackFrom, orText(e.node.FallbackReason, e.prev.errorClass)
	}
	if e.ending != EndingSucceeded {
		out.ErrorClass, out.HTTPStatus = e.errorClass, e.httpStatus
	}
	if e.node != nil {
		out.SpanID, out.Name = e.node.SpanID, e.node.Name
	}
	return out
}

func (a *account) callRow(c *callAttempt) Attempt {
	out := Attempt{
		Grain: c.grain, Step: c.exec.step, Name: c.exec.step, TraceID: c.exec.trace, Parent: enclosing(c.exec),
		Ordinal: max(1, c.ordinal), Charge: c.charge, Evidence: c.evidence, Ending: EndingUnknown,
		ErrorClass: c.errorClass, HTTPStatus: c.httpStatus, FallbackFrom: c.from, FallbackReason: c.reason,
		StartNs: c.start, EndNs: c.end, InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(),
		Counted: c.counted, Wasted: c.wasted, WastedMs: milliseconds(c.wastedNs), WaitMs: milliseconds(c.waitNs), ViewOf: -1,
	}
	n := c.node
	if n == nil {
		out.Request = (c.errorClass != "" || c.httpStatus != 0) && c.charge != ChargeFallback
		out.Provider = c.op.resolve().provider
		return out
	}
	// A send that was repeated although it looks well does not show how it ended.
	out.Request = c.counted && (c.grain == GrainHTTP && (c.failed || !n.continued) || c.grain == GrainCall && !n.sending)
	out.Midway = c.grain == GrainCall && c.failed && brokeMidway(n)
	out.SpanID, out.TraceID, out.Name, out.Model, out.Provider = n.SpanID, n.TraceID, n.Name, n.Model, providerOf(n)
	out.Ending = EndingSucceeded
	switch {
	case c.failed:
		out.Ending = EndingFailed
	case n.Flow == schema.FlowInterrupt:
		out.Ending = EndingInterrupted
	case n.Flow == schema.FlowCancelled, n.Flow == schema.FlowAbandoned:
		out.Ending = EndingCancelled
	}
	if n.inside != nil {
		out.Parent = n.inside.index
	}
	if c.grain == GrainCall {
		out.InputTokens, out.OutputTokens, out.CostUSD = n.InputTokens, n.OutputTokens, n.CostUSD
	}
	return out
}

// brokeMidway tells whether failed call n had begun to answer: what it said was
// counted, or its status was well, or the reason for its end is an error.
func brokeMidway(n *node) bool {
	return n.OutputTokens > 0 || n.HTTPStatus >= 200 && n.HTTPStatus < 300 || strings.EqualFold(n.FinishReason, "error")
}

// providerOf is the provider that the request of n went to: a send's is that of the
// call around it.
func providerOf(n *node) string {
	if n.Provider != "" || !n.isSend() {
		return n.Provider
	}
	for p, up := n.parent, 0; p != nil && p.exec == n.exec && up < maxUp; p, up = p.parent, up+1 {
		if p.Provider != "" && p.Role == schema.RoleModel {
			return p.Provider
		}
	}
	return ""
}

// firstProvider is that of the operation's first attempt that states one.
func (o *operation) firstProvider() string {
	for c := range o.attempts {
		if c.node != nil && c.node.Provider != "" {
			return c.node.Provider
		}
	}
	return ""
}

func milliseconds(ns int64) float64 { return float64(ns) / 1e6 }

func (a *account) operationRow(op *operation) Operation {
	op.sort()
	last := op.last
	out := Operation{
		Step: op.exec.step, Grain: op.grain, TraceID: op.exec.trace, Attempts: op.count, Limit: op.limit,
		StartNs: op.first.start, EndNs: last.end,
		Outcome: op.outcome(func(e *execution) bool { return e.ending == EndingSucceeded || e.handled }),
	}
	classes := make([]string, 0, op.count)
	for c := range op.attempts {
		switch c.charge {
		case "":
		case ChargeFallback:
			out.Fallbacks++
		default:
			out.Retries++
		}
		if class := c.lostClass(); class != "" {
			out.FirstError = orText(out.FirstError, class)
			out.LastError = class
			classes = append(classes, class)
		}
	}
	op.provider = op.firstProvider()
	out.Provider = op.provider
	out.Futile = futile(classes, op.count)
	switch out.Outcome {
	case OutcomeFailed, OutcomeFailedAfterRetry, OutcomeHandled:
		out.Settled = a.settledCall(op)
	case OutcomeFirstTry, OutcomeAfterRetry, OutcomeByFallback, OutcomeInterrupted, OutcomeCancelled, OutcomeUnknown:
		out.Settled = true
	}
	return out
}

// lostClass is the error of an attempt that did not do what was wanted, "" of one that did.
func (c *callAttempt) lostClass() string {
	if c.failed {
		return c.errorClass
	}
	if c.unit != nil && failedUnit(c.unit) {
		return c.unit.ErrorClass
	}
	return ""
}

// futile: all attempts, two at least, failed with one class.
func futile(classes []string, attempts int) bool {
	return attempts >= 2 && len(classes) == attempts && len(slices.Compact(slices.Clone(classes))) == 1
}

func (a *account) outcome(run *Run) string {
	end := &a.ended
	switch {
	case end.root == nil:
		return "killed_or_running"
	case end.cancelled:
		return "cancelled"
	case end.failed:
		return "error"
	case end.interrupted:
		return "interrupted"
	}
	for _, s := range run.Steps {
		switch s.Outcome {
		case OutcomeHandled, OutcomeFailed, OutcomeFailedAfterRetry:
			return "handled_error"
		case OutcomeFirstTry, OutcomeAfterRetry, OutcomeByFallback, OutcomeInterrupted, OutcomeCancelled, OutcomeUnknown:
		}
	}
	if end.graphFailed {
		return "handled_error"
	}
	return "ok"
}

// unfinishedSteps are those the flag lists; without a list, of a run that did not
// end well, the steps whose last execution did not.
func (a *account) unfinishedSteps(run *Run) []string {
	if a.ended.complete != schema.FlagUnset && len(a.ended.unfinished) > 0 {
		return a.ended.unfinished
	}
	if run.Completion == "complete" || run.Completion == "unflagged" {
		return nil
	}
	var out []string
	for _, s := range run.Steps {
		switch s.Outcome {
		case OutcomeFailed, OutcomeFailedAfterRetry, OutcomeHandled, OutcomeInterrupted, OutcomeCancelled, OutcomeUnknown:
			out = append(out, s.Step)
		case OutcomeFirstTry, OutcomeAfterRetry, OutcomeByFallback:
		}
	}
	return out
}

// countDeliveries counts how often the run was started: the stated number, or the
// traces that went on with what an earlier trace had begun.
func (a *account) countDeliveries(run *Run) {
	var again map[schema.TraceID]bool
	goneOn := func(trace schema.TraceID) {
		if again == nil {
			again = make(map[schema.TraceID]bool, len(a.group.traces))
		}
		again[trace] = true
	}
	tasks := &a.tree.tasks
	tasks.begin()
	for _, e := range a.executions {
		if e.prev != nil && a.delivered(e, e.prev) {
			goneOn(e.trace)
		}
		if e.task == nil {
			continue
		}
		if first := tasks.noted(e.task.anywhere); first == nil {
			tasks.note(e.task.anywhere, e)
		} else if first.trace != e.trace {
			goneOn(e.trace)
		}
	}
	run.Deliveries = 1 + len(again)
	for _, s := range a.tree.facts.speaking {
		run.Deliveries = max(run.Deliveries, int(s.RunAttempt))
	}
	run.PoisonPill = a.opts.MaxResumes > 0 && run.Deliveries > a.opts.MaxResumes && run.Completion != "complete" && run.Completion != "unflagged"
}

func (a *account) writeBudget(run *Run) {
	b := Budget{RunLimit: a.opts.RunLimit, StepLimit: a.opts.StepLimit}
	var runEnd, stepEnd int64 = -1, -1
	for _, s := range a.tree.facts.speaking {
		if s.RunLimit > 0 && s.EndNs >= runEnd {
			runEnd, b.RunLimit = s.EndNs, int(s.RunLimit)
		}
		if s.StepLimit > 0 && s.EndNs >= stepEnd {
			stepEnd, b.StepLimit = s.EndNs, int(s.StepLimit)
		}
		b.Exhausted = b.Exhausted || s.BudgetExhausted
	}
	for _, s := range run.Steps {
		if s.RetriesTotal != nil {
			b.Retries += *s.RetriesTotal
		}
	}
	b.Exhausted = b.Exhausted || b.RunLimit > 0 && b.Retries >= b.RunLimit
	run.Budget = b
}

// factors writes a factorisation, outermost first, ones left out.
func factors(numbers ...int) string {
	var parts []string
	for _, n := range numbers {
		if n > 1 {
			parts = append(parts, strconv.Itoa(n))
		}
	}
	if len(parts) == 0 {
		return "1"
	}
	return strings.Join(parts, "×")
}
