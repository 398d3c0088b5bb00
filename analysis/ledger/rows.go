// Package ledger carries the accounts of runs into the store's rows and back,
// without loss: what is read is what attribution said.
package ledger

import (
	"fmt"
	"math"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// Rows are the rows of an account: one for each of traces, in their order, which
// carry what is known of the trace before attribution (everything but the state,
// the unattributed spans, the runs and what belongs to them). LastReceivedNs has to
// be that of all traces of the run, for it bounds the run's end in its first trace. An account that
// speaks of other traces is an error.
//
// What belongs to one trace stands in its row. The numbers of a run, and what
// names no trace of the run, stand in the row of the run's first trace.
func Rows(account attribution.Ledger, traces []schema.LedgerRow) ([]schema.LedgerRow, error) {
	rows := make([]schema.LedgerRow, len(traces))
	copy(rows, traces)
	at := make(map[schema.TraceID]*schema.LedgerRow, len(rows))
	for i := range rows {
		rows[i].State = schema.StateUnattributed
		at[rows[i].TraceID] = &rows[i]
	}
	for i := range account.Runs {
		if err := addRun(&account.Runs[i], at); err != nil {
			return nil, fmt.Errorf("run %q: %w", account.Runs[i].RunID, err)
		}
	}
	for i := range account.ContractViolations {
		v := &account.ContractViolations[i]
		row := at[v.TraceID]
		if row == nil {
			return nil, fmt.Errorf("a contract violation names trace %s, which was not read", v.TraceID)
		}
		row.Violations = append(row.Violations, violationRow(v, -1, i))
	}
	for i := range rows {
		boundEnds(&rows[i])
	}
	return rows, shareUnattributed(account.UnattributedSpans, rows)
}

// boundEnds widens the row's range over everything in it, so that who skips the
// row by its range skips nothing that the window holds.
func boundEnds(r *schema.LedgerRow) {
	include := func(endNs int64) {
		bounded := schema.BoundedEnd(endNs, r.LastReceivedNs)
		r.FirstEndNs, r.LastEndNs = min(r.FirstEndNs, bounded), max(r.LastEndNs, bounded)
	}
	for i := range r.Runs {
		if r.Runs[i].Anchor {
			include(r.Runs[i].EndNs)
		}
	}
	for i := range r.Steps {
		include(r.Steps[i].EndNs)
	}
	for i := range r.Operations {
		include(r.Operations[i].EndNs)
	}
	for i := range r.Attempts {
		include(r.Attempts[i].EndNs)
	}
	for i := range r.Violations {
		include(r.Violations[i].TimeNs)
	}
}

// shareUnattributed gives each trace of no run its spans. What is left belongs to
// traces that have a run beside, and stands with the first of them.
func shareUnattributed(n int, rows []schema.LedgerRow) error {
	left := int64(n)
	for i := range rows {
		if rows[i].State == schema.StateUnattributed {
			own := min(left, int64(rows[i].Spans))
			rows[i].UnattributedSpans = uint32(own)
			left -= own
		}
	}
	for i := range rows {
		own := min(left, int64(rows[i].Spans)-int64(rows[i].UnattributedSpans))
		rows[i].UnattributedSpans += uint32(own)
		left -= own
	}
	if left > 0 {
		return fmt.Errorf("the account leaves %d spans more unattributed than were read", left)
	}
	return nil
}

func addRun(run *attribution.Run, at map[schema.TraceID]*schema.LedgerRow) error {
	if len(run.TraceIDs) == 0 {
		return fmt.Errorf("it has no trace")
	}
	type place struct {
		row *schema.LedgerRow
		run uint32 // position in row.Runs
	}
	places := make(map[schema.TraceID]place, len(run.TraceIDs))
	ids := make([]schema.TraceID, len(run.TraceIDs))
	for i, text := range run.TraceIDs {
		id, err := schema.ParseTraceID(text)
		if err != nil {
			return err
		}
		row := at[id]
		if row == nil {
			return fmt.Errorf("it names trace %s, which was not read", id)
		}
		ids[i] = id
		if _, twice := places[id]; twice {
			continue
		}
		row.State = schema.StateAttributed
		places[id] = place{row, uint32(len(row.Runs))}
		row.Runs = append(row.Runs, schema.RunRow{
			RunID: run.RunID, ThreadID: run.ThreadID, Service: run.Service, Version: run.Version, Environment: run.Environment,
			Completion: run.Completion, Quarantined: run.Quarantined,
		})
	}
	anchor := places[ids[0]]
	fillAnchor(&anchor.row.Runs[anchor.run], run, ids)
	placeOf := func(id schema.TraceID) place {
		if p, ok := places[id]; ok {
			return p
		}
		return anchor
	}
	for i := range run.Steps {
		anchor.row.Steps = append(anchor.row.Steps, stepRow(&run.Steps[i], anchor.run))
	}
	shown := make(map[string]uint8, len(run.Steps))
	for i := range run.Steps {
		shown[run.Steps[i].Step] = shows(&run.Steps[i].Retries)
	}
	for i := range run.Operations {
		p := placeOf(run.Operations[i].TraceID)
		row := operationRow(&run.Operations[i], p.run, i)
		row.Shows = shown[row.Step]
		p.row.Operations = append(p.row.Operations, row)
	}
	for i := range run.Attempts {
		p := placeOf(run.Attempts[i].TraceID)
		row := attemptRow(&run.Attempts[i], p.run, i)
		layer := layerBits[attribution.Layer(row.Charge)] // 0 where it is none
		bits, accounted := shown[row.Step]
		if !accounted {
			bits = layer // of a step without an account nothing else is known
		}
		row.Shows, row.Hidden = bits, layer&^bits != 0
		p.row.Attempts = append(p.row.Attempts, row)
	}
	for i := range run.ContractViolations {
		p := placeOf(run.ContractViolations[i].TraceID)
		p.row.Violations = append(p.row.Violations, violationRow(&run.ContractViolations[i], int64(p.run), i))
	}
	return nil
}

func fillAnchor(r *schema.RunRow, run *attribution.Run, ids []schema.TraceID) {
	r.Anchor = true
	r.TraceIDs = ids
	r.JoinedBy, r.UnfinishedSteps, r.Outcome = run.JoinedBy, run.UnfinishedSteps, run.Outcome
	r.RunLimit, r.StepLimit = int64(run.Budget.RunLimit), int64(run.Budget.StepLimit)
	r.Retries, r.Exhausted = int64(run.Budget.Retries), run.Budget.Exhausted
	r.Deliveries, r.PoisonPill, r.NeedsReview = int64(run.Deliveries), run.PoisonPill, run.NeedsReview
	r.OrphanSpans, r.Spans, r.Dialects = int64(run.OrphanSpans), int64(run.Spans), run.Dialects
	r.StartNs, r.EndNs, r.Warnings, r.Sampled = run.StartNs, run.EndNs, run.Warnings, run.Sampled
}

func stepRow(s *attribution.Step, run uint32) schema.StepRow {
	r := schema.StepRow{
		Run: run, Step: s.Step,
		Executions: int64(s.Executions), Visits: int64(s.Visits), Operations: int64(s.Operations),
		FallbackOperations: int64(s.FallbackOperations), FallbackRate: s.FallbackRate,
		Calls: int64(s.Calls), CallsFailed: int64(s.CallsFailed), ToolCalls: int64(s.ToolCalls), HTTPCalls: int64(s.HTTPCalls),
		RetriesTransport: wide(s.Retries.Transport), RetriesCall: wide(s.Retries.Call), RetriesNode: wide(s.Retries.Node),
		RetriesOrchestrator: wide(s.Retries.Orchestrator), RetriesWorker: wide(s.Retries.Worker), RetriesTotal: wide(s.RetriesTotal),
		Fallbacks: int64(s.Fallbacks), TokensInput: s.Tokens.Input, TokensOutput: s.Tokens.Output, TokensUnknownCalls: int64(s.Tokens.UnknownCalls),
		WastedInput: s.Wasted.Input, WastedOutput: s.Wasted.Output, WastedUnknownCalls: int64(s.Wasted.UnknownCalls),
		WastedTimeMs: s.Wasted.TimeMs, WastedWaitMs: s.Wasted.WaitMs, WastedCostUSD: s.Wasted.CostUSD,
		Outcome: string(s.Outcome), Factorisation: s.Factorisation, WorstCase: int64(s.WorstCase), StepLimit: int64(s.StepLimit), OverBudget: s.OverBudget,
		StartNs: s.StartNs, EndNs: s.EndNs,
	}
	for _, e := range s.Evidence {
		r.Evidence = append(r.Evidence, string(e))
	}
	for _, e := range s.Errors {
		r.ErrorClasses = append(r.ErrorClasses, e.Class)
		r.ErrorHTTPStatuses = append(r.ErrorHTTPStatuses, int64(e.HTTPStatus))
		r.ErrorCounts = append(r.ErrorCounts, int64(e.Count))
	}
	return r
}

func operationRow(o *attribution.Operation, run uint32, index int) schema.OperationRow {
	return schema.OperationRow{
		Run: run, Index: uint32(index), Step: o.Step, Grain: string(o.Grain), Outcome: string(o.Outcome),
		Attempts: int64(o.Attempts), Retries: int64(o.Retries), Fallbacks: int64(o.Fallbacks), Limit: int64(o.Limit),
		FirstError: o.FirstError, LastError: o.LastError, Futile: o.Futile, Provider: o.Provider,
		StartNs: o.StartNs, EndNs: o.EndNs, CountsInStep: o.CountsInStep, Settled: o.Settled,
	}
}

func attemptRow(a *attribution.Attempt, run uint32, index int) schema.AttemptRow {
	r := schema.AttemptRow{
		Run: run, Index: uint32(index), Grain: string(a.Grain), Step: a.Step, Name: a.Name, SpanID: a.SpanID,
		Parent: int64(a.Parent), Operation: int64(a.Operation), Ordinal: int64(a.Ordinal),
		Charge: a.Charge, Evidence: string(a.Evidence), Ending: string(a.Ending), Handled: a.Handled,
		ErrorClass: a.ErrorClass, HTTPStatus: int64(a.HTTPStatus), Model: a.Model, Provider: a.Provider,
		FallbackFrom: a.FallbackFrom, FallbackReason: a.FallbackReason, StartNs: a.StartNs, EndNs: a.EndNs,
		InputTokens: known(a.InputTokens), OutputTokens: known(a.OutputTokens),
		Counted: a.Counted, Wasted: a.Wasted, WastedMs: a.WastedMs, WaitMs: a.WaitMs, ViewOf: int64(a.ViewOf),
		Request: a.Request, Midway: a.Midway, Violated: a.Violated,
	}
	if cost := a.CostUSD; !math.IsNaN(cost) {
		r.CostUSD = &cost
	}
	return r
}

// layerBits are the layers as rows of the ledger have them.
var layerBits = map[attribution.Layer]uint8{
	attribution.LayerTransport:    schema.ShowsTransport,
	attribution.LayerCall:         schema.ShowsCall,
	attribution.LayerNode:         schema.ShowsNode,
	attribution.LayerOrchestrator: schema.ShowsOrchestrator,
	attribution.LayerWorker:       schema.ShowsWorker,
}

// shows are the layers that hold a number.
func shows(r *attribution.Retries) (bits uint8) {
	for layer, n := range map[attribution.Layer]*int{
		attribution.LayerTransport: r.Transport, attribution.LayerCall: r.Call, attribution.LayerNode: r.Node,
		attribution.LayerOrchestrator: r.Orchestrator, attribution.LayerWorker: r.Worker,
	} {
		if n != nil {
			bits |= layerBits[layer]
		}
	}
	return bits
}

func violationRow(v *attribution.ContractViolation, run int64, index int) schema.ViolationRow {
	return schema.ViolationRow{
		Run: run, Index: uint32(index), Node: v.Node, Key: v.Key, Direction: v.Direction, Count: int64(v.Count), TimeNs: v.TimeNs,
	}
}

func wide(n *int) *int64 {
	if n == nil {
		return nil
	}
	w := int64(*n)
	return &w
}

func known(n int64) *int64 {
	if n == schema.Unknown {
		return nil
	}
	return &n
}
