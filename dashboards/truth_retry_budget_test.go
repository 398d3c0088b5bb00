package dashboards

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// withoutTruth lists panels whose numbers the API does not answer, each with a reason.
var withoutTruth = map[string]string{}

// panelTruths are by UID and title.
var panelTruths = map[string]map[string]panelTruth{
	uidRetryBudget: {
		"How operations ended": howOperationsEnded,
		"Eats most of the budget": {[]string{"step", "layer", "of all retries", "service"}, func(k truth) (s shown) {
			first := retrying(k.top)[0]
			s.row(first.Step, layerMost(first.Retries), first.RetryShare, first.Service)
			return s
		}},
		"Retries ÷ operations": retriesPerOperation,
		"Runs over budget": {[]string{"over budget", "runs"}, func(k truth) (s shown) {
			over := 0
			for _, run := range k.runs.Runs {
				if run.Budget.Exhausted || len(run.StepsOverBudget) > 0 {
					over++
				}
			}
			s.row(over, len(k.runs.Runs))
			return s
		}},
		"Which runs went over their budget": {[]string{"run_id", "service", "retries", "run_limit", "steps", "completion", "outcome"}, func(k truth) (s shown) {
			over := slices.DeleteFunc(slices.Clone(k.runs.Runs), func(r answer.RunSummary) bool {
				return !r.Budget.Exhausted && len(r.StepsOverBudget) == 0
			})
			slices.SortStableFunc(over, func(a, b answer.RunSummary) int {
				return cmp.Or(cmp.Compare(b.Budget.Retries, a.Budget.Retries), cmp.Compare(b.EndedAt.Unix(), a.EndedAt.Unix()), cmp.Compare(a.RunID, b.RunID))
			})
			for _, r := range over[:min(len(over), 100)] {
				s.row(r.RunID, r.Service, r.Budget.Retries, r.Budget.RunLimit, strings.Join(r.StepsOverBudget, ", "), r.Completion, r.Outcome)
			}
			return s
		}},
		"Steps by retries, stacked by layer": {[]string{"name", "transport", "call", "node", "orchestrator", "worker"}, func(k truth) (s shown) {
			services := map[string]int{}
			for _, step := range retrying(k.top) {
				services[step.Step]++
			}
			for i, step := range retrying(k.top) {
				if i == 12 {
					break
				}
				name := step.Step
				if services[name] > 1 {
					name += " · " + step.Service
				}
				row := []any{name}
				for _, n := range layerCounts(step.Retries) { // none is no bar, and no label on it
					if n == 0 {
						row = append(row, nil)
					} else {
						row = append(row, n)
					}
				}
				s.row(row...)
			}
			return s
		}},
		"Retries ÷ operations over time": {[]string{"time", "retries ÷ operations"}, func(k truth) (s shown) {
			for _, f := range k.points(k.pointInterval()) {
				if top := answer.TopOf(k.ledger, f); len(top.Steps) > 0 {
					s.row(f.Since.Truncate(k.pointInterval()), perOperation(top))
				}
			}
			return s
		}},
		"Retries by layer over time":                                  {[]string{"time", "transport", "call", "node", "orchestrator", "worker"}, retriesByPoint},
		"Operations that did not succeed at the first try, over time": operationsOverTime,
		"Steps": {[]string{
			"step", "service", "retries", "share", "transport", "call", "node", "orchestrator", "worker", "fallbacks", "operations",
			"per_operation", "failed_calls", "wasted_tokens", "wasted_s", "wasted_usd", "at_least",
		}, func(k truth) (s shown) {
			steps := slices.Clone(k.top.Steps)
			wasted := func(t answer.TopStep) float64 { return t.Wasted.TimeMs + t.Wasted.WaitMs }
			slices.SortStableFunc(steps, func(a, b answer.TopStep) int {
				return cmp.Or(cmp.Compare(zero(b.RetriesTotal), zero(a.RetriesTotal)), cmp.Compare(wasted(b), wasted(a)),
					cmp.Compare(a.Service, b.Service), cmp.Compare(a.Step, b.Step))
			})
			for _, t := range steps[:min(len(steps), 100)] {
				var share any
				if t.RetriesTotal != nil {
					share = t.RetryShare
				}
				row := []any{t.Step, t.Service, t.RetriesTotal, share}
				for _, n := range layersOf(t.Retries) {
					row = append(row, n)
				}
				var partly []string
				for _, l := range layers {
					if slices.Contains(t.PartlyHidden, attribution.Layer(l.name)) {
						partly = append(partly, l.name)
					}
				}
				s.row(append(row, t.Fallbacks, t.Operations, ofStep(t), t.CallsFailed, knownTokensOf(t.Wasted), wasted(t)/1000, t.Wasted.CostUSD, strings.Join(partly, ", "))...)
			}
			return s
		}},
		"Wasted": {[]string{"tokens", "of all tokens", "lost calls without tokens", "time of lost attempts", "waits", "cost"}, func(k truth) (s shown) {
			var sum attribution.Wasted
			var of int64
			var time, waits float64
			var cost *float64
			for _, t := range k.top.Steps {
				sum.Input += t.Wasted.Input + t.Wasted.Output
				of += t.Tokens.Input + t.Tokens.Output
				sum.UnknownCalls += t.Wasted.UnknownCalls
				time += t.Wasted.TimeMs / 1000
				waits += t.Wasted.WaitMs / 1000
				if t.Wasted.CostUSD != nil {
					total := *t.Wasted.CostUSD
					if cost != nil {
						total += *cost
					}
					cost = &total
				}
			}
			share := any(nil)
			if knownTokensOf(sum) != nil && of > 0 {
				share = float64(sum.Input) / float64(of)
			}
			s.row(knownTokensOf(sum), share, sum.UnknownCalls, time, waits, cost)
			return s
		}},
		"Configured against actual": {[]string{"step", "service", "budget", "most", "worst_case", "over", "runs"}, configured},
		"Where the answer changed": {[]string{"step", "service", "before", "now", "change"}, func(k truth) (s shown) {
			type both struct{ now, before answer.TopStep }
			steps := map[[2]string]*both{}
			of := func(t answer.TopStep) *both {
				key := [2]string{t.Service, t.Step}
				if steps[key] == nil {
					steps[key] = &both{}
				}
				return steps[key]
			}
			for _, t := range k.top.Steps {
				of(t).now = t
			}
			for _, t := range k.before.Steps {
				of(t).before = t
			}
			var keys [][2]string
			for key, b := range steps {
				if zero(b.now.RetriesTotal)+zero(b.before.RetriesTotal) > 0 {
					keys = append(keys, key)
				}
			}
			observed := func(t answer.TopStep) bool { return t.RetriesTotal != nil || t.Operations == 0 }
			change := func(key [2]string) int {
				if b := steps[key]; !observed(b.now) || !observed(b.before) {
					return 0
				}
				return zero(steps[key].now.RetriesTotal) - zero(steps[key].before.RetriesTotal)
			}
			slices.SortFunc(keys, func(a, b [2]string) int {
				return cmp.Or(cmp.Compare(max(change(b), -change(b)), max(change(a), -change(a))), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
			})
			for _, key := range keys[:min(len(keys), 50)] {
				b := steps[key]
				var more any
				if observed(b.now) && observed(b.before) {
					more = change(key)
				}
				s.row(key[1], key[0], ofStep(b.before), ofStep(b.now), more)
			}
			return s
		}},
	},
	uidStep: stepTruths,
}

var howOperationsEnded = panelTruth{[]string{"first try", "after retry", "by fallback", "failed, handled", "failed"}, func(k truth) (s shown) {
	counts := map[string]float64{}
	ended := 0.0
	k.operations(func(o attribution.Operation) {
		counts[outcomeOf(o.Outcome)]++
		if outcomeOf(o.Outcome) != "undecided" {
			ended++
		}
	})
	s.row(counts["first try"]/ended, counts["after retry"]/ended, counts["by fallback"]/ended, counts["failed, handled"]/ended, counts["failed"]/ended)
	return s
}}

var retriesPerOperation = panelTruth{[]string{"retries ÷ operations"}, func(k truth) (s shown) {
	s.row(perOperation(k.top))
	return s
}}

var operationsOverTime = panelTruth{[]string{"time", "after retry", "by fallback", "failed, handled", "failed", "undecided"}, func(k truth) (s shown) {
	for _, f := range k.points(k.pointInterval()) {
		counts, point := map[string]int{}, k
		point.filter = f
		point.operations(func(o attribution.Operation) { counts[outcomeOf(o.Outcome)]++ })
		if len(counts) > 0 {
			s.row(f.Since.Truncate(k.pointInterval()), counts["after retry"], counts["by fallback"], counts["failed, handled"], counts["failed"], counts["undecided"])
		}
	}
	return s
}}

func retriesByPoint(k truth) (s shown) {
	for _, f := range k.points(k.pointInterval()) {
		top := answer.TopOf(k.ledger, f)
		if len(top.Steps) == 0 {
			continue
		}
		row := make([]any, 1+len(layers))
		row[0] = f.Since.Truncate(k.pointInterval())
		for _, step := range top.Steps {
			for i, n := range layersOf(step.Retries) {
				if n != nil { // a sum of what is shown, nil where nothing is
					sum, _ := row[1+i].(int)
					row[1+i] = sum + *n
				}
			}
		}
		s.row(row...)
	}
	return s
}

// configured computes from whole runs what each step consumed at most.
func configured(k truth) (s shown) {
	ended := map[string]bool{}
	for _, run := range k.runs.Runs {
		ended[run.RunID+run.TraceIDs[0]] = true
	}
	type account struct{ limit, most, worst, over, runs int }
	accounts := map[[2]string]*account{}
	for _, run := range k.ledger.Runs {
		if !ended[run.RunID+run.TraceIDs[0]] {
			continue
		}
		for _, step := range run.Steps {
			key := [2]string{run.Service, step.Step}
			a := accounts[key]
			if a == nil {
				a = &account{}
				accounts[key] = a
			}
			a.limit, a.most, a.worst = max(a.limit, step.StepLimit), max(a.most, zero(step.RetriesTotal)), max(a.worst, step.WorstCase)
			a.runs++
			if step.OverBudget {
				a.over++
			}
		}
	}
	var keys [][2]string
	for key, a := range accounts {
		if a.most > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y [2]string) int {
		a, b := accounts[x], accounts[y]
		return cmp.Or(cmp.Compare(b.most-b.limit, a.most-a.limit), cmp.Compare(b.over, a.over), cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
	})
	for _, key := range keys[:min(len(keys), 50)] {
		a := accounts[key]
		var worst any
		if a.worst > 0 {
			worst = a.worst
		}
		s.row(key[1], key[0], a.limit, a.most, worst, a.over, a.runs)
	}
	return s
}
