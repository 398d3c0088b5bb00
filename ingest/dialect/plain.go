package dialect

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/schema"
)

// What an application may state itself on any span, whatever instrumentation wrote
// it (docs/accounting.md, "What an application may state itself").

// tagKeys hold the tags of one span. Tags of a whole trace are not here: they say
// nothing about the span that carries them.
var tagKeys = []string{"tags", "tag.tags", "logfire.tags", "mastra.tags"}

var (
	attemptTag     = regexp.MustCompile(`^retry:attempt:(\d{1,9})$`)
	fallbackTag    = regexp.MustCompile(`^fallback(?::(\d{1,9}))?$`)
	graphStepTag   = regexp.MustCompile(`^graph:step:-?\d+$`)
	missingKeyText = regexp.MustCompile(`missing (input|output): ['"]?([^\s'",;]+)`)
)

func (r *reading) readPlain() {
	row, a := r.row, r.attrs
	row.Step = clip(a.text("step", "step.name"), schema.MaxName)
	if id := a.text("run.id"); id != "" {
		row.RunID, row.RunIDRank = clip(id, schema.MaxName), 1
	} else if id := a.text("gen_ai.agent.call.id"); id != "" && row.ParentID.IsZero() {
		row.RunID, row.RunIDRank = clip(id, schema.MaxName), 3
	}
	if id := a.text("thread.id", "session.id"); id != "" && !isThreadNumber(a) {
		row.ThreadID = clip(id, schema.MaxName)
	}
	row.RunAttempt, _ = a.count("run.attempt")
	row.WorkerID = clip(a.text("worker.id"), schema.MaxName)
	row.Heartbeat = row.Name == "run.heartbeat"

	for _, key := range tagKeys {
		r.readTags(a.list(key))
	}
	if n, ok := a.count("retry.attempt"); ok && n >= 1 {
		row.Attempt, row.AttemptEvidence = n, "attribute"
	}
	row.RetryLayer = clip(a.text("retry.layer"), maxText)
	row.AttemptLimit, _ = a.count("retry.max_attempts")
	if n, ok := a.count("retry.count"); ok {
		row.RetryCount = n
	}

	r.readFallback()
	r.readContract()
	r.readRun()
	r.readEvents()
	r.readModelRetry()
	row.ItemHash = itemHash(a.m)
}

// isThreadNumber tells an operating system's thread (thread.id beside thread.name,
// the semantic convention of that name) from a conversation's.
func isThreadNumber(a attributes) bool {
	return a.has("thread.name") && !a.has("session.id")
}

func (r *reading) readTags(tags []string) {
	row := r.row
	for _, tag := range tags {
		tag = strings.TrimSpace(tag)
		if m := attemptTag.FindStringSubmatch(tag); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n >= 1 {
				row.Attempt, row.AttemptEvidence = int32(n), "tag" //nolint:gosec // nine digits at most
			}
		} else if m := fallbackTag.FindStringSubmatch(tag); m != nil {
			row.Fallback = 1
			if n, err := strconv.Atoi(m[1]); err == nil {
				row.Fallback = int32(n) //nolint:gosec // nine digits at most
			}
		} else if graphStepTag.MatchString(tag) {
			row.NodeRun = schema.FlagYes
		} else if tag == "langsmith:hidden" {
			row.Hidden = true
		}
	}
}

func (r *reading) readFallback() {
	row, a := r.row, r.attrs
	if on, ok := a.boolean("fallback"); ok {
		row.Fallback = 0
		if on {
			row.Fallback = 1
		}
	}
	if n, ok := a.count("fallback"); ok {
		row.Fallback = n
	}
	row.FallbackFrom = clip(a.text("fallback.from"), schema.MaxName)
	row.FallbackTo = clip(a.text("fallback.to"), schema.MaxName)
	row.FallbackReason = shortReason(a.text("fallback.reason"))
	if row.Fallback < 0 && row.FallbackFrom != "" {
		row.Fallback = 1
	}
	if on, ok := a.boolean("fallback.needs_review"); ok {
		row.NeedsReview = on
	}
}

// shortReason keeps the first clause of a stated reason: applications append the last
// result, which may be a model's answer.
func shortReason(reason string) string {
	if i := strings.IndexAny(reason, ".:,;(\n"); i >= 0 {
		reason = reason[:i]
	}
	return clip(strings.TrimSpace(reason), 64)
}

func (r *reading) readRun() {
	row, a := r.row, r.attrs
	if done, ok := a.boolean("run.complete"); ok {
		row.Complete = flagOf(done)
	} else if v, ok := a.m.Get("complete"); ok && v.Type() == pcommon.ValueTypeBool {
		row.Complete = flagOf(v.Bool()) // so common a word counts only as a real bool
	}
	for _, step := range a.list("run.unfinished_steps") {
		if len(row.UnfinishedSteps) < maxSteps {
			row.UnfinishedSteps = append(row.UnfinishedSteps, clip(step, schema.MaxName))
		}
	}
	row.RunCancelled, _ = a.boolean("run.cancelled")
	row.RunLimit, _ = a.count("retry.budget.run_limit")
	row.StepLimit, _ = a.count("retry.budget.step_limit")
	row.BudgetExhausted, _ = a.boolean("retry.budget.exhausted")
	if failed, ok := a.boolean("step.failed"); ok {
		row.StepFailed = flagOf(failed)
	}
	if text := a.text("step.error"); text != "" {
		if row.StepFailed == schema.FlagUnset {
			row.StepFailed = schema.FlagYes
		}
		if row.ErrorClass == "" {
			row.ErrorClass = classOfText(text)
		}
		if row.ErrorClass == "" && typeName.MatchString(text) {
			row.ErrorClass = className(text) // the class alone, without a message
		}
		if row.HTTPStatus == 0 {
			row.HTTPStatus = statusOfText(text)
		}
	}
}

// readModelRetry reads the span that open-swe writes between two requests to a model:
// it is no attempt but tells of one, a repeat or a switch to another model.
func (r *reading) readModelRetry() {
	row, a := r.row, r.attrs
	if row.Name != "model_retry" || !a.has("attempt") {
		return
	}
	row.Role, row.Failed = schema.RoleAuxiliary, false
	row.ErrorClass = className(a.text("error_type"))
	row.HTTPStatus, _ = a.count("status_code")
	row.AttemptLimit, _ = a.count("max_attempts")
	failed, next := a.text("failed_model"), a.text("next_model")
	if a.text("retry_with") == "fallback" || next != "" && next != failed {
		row.FallbackEvents, row.FallbackFrom, row.FallbackTo, row.FallbackReason = 1, clip(failed, schema.MaxName), clip(next, schema.MaxName), row.ErrorClass
		return
	}
	row.RetryLayer, row.RetryCount = "call", 1
}

func flagOf(on bool) schema.Flag {
	if on {
		return schema.FlagYes
	}
	return schema.FlagNo
}

func (r *reading) readContract() {
	row, a := r.row, r.attrs
	named := namesViolation(row.Name)
	r.violationsIn(a, named, row.StartNs)
	// A decorator may put its verdict on the step's own span, which stays a step.
	row.ContractSpan = row.Step == "" && (named || len(row.Violations) > 0 && row.Role == schema.RoleOther)
	if node := row.Step; node != "" {
		for _, m := range missingKeyText.FindAllStringSubmatch(r.span.Status().Message(), maxViolations) {
			r.violation(node, m[2], m[1], row.EndNs)
		}
	}
}

func namesViolation(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "contract") && strings.Contains(name, "violation")
}

// violationsIn reads what a (a span's or an event's attributes) says about missed keys.
func (r *reading) violationsIn(a attributes, named bool, timeNs int64) {
	node := a.text("contract.node")
	if node == "" && (a.has("contract.missing_input") || a.has("contract.missing_output")) {
		node = r.row.Step
	}
	if node != "" {
		for _, key := range a.list("contract.missing_input") {
			r.violation(node, key, "input", timeNs)
		}
		for _, key := range a.list("contract.missing_output") {
			r.violation(node, key, "output", timeNs)
		}
	}
	if named && a.text("node") != "" {
		for _, key := range a.list("missing") {
			direction := "output"
			if rest, ok := strings.CutPrefix(key, "input."); ok {
				direction, key = "input", rest
			} else if rest, ok := strings.CutPrefix(key, "output."); ok {
				key = rest
			}
			r.violation(a.text("node"), key, direction, timeNs)
		}
	}
}

func (r *reading) violation(node, key, direction string, timeNs int64) {
	if key == "" || len(r.row.Violations) >= maxViolations {
		return
	}
	v := schema.Violation{Node: clip(node, schema.MaxName), Key: clip(key, schema.MaxName), Direction: direction, TimeNs: timeNs}
	for _, have := range r.row.Violations {
		if have.Node == v.Node && have.Key == v.Key && have.Direction == v.Direction {
			return // one span says the same thing once, in however many ways
		}
	}
	r.row.Violations = append(r.row.Violations, v)
}

var retryEventNames = []string{"retry", "retrying", "retry.attempt", "retry.scheduled"}

func (r *reading) readEvents() {
	row := r.row
	lastClass, lastStatus := "", int32(0)
	for i, event := range r.span.Events().All() {
		if i >= maxEvents {
			break
		}
		a := attributes{event.Attributes()}
		switch name := event.Name(); {
		case name == "exception":
			lastClass, lastStatus = exceptionClass(a), statusOfText(a.text("exception.message"))
		case slices.Contains(retryEventNames, name):
			row.RetryEvents = append(row.RetryEvents, retryEvent(event, a, lastClass, lastStatus))
			lastClass, lastStatus = "", 0
		case name == "fallback":
			row.FallbackEvents++
			row.FallbackFrom = orElse(row.FallbackFrom, clip(a.text("fallback.from"), schema.MaxName))
			row.FallbackTo = orElse(row.FallbackTo, clip(a.text("fallback.to"), schema.MaxName))
			row.FallbackReason = orElse(row.FallbackReason, shortReason(a.text("fallback.reason")))
		case name == "run.heartbeat": // a sign of life changes nothing else on the span that carries it
			if id := a.text("run.id"); id != "" && row.RunID == "" {
				row.RunID, row.RunIDRank = clip(id, schema.MaxName), 1
			}
		default:
			r.violationsIn(a, namesViolation(name), nanoseconds(event.Timestamp()))
		}
	}
}

// retryEvent reads one repeat. Some clients record the failed attempt's exception
// as an event of its own just before.
func retryEvent(event ptrace.SpanEvent, a attributes, lastClass string, lastStatus int32) schema.RetryEvent {
	e := schema.RetryEvent{TimeNs: nanoseconds(event.Timestamp())}
	e.Attempt, _ = a.count("retry.attempt", "attempt")
	e.ErrorClass = className(a.text("exception.type", "retry.error.type", "error.type"))
	message := a.text("exception.message", "retry.error.message", "retry.error")
	if e.ErrorClass == "" {
		e.ErrorClass = classOfText(message)
	}
	if e.HTTPStatus = statusOfText(message); e.HTTPStatus == 0 {
		e.HTTPStatus = lastStatus
	}
	e.ErrorClass = orElse(e.ErrorClass, lastClass)
	return e
}

func orElse(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

// Words in the keys of attributes that tell how something went, not what it was for.
var outcomeWords = []string{"error", "exception", "status", "result", "retry", "attempt", "duration", "latency", "elapsed", "delay", "wait", "time", "_ms", "token",
	"cost", "count", "size", "bytes", "success", "fail", "outcome", "response", "output", "otel.", "gen_ai.", "llm.", "http.", "url.", "server.", "network.", "code.",
	"thread", "process", "run.", "session", "model", "fallback", "circuit", "breaker", "contract", "messaging.delivery", "worker", "openinference", "metadata", "value",
	"mime", "langfuse", "traceloop", "langsmith", "mlflow", "peer.", "budget"}

// Words in the keys of attributes that name the item worked on.
var itemWords = []string{"item", "index", "idx", "branch", "shard", "partition", "record", "row", "page", "chunk", "document", "doc", "entity", "case", "sample",
	"question", "order", "invoice", "message.id", "ticket", "key", "input.id"}

// itemHash identifies the item that a span worked on by the span's own attributes:
// a branch, an index, an invoice. 0 when it has none.
func itemHash(m pcommon.Map) uint64 {
	var parts []string
	for key, v := range m.All() {
		lower := strings.ToLower(key)
		if lower == "step" || lower == "step.name" || lower == "tags" || containsAny(lower, outcomeWords) {
			continue
		}
		switch v.Type() {
		case pcommon.ValueTypeInt:
			parts = append(parts, key+"="+v.AsString())
		case pcommon.ValueTypeStr:
			if containsAny(lower, itemWords) && len(v.Str()) <= schema.MaxName {
				parts = append(parts, key+"="+v.Str())
			}
		default: // lists and maps name no single item
		}
	}
	if len(parts) == 0 {
		return 0
	}
	slices.Sort(parts)
	return xxhash.Sum64String(strings.Join(parts, "\x00")) | 1
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// typeName is the name of an error's type and nothing else.
var typeName = regexp.MustCompile(`^[A-Za-z_][\w.$]{0,127}$`)
