package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// steps prints the steps of an answer by retry consumption, and the footnotes that
// its marks need.
func (p printer) steps(top answer.Top) {
	columns := p.stepColumns(top)
	leftOut := p.table(columns)
	notes := stepNotes(top)
	if len(leftOut) > 0 {
		notes = append(notes, "Left out for want of room: "+strings.Join(leftOut, ", ")+". A wider terminal or --format json has them.")
	}
	if len(notes) > 0 {
		p.blank()
	}
	for _, note := range notes {
		p.line(note)
	}
}

func (p printer) stepColumns(top answer.Top) []column {
	steps := top.Steps
	each := func(cell func(answer.TopStep) string) []string {
		cells := make([]string, len(steps))
		for i, step := range steps {
			cells[i] = cell(step)
		}
		return cells
	}
	layer := func(layer attribution.Layer, of func(attribution.Retries) *int) []string {
		return each(func(s answer.TopStep) string {
			return observed(of(s.Retries), slices.Contains(s.PartlyHidden, layer))
		})
	}
	services := map[string]bool{}
	for _, step := range steps {
		services[step.Service] = true
	}
	columns := []column{{title: "step", left: true, cells: each(func(s answer.TopStep) string { return clean(s.Step) })}}
	// Steps beyond the limit may belong to other services than those shown.
	if len(services) > 1 || top.StepsLeftOff > 0 && top.Service == "" {
		columns = append(columns, column{title: "service", name: "service", left: true, drop: 60,
			cells: each(func(s answer.TopStep) string { return clean(s.Service) })})
	}
	return append(columns, []column{
		{title: "retries", cells: each(func(s answer.TopStep) string {
			return p.paint(observed(s.RetriesTotal, len(s.PartlyHidden) > 0), text.Bold)
		})},
		{title: "share", name: "share of all retries", drop: 90, cells: each(func(s answer.TopStep) string { return percent(s.RetryShare) })},
		{title: "trans-\nport", name: "transport", drop: 70, cells: layer(attribution.LayerTransport, func(r attribution.Retries) *int { return r.Transport })},
		{title: "call", name: "call", drop: 73, cells: layer(attribution.LayerCall, func(r attribution.Retries) *int { return r.Call })},
		{title: "node", name: "node", drop: 75, cells: layer(attribution.LayerNode, func(r attribution.Retries) *int { return r.Node })},
		{title: "orches-\ntrator", name: "orchestrator", drop: 74, cells: layer(attribution.LayerOrchestrator, func(r attribution.Retries) *int { return r.Orchestrator })},
		{title: "worker", name: "worker", drop: 71, cells: layer(attribution.LayerWorker, func(r attribution.Retries) *int { return r.Worker })},
		{title: "execu-\ntions", name: "executions", drop: 55, cells: each(func(s answer.TopStep) string { return count(s.Executions) })},
		{title: "fall-\nbacks", name: "fallbacks", drop: 40, cells: each(func(s answer.TopStep) string { return count(s.Fallbacks) })},
		{title: "fallback\nrate", name: "fallback rate", drop: 20, cells: each(func(s answer.TopStep) string { return percent(s.FallbackRate) })},
		{title: "runs", name: "runs", drop: 50, cells: each(func(s answer.TopStep) string { return count(s.Runs) })},
		{title: "over\nbudget", name: "runs over budget", drop: 80, cells: each(func(s answer.TopStep) string {
			if s.RunsOverBudget == 0 {
				return "0"
			}
			return p.paint(count(s.RunsOverBudget), text.FgRed)
		})},
		{title: "wasted\ntokens", name: "wasted tokens", drop: 30, cells: each(func(s answer.TopStep) string { return wastedTokens(s.Wasted) })},
		{title: "wasted\ntime", name: "wasted time", drop: 45, cells: each(func(s answer.TopStep) string {
			return milliseconds(s.Wasted.TimeMs + s.Wasted.WaitMs)
		})},
		{title: "most frequent error", name: "most frequent error", left: true, drop: 35, cells: each(func(s answer.TopStep) string {
			if len(s.Errors) == 0 {
				return ""
			}
			return fmt.Sprintf("%s ×%d", errorName(s.Errors[0].Class, s.Errors[0].HTTPStatus), s.Errors[0].Count)
		})},
	}...)
}

// sampledNote says of how many runs spans are missing that nothing tells of.
func sampledNote(runs int) string {
	return attribution.WarningSampled + " (" + plural(runs, "run") + " of a sampled source)."
}

// stepNotes explain the marks that the table really holds.
func stepNotes(top answer.Top) []string {
	hidden, partly, unknown := false, false, false
	for i := range top.Steps {
		step := &top.Steps[i]
		r := step.Retries
		hidden = hidden || slices.Contains([]*int{r.Transport, r.Call, r.Node, r.Orchestrator, r.Worker}, nil)
		partly = partly || len(step.PartlyHidden) > 0
		unknown = unknown || step.Wasted.UnknownCalls > 0
	}
	var notes []string
	if hidden {
		notes = append(notes, unseen+" not observable: the instrumentation does not show repeats of this layer.")
	}
	if partly {
		notes = append(notes, "≥ a lower bound: some runs do not show repeats of this layer.")
	}
	if unknown {
		notes = append(notes, "? some wasted calls do not state their tokens.")
	}
	if top.SampledRuns > 0 {
		notes = append(notes, sampledNote(top.SampledRuns))
	}
	if top.StepsLeftOff > 0 {
		notes = append(notes, plural(top.StepsLeftOff, "more step")+" with fewer retries; --limit 0 shows all.")
	}
	return notes
}
