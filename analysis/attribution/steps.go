package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// writeSteps sums every step's rows and judges its visits.
func (a *account) writeSteps(run *Run) {
	bySteps := make(map[string][]*execution)
	var order []string
	for _, e := range a.executions {
		if e.view {
			continue
		}
		if _, ok := bySteps[e.step]; !ok {
			order = append(order, e.step)
		}
		bySteps[e.step] = append(bySteps[e.step], e)
	}
	for _, name := range order {
		run.Steps = append(run.Steps, a.stepOf(run, name, bySteps[name]))
	}
}

func (a *account) stepOf(run *Run, name string, executions []*execution) Step {
	s := Step{Step: name, Evidence: []Evidence{}, Errors: []ErrorCount{}, StartNs: executions[0].start}
	charges := make(map[string]int)
	errors := make(map[ErrorCount]int)
	var cost float64
	costKnown := false
	sum := func(row *Attempt) {
		charges[row.Charge]++
		if row.Charge != "" && !slices.Contains(s.Evidence, row.Evidence) {
			s.Evidence = append(s.Evidence, row.Evidence)
		}
		s.Wasted.TimeMs += row.WastedMs
		s.Wasted.WaitMs += row.WaitMs
		if !row.Counted {
			return
		}
		switch row.Grain {
		case GrainExecution:
			s.Executions++
		case GrainTool:
			s.ToolCalls++
		case GrainHTTP:
			s.HTTPCalls++
		case GrainCall:
			s.Calls++
			if row.Ending == EndingFailed {
				s.CallsFailed++
			}
			s.Tokens.add(row)
			if row.Wasted {
				waste := Tokens{}
				waste.add(row)
				s.Wasted.Input += waste.Input
				s.Wasted.Output += waste.Output
				s.Wasted.UnknownCalls += waste.UnknownCalls
				if row.CostUSD == row.CostUSD { // not NaN: stated
					cost, costKnown = cost+row.CostUSD, true
				}
			}
		case GrainWork:
		}
	}
	for _, e := range executions {
		s.EndNs = max(s.EndNs, e.end)
		sum(&run.Attempts[e.index])
		failedCall := false
		for _, c := range e.calls {
			row := &run.Attempts[c.index]
			sum(row)
			if row.Ending == EndingFailed && (row.Grain != GrainHTTP || run.Attempts[max(row.Parent, 0)].Grain == GrainExecution) ||
				row.Ending == EndingUnknown && row.ErrorClass != "" {
				errors[ErrorCount{Class: row.ErrorClass, HTTPStatus: row.HTTPStatus}]++
				failedCall = true
			}
			op := c.op.resolve()
			if !op.summed {
				op.summed = true
				if op.hasCall() {
					s.Operations++
					run.Operations[row.Operation].CountsInStep = true
					if run.Operations[row.Operation].Fallbacks > 0 {
						s.FallbackOperations++
					}
				}
			}
		}
		if e.ending == EndingFailed && !failedCall && !slices.ContainsFunc(e.inner, func(in *execution) bool { return in.ending == EndingFailed }) {
			errors[ErrorCount{Class: e.errorClass, HTTPStatus: e.httpStatus}]++
		}
	}
	if costKnown {
		s.Wasted.CostUSD = &cost
	}
	visits := visitsOf(executions)
	s.Visits = s.Executions - charges[string(LayerNode)] - charges[string(LayerOrchestrator)] - charges[string(LayerWorker)]
	a.writeVisits(run, &s, visits)
	s.Fallbacks = charges[ChargeFallback]
	if s.Operations > 0 {
		s.FallbackRate = float64(s.FallbackOperations) / float64(s.Operations)
	}
	a.writeRetries(&s, charges, executions)
	s.Outcome = a.stepOutcome(visits)
	s.StepLimit = a.stepLimit(name, executions)
	s.OverBudget = s.RetriesTotal != nil && s.StepLimit > 0 && *s.RetriesTotal > s.StepLimit
	a.factorise(&s, visits, executions)
	slices.Sort(s.Evidence)
	for e, n := range errors {
		e.Count = n
		s.Errors = append(s.Errors, e)
	}
	slices.SortFunc(s.Errors, func(x, y ErrorCount) int {
		return cmp.Or(-cmp.Compare(x.Count, y.Count), strings.Compare(x.Class, y.Class), cmp.Compare(x.HTTPStatus, y.HTTPStatus))
	})
	return s
}

func (t *Tokens) add(row *Attempt) {
	if row.InputTokens == schema.Unknown && row.OutputTokens == schema.Unknown {
		t.UnknownCalls++
		return
	}
	t.Input += max(0, row.InputTokens)
	t.Output += max(0, row.OutputTokens)
}

func (o *operation) hasCall() bool {
	return slices.ContainsFunc(o.attempts, func(c *callAttempt) bool { return c.grain == GrainCall && c.counted })
}

// writeVisits adds the visits as operations; they count as the step's operations
// where it makes no model calls.
func (a *account) writeVisits(run *Run, s *Step, visits []*visit) {
	counts := s.Calls == 0
	if counts {
		s.Operations = len(visits)
	}
	for _, v := range visits {
		last := v.last()
		op := Operation{
			Step: s.Step, Grain: GrainExecution, TraceID: last.trace, Outcome: v.outcome(), Attempts: len(v.executions),
			StartNs: v.start(), EndNs: last.end, CountsInStep: counts, Settled: last.ending != EndingFailed || a.over[last.trace],
		}
		var classes []string
		for _, e := range v.executions {
			if e.charge != "" {
				op.Retries++
			}
			if e.fallback {
				op.Fallbacks++
			}
			if e.node != nil {
				op.Limit = max(op.Limit, int(e.node.AttemptLimit))
			}
			for _, c := range e.calls {
				if c.charge == ChargeFallback {
					op.Fallbacks++
				}
			}
			if e.ending == EndingFailed {
				op.FirstError = orText(op.FirstError, e.errorClass)
				op.LastError = e.errorClass
				classes = append(classes, e.errorClass)
			}
			run.Attempts[e.index].Operation = len(run.Operations)
		}
		op.Futile = futile(classes, len(v.executions))
		if counts && op.Fallbacks > 0 {
			s.FallbackOperations++
		}
		run.Operations = append(run.Operations, op)
	}
}

// stepLimit is what a span in the step states, else the setting for the step, else
// what a span of the run states, else the setting.
func (a *account) stepLimit(name string, executions []*execution) int {
	limit, until := 0, int64(-1)
	for _, e := range executions {
		if e.node != nil && e.node.StepLimit > 0 && e.node.EndNs >= until {
			limit, until = int(e.node.StepLimit), e.node.EndNs
		}
	}
	if limit > 0 {
		return limit
	}
	if own, ok := a.opts.StepLimits[name]; ok {
		return own
	}
	if a.ended.stepLimit > 0 {
		return a.ended.stepLimit
	}
	return a.opts.StepLimit
}

// factorise finds the largest number of attempts in each layer, and what the stated
// limits allow at worst.
func (a *account) factorise(s *Step, visits []*visit, executions []*execution) {
	worker, orchestrator, node, call, transport := 1, 1, 1, 1, 1
	for _, v := range visits {
		workers, rounds, nodes := 1, 1, 1
		for _, e := range v.executions {
			switch e.charge {
			case LayerWorker:
				workers++
				rounds, nodes = 1, 1
			case LayerOrchestrator:
				rounds++
				nodes = 1
			case LayerNode:
				nodes++
			case LayerTransport, LayerCall, "":
			}
			worker, orchestrator, node = max(worker, workers), max(orchestrator, rounds), max(node, nodes)
			for _, c := range e.calls {
				op := c.op.resolve()
				if op.countedIn != e {
					op.countedIn, op.tries = e, [2]int{1, 1}
				}
				switch Layer(c.charge) {
				case LayerTransport:
					op.tries[0]++
				case LayerCall:
					op.tries[1]++
				case LayerNode, LayerOrchestrator, LayerWorker, ChargeFallback, "":
				}
				transport, call = max(transport, op.tries[0]), max(call, op.tries[1])
			}
		}
	}
	s.Factorisation = factors(worker, orchestrator, node, call, transport)
	s.WorstCase = worstCase(executions)
}
