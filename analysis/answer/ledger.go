// Package answer holds the shapes in which retryledger answers, shared by the
// command line and the HTTP API, and the arithmetic that makes them from a ledger
// in memory. It does no I/O and knows no database.
package answer

import "github.com/retryledger/retryledger/analysis/attribution"

// Complete returns l with every absent list replaced by an empty one, so that its
// JSON says [] and never null: null is the word for "not observable" only.
func Complete(l attribution.Ledger) attribution.Ledger {
	l.ContractViolations = list(l.ContractViolations)
	runs := make([]attribution.Run, len(l.Runs))
	for i, run := range l.Runs {
		runs[i] = CompleteRun(run)
	}
	l.Runs = runs
	return l
}

// CompleteRun is Complete for one run.
func CompleteRun(run attribution.Run) attribution.Run {
	run.TraceIDs = list(run.TraceIDs)
	run.UnfinishedSteps = list(run.UnfinishedSteps)
	run.Dialects = list(run.Dialects)
	run.ContractViolations = list(run.ContractViolations)
	run.Warnings = list(run.Warnings)
	steps := make([]attribution.Step, len(run.Steps))
	for i, step := range run.Steps {
		step.Evidence = list(step.Evidence)
		step.Errors = list(step.Errors)
		steps[i] = step
	}
	run.Steps = steps
	return run
}

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
