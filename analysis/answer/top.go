package answer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// Filter is what an answer is about. The zero value is everything.
type Filter struct {
	// Since and Until bound the end of the attempts that count: Since <= end < Until.
	// The zero time is no bound.
	Since, Until time.Time
	// Service is the service.name that runs must have, "" for any.
	Service string
	// Limit is the number of steps (or runs) to list, 0 for all. Totals and shares are
	// over all of them, listed or not.
	Limit int
}

// holds tells whether an attempt or operation that ended at ns counts.
func (f Filter) holds(ns int64) bool {
	return (f.Since.IsZero() || ns >= f.Since.UnixNano()) && (f.Until.IsZero() || ns < f.Until.UnixNano())
}

// Top is the answer to "which step eats the retry budget": the steps that attempts
// within the window belong to, the largest retry consumption first.
type Top struct {
	Since   *time.Time `json:"since"` // null: no bound
	Until   *time.Time `json:"until"`
	Service string     `json:"service"` // "": any
	// Runs counts the runs that have an attempt within the window, by completion too:
	// only "complete" runs said themselves that they are.
	Runs         int            `json:"runs"`
	Completion   map[string]int `json:"completion"`
	RetriesTotal int            `json:"retries_total"` // over all steps, listed or not
	Steps        []TopStep      `json:"steps"`
	StepsLeftOff int            `json:"steps_left_off"` // by the limit
	SampledRuns  int            `json:"sampled_runs"`   // of Runs, those of a sampled source
	Warnings     []string       `json:"warnings"`       // what holds of the answer as a whole
}

// TopStep is one step of one service over all its runs. Its numbers are sums over the
// attempts that ended within the window.
type TopStep struct {
	Service string `json:"service"`
	Step    string `json:"step"`
	// Retries holds null for a layer that no run observes. A layer in PartlyHidden is
	// hidden in some runs only: its number is a lower bound.
	Retries            attribution.Retries      `json:"retries"`
	PartlyHidden       []attribution.Layer      `json:"partly_hidden"`
	RetriesTotal       *int                     `json:"retries_total"` // null if every layer is
	RetryShare         float64                  `json:"retry_share"`   // of the answer's retries_total, 0 to 1
	Executions         int                      `json:"executions"`
	Visits             int                      `json:"visits"`
	Operations         int                      `json:"operations"`
	Calls              int                      `json:"calls"`
	CallsFailed        int                      `json:"calls_failed"`
	ToolCalls          int                      `json:"tool_calls"`
	HTTPCalls          int                      `json:"http_calls"`
	Fallbacks          int                      `json:"fallbacks"`
	FallbackOperations int                      `json:"fallback_operations"`
	FallbackRate       float64                  `json:"fallback_rate"` // fallback_operations / operations
	Runs               int                      `json:"runs"`
	RunsOverBudget     int                      `json:"runs_over_budget"` // of Runs, those whose whole consumption is above the step's limit
	Tokens             attribution.Tokens       `json:"tokens"`
	Wasted             attribution.Wasted       `json:"wasted"`
	Errors             []attribution.ErrorCount `json:"errors"` // most frequent first, at most MaxErrors
}

// MaxErrors bounds the error classes of one step in an answer.
const MaxErrors = 10

// TopOf computes the answer from a ledger in memory. A database that holds the same
// ledger answers the same numbers.
func TopOf(ledger attribution.Ledger, f Filter) Top {
	top := NewTop(f)
	steps := map[stepKey]*TopStep{}
	errors := map[stepKey]map[attribution.ErrorCount]int{}
	for i := range ledger.Runs {
		run := &ledger.Runs[i]
		if f.Service != "" && run.Service != f.Service {
			continue
		}
		if sumRun(run, f, steps, errors) {
			top.Runs++
			top.Completion[run.Completion]++
			if run.Sampled {
				top.SampledRuns++
			}
		}
	}
	for key, step := range steps {
		for class, n := range errors[key] {
			class.Count = n
			step.Errors = append(step.Errors, class)
		}
		top.Steps = append(top.Steps, *step)
	}
	top.Finish(f.Limit)
	return top
}

type stepKey struct{ service, step string }

// NewTop is an answer without steps yet.
func NewTop(f Filter) Top {
	top := Top{Service: f.Service, Completion: map[string]int{}, Steps: []TopStep{}, Warnings: []string{}}
	if !f.Since.IsZero() {
		since := f.Since.UTC()
		top.Since = &since
	}
	if !f.Until.IsZero() {
		until := f.Until.UTC()
		top.Until = &until
	}
	return top
}

// sumRun adds one run's attempts and operations within the window to the steps, and
// tells whether there were any.
func sumRun(run *attribution.Run, f Filter, steps map[stepKey]*TopStep, errors map[stepKey]map[attribution.ErrorCount]int) bool {
	account := make(map[string]*attribution.Step, len(run.Steps))
	for i := range run.Steps {
		account[run.Steps[i].Step] = &run.Steps[i]
	}
	touched := map[string]*TopStep{}
	reach := func(name string) *TopStep {
		if step := touched[name]; step != nil {
			return step
		}
		key := stepKey{run.Service, name}
		step := steps[key]
		if step == nil {
			step = &TopStep{Service: run.Service, Step: name}
			steps[key], errors[key] = step, map[attribution.ErrorCount]int{}
		}
		touched[name] = step
		step.Runs++
		if account[name].OverBudget {
			step.RunsOverBudget++
		}
		step.observe(account[name].Retries)
		return step
	}
	causes := Causes(run.Attempts)
	found := false
	for i := range run.Attempts {
		a := &run.Attempts[i]
		if !f.holds(a.EndNs) {
			continue
		}
		found = true
		if account[a.Step] == nil {
			continue
		}
		step := reach(a.Step)
		step.add(a, account[a.Step].Retries)
		if causes[i] {
			errors[stepKey{run.Service, a.Step}][attribution.ErrorCount{Class: a.ErrorClass, HTTPStatus: a.HTTPStatus}]++
		}
	}
	for _, operation := range run.Operations {
		if !operation.CountsInStep || !f.holds(operation.EndNs) || account[operation.Step] == nil {
			continue
		}
		step := reach(operation.Step)
		step.Operations++
		if operation.Fallbacks > 0 {
			step.FallbackOperations++
		}
	}
	return found
}

// Causes marks the attempts that a step's errors count: failed calls (a send inside a
// call is the call's), and failed executions in which neither a call nor an inner
// execution failed.
func Causes(attempts []attribution.Attempt) []bool {
	isExecution := func(i int) bool { return attempts[i].Grain == attribution.GrainExecution }
	causes := make([]bool, len(attempts))
	explained := make([]bool, len(attempts))
	for i := range attempts {
		a := &attempts[i]
		failed := a.Ending == attribution.EndingFailed
		if isExecution(i) {
			if failed && a.Parent >= 0 {
				explained[a.Parent] = true
			}
			continue
		}
		inCall := a.Grain == attribution.GrainHTTP && !isExecution(max(a.Parent, 0))
		if failed && !inCall || a.Ending == attribution.EndingUnknown && a.ErrorClass != "" {
			causes[i] = true
			owner := a.Parent
			for owner >= 0 && !isExecution(owner) {
				owner = attempts[owner].Parent
			}
			if owner >= 0 {
				explained[owner] = true
			}
		}
	}
	for i := range attempts {
		if isExecution(i) && attempts[i].Ending == attribution.EndingFailed && !explained[i] {
			causes[i] = true
		}
	}
	return causes
}

// layersOf lists the layers of r in the order of attribution's constants.
func layersOf(r *attribution.Retries) [5]**int {
	return [5]**int{&r.Transport, &r.Call, &r.Node, &r.Orchestrator, &r.Worker}
}

var layers = [5]attribution.Layer{
	attribution.LayerTransport, attribution.LayerCall, attribution.LayerNode, attribution.LayerOrchestrator, attribution.LayerWorker,
}

// observe notes which layers one more run shows and hides.
func (s *TopStep) observe(run attribution.Retries) {
	for i, layer := range layersOf(&run) {
		sum := layersOf(&s.Retries)[i]
		switch {
		case *layer == nil && (*sum != nil || s.Runs > 1):
			s.hide(layers[i], *sum)
		case *layer != nil && *sum == nil:
			zero := 0
			*sum = &zero
			if s.Runs > 1 { // the runs before this one hid it
				s.hide(layers[i], *sum)
			}
		}
	}
}

// SetRetries sets the layers, in the order transport, call, node, orchestrator,
// worker, from their sums over the runs that show them and from how many of s.Runs
// those are.
func (s *TopStep) SetRetries(sums, shownBy [5]uint64) {
	for i, layer := range layersOf(&s.Retries) {
		if shownBy[i] == 0 {
			continue
		}
		sum := int(sums[i])
		*layer = &sum
		if shownBy[i] < uint64(s.Runs) {
			s.hide(layers[i], *layer)
		}
	}
}

func (s *TopStep) hide(layer attribution.Layer, sum *int) {
	if sum != nil && !slices.Contains(s.PartlyHidden, layer) {
		s.PartlyHidden = append(s.PartlyHidden, layer)
	}
}

// add sums one attempt; hidden layers of its run are null in shown.
func (s *TopStep) add(a *attribution.Attempt, shown attribution.Retries) {
	for i, layer := range layers {
		if a.Charge == string(layer) && *layersOf(&shown)[i] != nil {
			**layersOf(&s.Retries)[i]++
		}
	}
	if a.Charge == attribution.ChargeFallback {
		s.Fallbacks++
	}
	s.Wasted.TimeMs += a.WastedMs
	s.Wasted.WaitMs += a.WaitMs
	if !a.Counted {
		return
	}
	switch a.Grain {
	case attribution.GrainExecution:
		s.Executions++
		switch attribution.Layer(a.Charge) {
		case attribution.LayerNode, attribution.LayerOrchestrator, attribution.LayerWorker:
		default:
			s.Visits++
		}
	case attribution.GrainCall:
		s.addCall(a)
	case attribution.GrainTool:
		s.ToolCalls++
	case attribution.GrainHTTP:
		s.HTTPCalls++
	case attribution.GrainWork:
	}
}

func (s *TopStep) addCall(a *attribution.Attempt) {
	s.Calls++
	if a.Ending == attribution.EndingFailed {
		s.CallsFailed++
	}
	unknown := 0
	if a.InputTokens == schema.Unknown && a.OutputTokens == schema.Unknown {
		unknown = 1
	}
	input, output := max(a.InputTokens, 0), max(a.OutputTokens, 0)
	s.Tokens.Input += input
	s.Tokens.Output += output
	s.Tokens.UnknownCalls += unknown
	if !a.Wasted {
		return
	}
	s.Wasted.Input += input
	s.Wasted.Output += output
	s.Wasted.UnknownCalls += unknown
	if a.CostUSD == a.CostUSD { // not NaN
		if s.Wasted.CostUSD == nil {
			s.Wasted.CostUSD = new(float64)
		}
		*s.Wasted.CostUSD += a.CostUSD
	}
}

// sampledWarnings are the warnings of an answer over runs of which any is sampled.
func sampledWarnings(sampled bool) []string {
	if sampled {
		return []string{attribution.WarningSampled}
	}
	return []string{}
}

// Finish derives totals, shares and rates, sorts, and cuts the list to limit (0: no cut).
func (t *Top) Finish(limit int) {
	t.RetriesTotal, t.Warnings = 0, sampledWarnings(t.SampledRuns > 0)
	for i := range t.Steps {
		step := &t.Steps[i]
		step.RetriesTotal = nil
		for _, layer := range layersOf(&step.Retries) {
			if *layer != nil {
				if step.RetriesTotal == nil {
					step.RetriesTotal = new(int)
				}
				*step.RetriesTotal += **layer
			}
		}
		t.RetriesTotal += step.consumption()
		step.Wasted.TimeMs, step.Wasted.WaitMs = rounded(step.Wasted.TimeMs), rounded(step.Wasted.WaitMs)
		if cost := step.Wasted.CostUSD; cost != nil {
			*cost = rounded(*cost)
		}
		if step.Operations > 0 {
			step.FallbackRate = float64(step.FallbackOperations) / float64(step.Operations)
		}
		slices.SortFunc(step.PartlyHidden, func(a, b attribution.Layer) int {
			return cmp.Compare(slices.Index(layers[:], a), slices.Index(layers[:], b))
		})
		SortErrors(step.Errors)
		step.Errors = list(step.Errors[:min(len(step.Errors), MaxErrors)])
		step.PartlyHidden = list(step.PartlyHidden)
	}
	for i := range t.Steps {
		if t.RetriesTotal > 0 {
			t.Steps[i].RetryShare = float64(t.Steps[i].consumption()) / float64(t.RetriesTotal)
		}
	}
	slices.SortFunc(t.Steps, func(a, b TopStep) int {
		return cmp.Or(
			cmp.Compare(b.consumption(), a.consumption()),
			cmp.Compare(b.Wasted.TimeMs, a.Wasted.TimeMs),
			cmp.Compare(b.Fallbacks, a.Fallbacks),
			cmp.Compare(b.Executions, a.Executions),
			cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Step, b.Step),
		)
	})
	if limit > 0 && len(t.Steps) > limit {
		t.StepsLeftOff = len(t.Steps) - limit
		t.Steps = t.Steps[:limit]
	}
}

// rounded takes from a sum what depends on the order of its terms: a nanosecond, or a
// millionth of a dollar, is exact enough.
func rounded(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// consumption is RetriesTotal with "not observable" at the end of the order.
func (s *TopStep) consumption() int {
	if s.RetriesTotal == nil {
		return 0
	}
	return *s.RetriesTotal
}

// SortErrors puts the most frequent error first; ties are in the order of the class.
func SortErrors(errors []attribution.ErrorCount) {
	slices.SortFunc(errors, func(a, b attribution.ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.HTTPStatus, b.HTTPStatus))
	})
}
