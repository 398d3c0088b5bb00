package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// writeSteps sums every step's rows and judges its visits.
func (a *account) writeSteps(run *Run) {
	groups := a.bySteps(isView)
	run.Steps = make([]Step, len(groups))
	var errors errorCounts
	for i, g := range groups {
		a.writeStep(&run.Steps[i], run, g, &errors)
	}
}

func (a *account) writeStep(s *Step, run *Run, group stepGroup, errors *errorCounts) {
	name, executions := group.name, group.executions
	*s = Step{Step: name, Evidence: []Evidence{}, Errors: []ErrorCount{}, StartNs: executions[0].start}
	var charges chargeCounts
	var cost float64
	costKnown := false
	sum := func(row *Attempt) {
		charges.add(row.Charge)
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
				errors.add(row.ErrorClass, row.HTTPStatus)
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
			errors.add(e.errorClass, e.httpStatus)
		}
	}
	if costKnown {
		s.Wasted.CostUSD = new(cost)
	}
	visits := visitsOf(executions)
	s.Visits = s.Executions - charges.of(string(LayerNode)) - charges.of(string(LayerOrchestrator)) - charges.of(string(LayerWorker))
	a.writeVisits(run, s, visits)
	s.Fallbacks = charges.of(ChargeFallback)
	if s.Operations > 0 {
		s.FallbackRate = float64(s.FallbackOperations) / float64(s.Operations)
	}
	a.writeRetries(s, &charges, executions)
	s.Outcome = a.stepOutcome(visits)
	s.StepLimit = a.stepLimit(name, executions)
	s.OverBudget = s.RetriesTotal != nil && s.StepLimit > 0 && *s.RetriesTotal > s.StepLimit
	a.factorise(s, visits, executions)
	slices.Sort(s.Evidence)
	s.Errors = errors.take(s.Errors)
}

// chargeCounts is how many attempts bear each charge.
type chargeCounts [7]int

func (c *chargeCounts) add(charge string)    { c[chargeAt(charge)]++ }
func (c *chargeCounts) of(charge string) int { return c[chargeAt(charge)] }

func chargeAt(charge string) int {
	switch charge {
	case string(LayerTransport):
		return 1
	case string(LayerCall):
		return 2
	case string(LayerNode):
		return 3
	case string(LayerOrchestrator):
		return 4
	case string(LayerWorker):
		return 5
	case ChargeFallback:
		return 6
	}
	return 0
}

// errorCounts counts the errors of one step; most meet few classes.
type errorCounts struct {
	counts []ErrorCount
	at     map[ErrorCount]int // by class and status, made when there are many
}

const fewErrors = 8

func (c *errorCounts) add(class string, status int) {
	if len(c.counts) <= fewErrors {
		for i := range c.counts {
			if have := &c.counts[i]; have.Class == class && have.HTTPStatus == status {
				have.Count++
				return
			}
		}
		c.counts = append(c.counts, ErrorCount{class, status, 1})
		return
	}
	if c.at == nil {
		c.at = make(map[ErrorCount]int)
		for i, have := range c.counts {
			c.at[ErrorCount{Class: have.Class, HTTPStatus: have.HTTPStatus}] = i
		}
	}
	key := ErrorCount{Class: class, HTTPStatus: status}
	i, ok := c.at[key]
	if !ok {
		i = len(c.counts)
		c.at[key] = i
		c.counts = append(c.counts, key)
	}
	c.counts[i].Count++
}

// take adds what was counted to list, the most frequent first, and begins anew.
func (c *errorCounts) take(list []ErrorCount) []ErrorCount {
	list = append(list, c.counts...)
	c.counts, c.at = c.counts[:0], nil
	slices.SortFunc(list, func(x, y ErrorCount) int {
		return cmp.Or(-cmp.Compare(x.Count, y.Count), strings.Compare(x.Class, y.Class), cmp.Compare(x.HTTPStatus, y.HTTPStatus))
	})
	return list
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
	for c := range o.attempts {
		if c.grain == GrainCall && c.counted {
			return true
		}
	}
	return false
}

// writeVisits adds the visits as operations; they count as the step's operations
// where it makes no model calls.
func (a *account) writeVisits(run *Run, s *Step, visits []visit) {
	counts := s.Calls == 0
	if counts {
		s.Operations = len(visits)
	}
	for i := range visits {
		v := &visits[i]
		last := v.last()
		op := Operation{
			Step: s.Step, Grain: GrainExecution, TraceID: last.trace, Outcome: v.outcome(), Attempts: len(v.executions),
			StartNs: v.start(), EndNs: last.end, CountsInStep: counts, Settled: last.ending != EndingFailed || a.isOver(last.trace),
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
func (a *account) factorise(s *Step, visits []visit, executions []*execution) {
	worker, orchestrator, node, call, transport := 1, 1, 1, 1, 1
	for i := range visits {
		v := &visits[i]
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
