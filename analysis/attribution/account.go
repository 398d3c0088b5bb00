package attribution

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Account turns spans, of any number of runs and in any order, into their ledger.
// Spans with one identity count once. It does not modify its argument.
func Account(spans []schema.Span, opts Options) Ledger {
	ledger := Ledger{Runs: []Run{}, ContractViolations: []ContractViolation{}}
	for _, group := range groupRuns(unique(spans), opts) {
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

// identity is what makes two rows the same span.
type identity struct {
	trace schema.TraceID
	span  schema.SpanID
}

// unique keeps one span of each identity: of two contents the later end wins, then
// the larger content hash, whose highest byte is how much it says, never the arrival.
func unique(spans []schema.Span) []*schema.Span {
	// Positions, not pointers: a map without pointers costs the collector nothing.
	at := make(map[identity]int32, len(spans))
	out := make([]*schema.Span, 0, len(spans))
	for i := range spans {
		s := &spans[i]
		id := identity{s.TraceID, s.SpanID}
		j, ok := at[id]
		if !ok {
			at[id] = int32(len(out))
			out = append(out, s)
			continue
		}
		if have := out[j]; s.EndNs > have.EndNs || s.EndNs == have.EndNs && s.ContentHash > have.ContentHash {
			out[j] = s
		}
	}
	sortSpans(out)
	return out
}

// sortSpans sorts as compareSpans orders. What decides is gathered first: a
// comparison that reads two rows costs two misses of the cache.
func sortSpans(spans []*schema.Span) {
	type key struct {
		start, end int64
		id         identity
		span       *schema.Span
	}
	keys := make([]key, len(spans))
	for i, s := range spans {
		keys[i] = key{s.StartNs, s.EndNs, identity{s.TraceID, s.SpanID}, s}
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		case a.end != b.end:
			return cmp.Compare(a.end, b.end)
		case a.id.trace != b.id.trace:
			return bytes.Compare(a.id.trace[:], b.id.trace[:])
		}
		return bytes.Compare(a.id.span[:], b.id.span[:])
	})
	for i, k := range keys {
		spans[i] = k.span
	}
}

// compareSpans orders spans by time, and those of one instant by identity, so that
// no result depends on the order of arrival.
func compareSpans(a, b *schema.Span) int {
	switch {
	case a.StartNs != b.StartNs:
		return cmp.Compare(a.StartNs, b.StartNs)
	case a.EndNs != b.EndNs:
		return cmp.Compare(a.EndNs, b.EndNs)
	case a.TraceID != b.TraceID:
		return bytes.Compare(a.TraceID[:], b.TraceID[:])
	}
	return bytes.Compare(a.SpanID[:], b.SpanID[:])
}

// looseViolations are the contract violations of a trace that is no run.
func looseViolations(spans []*schema.Span) []ContractViolation {
	var out []ContractViolation
	for _, s := range spans {
		for _, v := range s.Violations {
			out = mergeViolation(out, v, s.TraceID, 1)
		}
	}
	return out
}

func mergeViolation(list []ContractViolation, v schema.Violation, trace schema.TraceID, count int) []ContractViolation {
	for i := range list {
		if have := &list[i]; have.Node == v.Node && have.Key == v.Key && have.Direction == v.Direction {
			have.Count += count
			have.TimeNs = min(have.TimeNs, v.TimeNs)
			return list
		}
	}
	return append(list, ContractViolation{Node: v.Node, Key: v.Key, Direction: v.Direction, Count: count, TraceID: trace, TimeNs: v.TimeNs})
}

// account is one run while its ledger is made. The stages are in the files of
// their names: tree, executions, calls, charges, waste, summary.
type account struct {
	opts  Options
	group *runGroup
	tree  *tree

	executions  []*execution
	calls       []*callAttempt
	cells       []callCell          // of calls to come
	sites       []sitePlace         // of the spans of the tree, once somebody asked
	failedModel map[*execution]bool // a model call in it failed
	models      modelNames
	ended       runEnd
	over        map[schema.TraceID]bool // traces in which no step will be entered again
	violations  []ContractViolation
}

func accountRun(group *runGroup, opts Options) Run {
	a := &account{opts: opts, group: group}
	a.tree = plant(group.spans, opts)
	a.models = modelNamesOf(group.spans)
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
