package cli

import (
	"fmt"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// ledger prints an account: the only run, or a table of the runs, then the steps of
// all of them.
func (p printer) ledger(ledger attribution.Ledger, ladder bool) {
	switch len(ledger.Runs) {
	case 0:
		p.line("no run: no span says what step, call, flag or run id it belongs to")
	case 1:
		p.heading(answer.RunOf(ledger.Runs[0]))
		p.blank()
	default:
		p.runs(summaries(ledger.Runs))
		p.blank()
	}
	if top := answer.TopOf(ledger, answer.Filter{}); len(top.Steps) > 0 {
		p.steps(top)
	}
	if len(ledger.Runs) == 1 {
		p.blank()
		p.summaries(answer.RunOf(ledger.Runs[0]))
	}
	if ladder {
		for _, run := range ledger.Runs {
			p.blank()
			if len(ledger.Runs) > 1 {
				p.heading(answer.RunOf(run))
			}
			p.ladder(answer.RunOf(run), 0)
		}
	}
	for _, v := range ledger.ContractViolations {
		p.line(fmt.Sprintf("contract violation outside any run: %s misses %s %q, %s",
			clean(v.Node), v.Direction, clean(v.Key), plural(v.Count, "time")))
	}
	if n := ledger.UnattributedSpans; n > 0 {
		p.line(plural(n, "span") + " of traces that are no run: without step, call, flag or run id")
	}
}
