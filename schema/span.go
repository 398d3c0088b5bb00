// Package schema is what retryledger keeps and how: the row types that ingest
// writes and analysis reads, the DDL, its migrations and its views.
//
// Data flows one way: ingest → schema ← analysis. Nothing here knows how spans
// arrive or how attempts are charged.
package schema

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// TraceID is an OpenTelemetry trace id.
type TraceID [16]byte

// SpanID is an OpenTelemetry span id.
type SpanID [8]byte

// IsZero tells whether the id is absent.
func (t TraceID) IsZero() bool { return t == TraceID{} }

// IsZero tells whether the id is absent.
func (s SpanID) IsZero() bool { return s == SpanID{} }

// String is the id in lower-case hex, as every tracing backend prints it.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String is the id in lower-case hex.
func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// ErrBadTraceID is returned for a text that is not 32 hex digits.
var ErrBadTraceID = errors.New("a trace id has 32 hex digits")

// ParseTraceID reads 32 hex digits.
func ParseTraceID(text string) (TraceID, error) {
	var id TraceID
	if len(text) != 2*len(id) {
		return id, fmt.Errorf("%q: %w", text, ErrBadTraceID)
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return id, fmt.Errorf("%q: %w", text, ErrBadTraceID)
	}
	return id, nil
}

// Role is what a span stands for by its dialect, from the span alone.
type Role string

// The roles. A wrapper is never a call, whatever its name (ACCOUNTING.md).
const (
	RoleOther     Role = ""          // nothing is known
	RoleChain     Role = "chain"     // a framework's own unit: chain, agent, wrapper, graph, node run
	RoleModel     Role = "model"     // one request to a model
	RoleTool      Role = "tool"      // one tool execution
	RoleHTTP      Role = "http"      // one HTTP request as a client
	RoleRPC       Role = "rpc"       // one RPC as a client
	RoleAuxiliary Role = "auxiliary" // prompt templates, parsers, retrievers' helpers: no unit of work, no call
)

// ControlFlow is an ending that is neither success nor failure
// (ACCOUNTING.md, "A retry, and what is not one").
type ControlFlow string

// The kinds of control flow.
const (
	FlowNone      ControlFlow = ""
	FlowInterrupt ControlFlow = "interrupt" // waits for a person
	FlowCancelled ControlFlow = "cancelled" // a cancelled task or context
	FlowAbandoned ControlFlow = "abandoned" // the consumer walked away from a stream
	FlowCommand   ControlFlow = "command"   // a parent command, a drain
)

// Flag is a yes, a no, or nothing said.
type Flag int8

// The values of a Flag.
const (
	FlagUnset Flag = 0
	FlagYes   Flag = 1
	FlagNo    Flag = -1
)

// Unknown stands in integer fields for a number that the span does not say.
// Unknown is not zero.
const Unknown int64 = -1

// RetryEvent is one repeat that has no span of its own: a span event `retry`
// and its relatives.
type RetryEvent struct {
	TimeNs     int64  // nanoseconds since the epoch
	Attempt    int32  // the number the event states, 0 if none
	ErrorClass string // of the attempt that failed, "" if not stated
	HTTPStatus int32  // 0 if not stated
}

// Violation is one missing key of one node's contract, as a span or an event states it.
type Violation struct {
	Node      string
	Key       string
	Direction string // "input" or "output"
	TimeNs    int64
}

// Span is phase 1's row: what one span says by itself, in the words of
// ACCOUNTING.md, whatever instrumentation wrote it. It holds no prompt and no
// completion text, no error message and no attribute that it does not name.
// Times are nanoseconds since the epoch, as the span states them.
type Span struct {
	TraceID  TraceID
	SpanID   SpanID
	ParentID SpanID // zero: a root

	StartNs    int64
	EndNs      int64 // raw: keys and partitions use it as it came
	ReceivedNs int64 // when the collector received it; plays no part in the content hash

	Service     string
	Version     string // service.version
	Environment string // deployment.environment.name
	Scope       string // instrumentation scope name
	Dialect     string // the dialect that read it, e.g. "openinference", "plain"
	Name        string // at most MaxName bytes
	Role        Role
	ClientKind  bool // span kind CLIENT

	// Run.
	RunID      string // explicit only: run.id and its relatives
	RunIDRank  int8   // precedence of RunID's source: 1 run.id, 2 LangGraph server run_id, 3 gen_ai.agent.call.id
	ThreadID   string
	RunAttempt int32 // run.attempt, first delivery = 1; 0 unknown
	WorkerID   string
	Heartbeat  bool

	// Step and task.
	Step      string // stated by the application: step, step.name
	Node      string // the framework's node that this span belongs to (inherited by descendants in LangGraph)
	TaskKey   string // what all attempts of one task share: langgraph_checkpoint_ns
	GraphStep int32  // langgraph_step, -1 unknown
	GraphRoot bool   // the span is a graph's (or subgraph's) own root run, as far as it says so itself
	NodeRun   Flag   // FlagYes where the span itself says it is a node's run (a tag graph:step:N); FlagNo where it says it is not
	Hidden    bool   // langsmith:hidden and the like: an engine's internals

	// Attempts.
	Attempt         int32  // ordinal, first try = 1; 0 not stated
	AttemptEvidence string // "tag" or "attribute" where Attempt is stated
	RetryLayer      string // retry.layer
	AttemptLimit    int32  // the limit as attempts, the first included; 0 not stated
	RetryCount      int32  // retry.count: repeats made inside this span; -1 not stated
	ResendCount     int32  // http.request.resend_count: 1 = first re-send; -1 not stated
	RetryEvents     []RetryEvent
	StatedAttempts  int32 // a text said "failed after N attempts"; 0 none
	StatedExhausted bool  // the same text, so the attempts were used up although the span may be OK

	// Fallback.
	Fallback        int32 // candidate's ordinal, 0 = primary; -1 not stated
	FallbackFrom    string
	FallbackTo      string
	FallbackReason  string
	FallbackEvents  int32 // span events named `fallback`
	FallbackWrapper bool  // a wrapper whose children are candidates
	RetryWrapper    bool  // a wrapper whose children are attempts, where the span says so
	NeedsReview     bool

	// Ending.
	Failed       bool
	StatusOK     bool // status OK, as against UNSET
	Flow         ControlFlow
	ErrorClass   string // last segment of the type's name
	HTTPStatus   int32  // 0 unknown
	OutputFailed bool   // the step's own output said that it failed
	OutputReason string // which test said so, at most 200 bytes, never the output
	StepFailed   Flag   // step.failed

	// Call.
	Model         string // as requested
	ResponseModel string
	Provider      string
	InputTokens   int64   // Unknown where not stated
	OutputTokens  int64   // Unknown where not stated
	CostUSD       float64 // NaN where not stated
	FinishReason  string
	InputHash     uint64 // of the input, to match the attempts of one input; 0 none. 64 bits, no salt: who guesses a short input can check the guess
	ItemHash      uint64 // of the span's own plain attributes (item, index, branch), 0 none

	// Contract, completion, budget.
	Violations      []Violation
	ContractSpan    bool // the span exists to report a violation: no step, no call
	Complete        Flag
	UnfinishedSteps []string
	RunCancelled    bool
	RunLimit        int32 // retry.budget.run_limit, 0 not stated
	StepLimit       int32 // retry.budget.step_limit, 0 not stated
	BudgetExhausted bool

	Sampled bool // the span, its scope or its resource says that its source was sampled

	ContentHash uint64 // of everything above but ReceivedNs: the tie-break between two contents of one id
}

// MaxName bounds the names kept from a span, in bytes.
const MaxName = 256
