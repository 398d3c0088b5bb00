package cli

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/alerts/report"
)

func newAlerts(env Environment, server *serverFlags) *cobra.Command {
	format := "table"
	// asked is run for a command that asks the collector and prints the answer.
	asked := func(ask func(context.Context, *client, []string) (any, func(printer), error)) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return fail(ExitUsage, "--format %s: choose table or json", format)
			}
			client, err := newClient(env, *server)
			if err != nil {
				return err
			}
			answer, show, err := ask(cmd.Context(), client, args)
			if err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(env.Stdout, answer)
			}
			p := newPrinter(env)
			show(p)
			return p.flush(env)
		}
	}
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Show which alerts fire, where and why",
		Long: `Asks a running collector for the alerts that fire, those that are about to (pending), and
those that resolved in the last minutes. It says too when rules are not evaluated, or
when a change of the rules file was not taken.

"retryledger rules default" prints the rules that there are without any file.

` + exitCodes,
		Example: `  retryledger alerts
  retryledger alerts history --since 7d --rule step_errors
  retryledger alerts why 6b1f0a3c5d7e9f12
  retryledger alerts --format json | jq -r '.alerts[] | select(.state == "firing") | .rule'`,
		Args: noArgs,
		RunE: asked(func(ctx context.Context, client *client, _ []string) (any, func(printer), error) {
			var found report.Alerts
			err := client.get(ctx, &found, nil, report.AlertsPath)
			return found, func(p printer) { p.alerts(found) }, err
		}),
	}
	cmd.PersistentFlags().StringVar(&format, "format", "table", "table or json")
	cmd.AddCommand(newAlertHistory(env, asked), newWhy(asked))
	return cmd
}

type asking = func(func(context.Context, *client, []string) (any, func(printer), error)) func(*cobra.Command, []string) error

func newAlertHistory(env Environment, asked asking) *cobra.Command {
	var since, until, rule string
	var limit int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List what changed: which alerts began and ended, when and why",
		Long: `Asks a running collector for the changes of state of alerts, the latest first. They are
kept for 400 days.

` + exitCodes,
		Example: `  retryledger alerts history
  retryledger alerts history --since 7d --rule step_errors --limit 500`,
		Args: noArgs,
		RunE: asked(func(ctx context.Context, client *client, _ []string) (any, func(printer), error) {
			var found report.History
			query, err := window(since, until, env.Now())
			if err != nil {
				return nil, nil, err
			}
			query.Set("limit", strconv.Itoa(limit))
			if rule != "" {
				query.Set("rule", rule)
			}
			err = client.get(ctx, &found, query, report.HistoryPath)
			return found, func(p printer) { p.alertHistory(found, rule) }, err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "24h", "start of the window: how long ago (90m, 24h, 7d) or an RFC 3339 instant")
	f.StringVar(&until, "until", "", "end of the window, written like --since (default: no end)")
	f.StringVar(&rule, "rule", "", "only alerts of this rule")
	f.IntVar(&limit, "limit", 50, "changes to show, the latest ones")
	return cmd
}

func newWhy(asked asking) *cobra.Command {
	return &cobra.Command{
		Use:   "why FINGERPRINT",
		Short: "Show why one alert fired: its changes, the numbers around them, example runs",
		Long: `Asks a running collector for one alert, by the fingerprint that the list of alerts and
their history show, or the beginning of one that no other alert has. The numbers are those that the evaluations saw, second by second,
from one window before the alert last began; they are kept for 30 days.

` + exitCodes,
		Example: "  retryledger alerts why 6b1f0a3c5d7e9f12",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fail(ExitUsage, `alerts why wants one fingerprint; "retryledger alerts" and "retryledger alerts history" show them`)
			}
			return nil
		},
		RunE: asked(func(ctx context.Context, client *client, args []string) (any, func(printer), error) {
			var found report.Why
			err := client.get(ctx, &found, nil, report.AlertsPath, url.PathEscape(args[0]))
			return found, func(p printer) { p.why(found) }, err
		}),
	}
}
