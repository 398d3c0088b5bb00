package attribution

import (
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// How runs, visits and operations ended.

// runEnd is how a run ended, as far as its spans say.
type runEnd struct {
	root        *node // of the last trace that holds work; nil if it never came
	failed      bool
	cancelled   bool
	interrupted bool
	complete    schema.Flag
	unfinished  []string
	graphFailed bool // a graph inside failed although the root ended well
	lastEnd     int64
	stepLimit   int // stated for all steps, by the span that ended last; 0 if none
}

func (a *account) judgeRun() {
	end := &a.ended
	var flagEnd, limitEnd int64 = -1, -1
	end.lastEnd = a.tree.facts.lastEnd
	for _, s := range a.tree.facts.speaking {
		if s.Complete != schema.FlagUnset && s.EndNs >= flagEnd { // the last flag wins
			flagEnd, end.complete, end.unfinished = s.EndNs, s.Complete, s.UnfinishedSteps
		}
		end.cancelled = end.cancelled || s.RunCancelled
		if s.StepLimit > 0 && s.Step == "" && s.EndNs >= limitEnd {
			limitEnd, end.stepLimit = s.EndNs, int(s.StepLimit)
		}
	}
	end.root = a.runRoot()
	if end.root != nil {
		end.failed = failedUnit(end.root)
		switch end.root.Flow {
		case schema.FlowCancelled, schema.FlowAbandoned:
			end.cancelled = true
		case schema.FlowInterrupt:
			end.interrupted = true
		case schema.FlowNone, schema.FlowCommand:
		}
	}
	// What came last of each task, or of each step without one, in time's order.
	last := make([]*execution, a.steps)
	tasks := &a.tree.tasks
	tasks.begin()
	for _, e := range a.executions {
		if e.task != nil {
			tasks.note(e.task.anywhere, e)
		} else {
			last[e.number] = e
		}
	}
	for _, e := range last {
		end.interrupted = end.interrupted || e != nil && e.ending == EndingInterrupted
	}
	for _, t := range tasks.all {
		e := tasks.noted(t)
		end.interrupted = end.interrupted || e != nil && e.ending == EndingInterrupted
	}
	for _, n := range a.tree.nodes {
		if n != end.root && n.exec == nil && n.Role == schema.RoleChain && n.Failed && len(n.children) > 0 &&
			(end.root == nil || n.TraceID == end.root.TraceID || a.group.joinedBy == "inferred") { // an earlier delivery's end is not the run's
			end.graphFailed = true
		}
	}
}

// runRoot is the root span of the run's last trace that holds work. A span whose
// parent never came is none, unless it says itself that it is the run's top.
func (a *account) runRoot() *node {
	for i := len(a.group.traces) - 1; i >= 0; i-- {
		trace := a.group.traces[i]
		if i > 0 && !a.worksIn(trace) {
			continue
		}
		var root *node
		for _, r := range a.tree.roots {
			if r.TraceID != trace || !a.mayBeRoot(r) {
				continue
			}
			if root == nil || r.EndNs-r.StartNs > root.EndNs-root.StartNs {
				root = r
			}
		}
		return root
	}
	return nil
}

// worksIn tells whether a trace of several holds work or a flag. It is asked of the
// last trace first, which nearly always does: only then is it worth to know of all.
func (a *account) worksIn(trace schema.TraceID) bool {
	if a.working == nil {
		works := func(n *node) bool { return n.exec != nil && n.TraceID == trace }
		if trace == a.group.traces[len(a.group.traces)-1] && slices.ContainsFunc(a.tree.nodes, works) {
			return true
		}
		a.working = make(map[schema.TraceID]bool)
		for _, n := range a.tree.nodes {
			if n.exec != nil {
				a.working[n.TraceID] = true
			}
		}
		for _, s := range a.tree.facts.speaking {
			if s.Complete != schema.FlagUnset {
				a.working[s.TraceID] = true
			}
		}
	}
	return a.working[trace]
}

// mayBeRoot tells whether a span at the top of the tree may be the root of its trace.
func (a *account) mayBeRoot(r *node) bool {
	return !r.Heartbeat && !r.ContractSpan && (!r.orphan || a.actsAsRoot(r))
}

// actsAsRoot: the parent of a graph's root or of a span with a flag is somebody
// else's span, which may never be exported.
func (a *account) actsAsRoot(r *node) bool {
	if r.Complete != schema.FlagUnset || r.GraphRoot && r.task == nil {
		return true
	}
	// One graph of several in one trace: its parent belongs to none of them.
	return len(a.group.runID) > 32 && strings.HasSuffix(a.group.runID, r.SpanID.String())
}

// judgeExecutions marks what was lost and what was handled.
func (a *account) judgeExecutions() {
	for _, e := range a.executions {
		repeated := e.next != nil && (e.next.charge != "" || e.next.fallback)
		e.lost = e.ending == EndingFailed || e.counter || repeated
		if e.ending != EndingFailed || repeated {
			continue
		}
		e.handled = e.handled || a.wentOn(e)
	}
	for _, e := range a.executions { // an attempt that is repeated was not handled by anyone
		if e.next != nil && e.next.charge == LayerNode {
			e.handled = false
		}
	}
}

// wentOn tells whether the run went on although e had failed.
func (a *account) wentOn(e *execution) bool {
	if a.ended.root != nil && !a.ended.failed && !a.ended.cancelled {
		return true
	}
	for i, looked := len(a.executions)-1, 0; i >= 0 && looked < maxOpen; i, looked = i-1, looked+1 { // in time's order
		f := a.executions[i]
		if f.start < e.end-a.tree.slack {
			return false
		}
		if f != e && f.outer != e && f.startsAfter(e, a.tree.slack) && !a.fannedOut(f, e) {
			return true
		}
	}
	return false
}

// visit is one entry into a step with all its repeats.
type visit struct {
	executions []*execution
}

func (v *visit) last() *execution { return v.executions[len(v.executions)-1] }
func (v *visit) start() int64     { return v.executions[0].start }

// visitsOf are the visits among the executions of one step, by their entry.
func visitsOf(list []*execution) []visit {
	out := make([]visit, 0, len(list))
	for i, e := range list {
		if e.charge != "" || e.fallback {
			continue
		}
		v := visit{executions: list[i : i+1 : i+1]}
		for n := e.next; n != nil && (n.charge != "" || n.fallback); n = n.next {
			v.executions = append(v.executions, n)
		}
		out = append(out, v)
	}
	return out
}

func (v *visit) outcome() Outcome {
	last := v.last()
	retries, fallbacks := 0, 0
	for _, e := range v.executions {
		if e.charge != "" {
			retries++
		}
		if e.fallback {
			fallbacks++
		}
		for _, c := range e.calls {
			switch c.charge {
			case "":
			case ChargeFallback:
				fallbacks++
			default:
				retries++
			}
		}
	}
	switch last.ending {
	case EndingInterrupted:
		return OutcomeInterrupted
	case EndingCancelled:
		return OutcomeCancelled
	case EndingUnknown:
		return OutcomeUnknown
	case EndingFailed:
		return failedOutcome(last.handled, retries)
	case EndingSucceeded:
	}
	return succeededOutcome(retries, fallbacks)
}

func failedOutcome(handled bool, retries int) Outcome {
	switch {
	case handled:
		return OutcomeHandled
	case retries > 0:
		return OutcomeFailedAfterRetry
	}
	return OutcomeFailed
}

func succeededOutcome(retries, fallbacks int) Outcome {
	switch {
	case retries > 0:
		return OutcomeAfterRetry
	case fallbacks > 0:
		return OutcomeByFallback
	}
	return OutcomeFirstTry
}

// worstFirst orders outcomes for a fan-out, whose outcome is its worst branch's.
var worstFirst = []Outcome{OutcomeFailedAfterRetry, OutcomeFailed, OutcomeHandled, OutcomeUnknown, OutcomeCancelled, OutcomeInterrupted,
	OutcomeByFallback, OutcomeAfterRetry, OutcomeFirstTry}

// stepOutcome is the outcome of the last visit, in a fan-out the worst.
func (a *account) stepOutcome(visits []visit) Outcome {
	if len(visits) == 0 {
		return OutcomeUnknown
	}
	last := &visits[len(visits)-1]
	worst := last.outcome()
	for i := range visits[:len(visits)-1] {
		v := &visits[i]
		if a.deliveredTask(last.executions[0], v.executions[0]) {
			continue // one task again, and no branch beside it
		}
		sideBySide := v.last().end > last.start()+a.tree.slack || a.fannedOut(last.executions[0], v.executions[0])
		if sideBySide && slices.Index(worstFirst, v.outcome()) < slices.Index(worstFirst, worst) {
			worst = v.outcome()
		}
	}
	return worst
}

// deliveredTask tells whether two executions are of one task, in two deliveries.
func (a *account) deliveredTask(e, p *execution) bool {
	return e.task != nil && p.task != nil && e.task.anywhere == p.task.anywhere && a.delivered(e, p)
}

// outcome of a call operation.
func (o *operation) outcome(ended func(*execution) bool) Outcome {
	last := o.last
	retries, fallbacks := 0, 0
	for c := range o.attempts {
		switch c.charge {
		case "":
		case ChargeFallback:
			fallbacks++
		default:
			retries++
		}
	}
	if last.failed || last.unit != nil && failedUnit(last.unit) {
		return failedOutcome(ended(o.exec), retries)
	}
	if last.node != nil {
		switch last.node.Flow {
		case schema.FlowInterrupt:
			return OutcomeInterrupted
		case schema.FlowCancelled, schema.FlowAbandoned:
			return OutcomeCancelled
		case schema.FlowNone, schema.FlowCommand:
		}
	} else if last.charge != ChargeFallback && o.exec.ending == EndingFailed { // known from a counter: what it led to tells
		return failedOutcome(o.exec.handled, retries)
	}
	if fallbacks > 0 {
		return OutcomeByFallback
	}
	return succeededOutcome(retries, fallbacks)
}

// completion of the run (docs/accounting.md).
func (a *account) completion() string {
	end := &a.ended
	switch {
	case end.complete == schema.FlagYes:
		return "complete"
	case end.complete == schema.FlagNo:
		return "incomplete"
	case end.root == nil && !end.cancelled:
		if a.opts.AtNs-end.lastEnd > a.opts.OrphanAfterNs {
			return "orphaned"
		}
		return "running"
	case end.interrupted && !end.failed && !end.cancelled:
		return "interrupted"
	case end.cancelled:
		return "cancelled"
	case end.failed:
		return "failed"
	}
	return "unflagged"
}

func quarantined(completion string) bool {
	return completion == "incomplete" || completion == "failed" || completion == "cancelled" || completion == "orphaned"
}
