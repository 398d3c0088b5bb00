package dashboards

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// countedAttempts calls f for each counted attempt that ended in the window.
func (k truth) countedAttempts(f func(run *attribution.Run, a *attribution.Attempt)) {
	for i := range k.ledger.Runs {
		run := &k.ledger.Runs[i]
		if k.filter.Service != "" && run.Service != k.filter.Service {
			continue
		}
		for j := range run.Attempts {
			a := &run.Attempts[j]
			if at := time.Unix(0, a.EndNs); a.Counted && a.Step != "" && !at.Before(k.filter.Since) && at.Before(k.filter.Until) {
				f(run, a)
			}
		}
	}
}

// tookTo is the power of two that an attempt took at most, in milliseconds.
func tookTo(a *attribution.Attempt) int {
	ms := max(1, float64(a.EndNs-a.StartNs)/1e6)
	return int(math.Exp2(math.Ceil(math.Log2(ms))))
}

func fraction(of, all int) any {
	if all == 0 {
		return nil
	}
	return float64(of) / float64(all)
}

var stepTruths = map[string]panelTruth{
	"How operations ended": howOperationsEnded,
	"Retries ÷ operations": retriesPerOperation,
	"Operations that did not succeed at the first try, over time": operationsOverTime,
	"Retries by layer over time":                                  {[]string{"time", "transport", "call", "node", "orchestrator", "worker"}, retriesByPoint},
	"Yield of each attempt": {[]string{"attempt", "model calls", "executions"}, func(k truth) (s shown) {
		type made struct{ calls, good, executions, fine int }
		by := map[int]*made{}
		k.countedAttempts(func(_ *attribution.Run, a *attribution.Attempt) {
			if a.Ordinal < 1 || a.Ordinal > 12 || a.Grain != attribution.GrainCall && a.Grain != attribution.GrainExecution {
				return
			}
			if by[a.Ordinal] == nil {
				by[a.Ordinal] = &made{}
			}
			good := 0
			if a.Ending == attribution.EndingSucceeded {
				good = 1
			}
			if m := by[a.Ordinal]; a.Grain == attribution.GrainCall {
				m.calls, m.good = m.calls+1, m.good+good
			} else {
				m.executions, m.fine = m.executions+1, m.fine+good
			}
		})
		for n := 1; n <= 12; n++ {
			if m := by[n]; m != nil {
				s.row(n, fraction(m.good, m.calls), fraction(m.fine, m.executions))
			}
		}
		return s
	}},
	"Executions per run": {[]string{"executions", "runs"}, func(k truth) (s shown) {
		ended := map[string]bool{}
		for _, run := range k.runs.Runs {
			ended[run.RunID+run.TraceIDs[0]] = true
		}
		counts := map[int]int{}
		for _, run := range k.ledger.Runs {
			if !ended[run.RunID+run.TraceIDs[0]] {
				continue
			}
			for _, step := range run.Steps {
				counts[min(step.Executions, 12)]++
			}
		}
		for n := range 13 {
			if counts[n] > 0 {
				name := strconv.Itoa(n)
				if n == 12 {
					name = "12+"
				}
				s.row(name, counts[n])
			}
		}
		return s
	}},
	"Errors": {[]string{"error", "status", "calls", "executions"}, func(k truth) (s shown) {
		type cause struct {
			class  string
			status int
		}
		counts := map[cause]*[2]int{}
		k.countedAttempts(func(_ *attribution.Run, a *attribution.Attempt) {
			at := slices.Index([]attribution.Grain{attribution.GrainCall, attribution.GrainExecution}, a.Grain)
			if at < 0 || a.Ending != attribution.EndingFailed {
				return
			}
			key := cause{a.ErrorClass, a.HTTPStatus}
			if key.class == "" {
				key.class = notStated
			}
			if counts[key] == nil {
				counts[key] = &[2]int{}
			}
			counts[key][at]++
		})
		var keys []cause
		for key := range counts {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b cause) int {
			x, y := counts[a], counts[b]
			return cmp.Or(cmp.Compare(y[0]+y[1], x[0]+x[1]), cmp.Compare(a.class, b.class), cmp.Compare(a.status, b.status))
		})
		for _, key := range keys[:min(len(keys), 50)] {
			s.row(key.class, key.status, counts[key][0], counts[key][1])
		}
		return s
	}},
	"Futile chains, by error": {[]string{"error", "failed", "futile", "share", "further"}, func(k truth) (s shown) {
		type sums struct{ failed, futile, further int }
		by := map[string]*sums{}
		k.operations(func(o attribution.Operation) {
			if o.Attempts < 2 || o.Outcome != attribution.OutcomeFailedAfterRetry && o.Outcome != attribution.OutcomeHandled {
				return
			}
			name := cmp.Or(o.LastError, notStated)
			if by[name] == nil {
				by[name] = &sums{}
			}
			by[name].failed++
			by[name].further += o.Attempts - 1
			if o.Futile {
				by[name].futile++
			}
		})
		var names []string
		for name := range by {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(by[b].futile, by[a].futile), cmp.Compare(by[b].failed, by[a].failed), cmp.Compare(a, b))
		})
		for _, name := range names {
			n := by[name]
			s.row(name, n.failed, n.futile, fraction(n.futile, n.failed), n.further)
		}
		return s
	}},
	"Wait before the next attempt": {[]string{"attempt", "mean wait"}, func(k truth) (s shown) {
		sums, counts := map[int]float64{}, map[int]float64{}
		k.countedAttempts(func(_ *attribution.Run, a *attribution.Attempt) {
			if a.WaitMs > 0 {
				sums[a.Ordinal] += a.WaitMs
				counts[a.Ordinal]++
			}
		})
		for n := 1; n <= 12; n++ {
			if counts[n] > 0 {
				s.row(n, sums[n]/counts[n])
			}
		}
		return s
	}},
	"How long model calls take that succeed": {[]string{"half, within", "95 %, within", "suggested timeout: 99 %, within", "calls"}, func(k truth) (s shown) {
		var took []int
		k.countedAttempts(func(_ *attribution.Run, a *attribution.Attempt) {
			if a.Grain == attribution.GrainCall && a.Ending == attribution.EndingSucceeded {
				took = append(took, tookTo(a))
			}
		})
		slices.Sort(took)
		of := func(share float64) int { return took[int(math.Ceil(share*float64(len(took))))-1] }
		s.row(of(0.5), of(0.95), of(0.99), len(took))
		return s
	}},
	"How long model calls take": {[]string{"within", "succeeded", "failed"}, func(k truth) (s shown) {
		counts := map[int]*[2]int{}
		k.countedAttempts(func(_ *attribution.Run, a *attribution.Attempt) {
			at := slices.Index([]attribution.Ending{attribution.EndingSucceeded, attribution.EndingFailed}, a.Ending)
			if at < 0 || a.Grain != attribution.GrainCall {
				return
			}
			if counts[tookTo(a)] == nil {
				counts[tookTo(a)] = &[2]int{}
			}
			counts[tookTo(a)][at]++
		})
		for ms := 1; ms < 1<<40; ms *= 2 {
			if n := counts[ms]; n != nil {
				s.row(fmt.Sprint(ms, " ms"), n[0], n[1])
			}
		}
		return s
	}},
	"Runs with the step that retried": {[]string{"run_id", "service", "retries", "run_limit", "over", "completion", "outcome"}, func(k truth) (s shown) {
		for _, r := range k.byRetries()[:min(len(k.runs.Runs), 100)] {
			if r.Budget.Retries > 0 {
				s.row(r.RunID, r.Service, r.Budget.Retries, r.Budget.RunLimit, strings.Join(r.StepsOverBudget, ", "), r.Completion, r.Outcome)
			}
		}
		return s
	}},
	"Versions": {[]string{"version", "service", "all_operations", "first_try", "after_retry", "by_fallback", "lost", "retries"}, func(k truth) (s shown) {
		type release struct{ version, service string }
		first := map[release]int64{}
		see := func(key release, ns int64) {
			at := k.seenAt(ns)
			if was, ok := first[key]; !ok || at < was {
				first[key] = at
			}
		}
		of := map[release]attribution.Ledger{}
		for _, run := range k.ledger.Runs {
			key := release{cmp.Or(run.Version, notStated), run.Service}
			one := of[key]
			one.Runs = append(one.Runs, run)
			of[key] = one
		}
		outcomes := map[release]map[string]int{}
		for key, ledger := range of {
			part := k
			part.ledger = ledger
			outcomes[key] = map[string]int{}
			part.operations(func(o attribution.Operation) {
				outcomes[key][outcomeOf(o.Outcome)]++
				see(key, o.EndNs)
			})
			for _, run := range ledger.Runs {
				if k.filter.Service != "" && run.Service != k.filter.Service {
					continue
				}
				for _, a := range run.Attempts {
					if at := time.Unix(0, a.EndNs); a.Step != "" && !at.Before(k.filter.Since) && at.Before(k.filter.Until) {
						see(key, a.EndNs)
					}
				}
			}
		}
		var keys []release
		for key, counts := range outcomes {
			if len(counts) > 0 {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, func(a, b release) int {
			return cmp.Or(cmp.Compare(first[b], first[a]), cmp.Compare(a.service, b.service), cmp.Compare(a.version, b.version))
		})
		for _, key := range keys[:min(len(keys), 50)] {
			n, all := outcomes[key], 0
			for _, count := range n {
				all += count
			}
			ended := all - n["undecided"]
			s.row(key.version, key.service, all, fraction(n["first try"], ended), fraction(n["after retry"], ended), fraction(n["by fallback"], ended),
				fraction(n["failed"]+n["failed, handled"], ended), perOperation(answer.TopOf(of[key], k.filter)))
		}
		return s
	}},
}
