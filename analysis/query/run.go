package query

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/schema"
)

// ErrNotFound is returned for an id that no run has or begins with.
var ErrNotFound = errors.New("no run has this id")

// AmbiguousError says that an id fits several runs.
type AmbiguousError struct {
	ID         string
	Candidates []answer.Candidate // the last to end first
	More       bool               // there are more than the candidates
}

// Error names the id; the candidates are the caller's to list.
func (e *AmbiguousError) Error() string {
	if e.More {
		return fmt.Sprintf("%q fits more than %d runs; give more of the id", e.ID, len(e.Candidates))
	}
	return fmt.Sprintf("%q fits %d runs; give one's trace id, or more of its run id", e.ID, len(e.Candidates))
}

// maxCandidates bounds the runs that an ambiguous id lists.
const maxCandidates = 10

// identity is where a run is found; its numbers stand with its first trace.
type identity struct {
	candidate answer.Candidate
	traces    []string
}

const identityColumns = `SELECT run_id, trace_id, service, trace_ids, end_ns FROM runs WHERE `

// The ways in which an id may name a run, the most exact first.
var waysToFind = []struct {
	applies   func(id string) bool
	statement string
}{
	{ // a run id
		func(string) bool { return true },
		identityColumns + "trace_key IN (SELECT trace_id FROM ledger WHERE has(`runs.run_id`, {id:String})) AND run_id = {id:String}",
	},
	{ // a trace id, of the anchor trace or of another one
		func(id string) bool { return len(id) == 32 && isHex(id) },
		identityColumns + "(service, environment, run_id) IN (SELECT service, environment, run_id FROM (" +
			"SELECT service, environment, run_id FROM ledger FINAL ARRAY JOIN `runs.service` AS service, `runs.environment` AS environment, " +
			"`runs.run_id` AS run_id WHERE trace_id = unhex({id:String}))) AND has(trace_ids, lower({id:String}))",
	},
	{ // the beginning of a run id or of a trace id
		func(string) bool { return true },
		identityColumns + "startsWith(run_id, {id:String}) OR arrayExists(t -> startsWith(t, lower({id:String})), trace_ids)",
	},
}

func isHex(id string) bool {
	_, err := hex.DecodeString(id)
	return err == nil
}

// find returns the one run that id names, or ErrNotFound or an *AmbiguousError.
func (a Asker) find(ctx context.Context, id string) (identity, error) {
	for _, way := range waysToFind {
		if !way.applies(id) {
			continue
		}
		var found []identity
		statement := way.statement + " ORDER BY end_ns DESC, run_id, trace_id LIMIT {most:UInt64}"
		err := a.read(ctx, "the run of an id", statement, map[string]any{"id": id, "most": uint64(maxCandidates + 1)}, func(rows driver.Rows) error {
			var run identity
			var endNs int64
			c := &run.candidate
			if err := rows.Scan(&c.RunID, &c.TraceID, &c.Service, &run.traces, &endNs); err != nil {
				return err //nolint:wrapcheck // read wraps it
			}
			c.EndedAt = time.Unix(0, endNs).UTC()
			found = append(found, run)
			return nil
		})
		switch {
		case err != nil:
			return identity{}, err
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			ambiguous := &AmbiguousError{ID: id, More: len(found) > maxCandidates}
			for _, run := range found[:min(len(found), maxCandidates)] {
				ambiguous.Candidates = append(ambiguous.Candidates, run.candidate)
			}
			return identity{}, ambiguous
		}
	}
	return identity{}, fmt.Errorf("%q: %w", id, ErrNotFound)
}

// Named is the run that id names: a run id, a trace id, or the beginning of one that no
// other run has. The error is ErrNotFound or an *AmbiguousError where it names none or
// several.
func (a Asker) Named(ctx context.Context, id string) (answer.Candidate, error) {
	found, err := a.find(ctx, id)
	return found.candidate, err
}

// Run answers what one run did, with all its attempts. id is a run id, a trace id, or
// the beginning of one that no other run has.
func (a Asker) Run(ctx context.Context, id string) (attribution.Run, error) {
	found, err := a.find(ctx, id)
	if err != nil {
		return attribution.Run{}, err
	}
	traces := make([]schema.TraceID, len(found.traces))
	for i, text := range found.traces {
		if traces[i], err = schema.ParseTraceID(text); err != nil {
			return attribution.Run{}, fmt.Errorf("read the traces of run %q: %w", id, err)
		}
	}
	ctx, cancel := a.limits.Within(ctx)
	defer cancel()
	rows, err := schema.LedgerOfTraces(ctx, a.conn, traces)
	if err != nil {
		return attribution.Run{}, fmt.Errorf("read run %q from the store: %w", id, err)
	}
	c := found.candidate
	for _, run := range ledger.Runs(rows) {
		if run.RunID == c.RunID && run.Service == c.Service && len(run.TraceIDs) > 0 && run.TraceIDs[0] == c.TraceID {
			return run, nil
		}
	}
	return attribution.Run{}, fmt.Errorf("%q: %w", id, ErrNotFound) // it was joined to another meanwhile
}
