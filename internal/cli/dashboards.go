package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/dashboards"
)

const dashboardsExitCodes = `Exit codes:
  0  done
  2  a flag or an argument is wrong
  3  Grafana cannot be reached, or refused
  4  a file cannot be written`

type ledgerFlags struct {
	address, username, database string
	secure, alertRules          bool
}

func (f *ledgerFlags) add(cmd *cobra.Command, address string) {
	flags := cmd.Flags()
	flags.StringVar(&f.address, "clickhouse", address, "host:port of ClickHouse's native protocol, as Grafana sees it")
	flags.StringVar(&f.username, "username", "grafana", "user of ClickHouse that may read the ledger")
	flags.StringVar(&f.database, "database", "retryledger", "database of the ledger")
	flags.BoolVar(&f.secure, "secure", false, "ClickHouse is spoken to with TLS")
	flags.BoolVar(&f.alertRules, "alert-rules", false, "also the default rule pack, as alert rules that Grafana evaluates itself")
}

func (f *ledgerFlags) ledger() dashboards.Ledger {
	return dashboards.Ledger{Address: f.address, Username: f.username, Database: f.database, Secure: f.secure}
}

func newDashboards(env Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboards",
		Short: "Bring the dashboards into Grafana",
		Long: `The dashboards are part of this program, for Grafana 11.6 to 13 with the ClickHouse data
source (grafana-clickhouse-datasource). Neither command needs the collector.

` + dashboardsExitCodes,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDashboardsExport(env), newDashboardsApply(env))
	return cmd
}

func newDashboardsExport(env Environment) *cobra.Command {
	var flags ledgerFlags
	var path string
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write dashboards and provisioning files for a Grafana",
		Long: `Writes the dashboards to DIR/dashboards and files that provision them and their data
source to DIR/provisioning, whose files belong into Grafana's folder of that name. With
--alert-rules there is also a file with alert rules.
Grafana reads the password of the data source's user from ` + dashboards.PasswordVariable + `.

` + dashboardsExitCodes,
		Example: `  retryledger dashboards export grafana
  retryledger dashboards export --clickhouse clickhouse:9000 --path /var/lib/grafana/dashboards grafana`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fail(ExitUsage, "dashboards export wants one folder to write to")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			written, err := dashboards.Export(args[0], dashboards.Exported{Ledger: flags.ledger(), SeenAt: path, AlertRules: flags.alertRules})
			if err != nil {
				if len(written) == 0 && strings.Contains(err.Error(), "address") {
					return fail(ExitUsage, "--clickhouse: %w", err)
				}
				return fail(ExitInput, "%w", err)
			}
			slices.Sort(written)
			for _, name := range written {
				_, _ = fmt.Fprintln(env.Stdout, name)
			}
			return nil
		},
	}
	flags.add(cmd, "127.0.0.1:9000")
	cmd.Flags().StringVar(&path, "path", "", "the folder of the dashboards as Grafana sees it (default: where they are written)")
	return cmd
}

func newDashboardsApply(env Environment) *cobra.Command {
	var flags ledgerFlags
	var grafana string
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the dashboards in a running Grafana, or bring them up to date",
		Long: `Makes folder and dashboards through Grafana's HTTP API, with --clickhouse the data source,
and with --alert-rules alert rules. It may be repeated: what is as it should be is left alone.

The token of a service account is read from ` + dashboards.TokenVariable + `, the password of the data source's
user from ` + dashboards.PasswordVariable + `.

` + dashboardsExitCodes,
		Example: `  GRAFANA_TOKEN=… retryledger dashboards apply --grafana http://127.0.0.1:3000
  GRAFANA_TOKEN=… RETRYLEDGER_CLICKHOUSE_PASSWORD=… retryledger dashboards apply --grafana http://127.0.0.1:3000 --clickhouse 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.apply(cmd.Context(), env, grafana) },
	}
	flags.add(cmd, "")
	cmd.Flags().StringVar(&grafana, "grafana", "", "address of Grafana, such as http://127.0.0.1:3000")
	return cmd
}

func (f *ledgerFlags) apply(ctx context.Context, env Environment, address string) error {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return fail(ExitUsage, "--grafana %s: write the address of Grafana as http://127.0.0.1:3000", address)
	}
	g := dashboards.Grafana{Base: base, Token: env.Getenv(dashboards.TokenVariable), Client: &http.Client{Timeout: time.Minute}}
	if g.Token == "" && base.User == nil {
		return fail(ExitUsage, "set %s to the token of a service account of Grafana", dashboards.TokenVariable)
	}
	wanted := dashboards.Wanted{Password: env.Getenv(dashboards.PasswordVariable), AlertRules: f.alertRules}
	if f.address != "" {
		ledger := f.ledger()
		wanted.Ledger = &ledger
	}
	applied, err := g.Apply(ctx, wanted)
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		return fail(ExitUnreachable, "%w", err)
	}
	_, _ = fmt.Fprintf(env.Stdout, "Data source: %s\n", clean(applied.DataSource))
	if wanted.Ledger != nil && wanted.Password == "" {
		_, _ = fmt.Fprintf(env.Stderr, "retryledger: %s is not set, so the data source has no password for ClickHouse's user %s\n", dashboards.PasswordVariable, clean(f.username))
	}
	for _, title := range applied.Made {
		_, _ = fmt.Fprintf(env.Stdout, "Written:     %s\n", title)
	}
	for _, title := range applied.Unchanged {
		_, _ = fmt.Fprintf(env.Stdout, "Unchanged:   %s\n", title)
	}
	_, _ = fmt.Fprintf(env.Stdout, "Start at     %s\n", applied.URL)
	return nil
}
