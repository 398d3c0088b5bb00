package attribution

import "fmt"

// BrokenIdentities checks the identities of docs/accounting.md that hold whatever
// the spans show, and says which do not. It is cheap enough to run on every ledger
// that is written; an answer is a defect of this package.
func (r *Run) BrokenIdentities() []string {
	var bad []string
	broken := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	var tokens, rows Tokens
	for i := range r.Steps {
		s := &r.Steps[i]
		charged, total, known := 0, 0, false
		for _, layer := range []struct {
			n      *int
			repeat bool // the layer repeats whole executions
		}{{s.Retries.Transport, false}, {s.Retries.Call, false}, {s.Retries.Node, true}, {s.Retries.Orchestrator, true}, {s.Retries.Worker, true}} {
			if layer.n == nil {
				continue
			}
			known = true
			total += *layer.n
			if layer.repeat {
				charged += *layer.n
			}
			if *layer.n < 0 {
				broken("%s: a negative number of retries", s.Step)
			}
		}
		if s.Retries.Node != nil && s.Retries.Orchestrator != nil && s.Retries.Worker != nil && s.Executions != s.Visits+charged {
			broken("%s: %d executions are not %d visits and %d repeats", s.Step, s.Executions, s.Visits, charged)
		}
		if known != (s.RetriesTotal != nil) || known && *s.RetriesTotal != total {
			broken("%s: retries_total is not the sum %d of its layers", s.Step, total)
		}
		if s.Visits < 0 || s.Operations < 0 || s.CallsFailed > s.Calls || s.FallbackOperations > s.Operations {
			broken("%s: counts contradict each other", s.Step)
		}
		if s.Wasted.TimeMs < 0 || s.Wasted.WaitMs < 0 || s.Wasted.Input > s.Tokens.Input || s.Wasted.Output > s.Tokens.Output {
			broken("%s: waste is negative or larger than the whole", s.Step)
		}
		tokens.Input += s.Tokens.Input
		tokens.Output += s.Tokens.Output
		tokens.UnknownCalls += s.Tokens.UnknownCalls
	}
	for i := range r.Attempts {
		row := &r.Attempts[i]
		if row.EndNs < row.StartNs || row.WaitMs < 0 || row.WastedMs < 0 {
			broken("attempt %d: a negative time", i)
		}
		if row.Grain == GrainCall && row.Counted {
			rows.add(row)
		}
	}
	if tokens != rows {
		broken("tokens of the steps %+v are not those of the calls %+v", tokens, rows)
	}
	return bad
}
