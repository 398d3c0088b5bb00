package answer

import (
	"math"
	"time"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// Run is one run with its ladder: the ledger's entry, and every attempt and operation
// that its numbers are sums of.
type Run struct {
	attribution.Run
	StartedAt  time.Time   `json:"started_at"`
	EndedAt    time.Time   `json:"ended_at"` // the end of the last span
	Operations []Operation `json:"operations"`
	Attempts   []Attempt   `json:"attempts"`
}

// Operation is attribution.Operation as JSON.
type Operation struct {
	Step         string              `json:"step"`
	Grain        attribution.Grain   `json:"grain"`
	TraceID      string              `json:"trace_id"`
	Outcome      attribution.Outcome `json:"outcome"`
	Attempts     int                 `json:"attempts"`
	Retries      int                 `json:"retries"`
	Fallbacks    int                 `json:"fallbacks"`
	MaxAttempts  int                 `json:"max_attempts"` // the configured limit, the first try included; 0 not stated
	FirstError   string              `json:"first_error"`
	LastError    string              `json:"last_error"`
	Futile       bool                `json:"futile"`
	StartedAt    time.Time           `json:"started_at"`
	EndedAt      time.Time           `json:"ended_at"`
	CountsInStep bool                `json:"counts_in_step"`
}

// Attempt is attribution.Attempt as JSON. Unknown numbers are null.
type Attempt struct {
	Grain     attribution.Grain    `json:"grain"`
	Step      string               `json:"step"`
	Name      string               `json:"name"`
	TraceID   string               `json:"trace_id"`
	SpanID    string               `json:"span_id"`   // "" for an attempt without a span of its own
	Parent    int                  `json:"parent"`    // index in attempts, -1 at the top
	Operation int                  `json:"operation"` // index in operations, -1 none
	Ordinal   int                  `json:"ordinal"`
	Charge    string               `json:"charge"` // "" a first try, a layer, or fallback
	Evidence  attribution.Evidence `json:"evidence"`
	Ending    attribution.Ending   `json:"ending"`
	Handled   bool                 `json:"handled"`

	ErrorClass     string `json:"error_class"`
	HTTPStatus     int    `json:"http_status"` // 0 unknown
	Model          string `json:"model"`
	Provider       string `json:"provider"`
	FallbackFrom   string `json:"fallback_from"`
	FallbackReason string `json:"fallback_reason"`

	StartedAt    time.Time `json:"started_at"`
	EndedAt      time.Time `json:"ended_at"`
	InputTokens  *int64    `json:"input_tokens"`
	OutputTokens *int64    `json:"output_tokens"`
	CostUSD      *float64  `json:"cost_usd"`
	Counted      bool      `json:"counted"`
	Wasted       bool      `json:"wasted"`
	WastedMs     float64   `json:"wasted_ms"`
	WaitMs       float64   `json:"wait_ms"`
}

// RunOf is the answer for one run of a ledger in memory.
func RunOf(run attribution.Run) Run {
	answer := Run{
		Run: CompleteRun(run), StartedAt: instant(run.StartNs), EndedAt: instant(run.EndNs),
		Operations: make([]Operation, len(run.Operations)), Attempts: make([]Attempt, len(run.Attempts)),
	}
	for i, o := range run.Operations {
		answer.Operations[i] = Operation{
			Step: o.Step, Grain: o.Grain, TraceID: o.TraceID.String(), Outcome: o.Outcome,
			Attempts: o.Attempts, Retries: o.Retries, Fallbacks: o.Fallbacks, MaxAttempts: o.Limit,
			FirstError: o.FirstError, LastError: o.LastError, Futile: o.Futile,
			StartedAt: instant(o.StartNs), EndedAt: instant(o.EndNs), CountsInStep: o.CountsInStep,
		}
	}
	for i, a := range run.Attempts {
		answer.Attempts[i] = Attempt{
			Grain: a.Grain, Step: a.Step, Name: a.Name, TraceID: a.TraceID.String(), SpanID: spanID(a.SpanID),
			Parent: a.Parent, Operation: a.Operation, Ordinal: a.Ordinal, Charge: a.Charge,
			Evidence: a.Evidence, Ending: a.Ending, Handled: a.Handled,
			ErrorClass: a.ErrorClass, HTTPStatus: a.HTTPStatus, Model: a.Model, Provider: a.Provider,
			FallbackFrom: a.FallbackFrom, FallbackReason: a.FallbackReason,
			StartedAt: instant(a.StartNs), EndedAt: instant(a.EndNs),
			InputTokens: known(a.InputTokens), OutputTokens: known(a.OutputTokens), CostUSD: finite(a.CostUSD),
			Counted: a.Counted, Wasted: a.Wasted, WastedMs: a.WastedMs, WaitMs: a.WaitMs,
		}
	}
	return answer
}

func instant(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func spanID(id schema.SpanID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func known(n int64) *int64 {
	if n == schema.Unknown {
		return nil
	}
	return &n
}

func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
