// Package attribution is phase 2: pure code from the spans of runs to their
// ledger. It does no I/O, reads no clock and draws no random number; the same
// spans give the same ledger in any order and partition, however often they
// are repeated. The definitions are those of docs/accounting.md.
package attribution

import "github.com/retryledger/retryledger/schema"

// Layer is who decided to repeat.
type Layer string

// The layers, innermost first.
const (
	LayerTransport    Layer = "transport"
	LayerCall         Layer = "call"
	LayerNode         Layer = "node"
	LayerOrchestrator Layer = "orchestrator"
	LayerWorker       Layer = "worker"
)

// Evidence is how an attempt is known.
type Evidence string

// The kinds of evidence.
const (
	EvidenceTag       Evidence = "tag"
	EvidenceAttribute Evidence = "attribute"
	EvidenceEvent     Evidence = "event"
	EvidenceStructure Evidence = "structure"
	EvidenceOutput    Evidence = "output"
	EvidenceMessage   Evidence = "message"
	EvidenceInferred  Evidence = "inferred"
)

// Grain is what one attempt is an attempt of.
type Grain string

// The grains of attempts. Only calls carry tokens and cost.
const (
	GrainExecution Grain = "execution" // of a step
	GrainCall      Grain = "call"      // of a model
	GrainTool      Grain = "tool"
	GrainHTTP      Grain = "http" // a send, RPC included
	GrainWork      Grain = "work" // an application's own attempt below a step: neither model, tool nor HTTP
)

// Ending is how one attempt ended.
type Ending string

// The endings of attempts.
const (
	EndingSucceeded   Ending = "succeeded"
	EndingFailed      Ending = "failed"
	EndingInterrupted Ending = "interrupted"
	EndingCancelled   Ending = "cancelled"
	EndingUnknown     Ending = "unknown" // its own span never came
)

// Outcome is how an operation or a step ended, in the words of docs/accounting.md.
type Outcome string

// The outcomes of operations and steps.
const (
	OutcomeFirstTry         Outcome = "succeeded_first_try"
	OutcomeAfterRetry       Outcome = "succeeded_after_retry"
	OutcomeByFallback       Outcome = "succeeded_by_fallback"
	OutcomeFailedAfterRetry Outcome = "failed_after_retry"
	OutcomeFailed           Outcome = "failed_without_retry"
	OutcomeHandled          Outcome = "handled"
	OutcomeInterrupted      Outcome = "interrupted"
	OutcomeCancelled        Outcome = "cancelled"
	OutcomeUnknown          Outcome = "unknown"
)

// ChargeFallback is the charge of an attempt that is a fallback candidate's; every
// other charge is a Layer's name, and "" is a first try (a visit, for executions).
const ChargeFallback = "fallback"

// Attempt is one physical execution at one grain. Every number of a step is a
// sum over its attempts, so any window over attempts adds up to the whole.
type Attempt struct {
	Grain     Grain
	Step      string // "" where no step and no call site encloses it
	Name      string // the span's name
	TraceID   schema.TraceID
	SpanID    schema.SpanID // zero for an attempt without a span of its own
	Parent    int           // index in Run.Attempts of the attempt that encloses it, -1 at the top
	Operation int           // index in Run.Operations, -1 if it belongs to none
	Ordinal   int           // within its operation at its layer, 1 = first try
	Charge    string        // "", a Layer, or ChargeFallback
	Evidence  Evidence      // how it is known
	Ending    Ending
	// Handled: it failed, and something hid the failure so that the run went on.
	Handled    bool
	ErrorClass string
	HTTPStatus int

	Model, Provider string
	FallbackFrom    string // candidate before this one, "" unless Charge is ChargeFallback
	FallbackReason  string // the error class (or stated reason) that triggered the switch

	StartNs, EndNs int64
	InputTokens    int64   // schema.Unknown where not stated; calls only
	OutputTokens   int64   // schema.Unknown where not stated; calls only
	CostUSD        float64 // NaN where not stated; calls only
	Counted        bool    // it counts in its step's executions, calls, tool_calls or http_calls
	Wasted         bool    // below (or itself) an attempt that did not contribute to a success
	WastedMs       float64 // its share of the step's wasted time: non-zero on outermost lost attempts only
	WaitMs         float64 // the wait before it that counts as waste, never negative
	Request        bool    // a request that really went out and shows its end: the innermost span of it, or an attempt that an event tells of
	Midway         bool    // a call that failed after its response had begun
	Violated       bool    // an execution to which a contract violation belongs
	ViewOf         int     // reserved for two instrumentors' views of one attempt, -1 none
}

// Operation is something the pipeline wanted done once: a visit of a step, or one call inside a step.
type Operation struct {
	Step         string
	Grain        Grain
	TraceID      schema.TraceID // of its last attempt
	Outcome      Outcome
	Attempts     int // known attempts, fallback candidates included
	Retries      int // attempts charged to a layer
	Fallbacks    int
	Limit        int // configured attempts, 0 not stated
	FirstError   string
	LastError    string
	Futile       bool // every attempt failed with the same class, and there were at least two
	Provider     string
	StartNs      int64
	EndNs        int64 // end of the last known attempt
	CountsInStep bool  // it is one of the step's `operations` (calls where the step has any, else visits)
	// Settled: no further attempt is to be expected, as far as spans show. Only a failed
	// or handled operation can be unsettled.
	Settled bool
}

// Retries are a step's retries by layer; nil where the instrumentation hides the layer.
type Retries struct {
	Transport    *int `json:"transport"`
	Call         *int `json:"call"`
	Node         *int `json:"node"`
	Orchestrator *int `json:"orchestrator"`
	Worker       *int `json:"worker"`
}

// Tokens are sums over calls that state them.
type Tokens struct {
	Input        int64 `json:"input"`
	Output       int64 `json:"output"`
	UnknownCalls int   `json:"unknown_calls"`
}

// Wasted is what attempts that contributed to no success cost.
type Wasted struct {
	Input        int64    `json:"input"`
	Output       int64    `json:"output"`
	UnknownCalls int      `json:"unknown_calls"`
	TimeMs       float64  `json:"time_ms"`
	WaitMs       float64  `json:"wait_ms"`
	CostUSD      *float64 `json:"cost_usd,omitempty"`
}

// ErrorCount is how often one error class was met.
type ErrorCount struct {
	Class      string `json:"class"`
	HTTPStatus int    `json:"http_status,omitempty"`
	Count      int    `json:"count"`
}

// Step is one step's account within one run.
type Step struct {
	Step          string       `json:"step"`
	Executions    int          `json:"executions"`
	Visits        int          `json:"visits"`
	Operations    int          `json:"operations"`
	FallbackRate  float64      `json:"fallback_rate"`
	Calls         int          `json:"calls"`
	CallsFailed   int          `json:"calls_failed"`
	ToolCalls     int          `json:"tool_calls"`
	HTTPCalls     int          `json:"http_calls"`
	Retries       Retries      `json:"retries"`
	RetriesTotal  *int         `json:"retries_total"`
	Fallbacks     int          `json:"fallbacks"`
	Tokens        Tokens       `json:"tokens"`
	Wasted        Wasted       `json:"wasted"`
	Outcome       Outcome      `json:"outcome"`
	Factorisation string       `json:"factorisation"`
	WorstCase     int          `json:"worst_case,omitempty"` // product of the stated limits of all layers, as attempts of the innermost; 0 where none is stated
	StepLimit     int          `json:"step_limit"`
	OverBudget    bool         `json:"over_budget"`
	Evidence      []Evidence   `json:"evidence"`
	Errors        []ErrorCount `json:"errors"`
	// FallbackOperations is the numerator of FallbackRate.
	FallbackOperations int   `json:"fallback_operations"`
	StartNs            int64 `json:"-"`
	EndNs              int64 `json:"-"`
}

// Budget is a run's retry budget and what was used of it.
type Budget struct {
	RunLimit  int  `json:"run_limit"`
	StepLimit int  `json:"step_limit"`
	Retries   int  `json:"retries"`
	Exhausted bool `json:"exhausted"`
}

// ContractViolation is one missing key, counted once per execution.
type ContractViolation struct {
	Node      string `json:"node"`
	Key       string `json:"key"`
	Direction string `json:"direction"`
	Count     int    `json:"count"`

	TraceID schema.TraceID `json:"-"`
	TimeNs  int64          `json:"-"` // of the first
}

// Run is one execution of a pipeline for one input, and its ledger.
type Run struct {
	RunID           string   `json:"run_id"`
	ThreadID        string   `json:"thread_id"`
	TraceIDs        []string `json:"trace_ids"`
	Service         string   `json:"service"`
	Version         string   `json:"version,omitempty"`
	Environment     string   `json:"environment,omitempty"`
	JoinedBy        string   `json:"joined_by"` // trace | run_id | task | inferred
	Completion      string   `json:"completion"`
	Quarantined     bool     `json:"quarantined"`
	UnfinishedSteps []string `json:"unfinished_steps"`
	Outcome         string   `json:"outcome"`
	Budget          Budget   `json:"budget"`
	Deliveries      int      `json:"deliveries"`
	PoisonPill      bool     `json:"poison_pill"`
	NeedsReview     bool     `json:"needs_review"`
	OrphanSpans     int      `json:"orphan_spans"` // spans whose parent never came
	Spans           int      `json:"spans"`
	Sampled         bool     `json:"sampled"` // a span says that its source was sampled: every count is a lower bound

	Steps              []Step              `json:"steps"`
	ContractViolations []ContractViolation `json:"contract_violations"`
	// Warnings are sentences for a reader, in the order of what they are about: what is
	// suspicious about the run and stands in no number. At most 20.
	Warnings []string `json:"warnings"`

	StartNs    int64       `json:"-"`
	EndNs      int64       `json:"-"` // end of the last span
	Operations []Operation `json:"-"`
	Attempts   []Attempt   `json:"-"`
	Dialects   []string    `json:"dialects"`
}

// Ledger is the account of a set of spans.
type Ledger struct {
	Runs []Run `json:"runs"`
	// ContractViolations are those of traces that are no run (rule 5 of "Which spans make a run").
	ContractViolations []ContractViolation `json:"contract_violations"`
	UnattributedSpans  int                 `json:"unattributed_spans"`
}

// Options are the settings of attribution. The zero value is not useful: begin with Defaults.
type Options struct {
	AtNs           int64 // the instant that "running" and "orphaned" are judged by, ns since the epoch
	RunLimit       int   // retries per run
	StepLimit      int   // retries per step and run
	StepLimits     map[string]int
	OrphanAfterNs  int64 // silence after which a run without a root is orphaned
	MaxResumes     int   // deliveries without completion that make a poison pill
	JoinWindowNs   int64 // a run id joins traces at most this far apart
	IdleLimitNs    int64 // traces of one thread without a pipeline root join below this gap
	OverlapSlackNs int64 // two spans that overlap by less are sequential (JavaScript's whole milliseconds)
}

// Defaults are the limits that ACCOUNTING.md states.
func Defaults() Options {
	const second = int64(1e9)
	return Options{
		RunLimit: 12, StepLimit: 3, MaxResumes: 3,
		OrphanAfterNs: 15 * 60 * second, JoinWindowNs: 24 * 3600 * second,
		IdleLimitNs: 30 * 60 * second, OverlapSlackNs: 2 * second / 1000,
	}
}
