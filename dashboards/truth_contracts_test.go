package dashboards

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

func init() { panelTruths[uidContracts] = contractTruths }

var contractTruths = map[string]panelTruth{
	"Contract violations": {[]string{"violations", "runs with them"}, func(k truth) (s shown) {
		n, runs := 0, map[string]bool{}
		k.violations(func(run attribution.Run, v attribution.ContractViolation) {
			n += v.Count
			if run.RunID != "" {
				runs[run.Service+run.Environment+run.RunID] = true
			}
		})
		if n > 0 {
			s.row(n, len(runs))
		}
		return s
	}},
	"Runs that did not complete, or came again": {
		[]string{"incomplete", "failed", "cancelled", "orphaned", "delivered again", "poison pills", "with warnings"},
		func(k truth) (s shown) {
			states, again, poison, warned := map[string]int{}, 0, 0, 0
			for _, r := range k.runs.Runs {
				states[r.Completion]++
				again += one(r.Deliveries > 1)
				poison += one(r.PoisonPill)
				warned += one(len(k.account(r).Warnings) > 0)
			}
			s.row(states["incomplete"], states["failed"], states["cancelled"], states["orphaned"], again, poison, warned)
			return s
		},
	},
	"Runs by completion over time": {
		[]string{"time", "complete", "unflagged", "running", "interrupted", "cancelled", "incomplete", "orphaned", "failed"},
		func(k truth) (s shown) {
			for _, f := range k.points(k.pointInterval()) {
				states := map[string]int{}
				for _, r := range k.runs.Runs {
					if !r.EndedAt.Before(f.Since) && r.EndedAt.Before(f.Until) {
						states[r.Completion]++
					}
				}
				if len(states) > 0 {
					s.row(f.Since.Truncate(k.pointInterval()), states["complete"], states["unflagged"], states["running"], states["interrupted"],
						states["cancelled"], states["incomplete"], states["orphaned"], states["failed"])
				}
			}
			return s
		},
	},
	"Runs by completion": {[]string{"completion", "runs", "share", "quarantine"}, func(k truth) (s shown) {
		states, quarantined := map[string]int{}, map[string]string{}
		for _, r := range k.runs.Runs {
			states[r.Completion]++
			if r.Quarantined {
				quarantined[r.Completion] = "in quarantine"
			}
		}
		for _, name := range most(states) {
			s.row(name, states[name], float64(states[name])/float64(len(k.runs.Runs)), quarantined[name])
		}
		return s
	}},
	"Who misses which key": {[]string{"node", "key", "direction", "service", "violations", "runs", "last", "last_run"}, func(k truth) (s shown) {
		counts, groups := map[string]int{}, map[string]*happenings{}
		k.violations(func(run attribution.Run, v attribution.ContractViolation) {
			key := strings.Join([]string{v.Node, v.Key, v.Direction, cmp.Or(run.Service, notStated)}, "\x00")
			counts[key] += v.Count
			happened(groups, key).at(run, v.TimeNs)
		})
		for _, key := range most(counts) {
			p, g := strings.Split(key, "\x00"), groups[key]
			s.row(p[0], p[1], p[2], p[3], counts[key], len(g.runs), time.Unix(0, g.lastNs).Truncate(time.Second), g.last)
		}
		return s
	}},
	"Contract violations over time": {[]string{"time", "input", "output"}, func(k truth) (s shown) {
		for _, f := range k.points(k.pointInterval()) {
			counts, point := map[string]int{}, k
			point.filter = f
			point.violations(func(_ attribution.Run, v attribution.ContractViolation) { counts[v.Direction] += v.Count })
			if len(counts) > 0 {
				s.row(f.Since.Truncate(k.pointInterval()), counts["input"], counts["output"])
			}
		}
		return s
	}},
	"Steps that did not finish": {[]string{"step", "service", "runs", "quarantined", "last", "last_run"}, func(k truth) (s shown) {
		counts, quarantined, groups := map[string]int{}, map[string]int{}, map[string]*happenings{}
		for _, r := range k.runs.Runs {
			for _, step := range r.UnfinishedSteps {
				key := step + "\x00" + r.Service
				counts[key]++
				quarantined[key] += one(r.Quarantined)
				happened(groups, key).at(k.account(r), r.EndedAt.UnixNano())
			}
		}
		for _, key := range most(counts)[:min(len(counts), 100)] {
			step, service, _ := strings.Cut(key, "\x00")
			g := groups[key]
			s.row(step, service, counts[key], quarantined[key], time.Unix(0, g.lastNs).Truncate(time.Second), g.last)
		}
		return s
	}},
	"Deliveries": {[]string{"deliveries", "runs", "complete", "quarantined", "poison_pills"}, func(k truth) (s shown) {
		counts := map[int]*[4]int{}
		var order []int
		for _, r := range k.runs.Runs {
			c := counts[r.Deliveries]
			if c == nil {
				c = &[4]int{}
				counts[r.Deliveries] = c
				order = append(order, r.Deliveries)
			}
			for i, is := range []bool{true, r.Completion == "complete", r.Quarantined, r.PoisonPill} {
				c[i] += one(is)
			}
		}
		slices.Sort(order)
		for _, n := range order {
			c := counts[n]
			s.row(n, c[0], c[1], c[2], c[3])
		}
		return s
	}},
	"Orphans": {[]string{"run_id", "service", "completion", "outcome", "orphan_spans", "spans", "unfinished", "deliveries"}, func(k truth) (s shown) {
		for _, r := range k.lastFirst(func(r answer.RunSummary) bool { return r.Completion == "orphaned" || r.OrphanSpans > 0 }) {
			s.row(r.RunID, r.Service, r.Completion, r.Outcome, r.OrphanSpans, r.Spans, strings.Join(r.UnfinishedSteps, ", "), r.Deliveries)
		}
		return s[:min(len(s), 100)]
	}},
	"Poison pills": {[]string{"run_id", "service", "deliveries", "completion", "unfinished"}, func(k truth) (s shown) {
		runs := k.lastFirst(func(r answer.RunSummary) bool { return r.PoisonPill })
		slices.SortStableFunc(runs, func(a, b answer.RunSummary) int { return cmp.Compare(b.Deliveries, a.Deliveries) })
		for _, r := range runs {
			s.row(r.RunID, r.Service, r.Deliveries, r.Completion, strings.Join(r.UnfinishedSteps, ", "))
		}
		return s
	}},
	"Warnings": {[]string{"warning", "service", "runs", "last_run"}, func(k truth) (s shown) {
		counts, groups := map[string]int{}, map[string]*happenings{}
		for _, r := range k.runs.Runs {
			for _, warning := range k.account(r).Warnings {
				key := warning + "\x00" + r.Service
				counts[key]++
				happened(groups, key).at(k.account(r), r.EndedAt.UnixNano())
			}
		}
		for _, key := range most(counts) {
			warning, service, _ := strings.Cut(key, "\x00")
			s.row(warning, service, counts[key], groups[key].last)
		}
		return s
	}},
}

// violations calls f for each contract violation of the window, also those of no run.
func (k truth) violations(f func(attribution.Run, attribution.ContractViolation)) {
	within := func(v attribution.ContractViolation) bool {
		at := time.Unix(0, v.TimeNs)
		return !at.Before(k.filter.Since) && at.Before(k.filter.Until)
	}
	for _, run := range k.ledger.Runs {
		for _, v := range run.ContractViolations {
			if within(v) && (k.filter.Service == "" || run.Service == k.filter.Service) {
				f(run, v)
			}
		}
	}
	for _, v := range k.ledger.ContractViolations {
		if within(v) && k.filter.Service == "" {
			f(attribution.Run{}, v)
		}
	}
}

// lastFirst are the runs of one kind, the last to end first.
func (k truth) lastFirst(is func(answer.RunSummary) bool) []answer.RunSummary {
	runs := slices.DeleteFunc(slices.Clone(k.runs.Runs), func(r answer.RunSummary) bool { return !is(r) })
	slices.SortFunc(runs, func(a, b answer.RunSummary) int {
		return cmp.Or(b.EndedAt.Compare(a.EndedAt), cmp.Compare(b.TraceIDs[0], a.TraceIDs[0]), cmp.Compare(b.RunID, a.RunID))
	})
	return runs
}

// happenings are the runs in which something happened, and the last of them.
type happenings struct {
	runs   map[string]bool
	lastNs int64
	last   string // run id
}

func happened(groups map[string]*happenings, key string) *happenings {
	if groups[key] == nil {
		groups[key] = &happenings{runs: map[string]bool{}}
	}
	return groups[key]
}

func (h *happenings) at(run attribution.Run, ns int64) {
	if run.RunID != "" {
		h.runs[run.Service+run.Environment+run.RunID] = true
	}
	if ns > h.lastNs || ns == h.lastNs && run.RunID > h.last {
		h.lastNs, h.last = ns, run.RunID
	}
}

// most are the keys of the largest counts first, then by their text.
func most(counts map[string]int) []string {
	var keys []string
	for key := range counts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	return keys
}
