package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

type runsFlags struct {
	format, since, until, service, completion string
	limit                                     int
	quarantined, overBudget                   bool
}

func newRuns(env Environment, server *serverFlags) *cobra.Command {
	var flags runsFlags
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs of a time window, the last to end first",
		Long: `Asks a running collector which runs ended within a time window, or sent their last
span in it. "retryledger run ID" shows one of them.

` + exitCodes,
		Example: `  retryledger runs --over-budget
  retryledger runs --since 7d --completion incomplete
  retryledger runs --format json | jq -r '.runs[].run_id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), env, *server) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table or json")
	f.StringVar(&flags.since, "since", "24h", "start of the window: how long ago (90m, 24h, 7d) or an RFC 3339 instant")
	f.StringVar(&flags.until, "until", "", "end of the window, written like --since (default: no end)")
	f.StringVar(&flags.service, "service", "", "only runs of this service.name")
	f.StringVar(&flags.completion, "completion", "", "only runs in this state: complete, incomplete, failed, running, …")
	f.BoolVar(&flags.quarantined, "quarantined", false, "only runs whose results must not be summed up as if they were whole")
	f.BoolVar(&flags.overBudget, "over-budget", false, "only runs with a step above its limit, or whose own budget is exhausted")
	f.IntVar(&flags.limit, "limit", 20, "runs to show, 0 for as many as the collector gives")
	return cmd
}

func (f runsFlags) run(ctx context.Context, env Environment, server serverFlags) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	if f.limit < 0 {
		return fail(ExitUsage, "--limit %d: give a number of runs, 0 for as many as the collector gives", f.limit)
	}
	query, err := window(f.since, f.until, env.Now())
	if err != nil {
		return err
	}
	query.Set("limit", strconv.Itoa(f.limit))
	for name, value := range map[string]string{"service": f.service, "completion": f.completion} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, only := range map[string]bool{"quarantined": f.quarantined, "over_budget": f.overBudget} {
		if only {
			query.Set(name, "true")
		}
	}
	client, err := newClient(env, server)
	if err != nil {
		return err
	}
	var runs answer.Runs
	if err := client.get(ctx, &runs, query, "api/v1/runs"); err != nil {
		return err
	}
	if f.format == "json" {
		return writeJSON(env.Stdout, runs)
	}
	p := newPrinter(env)
	in := windowText(runs.Since, runs.Until, runs.Service)
	if len(runs.Runs) == 0 {
		p.line("No such run ended " + in + ". Widen the window with --since, or ask with fewer flags.")
		return p.flush(env)
	}
	p.line(fmt.Sprintf("%s ended %s", plural(len(runs.Runs)+runs.RunsLeftOff, "run"), in))
	p.blank()
	p.runs(runs.Runs)
	if sampled := sampledRuns(runs.Runs); sampled > 0 {
		p.blank()
		p.line(sampledNote(sampled))
	}
	if runs.RunsLeftOff > 0 {
		p.blank()
		p.line(fmt.Sprintf("The last %d are shown; --limit shows more.", len(runs.Runs)))
	}
	return p.flush(env)
}

// summaries are runs of files as the API lists those of its store.
func summaries(runs []attribution.Run) []answer.RunSummary {
	of := make([]answer.RunSummary, len(runs))
	for i := range runs {
		r := &runs[i]
		of[i] = answer.RunSummary{
			RunID: r.RunID, Service: r.Service, Completion: r.Completion, Outcome: r.Outcome, Budget: r.Budget, Spans: r.Spans, Sampled: r.Sampled,
			StartedAt: time.Unix(0, r.StartNs), EndedAt: time.Unix(0, r.EndNs),
		}
		for _, step := range r.Steps {
			if step.OverBudget {
				of[i].StepsOverBudget = append(of[i].StepsOverBudget, step.Step)
			}
		}
	}
	return of
}

func sampledRuns(runs []answer.RunSummary) (n int) {
	for i := range runs {
		if runs[i].Sampled {
			n++
		}
	}
	return n
}

// runs prints one line a run.
func (p printer) runs(runs []answer.RunSummary) {
	each := func(cell func(answer.RunSummary) string) []string {
		cells := make([]string, len(runs))
		for i := range runs {
			cells[i] = cell(runs[i])
		}
		return cells
	}
	p.table([]column{
		{title: "run", left: true, cells: each(func(r answer.RunSummary) string { return clean(r.RunID) })},
		{title: "service", name: "service", left: true, drop: 20, cells: each(func(r answer.RunSummary) string { return clean(r.Service) })},
		{title: "completion", left: true, cells: each(func(r answer.RunSummary) string { return p.paintCompletion(r.Completion) })},
		{title: "outcome", name: "outcome", left: true, drop: 50, cells: each(func(r answer.RunSummary) string { return clean(r.Outcome) })},
		{title: "retries", cells: each(func(r answer.RunSummary) string {
			used := fmt.Sprintf("%d/%d", r.Budget.Retries, r.Budget.RunLimit)
			if r.Budget.Exhausted {
				return p.paint(used, text.FgRed)
			}
			return used
		})},
		{title: "steps over\nbudget", name: "steps over budget", drop: 40, cells: each(func(r answer.RunSummary) string {
			if len(r.StepsOverBudget) == 0 {
				return "0"
			}
			return p.paint(count(len(r.StepsOverBudget)), text.FgRed)
		})},
		{title: "took", name: "took", drop: 30, cells: each(func(r answer.RunSummary) string {
			return milliseconds(float64(r.EndedAt.Sub(r.StartedAt)) / float64(time.Millisecond))
		})},
		{title: "spans", name: "spans", drop: 10, cells: each(func(r answer.RunSummary) string { return count(r.Spans) })},
		{title: "ended", name: "ended", left: true, drop: 5, cells: each(func(r answer.RunSummary) string {
			return r.EndedAt.UTC().Format("2006-01-02 15:04:05Z")
		})},
	})
}
