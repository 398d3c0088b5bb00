package attribution

import "fmt"

// Identity names a relation between the numbers of a ledger that holds whatever the
// spans show (docs/accounting.md). The names are those of the metric that counts
// where one does not.
type Identity string

// The identities.
const (
	IdentityExecutions Identity = "executions" // executions = visits + retries of the layers that repeat steps
	IdentityCalls      Identity = "calls"      // an operation has one first try at most; the others are retries and fallbacks
	IdentityRetries    Identity = "retries"    // retries_total is the sum of the layers, the run's of its steps, a layer's of its attempts
	IdentityCounts     Identity = "counts"     // a step's counts are those of its attempts and operations, none contradicts another
	IdentityTokens     Identity = "tokens"     // tokens of a run are the sum over its model calls
	IdentityWaste      Identity = "waste"      // what was wasted is a part of the whole
	IdentityTime       Identity = "time"       // no time is negative
	IdentityRows       Identity = "rows"       // attempts name attempts and operations that exist
)

// BrokenIdentity is an identity that does not hold, and where.
type BrokenIdentity struct {
	Identity Identity
	Detail   string
}

func (b BrokenIdentity) String() string { return string(b.Identity) + ": " + b.Detail }

// BrokenIdentities checks a ledger and says which identities do not hold: nil if all
// do. It is cheap enough to run on every ledger that is written; an answer is a defect
// of this package.
func (r *Run) BrokenIdentities() []BrokenIdentity {
	c := identityCheck{run: r, steps: make(map[string]*stepRows, len(r.Steps))}
	for i := range r.Steps {
		if c.steps[r.Steps[i].Step] != nil {
			c.broken(IdentityCounts, "step %q is listed twice", r.Steps[i].Step)
		}
		c.steps[r.Steps[i].Step] = &stepRows{charges: make(map[string]int)}
	}
	c.attempts()
	c.operations()
	retries := 0
	var tokens, leaves Tokens
	for i := range r.Steps {
		s := &r.Steps[i]
		c.step(s)
		if s.RetriesTotal != nil {
			retries += *s.RetriesTotal
		}
		tokens.Input += s.Tokens.Input
		tokens.Output += s.Tokens.Output
		tokens.UnknownCalls += s.Tokens.UnknownCalls
	}
	for i := range r.Attempts {
		if row := &r.Attempts[i]; row.Grain == GrainCall && row.Counted {
			leaves.add(row)
		}
	}
	if tokens != leaves {
		c.broken(IdentityTokens, "those of the steps %+v are not those of the calls %+v", tokens, leaves)
	}
	if r.Budget.Retries != retries {
		c.broken(IdentityRetries, "the budget counts %d, the steps %d", r.Budget.Retries, retries)
	}
	if r.EndNs < r.StartNs && len(r.Attempts) > 0 && r.Attempts[0].EndNs >= r.StartNs {
		c.broken(IdentityTime, "the run ends before it begins")
	}
	return c.found
}

// stepRows is what the rows say of one step.
type stepRows struct {
	executions, calls, failed, tools, sends, operations int
	charges                                             map[string]int
}

type identityCheck struct {
	run   *Run
	steps map[string]*stepRows
	found []BrokenIdentity
}

func (c *identityCheck) broken(id Identity, format string, args ...any) {
	c.found = append(c.found, BrokenIdentity{id, fmt.Sprintf(format, args...)})
}

func (c *identityCheck) attempts() {
	r := c.run
	for i := range r.Attempts {
		row := &r.Attempts[i]
		if row.WaitMs < 0 || row.WastedMs < 0 {
			c.broken(IdentityTime, "attempt %d waited %g ms and wasted %g ms", i, row.WaitMs, row.WastedMs)
		}
		if row.Parent < -1 || row.Parent >= len(r.Attempts) || row.Parent == i || row.Operation < -1 || row.Operation >= len(r.Operations) || row.Ordinal < 1 {
			c.broken(IdentityRows, "attempt %d of %d lies in %d, belongs to operation %d of %d and is its number %d",
				i, len(r.Attempts), row.Parent, row.Operation, len(r.Operations), row.Ordinal)
		}
		s := c.steps[row.Step]
		if s == nil {
			c.broken(IdentityRows, "attempt %d is of step %q, which is not listed", i, row.Step)
			continue
		}
		s.charges[row.Charge]++
		if !row.Counted {
			continue
		}
		switch row.Grain {
		case GrainExecution:
			s.executions++
		case GrainCall:
			s.calls++
			if row.Ending == EndingFailed {
				s.failed++
			}
		case GrainTool:
			s.tools++
		case GrainHTTP:
			s.sends++
		case GrainWork:
		}
	}
}

func (c *identityCheck) operations() {
	for i := range c.run.Operations {
		op := &c.run.Operations[i]
		s := c.steps[op.Step]
		if s == nil {
			c.broken(IdentityRows, "operation %d is of step %q, which is not listed", i, op.Step)
			continue
		}
		if op.CountsInStep {
			s.operations++
		}
		if first := op.Attempts - op.Retries - op.Fallbacks; op.Grain != GrainExecution && (first < 0 || first > 1) {
			c.broken(IdentityCalls, "operation %d of step %q has %d attempts, %d retries and %d fallbacks", i, op.Step, op.Attempts, op.Retries, op.Fallbacks)
		}
	}
}

func (c *identityCheck) step(s *Step) {
	rows := c.steps[s.Step]
	charged, total, known := 0, 0, false
	for _, layer := range [...]struct {
		name   Layer
		n      *int
		repeat bool // the layer repeats whole executions
	}{
		{LayerTransport, s.Retries.Transport, false},
		{LayerCall, s.Retries.Call, false},
		{LayerNode, s.Retries.Node, true},
		{LayerOrchestrator, s.Retries.Orchestrator, true},
		{LayerWorker, s.Retries.Worker, true},
	} {
		if layer.repeat {
			charged += rows.charges[string(layer.name)]
		}
		if layer.n == nil {
			continue
		}
		known, total = true, total+*layer.n
		if *layer.n != rows.charges[string(layer.name)] {
			c.broken(IdentityRetries, "step %q says %d of layer %s, its attempts %d", s.Step, *layer.n, layer.name, rows.charges[string(layer.name)])
		}
	}
	if known != (s.RetriesTotal != nil) || known && *s.RetriesTotal != total {
		c.broken(IdentityRetries, "retries_total of step %q is not the sum %d of its layers", s.Step, total)
	}
	if s.Executions != s.Visits+charged {
		c.broken(IdentityExecutions, "step %q has %d executions, %d visits and %d repeats", s.Step, s.Executions, s.Visits, charged)
	}
	if s.Executions != rows.executions || s.Calls != rows.calls || s.CallsFailed != rows.failed || s.ToolCalls != rows.tools ||
		s.HTTPCalls != rows.sends || s.Operations != rows.operations || s.Fallbacks != rows.charges[ChargeFallback] {
		c.broken(IdentityCounts, "those of step %q are not those of its rows", s.Step)
	}
	if s.Visits < 0 || s.Operations < 0 || s.CallsFailed > s.Calls || s.FallbackOperations > s.Operations || s.FallbackRate < 0 || s.FallbackRate > 1 {
		c.broken(IdentityCounts, "those of step %q contradict each other", s.Step)
	}
	if s.Calls > 0 && s.Calls > s.Operations+rows.charges[string(LayerCall)]+rows.charges[string(LayerTransport)]+s.Fallbacks {
		c.broken(IdentityCalls, "step %q has %d calls for %d operations, %d retries and %d fallbacks", s.Step, s.Calls, s.Operations, rows.charges[string(LayerCall)], s.Fallbacks)
	}
	if s.Wasted.TimeMs < 0 || s.Wasted.WaitMs < 0 {
		c.broken(IdentityTime, "step %q wasted %g ms and waited %g ms", s.Step, s.Wasted.TimeMs, s.Wasted.WaitMs)
	}
	if s.Wasted.Input < 0 || s.Wasted.Output < 0 || s.Wasted.Input > s.Tokens.Input || s.Wasted.Output > s.Tokens.Output || s.Wasted.UnknownCalls > s.Tokens.UnknownCalls {
		c.broken(IdentityWaste, "step %q wasted more than it spent", s.Step)
	}
}
