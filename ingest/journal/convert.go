package journal

import (
	"math"

	"github.com/retryledger/retryledger/schema"
)

// maxList is the longest list of a row, as the limit directive above has it.
const maxList = 65536

// usualNaN is the bit pattern that CostBits is zero for.
var usualNaN = math.Float64bits(math.NaN())

// fromSpan fills r with s.
func (r *row) fromSpan(s *schema.Span) {
	// An absent key is a nil list: an empty one must not be written, or the
	// bytes would depend on more than the content.
	var events []rowEvent
	var violations []rowViolation
	var unfinished []string
	for _, e := range s.RetryEvents {
		events = append(events, rowEvent(e))
	}
	for _, v := range s.Violations {
		violations = append(violations, rowViolation(v))
	}
	if len(s.UnfinishedSteps) > 0 {
		unfinished = s.UnfinishedSteps
	}
	*r = row{
		TraceID: s.TraceID, SpanID: s.SpanID, ParentID: s.ParentID,
		StartNs: s.StartNs, DurationNs: s.EndNs - s.StartNs, ReceivedNs: s.ReceivedNs - s.EndNs,
		Service: s.Service, Version: s.Version, Environment: s.Environment, Scope: s.Scope,
		Dialect: s.Dialect, Name: s.Name, Role: string(s.Role), ClientKind: s.ClientKind,
		RunID: s.RunID, RunIDRank: s.RunIDRank, ThreadID: s.ThreadID, RunAttempt: s.RunAttempt,
		WorkerID: s.WorkerID, Heartbeat: s.Heartbeat,
		Step: s.Step, Node: s.Node, TaskKey: s.TaskKey, GraphStep: int64(s.GraphStep) + 1,
		GraphRoot: s.GraphRoot, NodeRun: int8(s.NodeRun), Hidden: s.Hidden,
		Attempt: s.Attempt, AttemptEvidence: s.AttemptEvidence, RetryLayer: s.RetryLayer,
		AttemptLimit: s.AttemptLimit, RetryCount: int64(s.RetryCount) + 1, ResendCount: int64(s.ResendCount) + 1,
		RetryEvents: events, StatedAttempts: s.StatedAttempts, StatedExhausted: s.StatedExhausted,
		Fallback: int64(s.Fallback) + 1, FallbackFrom: s.FallbackFrom, FallbackTo: s.FallbackTo,
		FallbackReason: s.FallbackReason, FallbackEvents: s.FallbackEvents,
		FallbackWrapper: s.FallbackWrapper, RetryWrapper: s.RetryWrapper, NeedsReview: s.NeedsReview,
		Failed: s.Failed, StatusOK: s.StatusOK, Flow: string(s.Flow), ErrorClass: s.ErrorClass,
		HTTPStatus: s.HTTPStatus, OutputFailed: s.OutputFailed, OutputReason: s.OutputReason,
		StepFailed: int8(s.StepFailed),
		Model:      s.Model, ResponseModel: s.ResponseModel, Provider: s.Provider,
		InputTokens: s.InputTokens + 1, OutputTokens: s.OutputTokens + 1,
		CostBits: math.Float64bits(s.CostUSD) ^ usualNaN, FinishReason: s.FinishReason,
		InputHash: s.InputHash, ItemHash: s.ItemHash,
		Violations: violations, ContractSpan: s.ContractSpan, Complete: int8(s.Complete),
		UnfinishedSteps: unfinished, RunCancelled: s.RunCancelled,
		RunLimit: s.RunLimit, StepLimit: s.StepLimit, BudgetExhausted: s.BudgetExhausted, Sampled: s.Sampled,
		ContentHash: s.ContentHash,
	}
}

// toSpan is the reverse of fromSpan. The span shares r's slice of unfinished
// steps, and nothing else.
func (r *row) toSpan() schema.Span {
	s := schema.Span{
		TraceID: r.TraceID, SpanID: r.SpanID, ParentID: r.ParentID,
		StartNs: r.StartNs, EndNs: r.StartNs + r.DurationNs, ReceivedNs: r.StartNs + r.DurationNs + r.ReceivedNs,
		Service: r.Service, Version: r.Version, Environment: r.Environment, Scope: r.Scope,
		Dialect: r.Dialect, Name: r.Name, Role: schema.Role(r.Role), ClientKind: r.ClientKind,
		RunID: r.RunID, RunIDRank: r.RunIDRank, ThreadID: r.ThreadID, RunAttempt: r.RunAttempt,
		WorkerID: r.WorkerID, Heartbeat: r.Heartbeat,
		Step: r.Step, Node: r.Node, TaskKey: r.TaskKey, GraphStep: int32(r.GraphStep - 1),
		GraphRoot: r.GraphRoot, NodeRun: schema.Flag(r.NodeRun), Hidden: r.Hidden,
		Attempt: r.Attempt, AttemptEvidence: r.AttemptEvidence, RetryLayer: r.RetryLayer,
		AttemptLimit: r.AttemptLimit, RetryCount: int32(r.RetryCount - 1), ResendCount: int32(r.ResendCount - 1),
		StatedAttempts: r.StatedAttempts, StatedExhausted: r.StatedExhausted,
		Fallback: int32(r.Fallback - 1), FallbackFrom: r.FallbackFrom, FallbackTo: r.FallbackTo,
		FallbackReason: r.FallbackReason, FallbackEvents: r.FallbackEvents,
		FallbackWrapper: r.FallbackWrapper, RetryWrapper: r.RetryWrapper, NeedsReview: r.NeedsReview,
		Failed: r.Failed, StatusOK: r.StatusOK, Flow: schema.ControlFlow(r.Flow), ErrorClass: r.ErrorClass,
		HTTPStatus: r.HTTPStatus, OutputFailed: r.OutputFailed, OutputReason: r.OutputReason,
		StepFailed: schema.Flag(r.StepFailed),
		Model:      r.Model, ResponseModel: r.ResponseModel, Provider: r.Provider,
		InputTokens: r.InputTokens - 1, OutputTokens: r.OutputTokens - 1,
		CostUSD: math.Float64frombits(r.CostBits ^ usualNaN), FinishReason: r.FinishReason,
		InputHash: r.InputHash, ItemHash: r.ItemHash,
		ContractSpan: r.ContractSpan, Complete: schema.Flag(r.Complete),
		RunCancelled: r.RunCancelled, RunLimit: r.RunLimit, StepLimit: r.StepLimit,
		BudgetExhausted: r.BudgetExhausted, Sampled: r.Sampled, ContentHash: r.ContentHash,
	}
	if len(r.RetryEvents) > 0 {
		s.RetryEvents = make([]schema.RetryEvent, len(r.RetryEvents))
		for i, e := range r.RetryEvents {
			s.RetryEvents[i] = schema.RetryEvent(e)
		}
	}
	if len(r.Violations) > 0 {
		s.Violations = make([]schema.Violation, len(r.Violations))
		for i, v := range r.Violations {
			s.Violations[i] = schema.Violation(v)
		}
	}
	if len(r.UnfinishedSteps) > 0 {
		s.UnfinishedSteps = r.UnfinishedSteps
	}
	return s
}
