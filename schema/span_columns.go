package schema

import "math"

func isUnknown(v int64) bool      { return v == Unknown }
func isNegative(v int32) bool     { return v < 0 }
func isNotANumber(v float64) bool { return math.IsNaN(v) }

// spanColumns are the columns of the table spans, field by field.
var spanColumns = []column[Span]{
	id("trace_id", func(s *Span) []byte { return s.TraceID[:] }, func(s *Span) any { return &s.TraceID }),
	id("span_id", func(s *Span) []byte { return s.SpanID[:] }, func(s *Span) any { return &s.SpanID }),
	id("parent_id", func(s *Span) []byte { return s.ParentID[:] }, func(s *Span) any { return &s.ParentID }),
	field("start_ns", func(s *Span) *int64 { return &s.StartNs }),
	field("end_ns", func(s *Span) *int64 { return &s.EndNs }),
	field("received_ns", func(s *Span) *int64 { return &s.ReceivedNs }),
	field("content_hash", func(s *Span) *uint64 { return &s.ContentHash }),

	field("service", func(s *Span) *string { return &s.Service }),
	field("service_version", func(s *Span) *string { return &s.Version }),
	field("environment", func(s *Span) *string { return &s.Environment }),
	field("scope", func(s *Span) *string { return &s.Scope }),
	field("dialect", func(s *Span) *string { return &s.Dialect }),
	field("name", func(s *Span) *string { return &s.Name }),
	field("role", func(s *Span) *string { return (*string)(&s.Role) }),
	field("client_kind", func(s *Span) *bool { return &s.ClientKind }),

	field("run_id", func(s *Span) *string { return &s.RunID }),
	field("run_id_rank", func(s *Span) *int8 { return &s.RunIDRank }),
	field("thread_id", func(s *Span) *string { return &s.ThreadID }),
	field("run_attempt", func(s *Span) *int32 { return &s.RunAttempt }),
	field("worker_id", func(s *Span) *string { return &s.WorkerID }),
	field("heartbeat", func(s *Span) *bool { return &s.Heartbeat }),

	field("step", func(s *Span) *string { return &s.Step }),
	field("node", func(s *Span) *string { return &s.Node }),
	field("task_key", func(s *Span) *string { return &s.TaskKey }),
	unknown("graph_step", "-1", isNegative, func(s *Span) *int32 { return &s.GraphStep }),
	field("graph_root", func(s *Span) *bool { return &s.GraphRoot }),
	flag("node_run", func(s *Span) *Flag { return &s.NodeRun }),
	field("hidden", func(s *Span) *bool { return &s.Hidden }),

	field("attempt", func(s *Span) *int32 { return &s.Attempt }),
	field("attempt_evidence", func(s *Span) *string { return &s.AttemptEvidence }),
	field("retry_layer", func(s *Span) *string { return &s.RetryLayer }),
	field("attempt_limit", func(s *Span) *int32 { return &s.AttemptLimit }),
	unknown("retry_count", "-1", isNegative, func(s *Span) *int32 { return &s.RetryCount }),
	unknown("resend_count", "-1", isNegative, func(s *Span) *int32 { return &s.ResendCount }),
	nested("retry_events.time_ns", retryEvents, func(e *RetryEvent) *int64 { return &e.TimeNs }),
	nested("retry_events.attempt", retryEvents, func(e *RetryEvent) *int32 { return &e.Attempt }),
	nested("retry_events.error_class", retryEvents, func(e *RetryEvent) *string { return &e.ErrorClass }),
	nested("retry_events.http_status", retryEvents, func(e *RetryEvent) *int32 { return &e.HTTPStatus }),
	field("stated_attempts", func(s *Span) *int32 { return &s.StatedAttempts }),
	field("stated_exhausted", func(s *Span) *bool { return &s.StatedExhausted }),

	unknown("fallback", "-1", isNegative, func(s *Span) *int32 { return &s.Fallback }),
	field("fallback_from", func(s *Span) *string { return &s.FallbackFrom }),
	field("fallback_to", func(s *Span) *string { return &s.FallbackTo }),
	field("fallback_reason", func(s *Span) *string { return &s.FallbackReason }),
	field("fallback_events", func(s *Span) *int32 { return &s.FallbackEvents }),
	field("fallback_wrapper", func(s *Span) *bool { return &s.FallbackWrapper }),
	field("retry_wrapper", func(s *Span) *bool { return &s.RetryWrapper }),
	field("needs_review", func(s *Span) *bool { return &s.NeedsReview }),

	field("failed", func(s *Span) *bool { return &s.Failed }),
	field("status_ok", func(s *Span) *bool { return &s.StatusOK }),
	field("flow", func(s *Span) *string { return (*string)(&s.Flow) }),
	field("error_class", func(s *Span) *string { return &s.ErrorClass }),
	field("http_status", func(s *Span) *int32 { return &s.HTTPStatus }),
	field("output_failed", func(s *Span) *bool { return &s.OutputFailed }),
	field("output_reason", func(s *Span) *string { return &s.OutputReason }),
	flag("step_failed", func(s *Span) *Flag { return &s.StepFailed }),

	field("model", func(s *Span) *string { return &s.Model }),
	field("response_model", func(s *Span) *string { return &s.ResponseModel }),
	field("provider", func(s *Span) *string { return &s.Provider }),
	unknown("input_tokens", "-1", isUnknown, func(s *Span) *int64 { return &s.InputTokens }),
	unknown("output_tokens", "-1", isUnknown, func(s *Span) *int64 { return &s.OutputTokens }),
	unknown("cost_usd", "nan", isNotANumber, func(s *Span) *float64 { return &s.CostUSD }),
	field("finish_reason", func(s *Span) *string { return &s.FinishReason }),
	field("input_hash", func(s *Span) *uint64 { return &s.InputHash }),
	field("item_hash", func(s *Span) *uint64 { return &s.ItemHash }),

	nested("violations.node", violations, func(v *Violation) *string { return &v.Node }),
	nested("violations.key", violations, func(v *Violation) *string { return &v.Key }),
	nested("violations.direction", violations, func(v *Violation) *string { return &v.Direction }),
	nested("violations.time_ns", violations, func(v *Violation) *int64 { return &v.TimeNs }),
	field("contract_span", func(s *Span) *bool { return &s.ContractSpan }),
	flag("complete", func(s *Span) *Flag { return &s.Complete }),
	list("unfinished_steps", func(s *Span) *[]string { return &s.UnfinishedSteps }),
	field("run_cancelled", func(s *Span) *bool { return &s.RunCancelled }),
	field("run_limit", func(s *Span) *int32 { return &s.RunLimit }),
	field("step_limit", func(s *Span) *int32 { return &s.StepLimit }),
	field("budget_exhausted", func(s *Span) *bool { return &s.BudgetExhausted }),
	field("sampled", func(s *Span) *bool { return &s.Sampled }),
}

func retryEvents(s *Span) *[]RetryEvent { return &s.RetryEvents }
func violations(s *Span) *[]Violation   { return &s.Violations }
