package answer

import (
	"slices"
	"time"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// Runs is the answer to "which runs were there", the last to end first.
type Runs struct {
	Since       *time.Time   `json:"since"` // null: no bound
	Until       *time.Time   `json:"until"`
	Service     string       `json:"service"` // "": any
	Runs        []RunSummary `json:"runs"`
	RunsLeftOff int          `json:"runs_left_off"` // by the limit
	Warnings    []string     `json:"warnings"`      // what holds of the answer as a whole
}

// Finish says what holds of all runs that are listed.
func (r *Runs) Finish() {
	r.Warnings = sampledWarnings(slices.ContainsFunc(r.Runs, func(run RunSummary) bool { return run.Sampled }))
}

// RunSummary is one run without its steps.
type RunSummary struct {
	RunID           string             `json:"run_id"`
	ThreadID        string             `json:"thread_id"`
	TraceIDs        []string           `json:"trace_ids"`
	Service         string             `json:"service"`
	Version         string             `json:"version"`
	Environment     string             `json:"environment"`
	Completion      string             `json:"completion"`
	Quarantined     bool               `json:"quarantined"`
	UnfinishedSteps []string           `json:"unfinished_steps"`
	Outcome         string             `json:"outcome"`
	Budget          attribution.Budget `json:"budget"`
	Deliveries      int                `json:"deliveries"`
	PoisonPill      bool               `json:"poison_pill"`
	NeedsReview     bool               `json:"needs_review"`
	OrphanSpans     int                `json:"orphan_spans"`
	Spans           int                `json:"spans"`
	Sampled         bool               `json:"sampled"` // every count is a lower bound
	StepsOverBudget []string           `json:"steps_over_budget"`
	StartedAt       time.Time          `json:"started_at"`
	EndedAt         time.Time          `json:"ended_at"` // the end of the last span
}

// RunFilter narrows Runs beyond its window, which is over the end of the run.
type RunFilter struct {
	Filter
	Completion  string // "" any
	Quarantined bool   // only those
	OverBudget  bool   // only runs with a step above its limit, or an exhausted budget
}

// Status says what the store holds and how far attribution has come.
type Status struct {
	Version           string         `json:"version"`
	Spans             int64          `json:"spans"` // distinct ones
	Traces            int64          `json:"traces"`
	Runs              int64          `json:"runs"`
	Completion        map[string]int `json:"completion"`
	UnattributedSpans int64          `json:"unattributed_spans"` // of traces that are no run
	FailedTraces      int64          `json:"failed_traces"`      // that attribution could not account for
	OldestEnd         *time.Time     `json:"oldest_end"`         // of a span, bounded by its receipt; null: there is none
	NewestEnd         *time.Time     `json:"newest_end"`
	LastReceived      *time.Time     `json:"last_received"` // when the newest span was received; null: there is none
	// AttributedThrough is the instant up to which all inserts are in the ledger.
	AttributedThrough *time.Time `json:"attributed_through"`
	// IngestLagMs is how long the last spans took from their receipt to the store.
	IngestLagMs float64 `json:"ingest_lag_ms"`
	// LedgerLagMs is how long the oldest insert that is not in the ledger yet has
	// waited; 0 where all are.
	LedgerLagMs float64 `json:"ledger_lag_ms"`
}

// Failure is the JSON body of every answer that is not 200.
type Failure struct {
	Error string `json:"error"` // a sentence that says how to mend it
	// Candidates are the runs that an ambiguous id fits.
	Candidates []Candidate `json:"candidates,omitempty"`
}

// Candidate is one run that an id fits.
type Candidate struct {
	RunID   string    `json:"run_id"`
	TraceID string    `json:"trace_id"`
	Service string    `json:"service"`
	EndedAt time.Time `json:"ended_at"`
}
