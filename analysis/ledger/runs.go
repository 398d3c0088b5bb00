package ledger

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// Read reads the accounts of the runs with this id, the latest first, with their
// operations and attempts. Several runs may have one id: in several services,
// or more than a day apart. None is no error.
func Read(ctx context.Context, conn driver.Conn, runID string) ([]attribution.Run, error) {
	rows, err := schema.LedgerOfRun(ctx, conn, runID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(Runs(rows), func(r attribution.Run) bool { return r.RunID != runID }), nil
}

// Runs are the accounts of the runs whose first trace is among rows, in the order
// of rows. What stands in the rows of other traces is missing if those are.
func Runs(rows []schema.LedgerRow) []attribution.Run {
	at := make(map[schema.TraceID]*schema.LedgerRow, len(rows))
	for i := range rows {
		at[rows[i].TraceID] = &rows[i]
	}
	runs := []attribution.Run{}
	for i := range rows {
		for j := range rows[i].Runs {
			if rows[i].Runs[j].Anchor {
				runs = append(runs, gather(&rows[i], uint32(j), at))
			}
		}
	}
	return runs
}

// numbered is an element with the number that it has within its run.
type numbered[T any] struct {
	index uint32
	value T
}

// inOrder sorts by number and says where each number went.
func inOrder[T any](list []numbered[T]) ([]T, map[int64]int) {
	slices.SortStableFunc(list, func(a, b numbered[T]) int { return cmp.Compare(a.index, b.index) })
	values := make([]T, len(list))
	at := make(map[int64]int, len(list))
	for i, e := range list {
		values[i] = e.value
		at[int64(e.index)] = i
	}
	return values, at
}

func gather(anchor *schema.LedgerRow, position uint32, at map[schema.TraceID]*schema.LedgerRow) attribution.Run {
	r := &anchor.Runs[position]
	run := attribution.Run{
		RunID: r.RunID, ThreadID: r.ThreadID, TraceIDs: []string{}, Service: r.Service, Version: r.Version, Environment: r.Environment,
		JoinedBy: r.JoinedBy, Completion: r.Completion, Quarantined: r.Quarantined, UnfinishedSteps: filled(r.UnfinishedSteps), Outcome: r.Outcome,
		Budget:     attribution.Budget{RunLimit: int(r.RunLimit), StepLimit: int(r.StepLimit), Retries: int(r.Retries), Exhausted: r.Exhausted},
		Deliveries: int(r.Deliveries), PoisonPill: r.PoisonPill, NeedsReview: r.NeedsReview,
		OrphanSpans: int(r.OrphanSpans), Spans: int(r.Spans),
		Steps: []attribution.Step{}, ContractViolations: []attribution.ContractViolation{},
		StartNs: r.StartNs, EndNs: r.EndNs, Dialects: filled(r.Dialects), Warnings: filled(r.Warnings), Sampled: r.Sampled,
	}
	for i := range anchor.Steps {
		if anchor.Steps[i].Run == position {
			run.Steps = append(run.Steps, step(&anchor.Steps[i]))
		}
	}
	var operations []numbered[attribution.Operation]
	var attempts []numbered[attribution.Attempt]
	var violations []numbered[attribution.ContractViolation]
	seen := make(map[schema.TraceID]bool, len(r.TraceIDs))
	for _, id := range r.TraceIDs {
		run.TraceIDs = append(run.TraceIDs, id.String())
		row := at[id]
		if row == nil || seen[id] {
			continue
		}
		seen[id] = true
		p := slices.IndexFunc(row.Runs, func(o schema.RunRow) bool { return o.RunID == r.RunID })
		for i := range row.Operations {
			if o := &row.Operations[i]; int(o.Run) == p {
				operations = append(operations, numbered[attribution.Operation]{o.Index, operation(o, id)})
			}
		}
		for i := range row.Attempts {
			if a := &row.Attempts[i]; int(a.Run) == p {
				attempts = append(attempts, numbered[attribution.Attempt]{a.Index, attempt(a, id)})
			}
		}
		for i := range row.Violations {
			if v := &row.Violations[i]; v.Run >= 0 && int(v.Run) == p {
				violations = append(violations, numbered[attribution.ContractViolation]{v.Index, violation(v, id)})
			}
		}
	}
	var operationAt, attemptAt map[int64]int
	run.Operations, operationAt = inOrder(operations)
	run.Attempts, attemptAt = inOrder(attempts)
	run.ContractViolations, _ = inOrder(violations)
	for i := range run.Attempts {
		a := &run.Attempts[i]
		a.Parent, a.ViewOf = moved(a.Parent, attemptAt), moved(a.ViewOf, attemptAt)
		a.Operation = moved(a.Operation, operationAt)
	}
	return run
}

// moved is where number n went, -1 if it is not there.
func moved(n int, at map[int64]int) int {
	if i, ok := at[int64(n)]; ok {
		return i
	}
	return -1
}

func step(r *schema.StepRow) attribution.Step {
	s := attribution.Step{
		Step: r.Step, Executions: int(r.Executions), Visits: int(r.Visits), Operations: int(r.Operations),
		FallbackRate: r.FallbackRate, FallbackOperations: int(r.FallbackOperations),
		Calls: int(r.Calls), CallsFailed: int(r.CallsFailed), ToolCalls: int(r.ToolCalls), HTTPCalls: int(r.HTTPCalls),
		Retries: attribution.Retries{
			Transport: narrow(r.RetriesTransport), Call: narrow(r.RetriesCall), Node: narrow(r.RetriesNode),
			Orchestrator: narrow(r.RetriesOrchestrator), Worker: narrow(r.RetriesWorker),
		},
		RetriesTotal: narrow(r.RetriesTotal), Fallbacks: int(r.Fallbacks),
		Tokens: attribution.Tokens{Input: r.TokensInput, Output: r.TokensOutput, UnknownCalls: int(r.TokensUnknownCalls)},
		Wasted: attribution.Wasted{
			Input: r.WastedInput, Output: r.WastedOutput, UnknownCalls: int(r.WastedUnknownCalls),
			TimeMs: r.WastedTimeMs, WaitMs: r.WastedWaitMs, CostUSD: r.WastedCostUSD,
		},
		Outcome: attribution.Outcome(r.Outcome), Factorisation: r.Factorisation, WorstCase: int(r.WorstCase),
		StepLimit: int(r.StepLimit), OverBudget: r.OverBudget,
		Evidence: []attribution.Evidence{}, Errors: []attribution.ErrorCount{},
		StartNs: r.StartNs, EndNs: r.EndNs,
	}
	for _, e := range r.Evidence {
		s.Evidence = append(s.Evidence, attribution.Evidence(e))
	}
	for i, class := range r.ErrorClasses {
		s.Errors = append(s.Errors, attribution.ErrorCount{Class: class, HTTPStatus: int(r.ErrorHTTPStatuses[i]), Count: int(r.ErrorCounts[i])})
	}
	return s
}

func operation(r *schema.OperationRow, id schema.TraceID) attribution.Operation {
	return attribution.Operation{
		Step: r.Step, Grain: attribution.Grain(r.Grain), TraceID: id, Outcome: attribution.Outcome(r.Outcome),
		Attempts: int(r.Attempts), Retries: int(r.Retries), Fallbacks: int(r.Fallbacks), Limit: int(r.Limit),
		FirstError: r.FirstError, LastError: r.LastError, Futile: r.Futile, Provider: r.Provider,
		StartNs: r.StartNs, EndNs: r.EndNs, CountsInStep: r.CountsInStep, Settled: r.Settled,
	}
}

func attempt(r *schema.AttemptRow, id schema.TraceID) attribution.Attempt {
	a := attribution.Attempt{
		Grain: attribution.Grain(r.Grain), Step: r.Step, Name: r.Name, TraceID: id, SpanID: r.SpanID,
		Parent: int(r.Parent), Operation: int(r.Operation), Ordinal: int(r.Ordinal),
		Charge: r.Charge, Evidence: attribution.Evidence(r.Evidence), Ending: attribution.Ending(r.Ending), Handled: r.Handled,
		ErrorClass: r.ErrorClass, HTTPStatus: int(r.HTTPStatus), Model: r.Model, Provider: r.Provider,
		FallbackFrom: r.FallbackFrom, FallbackReason: r.FallbackReason, StartNs: r.StartNs, EndNs: r.EndNs,
		InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(),
		Counted: r.Counted, Wasted: r.Wasted, WastedMs: r.WastedMs, WaitMs: r.WaitMs, ViewOf: int(r.ViewOf),
		Request: r.Request, Midway: r.Midway, Violated: r.Violated,
	}
	if r.InputTokens != nil {
		a.InputTokens = *r.InputTokens
	}
	if r.OutputTokens != nil {
		a.OutputTokens = *r.OutputTokens
	}
	if r.CostUSD != nil {
		a.CostUSD = *r.CostUSD
	}
	return a
}

func violation(r *schema.ViolationRow, id schema.TraceID) attribution.ContractViolation {
	return attribution.ContractViolation{
		Node: r.Node, Key: r.Key, Direction: r.Direction, Count: int(r.Count), TraceID: id, TimeNs: r.TimeNs,
	}
}

func narrow(n *int64) *int {
	if n == nil {
		return nil
	}
	i := int(*n)
	return &i
}

// filled is never nil, for JSON.
func filled(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
