package query

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// ErrNotFound is returned for an id that no run has or begins with.
var ErrNotFound = errors.New("no run has this id")

// AmbiguousError says that an id fits several runs.
type AmbiguousError struct {
	ID         string
	Candidates []answer.Candidate // the last to end first
	More       bool               // there are more than the candidates
}

// Error names the id; the candidates are the caller's to list.
func (e *AmbiguousError) Error() string {
	if e.More {
		return fmt.Sprintf("%q fits more than %d runs; give more of the id", e.ID, len(e.Candidates))
	}
	return fmt.Sprintf("%q fits %d runs; give one's trace id, or more of its run id", e.ID, len(e.Candidates))
}

// maxCandidates bounds the runs that an ambiguous id lists.
const maxCandidates = 10

// identity is where a run is found: the row of its anchor trace, and its place among
// the runs of one id.
type identity struct {
	candidate answer.Candidate
	traces    []string
	env       string
}

const identityColumns = `SELECT run_id, trace_id, service, environment, trace_ids, end_ns FROM runs WHERE `

// The ways in which an id may name a run, the most exact first.
var waysToFind = []struct {
	applies   func(id string) bool
	statement string
}{
	{ // a run id
		func(string) bool { return true },
		identityColumns + "trace_key IN (SELECT trace_id FROM ledger WHERE has(`runs.run_id`, {id:String})) AND run_id = {id:String}",
	},
	{ // a trace id, of the anchor trace or of another one
		func(id string) bool { return len(id) == 32 && isHex(id) },
		identityColumns + "(service, environment, run_id) IN (SELECT service, environment, run_id FROM (" +
			"SELECT service, environment, run_id FROM ledger FINAL ARRAY JOIN `runs.service` AS service, `runs.environment` AS environment, " +
			"`runs.run_id` AS run_id WHERE trace_id = unhex({id:String}))) AND has(trace_ids, lower({id:String}))",
	},
	{ // the beginning of a run id or of a trace id
		func(string) bool { return true },
		identityColumns + "startsWith(run_id, {id:String}) OR arrayExists(t -> startsWith(t, lower({id:String})), trace_ids)",
	},
}

func isHex(id string) bool {
	_, err := hex.DecodeString(id)
	return err == nil
}

// find returns the one run that id names, or ErrNotFound or an *AmbiguousError.
func (a Asker) find(ctx context.Context, id string) (identity, error) {
	for _, way := range waysToFind {
		if !way.applies(id) {
			continue
		}
		var found []identity
		statement := way.statement + " ORDER BY end_ns DESC, run_id, trace_id LIMIT {most:UInt64}"
		err := a.read(ctx, "the run of an id", statement, map[string]any{"id": id, "most": uint64(maxCandidates + 1)}, func(rows driver.Rows) error {
			var run identity
			var endNs int64
			c := &run.candidate
			if err := rows.Scan(&c.RunID, &c.TraceID, &c.Service, &run.env, &run.traces, &endNs); err != nil {
				return err //nolint:wrapcheck // read wraps it
			}
			c.EndedAt = time.Unix(0, endNs).UTC()
			found = append(found, run)
			return nil
		})
		switch {
		case err != nil:
			return identity{}, err
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			ambiguous := &AmbiguousError{ID: id, More: len(found) > maxCandidates}
			for _, run := range found[:min(len(found), maxCandidates)] {
				ambiguous.Candidates = append(ambiguous.Candidates, run.candidate)
			}
			return identity{}, ambiguous
		}
	}
	return identity{}, fmt.Errorf("%q: %w", id, ErrNotFound)
}

// Run answers what one run did, with all its attempts. id is a run id, a trace id, or
// the beginning of one that no other run has.
func (a Asker) Run(ctx context.Context, id string) (attribution.Run, error) {
	found, err := a.find(ctx, id)
	if err != nil {
		return attribution.Run{}, err
	}
	bound := map[string]any{
		"run_id": found.candidate.RunID, "service": found.candidate.Service, "environment": found.env,
		"anchor": found.candidate.TraceID, "traces": found.traces,
	}
	var run attribution.Run
	parts := []struct {
		what, statement string
		scan            func(driver.Rows) error
	}{
		{"a run", runStatement, func(rows driver.Rows) error { return scanRun(rows, &run) }},
		{"the steps of a run", runStepsStatement, func(rows driver.Rows) error { return scanStep(rows, &run) }},
		{"the operations of a run", runOperationsStatement, func(rows driver.Rows) error { return scanOperation(rows, &run) }},
		{"the attempts of a run", runAttemptsStatement, func(rows driver.Rows) error { return scanAttempt(rows, &run) }},
		{"the contract violations of a run", runViolationsStatement, func(rows driver.Rows) error { return scanViolation(rows, &run) }},
	}
	for _, part := range parts {
		if err := a.read(ctx, part.what, part.statement, bound, part.scan); err != nil {
			return attribution.Run{}, err
		}
	}
	if run.RunID == "" && len(run.TraceIDs) == 0 { // it was joined to another between two statements
		return attribution.Run{}, fmt.Errorf("%q: %w", id, ErrNotFound)
	}
	for i := range run.Attempts {
		attempt := &run.Attempts[i]
		attempt.Parent = within(attempt.Parent, len(run.Attempts))
		attempt.Operation = within(attempt.Operation, len(run.Operations))
	}
	return run, nil
}

// within guards against an account that was replaced between two statements.
func within(index, n int) int {
	if index < 0 || index >= n {
		return -1
	}
	return index
}

const (
	ofRun       = ` WHERE trace_key IN (arrayMap(t -> unhex(t), {traces:Array(String)})) AND run_id = {run_id:String} AND service = {service:String} AND environment = {environment:String}`
	ofAnchorRun = ` WHERE trace_key = unhex({anchor:String}) AND run_id = {run_id:String} AND service = {service:String} AND environment = {environment:String}`

	runStatement = `SELECT run_id, thread_id, trace_ids, service, version, environment, joined_by, completion, quarantined,
    unfinished_steps, outcome, run_limit, step_limit, retries, exhausted, deliveries, poison_pill, needs_review,
    orphan_spans, spans, dialects, start_ns, end_ns
FROM runs` + ofAnchorRun + ` LIMIT 1`

	runStepsStatement = `SELECT step, executions, visits, operations, fallback_operations, fallback_rate,
    calls, calls_failed, tool_calls, http_calls,
    retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker, retries_total, fallbacks,
    tokens_input, tokens_output, tokens_unknown_calls,
    wasted_input, wasted_output, wasted_unknown_calls, wasted_time_ms, wasted_wait_ms, wasted_cost_usd,
    outcome, factorisation, worst_case, step_limit, over_budget, evidence,
    error_classes, error_http_statuses, error_counts, start_ns, end_ns
FROM steps` + ofAnchorRun

	runOperationsStatement = `SELECT step, grain, trace_id, outcome, attempts, retries, fallbacks, ` + "`limit`" + `,
    first_error, last_error, futile, provider, start_ns, end_ns, counts_in_step
FROM operations` + ofRun + ` ORDER BY ` + "`index`"

	runAttemptsStatement = `SELECT grain, step, name, trace_id, span_id, parent, operation, ordinal, charge, evidence, ending, handled,
    error_class, http_status, model, provider, fallback_from, fallback_reason, start_ns, end_ns,
    input_tokens, output_tokens, cost_usd, counted, wasted, wasted_ms, wait_ms, view_of
FROM attempts` + ofRun + ` ORDER BY ` + "`index`"

	runViolationsStatement = `SELECT node, key, direction, count, trace_id, time_ns FROM violations` + ofRun + ` ORDER BY ` + "`index`"
)

func scanRun(rows driver.Rows, run *attribution.Run) error {
	var n [8]int64
	if err := rows.Scan(&run.RunID, &run.ThreadID, &run.TraceIDs, &run.Service, &run.Version, &run.Environment, &run.JoinedBy,
		&run.Completion, &run.Quarantined, &run.UnfinishedSteps, &run.Outcome, &n[0], &n[1], &n[2], &run.Budget.Exhausted, &n[3],
		&run.PoisonPill, &run.NeedsReview, &n[4], &n[5], &run.Dialects, &run.StartNs, &run.EndNs); err != nil {
		return err //nolint:wrapcheck // read wraps it
	}
	run.Budget.RunLimit, run.Budget.StepLimit, run.Budget.Retries = int(n[0]), int(n[1]), int(n[2])
	run.Deliveries, run.OrphanSpans, run.Spans = int(n[3]), int(n[4]), int(n[5])
	return nil
}

func scanStep(rows driver.Rows, run *attribution.Run) error {
	var s attribution.Step
	var n [13]int64
	var retries [6]*int64
	var outcome string
	var evidence, classes []string
	var statuses, counts []int64
	if err := rows.Scan(&s.Step, &n[0], &n[1], &n[2], &n[3], &s.FallbackRate, &n[4], &n[5], &n[6], &n[7],
		&retries[0], &retries[1], &retries[2], &retries[3], &retries[4], &retries[5], &n[8],
		&s.Tokens.Input, &s.Tokens.Output, &n[9], &s.Wasted.Input, &s.Wasted.Output, &n[10],
		&s.Wasted.TimeMs, &s.Wasted.WaitMs, &s.Wasted.CostUSD, &outcome, &s.Factorisation, &n[11], &n[12], &s.OverBudget,
		&evidence, &classes, &statuses, &counts, &s.StartNs, &s.EndNs); err != nil {
		return err //nolint:wrapcheck // read wraps it
	}
	for i, to := range []*int{&s.Executions, &s.Visits, &s.Operations, &s.FallbackOperations, &s.Calls, &s.CallsFailed,
		&s.ToolCalls, &s.HTTPCalls, &s.Fallbacks, &s.Tokens.UnknownCalls, &s.Wasted.UnknownCalls, &s.WorstCase, &s.StepLimit} {
		*to = int(n[i])
	}
	for i, to := range []**int{&s.Retries.Transport, &s.Retries.Call, &s.Retries.Node, &s.Retries.Orchestrator, &s.Retries.Worker, &s.RetriesTotal} {
		if retries[i] != nil {
			count := int(*retries[i])
			*to = &count
		}
	}
	s.Outcome = attribution.Outcome(outcome)
	for _, e := range evidence {
		s.Evidence = append(s.Evidence, attribution.Evidence(e))
	}
	for i, class := range classes {
		s.Errors = append(s.Errors, attribution.ErrorCount{Class: class, HTTPStatus: int(statuses[i]), Count: int(counts[i])})
	}
	run.Steps = append(run.Steps, s)
	return nil
}

func scanOperation(rows driver.Rows, run *attribution.Run) error {
	var o attribution.Operation
	var grain, trace, outcome string
	var n [4]int64
	if err := rows.Scan(&o.Step, &grain, &trace, &outcome, &n[0], &n[1], &n[2], &n[3], &o.FirstError, &o.LastError, &o.Futile,
		&o.Provider, &o.StartNs, &o.EndNs, &o.CountsInStep); err != nil {
		return err //nolint:wrapcheck // read wraps it
	}
	o.Grain, o.Outcome = attribution.Grain(grain), attribution.Outcome(outcome)
	o.Attempts, o.Retries, o.Fallbacks, o.Limit = int(n[0]), int(n[1]), int(n[2]), int(n[3])
	var err error
	if o.TraceID, err = schema.ParseTraceID(trace); err != nil {
		return err //nolint:wrapcheck // it names the text
	}
	run.Operations = append(run.Operations, o)
	return nil
}

func scanAttempt(rows driver.Rows, run *attribution.Run) error {
	var a attribution.Attempt
	var grain, trace, span, evidence, ending string
	var n [5]int64
	var input, output *int64
	var cost *float64
	if err := rows.Scan(&grain, &a.Step, &a.Name, &trace, &span, &n[0], &n[1], &n[2], &a.Charge, &evidence, &ending, &a.Handled,
		&a.ErrorClass, &n[3], &a.Model, &a.Provider, &a.FallbackFrom, &a.FallbackReason, &a.StartNs, &a.EndNs,
		&input, &output, &cost, &a.Counted, &a.Wasted, &a.WastedMs, &a.WaitMs, &n[4]); err != nil {
		return err //nolint:wrapcheck // read wraps it
	}
	a.Grain, a.Evidence, a.Ending = attribution.Grain(grain), attribution.Evidence(evidence), attribution.Ending(ending)
	a.Parent, a.Operation, a.Ordinal, a.HTTPStatus, a.ViewOf = int(n[0]), int(n[1]), int(n[2]), int(n[3]), int(n[4])
	a.InputTokens, a.OutputTokens, a.CostUSD = schema.Unknown, schema.Unknown, math.NaN()
	if input != nil {
		a.InputTokens = *input
	}
	if output != nil {
		a.OutputTokens = *output
	}
	if cost != nil {
		a.CostUSD = *cost
	}
	var err error
	if a.TraceID, err = schema.ParseTraceID(trace); err != nil {
		return err //nolint:wrapcheck // it names the text
	}
	if _, err := hex.Decode(a.SpanID[:], []byte(strings.Repeat("0", max(0, 2*len(a.SpanID)-len(span)))+span)); err != nil {
		return fmt.Errorf("read the span id %q: %w", span, err)
	}
	run.Attempts = append(run.Attempts, a)
	return nil
}

func scanViolation(rows driver.Rows, run *attribution.Run) error {
	var v attribution.ContractViolation
	var trace string
	var n int64
	if err := rows.Scan(&v.Node, &v.Key, &v.Direction, &n, &trace, &v.TimeNs); err != nil {
		return err //nolint:wrapcheck // read wraps it
	}
	v.Count = int(n)
	var err error
	if v.TraceID, err = schema.ParseTraceID(trace); err != nil {
		return err //nolint:wrapcheck // it names the text
	}
	run.ContractViolations = append(run.ContractViolations, v)
	return nil
}
