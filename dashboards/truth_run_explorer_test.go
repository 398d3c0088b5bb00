package dashboards

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	questions "github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
)

func init() { panelTruths[uidRuns] = runExplorerTruths }

var runExplorerTruths = map[string]panelTruth{
	"Runs that ended": {[]string{"runs", "complete", "quarantined", "over budget", "need review", "poison pills"}, func(k truth) (s shown) {
		var complete, quarantined, over, review, poison int
		for _, r := range k.runs.Runs {
			complete += one(r.Completion == "complete")
			quarantined += one(r.Quarantined)
			over += one(r.Budget.Exhausted || len(r.StepsOverBudget) > 0)
			review += one(r.NeedsReview)
			poison += one(r.PoisonPill)
		}
		s.row(len(k.runs.Runs), complete, quarantined, over, review, poison)
		return s
	}},
	"Runs, the most retries first": {[]string{"run_id", "service", "completion", "outcome", "retries", "run_limit", "over", "wasted", "wasted_s", "lasted_ms"}, func(k truth) (s shown) {
		for _, r := range k.byRetries()[:min(len(k.runs.Runs), 200)] {
			tokens, seconds := wastedBy(k.account(r))
			s.row(r.RunID, r.Service, r.Completion, r.Outcome, r.Budget.Retries, r.Budget.RunLimit, strings.Join(r.StepsOverBudget, ", "),
				tokens, seconds, max(0, r.EndedAt.Sub(r.StartedAt).Milliseconds()))
		}
		return s
	}},
	"Quarantine": {[]string{"run_id", "service", "completion", "outcome", "unfinished", "delivered", "orphan_spans", "retries"}, func(k truth) (s shown) {
		runs := slices.DeleteFunc(slices.Clone(k.runs.Runs), func(r answer.RunSummary) bool { return !r.Quarantined })
		slices.SortFunc(runs, func(a, b answer.RunSummary) int {
			return cmp.Or(b.EndedAt.Compare(a.EndedAt), cmp.Compare(b.TraceIDs[0], a.TraceIDs[0]), cmp.Compare(b.RunID, a.RunID))
		})
		for _, r := range runs[:min(len(runs), 200)] {
			delivered := fmt.Sprint(r.Deliveries)
			if r.PoisonPill {
				delivered += " · poison pill"
			}
			s.row(r.RunID, r.Service, r.Completion, r.Outcome, strings.Join(r.UnfinishedSteps, ", "), delivered, r.OrphanSpans, r.Budget.Retries)
		}
		return s
	}},
	"The run": {[]string{"run_id", "service", "completion", "outcome", "retries", "run_limit", "lasted_ms", "wasted", "wasted_s"}, func(k truth) (s shown) {
		return shownRun(k.account(k.byRetries()[0]))
	}},
	"Steps of the run": {
		[]string{"step", "executions", "transport", "call", "node", "orchestrator", "worker", "retries", "step_limit", "budget", "multiplied", "outcome"},
		func(k truth) (s shown) { return shownSteps(k.account(k.byRetries()[0])) },
	},
	"Contract violations and warnings of the run": {[]string{"kind", "what", "times"}, func(k truth) (s shown) { return shownNotes(k.account(k.byRetries()[0])) }},
	"Ladder": {ladderColumns, func(k truth) (s shown) { return shownLadder(k.account(k.byRetries()[0])) }},
	"Trace":  {[]string{"traceID", "spanID", "parentSpanID", "operationName", "serviceName", "startTime", "duration", "statusCode"}, func(k truth) (s shown) { return shownTrace(k.account(k.byRetries()[0])) }},
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// byRetries are the runs in the order of their list.
func (k truth) byRetries() []answer.RunSummary {
	runs := slices.Clone(k.runs.Runs)
	slices.SortFunc(runs, func(a, b answer.RunSummary) int {
		return cmp.Or(cmp.Compare(b.Budget.Retries, a.Budget.Retries), b.EndedAt.Compare(a.EndedAt), cmp.Compare(b.TraceIDs[0], a.TraceIDs[0]), cmp.Compare(b.RunID, a.RunID))
	})
	return runs
}

// account is the run of a summary, as the API answers it for an id.
func (k truth) account(r answer.RunSummary) attribution.Run {
	i := slices.IndexFunc(k.ledger.Runs, func(run attribution.Run) bool { return run.RunID == r.RunID && run.TraceIDs[0] == r.TraceIDs[0] })
	return k.ledger.Runs[i]
}

// wastedBy sums what the steps of a run wasted: tokens, nil where no lost call states them, and seconds.
func wastedBy(run attribution.Run) (tokens any, seconds float64) {
	var known int64
	unknown := 0
	for _, step := range run.Steps {
		known += step.Wasted.Input + step.Wasted.Output
		unknown += step.Wasted.UnknownCalls
		seconds += (step.Wasted.TimeMs + step.Wasted.WaitMs) / 1000
	}
	if known == 0 && unknown > 0 {
		return nil, seconds
	}
	return known, seconds
}

func shownRun(run attribution.Run) (s shown) {
	tokens, seconds := wastedBy(run)
	s.row(run.RunID, run.Service, run.Completion, run.Outcome, run.Budget.Retries, run.Budget.RunLimit, max(0, (run.EndNs-run.StartNs)/1e6), tokens, seconds)
	return s
}

func shownSteps(run attribution.Run) (s shown) {
	steps := slices.Clone(run.Steps)
	slices.SortStableFunc(steps, func(a, b attribution.Step) int {
		return cmp.Or(cmp.Compare(zero(b.RetriesTotal), zero(a.RetriesTotal)), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Step, b.Step))
	})
	for _, t := range steps {
		over := ""
		if t.OverBudget {
			over = "over"
		}
		s.row(t.Step, t.Executions, t.Retries.Transport, t.Retries.Call, t.Retries.Node, t.Retries.Orchestrator, t.Retries.Worker, t.RetriesTotal, t.StepLimit, over, t.Factorisation, t.Outcome)
	}
	return s
}

func shownNotes(run attribution.Run) (s shown) {
	for _, v := range run.ContractViolations {
		s.row("contract", fmt.Sprintf("%s misses %s %q", v.Node, v.Direction, v.Key), v.Count)
	}
	for _, step := range run.UnfinishedSteps {
		s.row("unfinished", step, 1)
	}
	for _, w := range run.Warnings {
		s.row("warning", w, 1)
	}
	if run.OrphanSpans > 0 {
		s.row("orphans", "spans whose parent never came", run.OrphanSpans)
	}
	if run.NeedsReview {
		s.row("review", "a fallback's output waits for a person", 1)
	}
	if run.PoisonPill {
		s.row("poison pill", "delivered again and again without completing", run.Deliveries)
	}
	return s
}

// rung is one line of a ladder.
type rung struct {
	index   int
	attempt answer.Attempt
	depth   int
}

// rungs puts attempts below what encloses them, siblings by start.
func rungs(attempts []answer.Attempt, parent, depth int) (list []rung) {
	var siblings []int
	for i, a := range attempts {
		if a.Parent == parent {
			siblings = append(siblings, i)
		}
	}
	slices.SortStableFunc(siblings, func(a, b int) int { return attempts[a].StartedAt.Compare(attempts[b].StartedAt) })
	for _, i := range siblings {
		list = append(append(list, rung{i, attempts[i], depth}), rungs(attempts, i, depth+1)...)
	}
	return list
}

var ladderColumns = []string{"attempt", "step", "repeat_of", "ended", "at_ms", "took_ms", "waited_ms", "lost_ms", "tokens", "model", "known_by"}

func shownLadder(run attribution.Run) (s shown) {
	attempts := answer.RunOf(run).Attempts
	ms := func(d time.Duration) float64 { return max(0, float64(d)/1e6) }
	some := func(x float64) any {
		if x == 0 {
			return nil
		}
		return x
	}
	for _, r := range rungs(attempts, -1, 0) {
		a := r.attempt
		known := ""
		if a.Charge != "" {
			known = string(a.Evidence)
		}
		s.row(strings.Repeat(indent, r.depth)+nameOf(a), a.Step, repeatOf(a), endingOf(a), ms(a.StartedAt.Sub(attempts[0].StartedAt)), ms(a.EndedAt.Sub(a.StartedAt)),
			some(a.WaitMs), some(a.WastedMs), tokensOf(a), a.Model, known)
	}
	return s
}

func nameOf(a answer.Attempt) string {
	switch {
	case a.Grain == attribution.GrainExecution && a.Step != "":
		return a.Step
	case a.Grain == attribution.GrainTool:
		return cmp.Or(a.Name, a.Step) + " (tool)"
	case a.Grain == attribution.GrainHTTP:
		return cmp.Or(a.Name, a.Step) + " (send)"
	}
	return cmp.Or(a.Name, a.Step)
}

func repeatOf(a answer.Attempt) string {
	switch {
	case a.Charge == attribution.ChargeFallback && a.FallbackFrom != "":
		return "fallback from " + a.FallbackFrom
	case a.Charge == "" || a.Charge == attribution.ChargeFallback:
		return a.Charge
	case a.Ordinal > 1:
		return fmt.Sprintf("%s retry, attempt %d", a.Charge, a.Ordinal)
	}
	return a.Charge + " retry"
}

func endingOf(a answer.Attempt) string {
	switch a.Ending {
	case attribution.EndingSucceeded:
		return "ok"
	case attribution.EndingUnknown:
		return "never ended"
	case attribution.EndingFailed:
	default:
		return string(a.Ending)
	}
	words := "failed"
	if a.Handled {
		words += ", handled"
	}
	if a.Evidence == attribution.EvidenceOutput && a.Charge == "" {
		words += " (its output says so)"
	}
	switch {
	case a.ErrorClass != "" && a.HTTPStatus != 0:
		words += fmt.Sprintf(": %s %d", a.ErrorClass, a.HTTPStatus)
	case a.ErrorClass != "":
		words += ": " + a.ErrorClass
	case a.HTTPStatus != 0:
		words += fmt.Sprintf(": HTTP %d", a.HTTPStatus)
	}
	return words
}

func tokensOf(a answer.Attempt) string {
	stated := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	switch {
	case a.Grain != attribution.GrainCall:
		return ""
	case a.InputTokens == nil && a.OutputTokens == nil:
		return "?"
	}
	return stated(a.InputTokens) + "→" + stated(a.OutputTokens)
}

// shownTrace is a trace of the attempts of a run. Those without a span have an id made
// of their trace's and their number.
func shownTrace(run attribution.Run) (s shown) {
	attempts := answer.RunOf(run).Attempts
	span := func(i int) string {
		return cmp.Or(attempts[i].SpanID, fmt.Sprintf("%s%08x", attempts[i].TraceID[:8], i))
	}
	for _, r := range rungs(attempts, -1, 0) {
		a, outer := r.attempt, ""
		if a.Parent >= 0 {
			outer = span(a.Parent)
		}
		name, status := nameOf(a), 0
		if again := repeatOf(a); again != "" {
			name += " · " + again
		}
		if a.Ending == attribution.EndingFailed {
			status = 2
		}
		s.row(run.TraceIDs[0], span(r.index), outer, name, run.Service, float64(a.StartedAt.UnixNano())/1e6, max(0, float64(a.EndedAt.Sub(a.StartedAt))/1e6), status)
	}
	return s
}

// TestARunCanBeLookedAt: by its id and by those of its traces, some runs of the captures,
// among them ones with violations, several traces and attempts without a span,
// show what the API answers for them.
func TestARunCanBeLookedAt(t *testing.T) {
	t.Parallel()
	store := storetest.Of(t, capturetest.All(t), "checkout", "billing")
	asker := questions.New(store.Conn, questions.Limits{})
	whole := everything(documents(t)[uidRuns])
	whole.to = whole.from.Add(time.Minute) // a run is found whenever it ended
	panels := map[string]func(attribution.Run) shown{"The run": shownRun, "Ladder": shownLadder, "Trace": shownTrace,
		"Steps of the run": shownSteps, "Contract violations and warnings of the run": shownNotes}
	left := map[string]int{"violation": 3, "traces": 3, "without a span": 3, "": 5}
	for _, run := range store.Ledger.Runs {
		var kind string
		switch {
		case len(run.ContractViolations) > 0:
			kind = "violation"
		case len(run.TraceIDs) > 1:
			kind = "traces"
		case slices.ContainsFunc(run.Attempts, func(a attribution.Attempt) bool { return a.SpanID.IsZero() }):
			kind = "without a span"
		}
		if left[kind] == 0 {
			continue
		}
		id := run.TraceIDs[len(run.TraceIDs)-1]
		if found, err := asker.Run(context.Background(), run.RunID); err == nil && found.TraceIDs[0] == run.TraceIDs[0] {
			id = run.RunID
		} else if slices.ContainsFunc(store.Ledger.Runs, func(other attribution.Run) bool {
			return other.TraceIDs[0] != run.TraceIDs[0] && slices.Contains(other.TraceIDs, id) || other.TraceIDs[0] == run.TraceIDs[0] && other.RunID != run.RunID
		}) {
			continue // neither id is its own
		}
		left[kind]--
		for title, want := range panels {
			p := panelOf(t, uidRuns, title)
			truth := runExplorerTruths[title]
			selected := whole.restricted(map[string][]string{runVariable: {id}})
			found, err := asked(t, store.Conn, selected.expanded(t, p.Targets[0].RawSQL, 0))
			require.NoError(t, err)
			require.Equal(t, want(run), truth.of(t, found), "%s of run %s, looked for by %s", title, run.RunID, id)
		}
	}
	for kind, n := range left {
		require.Zero(t, n, "too few runs %q", kind)
	}
}
