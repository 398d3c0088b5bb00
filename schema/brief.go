package schema

import (
	"unique"
)

// Word is a text that many rows share: equal words are one pointer, so that they are
// compared and hashed without a look at their letters. The zero Word is for a word that
// is not stated at all; one that is stated as empty has the value "".
type Word = unique.Handle[string]

// A Brief is a row of the ledger as the signals of alerts look at it. The store keeps
// it in one column: reading forty arrays costs more than anything else in a second's
// evaluation. Ends are bounded by the time of receipt, as BoundedEnd has it, in
// nanoseconds since the epoch; read from the store they are in whole seconds, rounded up.
type Brief struct {
	TraceID    TraceID
	Version    LedgerVersion
	Runs       []BriefRun
	Operations []BriefOperation
	Attempts   []BriefAttempt
	Violations []BriefViolation
}

// BriefRun is of a RunRow.
type BriefRun struct {
	Service, Environment, Version, Completion Word
	Anchor, Exhausted                         bool
	EndNs                                     int64
}

// BriefOperation is of an OperationRow.
type BriefOperation struct {
	Run                            uint32
	Step, Grain, Outcome, Provider Word
	FellBack                       bool // at least one fallback candidate ran
	CountsInStep, Settled          bool
	EndNs                          int64
}

// BriefAttempt is of an AttemptRow.
type BriefAttempt struct {
	Run                                               uint32
	Step, Grain, Ending, Charge, Provider, ErrorClass Word  // no charge of a repeat in a layer that the instrumentation hides
	HTTPStatus                                        int64 // 0 to 65535
	Tokens                                            int64 // of input and output, those that are stated
	Counted, Wasted, Request, Midway, Violated        bool
	EndNs                                             int64
}

// BriefViolation is of a ViolationRow.
type BriefViolation struct {
	Run    int64
	Node   Word
	Count  int64
	TimeNs int64
}

// BriefOf is the brief of a row, as the store makes it, but for the rounding of ends.
func BriefOf(row *LedgerRow) *Brief {
	at := func(ns int64) int64 { return BoundedEnd(ns, row.LastReceivedNs) }
	b := &Brief{TraceID: row.TraceID, Version: row.Version}
	for i := range row.Runs {
		r := &row.Runs[i]
		b.Runs = append(b.Runs, BriefRun{
			Service: unique.Make(r.Service), Environment: unique.Make(r.Environment), Version: unique.Make(r.Version),
			Completion: unique.Make(r.Completion), Anchor: r.Anchor, Exhausted: r.Exhausted, EndNs: at(r.EndNs),
		})
	}
	for i := range row.Operations {
		o := &row.Operations[i]
		b.Operations = append(b.Operations, BriefOperation{
			Run: o.Run, Step: unique.Make(o.Step), Grain: unique.Make(o.Grain), Outcome: unique.Make(o.Outcome), Provider: unique.Make(o.Provider),
			FellBack: o.Fallbacks > 0, CountsInStep: o.CountsInStep, Settled: o.Settled, EndNs: at(o.EndNs),
		})
	}
	for i := range row.Attempts {
		a := &row.Attempts[i]
		charge := a.Charge
		if a.Hidden {
			charge = ""
		}
		b.Attempts = append(b.Attempts, BriefAttempt{
			Run: a.Run, Step: unique.Make(a.Step), Grain: unique.Make(a.Grain), Ending: unique.Make(a.Ending), Charge: unique.Make(charge),
			Provider: unique.Make(a.Provider), ErrorClass: unique.Make(a.ErrorClass), HTTPStatus: min(max(a.HTTPStatus, 0), 65535),
			Tokens: stated(a.InputTokens) + stated(a.OutputTokens), Counted: a.Counted, Wasted: a.Wasted, Request: a.Request,
			Midway: a.Midway, Violated: a.Violated, EndNs: at(a.EndNs),
		})
	}
	for i := range row.Violations {
		v := &row.Violations[i]
		b.Violations = append(b.Violations, BriefViolation{Run: v.Run, Node: unique.Make(v.Node), Count: v.Count, TimeNs: at(v.TimeNs)})
	}
	return b
}

// stated are tokens that are known; unknown ones are none.
func stated(tokens *int64) int64 {
	if tokens == nil {
		return 0
	}
	return max(*tokens, 0)
}
