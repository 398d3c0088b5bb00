package dialect

import (
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/schema"
)

// How a span ended: success, failure, or control flow; of a failure its class and
// HTTP status, out of texts where no attribute says them. The texts are not kept.

func (r *reading) readEnding() {
	row := r.row
	status := r.span.Status()
	row.Failed = status.Code() == ptrace.StatusCodeError
	row.StatusOK = status.Code() == ptrace.StatusCodeOk

	message := status.Message()
	class := className(r.attrs.text("error.type"))
	for _, event := range r.span.Events().All() {
		if event.Name() != "exception" {
			continue
		}
		a := attributes{event.Attributes()}
		if class == "" {
			class = exceptionClass(a)
		}
		if message == "" {
			message = a.text("exception.message")
		}
		if row.HTTPStatus == 0 && row.Failed {
			row.HTTPStatus = statusOfText(a.text("exception.message"))
		}
		if flow := flowOf(exceptionClass(a), a.text("exception.message")); flow != schema.FlowNone {
			row.Flow = flow // some instrumentations keep the status OK and the event
		}
	}
	if class == "" {
		class = classOfText(message)
	}
	if row.HTTPStatus == 0 && row.Failed {
		row.HTTPStatus = statusOfText(message)
	}
	if row.HTTPStatus >= 400 && (row.Role == schema.RoleHTTP || row.Role == schema.RoleRPC) {
		row.Failed = true
	}
	if !row.Failed && row.Flow == schema.FlowNone {
		return
	}
	row.ErrorClass = class
	if flow := flowOf(class, message); flow != schema.FlowNone {
		row.Flow = flow
	}
	if row.Flow != schema.FlowNone {
		row.Failed = false
		return
	}
	if m := failedAfterText.FindStringSubmatch(message); m != nil {
		r.statedAttempts(m[1])
	}
}

func (r *reading) statedAttempts(digits string) {
	if n, err := strconv.Atoi(digits); err == nil && n >= 1 {
		r.row.StatedAttempts, r.row.StatedExhausted = int32(n), true //nolint:gosec // few digits by the pattern
	}
}

var failedAfterText = regexp.MustCompile(`[Ff]ailed after (\d{1,6}) attempts?`)

// controlFlow maps classes of exceptions that are no failures to what they are.
var controlFlow = map[string]schema.ControlFlow{
	"GraphInterrupt": schema.FlowInterrupt, "NodeInterrupt": schema.FlowInterrupt, "Interrupt": schema.FlowInterrupt,
	"ParentCommand": schema.FlowCommand, "Command": schema.FlowCommand, "GraphDrained": schema.FlowCommand, "GraphBubbleUp": schema.FlowCommand,
	"CancelledError": schema.FlowCancelled, "CanceledError": schema.FlowCancelled, "AbortError": schema.FlowCancelled,
	"CancellationException": schema.FlowCancelled, "TaskCanceledException": schema.FlowCancelled, "OperationCanceledException": schema.FlowCancelled,
	"GeneratorExit": schema.FlowAbandoned,
}

// flowOf goes by the class, not by the status: instrumentations disagree on the status.
func flowOf(class, message string) schema.ControlFlow {
	if flow, ok := controlFlow[class]; ok {
		return flow
	}
	switch first, _, _ := strings.Cut(message, "\n"); strings.TrimSpace(first) {
	case "context canceled", "Abort", "Aborted", "This operation was aborted":
		return schema.FlowCancelled
	}
	return schema.FlowNone
}

// exceptionClass is the class that an exception event states. JavaScript SDKs
// write an error's code, if it has one, where its class belongs; the stack trace
// begins with the true class.
func exceptionClass(a attributes) string {
	stated := className(a.text("exception.type"))
	trace := a.text("exception.stacktrace")
	if trace != "" && !strings.HasPrefix(trace, "Traceback") && !strings.HasPrefix(trace, "goroutine") {
		first, _, _ := strings.Cut(trace, "\n")
		if class := classAtStart(first); specific(class) {
			return class
		}
	}
	message := a.text("exception.message")
	if !specific(stated) {
		if class := classOfText(message); specific(class) {
			return class
		}
	}
	if stated != "" {
		return stated
	}
	return classOfText(message)
}

// specific tells a class from the placeholders that some exporters write.
func specific(class string) bool {
	switch class {
	case "", "Error", "Exception", "unknown", "_OTHER":
		return false
	}
	return classLike.MatchString(class)
}

var (
	classLike = regexp.MustCompile(`^[A-Z][A-Za-z0-9_]*$|^[a-z][A-Za-z0-9]*(?:Error|Exception)$`)
	// A class at the start of a text, before its message: `RateLimitError: 429 …`, Python's repr `RateLimitError('…')`.
	classPrefix = regexp.MustCompile(`^((?:[A-Za-z_$*][\w$]*[.$/])*[A-Za-z_*][\w]*)\s*(?:\(|: |:$|$)`)
	// JavaScript: the message, a blank line, the stack whose first line names the class.
	stackClass = regexp.MustCompile(`\n\n((?:[A-Za-z_$][\w$]*\.)*[A-Z][\w$]*)(?:: |:?\n)`)
)

// className is the last segment of a type's name, as docs/accounting.md defines class.
func className(name string) string {
	name = clip(strings.TrimSpace(name), 4*schema.MaxName) // whole, for a secret may have dots
	if name == "unknown" || name == "_OTHER" {
		return ""
	}
	if i := strings.LastIndexAny(name, ".$*"); i >= 0 && i+1 < len(name) {
		name = name[i+1:]
	}
	return clip(name, maxText)
}

func classAtStart(text string) string {
	m := classPrefix.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	if class := className(m[1]); classLike.MatchString(class) && namesError(class, text, m[0]) {
		return class
	}
	return ""
}

// namesError keeps ordinary sentences (`Timeout: …` is a class, `Connection error.` is not) apart from classes.
func namesError(class, text, match string) bool {
	for _, suffix := range []string{"Error", "Exception", "Interrupt", "Exit", "Group", "Violation", "Warning", "Failure", "Timeout", "Command", "Drained", "BubbleUp"} {
		if strings.HasSuffix(class, suffix) {
			return true
		}
	}
	return strings.HasSuffix(match, "(") && strings.HasPrefix(text, class) // a Python repr
}

// classOfText finds the class that a status message or an exception's message begins with.
func classOfText(text string) string {
	if text == "" {
		return ""
	}
	if m := stackClass.FindStringSubmatch(text); m != nil {
		return className(m[1])
	}
	return classAtStart(text)
}

var (
	statusFirst  = regexp.MustCompile(`^[("' ]*([1-5]\d{2})\b`)
	statusNamed  = regexp.MustCompile(`(?i)(?:error code|status(?:[ _]code)?|http(?:/[\d.]+)?|answered|upstream|returned|response|server)[:= ]+(?:code |status )?([1-5]\d{2})\b`)
	statusInside = regexp.MustCompile(`(?:^|[^\w.:-])([45]\d{2})\b(.?)(.?)`)
)

// statusOfText parses an HTTP status out of a message, a last resort; 0 if there is none.
func statusOfText(text string) int32 {
	if text == "" {
		return 0
	}
	text, _, _ = strings.Cut(text, "\n")
	if i := strings.Index(text, "Traceback (most recent call last)"); i >= 0 {
		text = text[:i]
	}
	if len(text) > 300 {
		text = text[:300]
	}
	body := text
	if class := classAtStart(text); class != "" {
		if i := strings.Index(text, class); i >= 0 {
			body = strings.TrimLeft(text[i+len(class):], ":( ")
		}
	}
	for _, pattern := range []*regexp.Regexp{statusFirst, statusNamed} {
		if m := pattern.FindStringSubmatch(body); m != nil {
			return atoi32(m[1])
		}
	}
	// A number that stands alone, unless a unit follows: `timed out after 500 ms` is no status.
	if m := statusInside.FindStringSubmatch(body); len(m) > 0 && !strings.ContainsAny(m[2]+m[3], "ms%kKMG") {
		return atoi32(m[1])
	}
	return 0
}

func atoi32(digits string) int32 {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
