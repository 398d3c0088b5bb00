package query

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/answer"
)

// runsStatement lists runs that ended in the window. Steps over their limit stand in
// the row of the run's anchor trace, as the run itself does.
const runsStatement = `
SELECT run_id, thread_id, trace_ids, service, version, environment, completion, quarantined, unfinished_steps, outcome,
    run_limit, step_limit, retries, exhausted, deliveries, poison_pill, needs_review, orphan_spans, spans, sampled,
    arraySort(over.names), start_ns, end_ns, count() OVER () AS all_runs
FROM runs
LEFT JOIN (
    SELECT trace_key, run_id, groupArray(toString(step)) AS names
    FROM steps
    WHERE over_budget AND ` + ofAccounts + `
    GROUP BY trace_key, run_id
) AS over USING (trace_key, run_id)
WHERE end_bounded_ns >= {since:Int64} AND end_bounded_ns < {until:Int64} AND ` + ofAccounts + `
    AND ({completion:String} = '' OR completion = {completion:String})
    AND (NOT {quarantined:Bool} OR quarantined)
    AND (NOT {over_budget:Bool} OR exhausted OR notEmpty(over.names))
ORDER BY end_ns DESC, run_id, trace_key
LIMIT {most:UInt64}`

// Runs lists the runs that ended in the window, the last to end first.
func (a Asker) Runs(ctx context.Context, f answer.RunFilter) (answer.Runs, error) {
	top := answer.NewTop(f.Filter)
	runs := answer.Runs{Since: top.Since, Until: top.Until, Service: f.Service, Runs: []answer.RunSummary{}}
	bound := parameters(f.Filter, map[string]any{
		"completion": f.Completion, "quarantined": f.Quarantined, "over_budget": f.OverBudget, "most": uint64(1) << 62,
	})
	if f.Limit > 0 {
		bound["most"] = uint64(f.Limit)
	}
	all := uint64(0)
	err := a.read(ctx, "the runs", runsStatement, bound, func(rows driver.Rows) error {
		var run answer.RunSummary
		var n [6]int64
		var start, end int64
		if err := rows.Scan(&run.RunID, &run.ThreadID, &run.TraceIDs, &run.Service, &run.Version, &run.Environment, &run.Completion,
			&run.Quarantined, &run.UnfinishedSteps, &run.Outcome, &n[0], &n[1], &n[2], &run.Budget.Exhausted, &n[3], &run.PoisonPill,
			&run.NeedsReview, &n[4], &n[5], &run.Sampled, &run.StepsOverBudget, &start, &end, &all); err != nil {
			return err //nolint:wrapcheck // read wraps it
		}
		run.Budget.RunLimit, run.Budget.StepLimit, run.Budget.Retries = int(n[0]), int(n[1]), int(n[2])
		run.Deliveries, run.OrphanSpans, run.Spans = int(n[3]), int(n[4]), int(n[5])
		run.StartedAt, run.EndedAt = time.Unix(0, start).UTC(), time.Unix(0, end).UTC()
		runs.Runs = append(runs.Runs, run)
		return nil
	})
	if err != nil {
		return answer.Runs{}, err
	}
	runs.RunsLeftOff = int(all) - len(runs.Runs)
	runs.Finish()
	return runs, nil
}
