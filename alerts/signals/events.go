package signals

import (
	"slices"
	"strings"
	"unique"

	"github.com/retryledger/retryledger/schema"
)

// Events are the countable things in one row of the ledger, in no particular order.
// They depend on the row alone.
func Events(row *schema.LedgerRow) []Event { return EventsOf(schema.BriefOf(row)) }

// EventsOf are the countable things in a brief row.
func EventsOf(b *schema.Brief) []Event {
	var events []Event
	each(b, func(o occurrence) { events = append(events, o.event()) })
	return events
}

// occurrence is an Event by what the row says in itself.
type occurrence struct {
	signal                 int              // its place in definitions
	run                    *schema.BriefRun // nil: not known
	step, provider         schema.Word      // zero where the signal lacks the dimension
	atNs                   int64
	numerator, denominator int64
	unsettled              bool
}

func (o *occurrence) event() Event {
	return Event{
		Signal: definitions[o.signal].signal, Labels: o.place().labels(), AtNs: o.atNs,
		Numerator: o.numerator, Denominator: o.denominator, Unsettled: o.unsettled,
	}
}

// place is Labels as words.
type place struct{ service, environment, version, step, provider schema.Word }

func (o *occurrence) place() place {
	if o.run == nil {
		return place{step: o.step, provider: o.provider}
	}
	return place{o.run.Service, o.run.Environment, o.run.Version, o.step, o.provider}
}

func (p place) labels() Labels {
	return Labels{Service: text(p.service), Environment: text(p.environment), Version: text(p.version), Step: text(p.step), Provider: text(p.provider)}
}

var noWord schema.Word

func text(w schema.Word) string {
	if w == noWord {
		return ""
	}
	return w.Value()
}

// The words of the ledger (docs/accounting.md) that decide what counts.
var (
	emptyWord = unique.Make("")

	grainExecution = unique.Make("execution")
	grainCall      = unique.Make("call")

	endingSucceeded = unique.Make("succeeded")
	endingFailed    = unique.Make("failed")
	endingUnknown   = unique.Make("unknown")

	chargeFallback = unique.Make("fallback")

	successes = []schema.Word{unique.Make("succeeded_first_try"), unique.Make("succeeded_after_retry"), unique.Make("succeeded_by_fallback")}
	failures  = []schema.Word{unique.Make("failed_without_retry"), unique.Make("failed_after_retry"), unique.Make("handled")}

	over       = []schema.Word{unique.Make("complete"), unique.Make("failed"), unique.Make("unflagged")}
	unfinished = []schema.Word{unique.Make("incomplete"), unique.Make("orphaned")}
)

// each hands everything countable of a row to add.
func each(b *schema.Brief, add func(occurrence)) {
	ofRun := func(run uint32) *schema.BriefRun {
		if int(run) >= len(b.Runs) {
			return nil
		}
		return &b.Runs[run]
	}
	for i := range b.Runs {
		if r := &b.Runs[i]; r.Anchor {
			eachOfRun(r, add)
		}
	}
	for i := range b.Operations {
		o := &b.Operations[i]
		eachOfOperation(o, ofRun(o.Run), add)
	}
	for i := range b.Attempts {
		a := &b.Attempts[i]
		eachOfAttempt(a, ofRun(a.Run), add)
	}
	placed := violatedSteps(b)
	for i := range b.Violations {
		if v := &b.Violations[i]; !placed[stepOfRun{v.Run, v.Node}] {
			o := occurrence{signal: contractViolation, step: v.Node, atNs: v.TimeNs, numerator: v.Count, denominator: v.Count}
			if v.Run >= 0 {
				o.run = ofRun(uint32(v.Run))
			}
			add(o)
		}
	}
}

type stepOfRun struct {
	run  int64
	step schema.Word
}

// violatedSteps are the steps with an execution that stands for a violation. A violation
// of any other node counts as an execution that only the violation tells of.
func violatedSteps(b *schema.Brief) map[stepOfRun]bool {
	if len(b.Violations) == 0 {
		return nil
	}
	found := make(map[stepOfRun]bool)
	for i := range b.Attempts {
		if a := &b.Attempts[i]; a.Violated {
			found[stepOfRun{int64(a.Run), a.Step}] = true
		}
	}
	return found
}

func eachOfRun(r *schema.BriefRun, add func(occurrence)) {
	o := occurrence{signal: incompleteRun, run: r, atNs: r.EndNs, denominator: 1}
	switch {
	case slices.Contains(over, r.Completion):
		add(o)
	case slices.Contains(unfinished, r.Completion):
		o.numerator = 1
		add(o)
	}
	o.signal, o.numerator = budgetExhausted, one(r.Exhausted)
	add(o)
}

func eachOfOperation(row *schema.BriefOperation, run *schema.BriefRun, add func(occurrence)) {
	o := occurrence{run: run, step: row.Step, atNs: row.EndNs, denominator: 1}
	if row.CountsInStep {
		o.signal = retry
		add(o)
		o.signal, o.numerator = fallback, one(row.FellBack)
		add(o)
	}
	failed := slices.Contains(failures, row.Outcome)
	if !failed && !slices.Contains(successes, row.Outcome) {
		return // interrupted, cancelled, unknown
	}
	o.signal, o.numerator, o.unsettled = operationError, one(failed), failed && !row.Settled
	if row.Grain != grainExecution {
		if !row.CountsInStep {
			return
		}
		o.signal, o.provider = callOperationError, row.Provider
	}
	add(o)
}

func eachOfAttempt(a *schema.BriefAttempt, run *schema.BriefRun, add func(occurrence)) {
	o := occurrence{run: run, step: a.Step, atNs: a.EndNs, denominator: 1}
	if a.Charge != emptyWord && a.Charge != chargeFallback {
		retried := o
		retried.signal, retried.numerator, retried.denominator = retry, 1, 0
		add(retried)
	}
	if a.Grain == grainExecution {
		if a.Violated || a.Ending != endingUnknown {
			o.signal, o.numerator = contractViolation, one(a.Violated)
			add(o)
			o.numerator = 0
		}
	}
	o.provider = a.Provider
	succeeded, failed := a.Ending == endingSucceeded, a.Ending == endingFailed
	if a.Request && (succeeded || failed || a.Ending == endingUnknown) {
		o.signal, o.numerator = serverError, one(isServerError(a))
		add(o)
		o.signal, o.numerator = throttled, one(isThrottled(a))
		add(o)
	}
	if a.Grain != grainCall || !a.Counted {
		return
	}
	if succeeded || failed {
		o.signal, o.numerator = attemptError, one(failed)
		add(o)
	}
	if succeeded || a.Midway {
		o.signal, o.numerator = streamMidwayFailure, one(a.Midway)
		add(o)
	}
	if a.Tokens > 0 {
		o.signal, o.numerator, o.denominator = wastedToken, a.Tokens*one(a.Wasted), a.Tokens
		add(o)
	}
}

// serverErrors and throttles are classes of error, in lower case without underscores
// and without a closing "error" or "exception", that say what no status says.
var (
	serverErrors = []string{"badgateway", "gatewaytimeout", "internal", "internalfailure", "internalserver", "overloaded", "server", "serviceunavailable", "unavailable"}
	throttles    = []string{"ratelimit", "ratelimited", "ratelimitexceeded", "requestlimitexceeded", "resourceexhausted", "throttled", "throttling", "toomanyrequests"}
)

func isServerError(a *schema.BriefAttempt) bool {
	if a.HTTPStatus != 0 {
		return a.HTTPStatus >= 500 && a.HTTPStatus < 600
	}
	return says(a, serverErrors)
}

func isThrottled(a *schema.BriefAttempt) bool {
	if a.HTTPStatus != 0 {
		return a.HTTPStatus == 429
	}
	return says(a, throttles)
}

func says(a *schema.BriefAttempt, classes []string) bool {
	if a.ErrorClass == emptyWord || a.Ending == endingSucceeded {
		return false
	}
	class := strings.ReplaceAll(strings.ToLower(a.ErrorClass.Value()), "_", "")
	class = strings.TrimSuffix(strings.TrimSuffix(class, "error"), "exception")
	return slices.Contains(classes, class)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
