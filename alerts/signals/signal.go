// Package signals says what the alerts count: each signal's numerator, denominator
// and grain, once, for rules, their tests and replays, gates and breakers.
//
// Events turns one row of the ledger into countable events. Cache keeps the recent
// ones per second and answers windows over them; Feed reads into it what changed in
// the store. What a window says equals a query over the views at that instant.
package signals

import (
	"cmp"
	"context"
	"slices"
)

// Signal is a ratio that a rule can watch: the sum of its events' numerators over
// the sum of their denominators.
type Signal string

// The signals. Each counts things of one grain, at the end of the thing that it
// counts; docs/signals.md defines them in words and in SQL.
const (
	// OperationErrorRatio is, of the visits of steps, the share that failed: a visit with
	// all its retries is one, so one that succeeded in the end has not failed, and one
	// whose failure was handled has. Grain: visit.
	OperationErrorRatio Signal = "operation_error_ratio"
	// CallOperationErrorRatio is the same of model calls: a call with its retries and
	// fallbacks is one. Grain: call operation.
	CallOperationErrorRatio Signal = "call_operation_error_ratio"
	// AttemptErrorRatio is, of the attempts of model calls, the share that failed.
	// Grain: call attempt.
	AttemptErrorRatio Signal = "attempt_error_ratio"
	// ServerErrorRatio is, of the requests that really went out, the share that the
	// provider failed to serve: status 500 to 599 (529 among them), or a class of error
	// that says so where no status is known. Grain: request.
	ServerErrorRatio Signal = "server_error_ratio"
	// ThrottledRatio is, of the same requests, the share that was refused for their
	// rate: status 429, or a class of error that says so. Grain: request.
	ThrottledRatio Signal = "throttled_ratio"
	// RetryRatio is retries of all layers per operation of the steps; it may exceed 1.
	// Grain: step operation (model calls where the step makes any, else visits).
	RetryRatio Signal = "retry_ratio"
	// FallbackRatio is, of the operations of the steps, the share on which at least one
	// fallback candidate ran. Grain: step operation.
	FallbackRatio Signal = "fallback_ratio"
	// ContractViolationRatio is, of the executions of steps, the share with at least one
	// missing key. Grain: execution.
	ContractViolationRatio Signal = "contract_violation_ratio"
	// IncompleteRunRatio is, of the runs that are over, the share that did not finish
	// what they had to: incomplete by their flag, or orphaned. Grain: run.
	IncompleteRunRatio Signal = "incomplete_run_ratio"
	// BudgetExhaustedRatio is, of all runs, the share that used up its retry budget.
	// Grain: run.
	BudgetExhaustedRatio Signal = "budget_exhausted_ratio"
	// WastedTokenRatio is, of the tokens that calls state, the share spent on attempts
	// that contributed to no success. Grain: token.
	WastedTokenRatio Signal = "wasted_token_ratio"
	// StreamMidwayFailureRatio is, of the model calls' responses that began, the share
	// that broke off. Grain: call attempt.
	StreamMidwayFailureRatio Signal = "stream_midway_failure_ratio"
)

// Dimension is what the events of a signal can be grouped and filtered by.
type Dimension string

// The dimensions.
const (
	Service     Dimension = "service"
	Environment Dimension = "environment"
	Version     Dimension = "version"
	Step        Dimension = "step"
	Provider    Dimension = "provider"
)

// Dimensions are all dimensions, in the order in which groups are sorted.
func Dimensions() []Dimension {
	return []Dimension{Service, Environment, Version, Step, Provider}
}

var (
	ofRuns  = []Dimension{Service, Environment, Version}
	ofSteps = []Dimension{Service, Environment, Version, Step}
	ofCalls = []Dimension{Service, Environment, Version, Step, Provider}
)

// The places of the signals in definitions.
const (
	operationError = iota
	callOperationError
	attemptError
	serverError
	throttled
	retry
	fallback
	contractViolation
	incompleteRun
	budgetExhausted
	wastedToken
	streamMidwayFailure
	signalCount
)

// definitions lists each signal with its dimensions, in the order of the docs.
var definitions = [signalCount]struct {
	signal     Signal
	dimensions []Dimension
}{
	operationError:      {OperationErrorRatio, ofSteps},
	callOperationError:  {CallOperationErrorRatio, ofCalls},
	attemptError:        {AttemptErrorRatio, ofCalls},
	serverError:         {ServerErrorRatio, ofCalls},
	throttled:           {ThrottledRatio, ofCalls},
	retry:               {RetryRatio, ofSteps},
	fallback:            {FallbackRatio, ofSteps},
	contractViolation:   {ContractViolationRatio, ofSteps},
	incompleteRun:       {IncompleteRunRatio, ofRuns},
	budgetExhausted:     {BudgetExhaustedRatio, ofRuns},
	wastedToken:         {WastedTokenRatio, ofCalls},
	streamMidwayFailure: {StreamMidwayFailureRatio, ofCalls},
}

// placeOf is a signal's place in definitions, -1 of one that does not exist.
func placeOf(s Signal) int {
	for i := range definitions {
		if definitions[i].signal == s {
			return i
		}
	}
	return -1
}

// All are all signals.
func All() []Signal {
	list := make([]Signal, len(definitions))
	for i, d := range definitions {
		list[i] = d.signal
	}
	return list
}

// Dimensions are those that the signal's events have, nil of a signal that does not
// exist. A signal lacks the dimensions of a finer grain: a run has no step.
func (s Signal) Dimensions() []Dimension {
	if at := placeOf(s); at >= 0 {
		return slices.Clone(definitions[at].dimensions)
	}
	return nil
}

// Labels are the values of the dimensions; "" where the signal lacks one or the
// spans do not state it.
type Labels struct {
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	Version     string `json:"version,omitempty"`
	Step        string `json:"step,omitempty"`
	Provider    string `json:"provider,omitempty"`
}

// Get is the value of one dimension.
func (l Labels) Get(d Dimension) string {
	switch d {
	case Service:
		return l.Service
	case Environment:
		return l.Environment
	case Version:
		return l.Version
	case Step:
		return l.Step
	case Provider:
		return l.Provider
	}
	return ""
}

// With is l with another value of one dimension.
func (l Labels) With(d Dimension, value string) Labels {
	switch d {
	case Service:
		l.Service = value
	case Environment:
		l.Environment = value
	case Version:
		l.Version = value
	case Step:
		l.Step = value
	case Provider:
		l.Provider = value
	}
	return l
}

// Event is one countable thing, at the end of what it counts.
type Event struct {
	Signal                 Signal
	Labels                 Labels
	AtNs                   int64 // nanoseconds since the epoch, bounded by the time of receipt as the views' end_bounded_ns
	Numerator, Denominator int64
	// Unsettled: a failure that another attempt may still undo. It counts only when no
	// attempt followed for Settle.
	Unsettled bool
}

// SettleNs is how long a failure that is not known to be final waits for another
// attempt before it counts, in nanoseconds.
const SettleNs = 10 * secondNs

const secondNs = int64(1e9)

// Matcher accepts or refuses a label's value. A *labels.Matcher of Alertmanager is one.
type Matcher interface{ Matches(value string) bool }

// Query asks for the sums over (ToNs − WindowNs, ToNs], both whole seconds.
type Query struct {
	Signal         Signal
	ToNs, WindowNs int64
	GroupBy        []Dimension // none: one group of everything
	Where          map[Dimension]Matcher
	SettleNs       int64 // how long an unsettled event waits, whole seconds; 0 is SettleNs
}

// Settle is how long an unsettled event waits, in nanoseconds.
func (q *Query) Settle() int64 { return cmp.Or(q.SettleNs, SettleNs) }

// Sample is the sums of one group that has any event in the window.
type Sample struct {
	Labels                 Labels // of the query's GroupBy; the others are empty
	Numerator, Denominator int64
}

// Reader answers queries. Samples are sorted by their labels, in the order of
// Dimensions; a group without events in the window has none, which is not a zero.
type Reader interface {
	Window(ctx context.Context, q Query) ([]Sample, error)
}
