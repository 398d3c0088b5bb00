package schema

import (
	"math/big"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ledgerColumns are the columns of the table ledger, field by field.
var ledgerColumns = []column[LedgerRow]{
	id("trace_id", func(r *LedgerRow) []byte { return r.TraceID[:] }, func(r *LedgerRow) any { return &r.TraceID }),
	{
		name: "version", read: "reinterpretAsFixedString(version)",
		put: func(col driver.BatchColumn, rows []LedgerRow) error {
			versions := make([]*big.Int, len(rows))
			for i := range rows {
				versions[i] = rows[i].Version.big()
			}
			return col.Append(versions)
		},
		dest: func(r *LedgerRow) any { return &r.Version },
	},
	field("state", func(r *LedgerRow) *string { return (*string)(&r.State) }),
	field("spans", func(r *LedgerRow) *uint32 { return &r.Spans }),
	field("unattributed_spans", func(r *LedgerRow) *uint32 { return &r.UnattributedSpans }),
	field("first_end_ns", func(r *LedgerRow) *int64 { return &r.FirstEndNs }),
	field("last_end_ns", func(r *LedgerRow) *int64 { return &r.LastEndNs }),
	field("reached_ns", func(r *LedgerRow) *int64 { return &r.ReachedNs }),
	field("last_received_ns", func(r *LedgerRow) *int64 { return &r.LastReceivedNs }),
	second("judged_at", func(r *LedgerRow) *uint32 { return &r.Version.JudgedS }),
	second("rejudge_at", func(r *LedgerRow) *uint32 { return &r.RejudgeS }),
	list("insert_tokens", func(r *LedgerRow) *[]uint64 { return &r.InsertTokens }),

	nested("runs.run_id", ledgerRuns, func(r *RunRow) *string { return &r.RunID }),
	nested("runs.thread_id", ledgerRuns, func(r *RunRow) *string { return &r.ThreadID }),
	nested("runs.service", ledgerRuns, func(r *RunRow) *string { return &r.Service }),
	nested("runs.version", ledgerRuns, func(r *RunRow) *string { return &r.Version }),
	nested("runs.environment", ledgerRuns, func(r *RunRow) *string { return &r.Environment }),
	nested("runs.completion", ledgerRuns, func(r *RunRow) *string { return &r.Completion }),
	nested("runs.quarantined", ledgerRuns, func(r *RunRow) *bool { return &r.Quarantined }),
	nested("runs.anchor", ledgerRuns, func(r *RunRow) *bool { return &r.Anchor }),
	nestedAs("runs.trace_ids", ledgerRuns, func(r *RunRow) []string { return rawIDs(r.TraceIDs) }, func(r *RunRow, v []string) error { return parseRawIDs(v, &r.TraceIDs) }),
	nested("runs.joined_by", ledgerRuns, func(r *RunRow) *string { return &r.JoinedBy }),
	nested("runs.unfinished_steps", ledgerRuns, func(r *RunRow) *[]string { return &r.UnfinishedSteps }),
	nested("runs.outcome", ledgerRuns, func(r *RunRow) *string { return &r.Outcome }),
	nested("runs.run_limit", ledgerRuns, func(r *RunRow) *int64 { return &r.RunLimit }),
	nested("runs.step_limit", ledgerRuns, func(r *RunRow) *int64 { return &r.StepLimit }),
	nested("runs.retries", ledgerRuns, func(r *RunRow) *int64 { return &r.Retries }),
	nested("runs.exhausted", ledgerRuns, func(r *RunRow) *bool { return &r.Exhausted }),
	nested("runs.deliveries", ledgerRuns, func(r *RunRow) *int64 { return &r.Deliveries }),
	nested("runs.poison_pill", ledgerRuns, func(r *RunRow) *bool { return &r.PoisonPill }),
	nested("runs.needs_review", ledgerRuns, func(r *RunRow) *bool { return &r.NeedsReview }),
	nested("runs.orphan_spans", ledgerRuns, func(r *RunRow) *int64 { return &r.OrphanSpans }),
	nested("runs.spans", ledgerRuns, func(r *RunRow) *int64 { return &r.Spans }),
	nested("runs.dialects", ledgerRuns, func(r *RunRow) *[]string { return &r.Dialects }),
	nested("runs.start_ns", ledgerRuns, func(r *RunRow) *int64 { return &r.StartNs }),
	nested("runs.end_ns", ledgerRuns, func(r *RunRow) *int64 { return &r.EndNs }),
	nested("runs.warnings", ledgerRuns, func(r *RunRow) *[]string { return &r.Warnings }),
	nested("runs.sampled", ledgerRuns, func(r *RunRow) *bool { return &r.Sampled }),

	nested("steps.run", ledgerSteps, func(r *StepRow) *uint32 { return &r.Run }),
	nested("steps.step", ledgerSteps, func(r *StepRow) *string { return &r.Step }),
	nested("steps.executions", ledgerSteps, func(r *StepRow) *int64 { return &r.Executions }),
	nested("steps.visits", ledgerSteps, func(r *StepRow) *int64 { return &r.Visits }),
	nested("steps.operations", ledgerSteps, func(r *StepRow) *int64 { return &r.Operations }),
	nested("steps.fallback_operations", ledgerSteps, func(r *StepRow) *int64 { return &r.FallbackOperations }),
	nested("steps.fallback_rate", ledgerSteps, func(r *StepRow) *float64 { return &r.FallbackRate }),
	nested("steps.calls", ledgerSteps, func(r *StepRow) *int64 { return &r.Calls }),
	nested("steps.calls_failed", ledgerSteps, func(r *StepRow) *int64 { return &r.CallsFailed }),
	nested("steps.tool_calls", ledgerSteps, func(r *StepRow) *int64 { return &r.ToolCalls }),
	nested("steps.http_calls", ledgerSteps, func(r *StepRow) *int64 { return &r.HTTPCalls }),
	nested("steps.retries_transport", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesTransport }),
	nested("steps.retries_call", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesCall }),
	nested("steps.retries_node", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesNode }),
	nested("steps.retries_orchestrator", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesOrchestrator }),
	nested("steps.retries_worker", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesWorker }),
	nested("steps.retries_total", ledgerSteps, func(r *StepRow) **int64 { return &r.RetriesTotal }),
	nested("steps.fallbacks", ledgerSteps, func(r *StepRow) *int64 { return &r.Fallbacks }),
	nested("steps.tokens_input", ledgerSteps, func(r *StepRow) *int64 { return &r.TokensInput }),
	nested("steps.tokens_output", ledgerSteps, func(r *StepRow) *int64 { return &r.TokensOutput }),
	nested("steps.tokens_unknown_calls", ledgerSteps, func(r *StepRow) *int64 { return &r.TokensUnknownCalls }),
	nested("steps.wasted_input", ledgerSteps, func(r *StepRow) *int64 { return &r.WastedInput }),
	nested("steps.wasted_output", ledgerSteps, func(r *StepRow) *int64 { return &r.WastedOutput }),
	nested("steps.wasted_unknown_calls", ledgerSteps, func(r *StepRow) *int64 { return &r.WastedUnknownCalls }),
	nested("steps.wasted_time_ms", ledgerSteps, func(r *StepRow) *float64 { return &r.WastedTimeMs }),
	nested("steps.wasted_wait_ms", ledgerSteps, func(r *StepRow) *float64 { return &r.WastedWaitMs }),
	nested("steps.wasted_cost_usd", ledgerSteps, func(r *StepRow) **float64 { return &r.WastedCostUSD }),
	nested("steps.outcome", ledgerSteps, func(r *StepRow) *string { return &r.Outcome }),
	nested("steps.factorisation", ledgerSteps, func(r *StepRow) *string { return &r.Factorisation }),
	nested("steps.worst_case", ledgerSteps, func(r *StepRow) *int64 { return &r.WorstCase }),
	nested("steps.step_limit", ledgerSteps, func(r *StepRow) *int64 { return &r.StepLimit }),
	nested("steps.over_budget", ledgerSteps, func(r *StepRow) *bool { return &r.OverBudget }),
	nested("steps.evidence", ledgerSteps, func(r *StepRow) *[]string { return &r.Evidence }),
	nested("steps.error_classes", ledgerSteps, func(r *StepRow) *[]string { return &r.ErrorClasses }),
	nested("steps.error_http_statuses", ledgerSteps, func(r *StepRow) *[]int64 { return &r.ErrorHTTPStatuses }),
	nested("steps.error_counts", ledgerSteps, func(r *StepRow) *[]int64 { return &r.ErrorCounts }),
	nested("steps.start_ns", ledgerSteps, func(r *StepRow) *int64 { return &r.StartNs }),
	nested("steps.end_ns", ledgerSteps, func(r *StepRow) *int64 { return &r.EndNs }),

	nested("operations.run", ledgerOperations, func(r *OperationRow) *uint32 { return &r.Run }),
	nested("operations.index", ledgerOperations, func(r *OperationRow) *uint32 { return &r.Index }),
	nested("operations.step", ledgerOperations, func(r *OperationRow) *string { return &r.Step }),
	nested("operations.grain", ledgerOperations, func(r *OperationRow) *string { return &r.Grain }),
	nested("operations.outcome", ledgerOperations, func(r *OperationRow) *string { return &r.Outcome }),
	nested("operations.attempts", ledgerOperations, func(r *OperationRow) *int64 { return &r.Attempts }),
	nested("operations.retries", ledgerOperations, func(r *OperationRow) *int64 { return &r.Retries }),
	nested("operations.fallbacks", ledgerOperations, func(r *OperationRow) *int64 { return &r.Fallbacks }),
	nested("operations.limit", ledgerOperations, func(r *OperationRow) *int64 { return &r.Limit }),
	nested("operations.first_error", ledgerOperations, func(r *OperationRow) *string { return &r.FirstError }),
	nested("operations.last_error", ledgerOperations, func(r *OperationRow) *string { return &r.LastError }),
	nested("operations.futile", ledgerOperations, func(r *OperationRow) *bool { return &r.Futile }),
	nested("operations.provider", ledgerOperations, func(r *OperationRow) *string { return &r.Provider }),
	nested("operations.start_ns", ledgerOperations, func(r *OperationRow) *int64 { return &r.StartNs }),
	nested("operations.end_ns", ledgerOperations, func(r *OperationRow) *int64 { return &r.EndNs }),
	nested("operations.counts_in_step", ledgerOperations, func(r *OperationRow) *bool { return &r.CountsInStep }),
	nested("operations.settled", ledgerOperations, func(r *OperationRow) *bool { return &r.Settled }),
	nested("operations.shows", ledgerOperations, func(r *OperationRow) *uint8 { return &r.Shows }),

	nested("attempts.run", ledgerAttempts, func(r *AttemptRow) *uint32 { return &r.Run }),
	nested("attempts.index", ledgerAttempts, func(r *AttemptRow) *uint32 { return &r.Index }),
	nested("attempts.grain", ledgerAttempts, func(r *AttemptRow) *string { return &r.Grain }),
	nested("attempts.step", ledgerAttempts, func(r *AttemptRow) *string { return &r.Step }),
	nested("attempts.name", ledgerAttempts, func(r *AttemptRow) *string { return &r.Name }),
	nestedAs("attempts.span_id", ledgerAttempts, func(r *AttemptRow) string { return string(r.SpanID[:]) }, func(r *AttemptRow, v string) error { return r.SpanID.UnmarshalBinary([]byte(v)) }),
	nested("attempts.parent", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.Parent }),
	nested("attempts.operation", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.Operation }),
	nested("attempts.ordinal", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.Ordinal }),
	nested("attempts.charge", ledgerAttempts, func(r *AttemptRow) *string { return &r.Charge }),
	nested("attempts.evidence", ledgerAttempts, func(r *AttemptRow) *string { return &r.Evidence }),
	nested("attempts.ending", ledgerAttempts, func(r *AttemptRow) *string { return &r.Ending }),
	nested("attempts.handled", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Handled }),
	nested("attempts.error_class", ledgerAttempts, func(r *AttemptRow) *string { return &r.ErrorClass }),
	nested("attempts.http_status", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.HTTPStatus }),
	nested("attempts.model", ledgerAttempts, func(r *AttemptRow) *string { return &r.Model }),
	nested("attempts.provider", ledgerAttempts, func(r *AttemptRow) *string { return &r.Provider }),
	nested("attempts.fallback_from", ledgerAttempts, func(r *AttemptRow) *string { return &r.FallbackFrom }),
	nested("attempts.fallback_reason", ledgerAttempts, func(r *AttemptRow) *string { return &r.FallbackReason }),
	nested("attempts.start_ns", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.StartNs }),
	nested("attempts.end_ns", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.EndNs }),
	nested("attempts.input_tokens", ledgerAttempts, func(r *AttemptRow) **int64 { return &r.InputTokens }),
	nested("attempts.output_tokens", ledgerAttempts, func(r *AttemptRow) **int64 { return &r.OutputTokens }),
	nested("attempts.cost_usd", ledgerAttempts, func(r *AttemptRow) **float64 { return &r.CostUSD }),
	nested("attempts.counted", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Counted }),
	nested("attempts.wasted", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Wasted }),
	nested("attempts.wasted_ms", ledgerAttempts, func(r *AttemptRow) *float64 { return &r.WastedMs }),
	nested("attempts.wait_ms", ledgerAttempts, func(r *AttemptRow) *float64 { return &r.WaitMs }),
	nested("attempts.view_of", ledgerAttempts, func(r *AttemptRow) *int64 { return &r.ViewOf }),
	nested("attempts.request", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Request }),
	nested("attempts.midway", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Midway }),
	nested("attempts.violated", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Violated }),
	nested("attempts.hidden", ledgerAttempts, func(r *AttemptRow) *bool { return &r.Hidden }),
	nested("attempts.shows", ledgerAttempts, func(r *AttemptRow) *uint8 { return &r.Shows }),

	nested("violations.run", ledgerViolations, func(r *ViolationRow) *int64 { return &r.Run }),
	nested("violations.index", ledgerViolations, func(r *ViolationRow) *uint32 { return &r.Index }),
	nested("violations.node", ledgerViolations, func(r *ViolationRow) *string { return &r.Node }),
	nested("violations.key", ledgerViolations, func(r *ViolationRow) *string { return &r.Key }),
	nested("violations.direction", ledgerViolations, func(r *ViolationRow) *string { return &r.Direction }),
	nested("violations.count", ledgerViolations, func(r *ViolationRow) *int64 { return &r.Count }),
	nested("violations.time_ns", ledgerViolations, func(r *ViolationRow) *int64 { return &r.TimeNs }),
}

func ledgerRuns(r *LedgerRow) *[]RunRow             { return &r.Runs }
func ledgerSteps(r *LedgerRow) *[]StepRow           { return &r.Steps }
func ledgerOperations(r *LedgerRow) *[]OperationRow { return &r.Operations }
func ledgerAttempts(r *LedgerRow) *[]AttemptRow     { return &r.Attempts }
func ledgerViolations(r *LedgerRow) *[]ViolationRow { return &r.Violations }

// second keeps seconds since the epoch as a DateTime.
func second[R any](name string, at func(*R) *uint32) column[R] {
	return column[R]{
		name: name, read: "toUInt32(" + quoted(name) + ")",
		put: func(col driver.BatchColumn, rows []R) error {
			times := make([]time.Time, len(rows))
			for i := range rows {
				times[i] = time.Unix(int64(*at(&rows[i])), 0).UTC()
			}
			return col.Append(times)
		},
		dest: func(row *R) any { return at(row) },
	}
}

func rawIDs(ids []TraceID) []string {
	raw := make([]string, len(ids))
	for i := range ids {
		raw[i] = string(ids[i][:])
	}
	return raw
}

func parseRawIDs(raw []string, ids *[]TraceID) error {
	*ids = make([]TraceID, len(raw))
	for i, text := range raw {
		if err := (*ids)[i].UnmarshalBinary([]byte(text)); err != nil {
			return err
		}
	}
	return nil
}
