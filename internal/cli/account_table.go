package cli

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/text"

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
		p.runs(ledger.Runs)
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

// runs prints one line a run.
func (p printer) runs(runs []attribution.Run) {
	each := func(cell func(attribution.Run) string) []string {
		cells := make([]string, len(runs))
		for i, run := range runs {
			cells[i] = cell(run)
		}
		return cells
	}
	p.table([]column{
		{title: "run", left: true, cells: each(func(r attribution.Run) string { return clean(r.RunID) })},
		{title: "service", name: "service", left: true, drop: 20, cells: each(func(r attribution.Run) string { return clean(r.Service) })},
		{title: "completion", left: true, cells: each(func(r attribution.Run) string { return p.paintCompletion(r.Completion) })},
		{title: "outcome", name: "outcome", left: true, drop: 50, cells: each(func(r attribution.Run) string { return clean(r.Outcome) })},
		{title: "retries", cells: each(func(r attribution.Run) string {
			used := fmt.Sprintf("%d/%d", r.Budget.Retries, r.Budget.RunLimit)
			if r.Budget.Exhausted {
				return p.paint(used, text.FgRed)
			}
			return used
		})},
		{title: "steps over\nbudget", name: "steps over budget", drop: 40, cells: each(func(r attribution.Run) string {
			over := 0
			for _, step := range r.Steps {
				if step.OverBudget {
					over++
				}
			}
			if over == 0 {
				return "0"
			}
			return p.paint(count(over), text.FgRed)
		})},
		{title: "took", name: "took", drop: 30, cells: each(func(r attribution.Run) string {
			return milliseconds(float64(r.EndNs-r.StartNs) / 1e6)
		})},
		{title: "spans", name: "spans", drop: 10, cells: each(func(r attribution.Run) string { return count(r.Spans) })},
	})
}
