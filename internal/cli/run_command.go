package cli

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/analysis/answer"
)

type runFlags struct {
	format string
	limit  int
}

func newRun(env Environment, server *serverFlags) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run ID",
		Short: "Show the ladder of one run: who repeated what, in which layer, after which error",
		Long: `Asks a running collector for one run. ID is a run id, a trace id, or the beginning
of one that no other run has.

` + exitCodes,
		Example: `  retryledger run order-4711
  retryledger run 5b28 --format json | jq '.attempts[] | select(.charge != "")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fail(ExitUsage, "run wants one run id, trace id, or the beginning of one; retryledger runs lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd.Context(), env, *server, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table or json")
	f.IntVar(&flags.limit, "limit", 200, "attempts to show in the table, 0 for all")
	return cmd
}

func (f runFlags) run(ctx context.Context, env Environment, server serverFlags, id string) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	if f.limit < 0 {
		return fail(ExitUsage, "--limit %d: give a number of attempts, 0 for all", f.limit)
	}
	client, err := newClient(env, server)
	if err != nil {
		return err
	}
	var run answer.Run
	if err := client.get(ctx, &run, nil, "api/v1/runs", url.PathEscape(id)); err != nil {
		return err
	}
	if f.format == "json" {
		return writeJSON(env.Stdout, run)
	}
	p := newPrinter(env)
	p.run(run, f.limit)
	return p.flush(env)
}

// run prints a run's heading, its ladder and a sentence for every step.
func (p printer) run(run answer.Run, limit int) {
	p.heading(run)
	p.blank()
	p.ladder(run, limit)
	if len(run.Steps) > 0 {
		p.blank()
	}
	p.summaries(run)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fail(ExitUsage, "%s takes no arguments, only flags; see retryledger %s --help", cmd.Name(), cmd.Name())
	}
	return nil
}
