package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// heading says in two or three lines what a run was and what it used.
func (p printer) heading(run answer.Run) {
	facts := []string{}
	if run.Service != "" {
		facts = append(facts, clean(run.Service))
	}
	facts = append(facts, p.paintCompletion(run.Completion), clean(run.Outcome),
		milliseconds(float64(run.EndedAt.Sub(run.StartedAt))/float64(time.Millisecond)),
		"started "+run.StartedAt.UTC().Format("2006-01-02 15:04:05.000Z"))
	p.line(p.paint("run "+clean(run.RunID), text.Bold) + " · " + strings.Join(facts, " · "))
	if run.ThreadID != "" || len(run.TraceIDs) > 1 {
		var from []string
		if run.ThreadID != "" {
			from = append(from, "thread "+clean(run.ThreadID))
		}
		if len(run.TraceIDs) > 1 {
			from = append(from, fmt.Sprintf("traces %s (joined by %s)", clean(strings.Join(run.TraceIDs, ", ")), clean(run.JoinedBy)))
		}
		p.line(strings.Join(from, " · "))
	}
	budget := fmt.Sprintf("budget: %d of %s used", run.Budget.Retries, plural2(run.Budget.RunLimit, "retry", "retries"))
	if run.Budget.Exhausted {
		budget += p.paint(", exhausted", text.FgRed)
	}
	if run.Deliveries > 1 {
		budget += fmt.Sprintf("; delivered %d times", run.Deliveries)
	}
	if run.PoisonPill {
		budget += p.paint("; a poison pill: it never completes", text.FgRed)
	}
	p.line(budget)
	if len(run.UnfinishedSteps) > 0 {
		p.line("unfinished steps: " + clean(strings.Join(run.UnfinishedSteps, ", ")))
	}
	if run.NeedsReview {
		p.line("a fallback's output waits for a person's review")
	}
	for _, v := range run.ContractViolations {
		p.line(fmt.Sprintf("contract violation: %s misses %s %q, %s", clean(v.Node), v.Direction, clean(v.Key), plural(v.Count, "time")))
	}
	for _, w := range run.Warnings {
		p.line(p.paint("warning", text.FgYellow) + ": " + clean(w))
	}
	if run.OrphanSpans > 0 {
		p.line(plural(run.OrphanSpans, "span") + " whose parent never came")
	}
}

func (p printer) paintCompletion(completion string) string {
	switch completion {
	case "complete":
		return p.paint(completion, text.FgGreen)
	case "incomplete", "failed", "orphaned", "cancelled":
		return p.paint(completion, text.FgRed)
	default:
		return clean(completion)
	}
}

// rung is one line of the ladder.
type rung struct {
	attempt *answer.Attempt
	depth   int
}

// ladder prints who repeated what: every attempt below the one that encloses it, in
// the order of start, at most limit lines (0: all).
func (p printer) ladder(run answer.Run, limit int) {
	rungs := rungsOf(run.Attempts)
	more := 0
	if limit > 0 && len(rungs) > limit {
		more = len(rungs) - limit
		rungs = rungs[:limit]
	}
	if len(rungs) == 0 {
		p.line("no attempt is known")
		return
	}
	each := func(cell func(*answer.Attempt) string) []string {
		cells := make([]string, len(rungs))
		for i, r := range rungs {
			cells[i] = cell(r.attempt)
		}
		return cells
	}
	names := make([]string, len(rungs))
	for i, r := range rungs {
		names[i] = strings.Repeat("  ", r.depth) + attemptName(r.attempt)
	}
	leftOut := p.table([]column{
		{title: "attempt", left: true, cells: names},
		{title: "repeat", left: true, cells: each(p.repeat)},
		{title: "ended", left: true, cells: each(p.ending)},
		{title: "at", name: "at", drop: 60, cells: each(func(a *answer.Attempt) string {
			return "+" + milliseconds(float64(a.StartedAt.Sub(run.StartedAt))/float64(time.Millisecond))
		})},
		{title: "took", name: "took", drop: 70, cells: each(func(a *answer.Attempt) string {
			return milliseconds(float64(a.EndedAt.Sub(a.StartedAt)) / float64(time.Millisecond))
		})},
		{title: "waited", name: "waited", drop: 50, cells: each(func(a *answer.Attempt) string {
			if a.WaitMs <= 0 {
				return ""
			}
			return milliseconds(a.WaitMs)
		})},
		{title: "tokens", name: "tokens", drop: 40, cells: each(attemptTokens)},
		{title: "model", name: "model", drop: 20, left: true, cells: each(func(a *answer.Attempt) string { return clean(a.Model) })},
		{title: "known by", name: "known by", drop: 10, left: true, cells: each(func(a *answer.Attempt) string {
			if a.Charge == "" {
				return ""
			}
			return string(a.Evidence)
		})},
	})
	if more > 0 {
		p.line(fmt.Sprintf("%s not shown; --limit 0 shows all", plural(more, "later attempt")))
	}
	if len(leftOut) > 0 {
		p.line("Left out for want of room: " + strings.Join(leftOut, ", ") + ". A wider terminal or --format json has them.")
	}
}

// rungsOf puts attempts into the order of a ladder: parents before children, siblings
// by start. A parent that is out of range or makes a circle is taken as none.
func rungsOf(attempts []answer.Attempt) []rung {
	children := make(map[int][]int)
	for i := range attempts {
		parent := attempts[i].Parent
		if parent < 0 || parent >= len(attempts) || parent == i {
			parent = -1
		}
		children[parent] = append(children[parent], i)
	}
	for _, siblings := range children {
		slices.SortStableFunc(siblings, func(a, b int) int { return attempts[a].StartedAt.Compare(attempts[b].StartedAt) })
	}
	rungs := make([]rung, 0, len(attempts))
	type open struct{ index, depth int }
	stack := []open{}
	push := func(parent, depth int) {
		for _, i := range slices.Backward(children[parent]) {
			stack = append(stack, open{i, depth})
		}
	}
	push(-1, 0)
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		rungs = append(rungs, rung{&attempts[top.index], top.depth})
		push(top.index, top.depth+1)
	}
	return rungs
}

func attemptName(a *answer.Attempt) string {
	name := clean(a.Name)
	if a.Grain == attribution.GrainExecution && a.Step != "" {
		return clean(a.Step)
	}
	if name == "" {
		name = clean(a.Step)
	}
	switch a.Grain {
	case attribution.GrainTool:
		return name + " (tool)"
	case attribution.GrainHTTP:
		return name + " (send)"
	case attribution.GrainExecution, attribution.GrainCall, attribution.GrainWork:
	}
	return name
}

// repeat says which try this is and who decided to make it.
func (p printer) repeat(a *answer.Attempt) string {
	switch a.Charge {
	case "":
		return ""
	case attribution.ChargeFallback:
		if a.FallbackFrom != "" {
			return p.paint("fallback from "+clean(a.FallbackFrom), text.FgCyan)
		}
		return p.paint("fallback", text.FgCyan)
	default:
		if a.Ordinal > 1 {
			return p.paint(fmt.Sprintf("%s retry, attempt %d", clean(a.Charge), a.Ordinal), text.FgYellow)
		}
		return p.paint(clean(a.Charge)+" retry", text.FgYellow)
	}
}

func (p printer) ending(a *answer.Attempt) string {
	switch a.Ending {
	case attribution.EndingSucceeded:
		return p.paint("ok", text.FgGreen)
	case attribution.EndingFailed:
		word := "failed"
		if a.Handled {
			word = "failed, handled"
		}
		if a.Evidence == attribution.EvidenceOutput && a.Charge == "" {
			word += " (its output says so)"
		}
		if a.ErrorClass != "" || a.HTTPStatus != 0 {
			word += ": " + errorName(a.ErrorClass, a.HTTPStatus)
		}
		return p.paint(word, text.FgRed)
	case attribution.EndingUnknown:
		return "never ended"
	case attribution.EndingInterrupted, attribution.EndingCancelled:
	}
	return clean(string(a.Ending))
}

func attemptTokens(a *answer.Attempt) string {
	if a.Grain != attribution.GrainCall {
		return ""
	}
	if a.InputTokens == nil && a.OutputTokens == nil {
		return "?"
	}
	in, out := "?", "?"
	if a.InputTokens != nil {
		in = big(*a.InputTokens)
	}
	if a.OutputTokens != nil {
		out = big(*a.OutputTokens)
	}
	return in + "→" + out
}

// summaries prints a sentence for every step, and what none of them can know.
func (p printer) summaries(run answer.Run) {
	hidden := map[string][]string{}
	var order []string
	for _, step := range run.Steps {
		p.line(p.summary(step))
		if layers := strings.Join(hiddenLayers(step.Retries), ", "); layers != "" {
			if len(hidden[layers]) == 0 {
				order = append(order, layers)
			}
			hidden[layers] = append(hidden[layers], clean(step.Step))
		}
	}
	for _, layers := range order {
		in := "in " + strings.Join(hidden[layers], ", ")
		if len(hidden[layers]) == len(run.Steps) {
			in = "in this run"
		}
		p.line(fmt.Sprintf("Not observable %s: %s retries.", in, layers))
	}
}

// summary is a step's account in one sentence:
//
//	resolve: 7 executions = 1 visit + 4 node + 2 orchestrator; budget 3, used 6: over budget (3 × 3)
func (p printer) summary(s attribution.Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s = %s", p.paint(clean(s.Step), text.Bold), plural(s.Executions, "execution"), plural(s.Visits, "visit"))
	part := func(n *int, what string) {
		if n != nil && *n > 0 {
			fmt.Fprintf(&b, " + %d %s", *n, what)
		}
	}
	part(s.Retries.Node, "node")
	part(s.Retries.Orchestrator, "orchestrator")
	part(s.Retries.Worker, "worker")
	if s.Calls > 0 {
		fmt.Fprintf(&b, "; %s (%d failed)", plural(s.Calls, "call"), s.CallsFailed)
	}
	if s.Retries.Call != nil && *s.Retries.Call > 0 {
		fmt.Fprintf(&b, "; call retries %d", *s.Retries.Call)
	}
	if s.Retries.Transport != nil && *s.Retries.Transport > 0 {
		fmt.Fprintf(&b, "; transport retries %d", *s.Retries.Transport)
	}
	if s.Fallbacks > 0 {
		fmt.Fprintf(&b, "; %s", plural(s.Fallbacks, "fallback"))
	}
	used := unseen
	if s.RetriesTotal != nil {
		used = count(*s.RetriesTotal)
	}
	fmt.Fprintf(&b, "; budget %d, used %s", s.StepLimit, used)
	if s.OverBudget {
		b.WriteString(": " + p.paint("over budget", text.FgRed))
	}
	if strings.Contains(s.Factorisation, "×") {
		fmt.Fprintf(&b, " (%s)", strings.ReplaceAll(strings.ReplaceAll(s.Factorisation, " ", ""), "×", " × "))
	}
	return b.String()
}

func hiddenLayers(r attribution.Retries) []string {
	var hidden []string
	for _, layer := range []struct {
		name    attribution.Layer
		retries *int
	}{
		{attribution.LayerTransport, r.Transport}, {attribution.LayerCall, r.Call}, {attribution.LayerNode, r.Node},
		{attribution.LayerOrchestrator, r.Orchestrator}, {attribution.LayerWorker, r.Worker},
	} {
		if layer.retries == nil {
			hidden = append(hidden, string(layer.name))
		}
	}
	return hidden
}
