package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Account turns spans, of any number of runs and in any order, into their ledger.
// Spans with one identity count once. It does not modify its argument.
func Account(spans []schema.Span, opts Options) Ledger {
	ledger := Ledger{Runs: []Run{}, ContractViolations: []ContractViolation{}}
	for _, group := range groupRuns(splitByTrace(spans), opts) {
		if !group.isRun() {
			ledger.UnattributedSpans += len(group.spans)
			ledger.ContractViolations = append(ledger.ContractViolations, looseViolations(group.spans)...)
			continue
		}
		ledger.Runs = append(ledger.Runs, accountRun(group, opts))
	}
	slices.SortFunc(ledger.Runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), strings.Compare(a.RunID, b.RunID), strings.Compare(a.Service, b.Service))
	})
	return ledger
}

// looseViolations are the contract violations of a trace that is no run.
func looseViolations(spans []*schema.Span) []ContractViolation {
	var out violations
	for _, s := range spans {
		for _, v := range s.Violations {
			out.count(v, s.TraceID)
		}
	}
	return out.list
}

// violations are contract violations, each missing key of a node once.
type violations struct {
	list []ContractViolation
	at   map[missingKey]int
}

type missingKey struct{ node, key, direction string }

func (l *violations) count(v schema.Violation, trace schema.TraceID) {
	key := missingKey{v.Node, v.Key, v.Direction}
	if i, ok := l.at[key]; ok {
		have := &l.list[i]
		have.Count++
		have.TimeNs = min(have.TimeNs, v.TimeNs)
		return
	}
	if l.at == nil {
		l.at = make(map[missingKey]int)
	}
	l.at[key] = len(l.list)
	l.list = append(l.list, ContractViolation{Node: v.Node, Key: v.Key, Direction: v.Direction, Count: 1, TraceID: trace, TimeNs: v.TimeNs})
}

// account is one run while its ledger is made. The stages are in the files of
// their names: tree, executions, calls, charges, waste, summary.
type account struct {
	opts  Options
	group *runGroup
	tree  *tree

	newExecutions blocks[execution]
	newCalls      blocks[callCell]
	newSequences  blocks[sequence]

	executions  []*execution
	steps       int // how many they are of
	invented    int // attempts that only numbers tell of
	calls       []*callAttempt
	sites       []sitePlace         // of the spans of the tree, once somebody asked
	failedModel map[*execution]bool // a model call in it failed
	ended       runEnd
	allOver     bool                    // in no trace will a step be entered again
	over        map[schema.TraceID]bool // else those in which none will
	working     map[schema.TraceID]bool // traces that hold work or a flag, once somebody asked for more than the last
	violations  violations
}

func accountRun(group *runGroup, opts Options) Run {
	a := &account{opts: opts, group: group}
	a.tree = plant(group.spanList, len(group.traces), opts)
	a.findExecutions()
	a.observe()
	a.findLimits()
	a.findCalls()
	a.placeViolations()
	a.chargeExecutions()
	a.chargeCounters()
	a.judgeRun()
	a.findEnds()
	a.judgeExecutions()
	a.markWaste()
	return a.summarise()
}
