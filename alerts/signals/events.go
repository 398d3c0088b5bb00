package signals

import (
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Events are the countable things in one row of the ledger, in no particular order.
// They depend on the row alone.
func Events(row *schema.LedgerRow) []Event {
	var events []Event
	each(row, func(e Event) { events = append(events, e) })
	return events
}

// The words of the ledger (docs/accounting.md) that decide what counts.
const (
	grainExecution = "execution"
	grainCall      = "call"

	endingSucceeded = "succeeded"
	endingFailed    = "failed"
	endingUnknown   = "unknown"

	chargeFallback = "fallback"
)

// verdict says of an operation's outcome whether it counts, and as what.
func verdict(outcome string) (counts, failed bool) {
	switch outcome {
	case "succeeded_first_try", "succeeded_after_retry", "succeeded_by_fallback":
		return true, false
	case "failed_without_retry", "failed_after_retry", "handled":
		return true, true
	}
	return false, false // interrupted, cancelled, unknown
}

// each hands every event of a row to add.
func each(row *schema.LedgerRow, add func(Event)) {
	at := func(endNs int64) int64 { return schema.BoundedEnd(endNs, row.LastReceivedNs) }
	ofRun := func(run uint32) Labels {
		if int(run) >= len(row.Runs) {
			return Labels{}
		}
		r := &row.Runs[run]
		return Labels{Service: r.Service, Environment: r.Environment, Version: r.Version}
	}
	for i := range row.Runs {
		if r := &row.Runs[i]; r.Anchor {
			eachOfRun(r, ofRun(uint32(i)), at(r.EndNs), add)
		}
	}
	for i := range row.Operations {
		o := &row.Operations[i]
		eachOfOperation(o, ofRun(o.Run).With(Step, o.Step), at(o.EndNs), add)
	}
	for i := range row.Attempts {
		a := &row.Attempts[i]
		eachOfAttempt(a, ofRun(a.Run).With(Step, a.Step), at(a.EndNs), add)
	}
	placed := violatedSteps(row)
	for i := range row.Violations {
		if v := &row.Violations[i]; !placed[stepOfRun{v.Run, v.Node}] {
			var labels Labels
			if v.Run >= 0 {
				labels = ofRun(uint32(v.Run))
			}
			add(Event{
				Signal: ContractViolationRatio, Labels: labels.With(Step, v.Node), AtNs: at(v.TimeNs), Numerator: v.Count, Denominator: v.Count,
			})
		}
	}
}

type stepOfRun struct {
	run  int64
	step string
}

// violatedSteps are the steps with an execution that stands for a violation. A violation
// of any other node counts as an execution that only the violation tells of.
func violatedSteps(row *schema.LedgerRow) map[stepOfRun]bool {
	if len(row.Violations) == 0 {
		return nil
	}
	found := make(map[stepOfRun]bool)
	for i := range row.Attempts {
		if a := &row.Attempts[i]; a.Violated {
			found[stepOfRun{int64(a.Run), a.Step}] = true
		}
	}
	return found
}

func eachOfRun(r *schema.RunRow, labels Labels, atNs int64, add func(Event)) {
	switch r.Completion {
	case "complete", "failed", "unflagged":
		add(Event{Signal: IncompleteRunRatio, Labels: labels, AtNs: atNs, Denominator: 1})
	case "incomplete", "orphaned":
		add(Event{Signal: IncompleteRunRatio, Labels: labels, AtNs: atNs, Numerator: 1, Denominator: 1})
	}
	add(Event{Signal: BudgetExhaustedRatio, Labels: labels, AtNs: atNs, Numerator: one(r.Exhausted), Denominator: 1})
}

func eachOfOperation(o *schema.OperationRow, ofStep Labels, atNs int64, add func(Event)) {
	if o.CountsInStep {
		add(Event{Signal: RetryRatio, Labels: ofStep, AtNs: atNs, Denominator: 1})
		add(Event{Signal: FallbackRatio, Labels: ofStep, AtNs: atNs, Numerator: one(o.Fallbacks > 0), Denominator: 1})
	}
	counts, failed := verdict(o.Outcome)
	if !counts {
		return
	}
	e := Event{Signal: OperationErrorRatio, Labels: ofStep, AtNs: atNs, Numerator: one(failed), Denominator: 1, Unsettled: failed && !o.Settled}
	if o.Grain != grainExecution {
		if !o.CountsInStep {
			return
		}
		e.Signal, e.Labels.Provider = CallOperationErrorRatio, o.Provider
	}
	add(e)
}

func eachOfAttempt(a *schema.AttemptRow, ofStep Labels, atNs int64, add func(Event)) {
	ofCall := ofStep.With(Provider, a.Provider)
	if a.Charge != "" && a.Charge != chargeFallback && !a.Hidden {
		add(Event{Signal: RetryRatio, Labels: ofStep, AtNs: atNs, Numerator: 1})
	}
	succeeded, failed := a.Ending == endingSucceeded, a.Ending == endingFailed
	if a.Request && (succeeded || failed || a.Ending == endingUnknown) {
		add(Event{Signal: ServerErrorRatio, Labels: ofCall, AtNs: atNs, Numerator: one(isServerError(a)), Denominator: 1})
		add(Event{Signal: ThrottledRatio, Labels: ofCall, AtNs: atNs, Numerator: one(isThrottled(a)), Denominator: 1})
	}
	switch {
	case a.Grain == grainExecution && (a.Violated || a.Ending != endingUnknown):
		add(Event{Signal: ContractViolationRatio, Labels: ofStep, AtNs: atNs, Numerator: one(a.Violated), Denominator: 1})
	case a.Grain == grainCall && a.Counted:
		if succeeded || failed {
			add(Event{Signal: AttemptErrorRatio, Labels: ofCall, AtNs: atNs, Numerator: one(failed), Denominator: 1})
		}
		if succeeded || a.Midway {
			add(Event{Signal: StreamMidwayFailureRatio, Labels: ofCall, AtNs: atNs, Numerator: one(a.Midway), Denominator: 1})
		}
		if tokens := stated(a.InputTokens) + stated(a.OutputTokens); tokens > 0 {
			add(Event{Signal: WastedTokenRatio, Labels: ofCall, AtNs: atNs, Numerator: tokens * one(a.Wasted), Denominator: tokens})
		}
	}
}

// serverErrors and throttles are classes of error, in lower case without underscores
// and without a closing "error" or "exception", that say what no status says.
var (
	serverErrors = []string{"badgateway", "gatewaytimeout", "internal", "internalfailure", "internalserver", "overloaded", "server", "serviceunavailable", "unavailable"}
	throttles    = []string{"ratelimit", "ratelimited", "ratelimitexceeded", "requestlimitexceeded", "resourceexhausted", "throttled", "throttling", "toomanyrequests"}
)

func isServerError(a *schema.AttemptRow) bool {
	if a.HTTPStatus != 0 {
		return a.HTTPStatus >= 500 && a.HTTPStatus < 600
	}
	return says(a, serverErrors)
}

func isThrottled(a *schema.AttemptRow) bool {
	if a.HTTPStatus != 0 {
		return a.HTTPStatus == 429
	}
	return says(a, throttles)
}

func says(a *schema.AttemptRow, classes []string) bool {
	if a.ErrorClass == "" || a.Ending == endingSucceeded {
		return false
	}
	class := strings.ReplaceAll(strings.ToLower(a.ErrorClass), "_", "")
	class = strings.TrimSuffix(strings.TrimSuffix(class, "error"), "exception")
	return slices.Contains(classes, class)
}

// stated are tokens that are known; unknown ones count on neither side.
func stated(tokens *int64) int64 {
	if tokens == nil {
		return 0
	}
	return max(*tokens, 0)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
