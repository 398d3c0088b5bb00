package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/alerts/gates"
)

// The exit codes that gate has besides the others'.
const (
	ExitFail         = 1 // ExitNoAnswer of other commands, which gate never has
	ExitInconclusive = 5
)

const gateExitCodes = `Exit codes:
  0  pass
  1  fail
  2  a flag or an argument is wrong
  3  the collector cannot be reached, or could not answer
  5  inconclusive: too little is known, or it is too old`

type gateFlags struct {
	format string
	// parameters are the API's, by its names; "" leaves it the default.
	parameters map[string]*string
}

func newGate(env Environment, server *serverFlags) *cobra.Command {
	flags := gateFlags{parameters: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Decide whether a new version may go on: pass, fail or inconclusive",
		Long: `Asks a running collector how a version of a service does over the last minutes. It
fails above the threshold. With a baseline it is compared with that version over the same
time: it fails if it is worse and chance does not explain it, and passes if it is shown
to be no worse than by the margin.

` + gateExitCodes,
		Example: `  retryledger gate --service checkout --version 1.8.0
  retryledger gate --service checkout --version 1.8.0 --baseline 1.7.2 --window 10m
  retryledger gate --service checkout --version 1.8.0 --format json | jq -r .reason`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), env, *server) },
	}
	f := cmd.Flags()
	for _, parameter := range []struct{ name, usage string }{
		{"service", "the service.name (required)"},
		{"version", "the service.version to judge (required)"},
		{"baseline", "the service.version to compare with"},
		{"environment", "only runs of this deployment environment"},
		{"signal", "what is counted (default " + string(gates.DefaultSignal) + ")"},
		{"window", "how far back, in whole seconds (default 3m)"},
		{"threshold", `the highest ratio that passes, "0.01" or "1 %" (default 1 %)`},
		{"margin", "by how much it may be worse than the baseline (default the threshold)"},
		{"min_samples", "how many make a sample (default so many that one failure is not above the threshold, 50 at least)"},
	} {
		flags.parameters[parameter.name] = f.String(strings.ReplaceAll(parameter.name, "_", "-"), "", parameter.usage)
	}
	f.StringVar(&flags.format, "format", "table", "table or json")
	return cmd
}

func (f gateFlags) run(ctx context.Context, env Environment, server serverFlags) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	query := url.Values{}
	for name, value := range f.parameters {
		if *value != "" {
			query.Set(name, *value)
		}
	}
	service, version := query.Get("service"), query.Get("version")
	if service == "" || version == "" {
		return fail(ExitUsage, "gate wants --service and --version, as service.name and service.version of the spans have them")
	}
	found, err := askGate(ctx, env, server, query)
	if err != nil {
		return err
	}
	if f.format == "json" {
		err = writeJSON(env.Stdout, found)
	} else {
		p := newPrinter(env)
		p.gate(found)
		err = p.flush(env)
	}
	switch {
	case err != nil:
		return notDecided(err)
	case found.Decision == gates.Fail:
		return fail(ExitFail, "%s %s fails", service, version)
	case found.Decision == gates.Inconclusive:
		return fail(ExitInconclusive, "%s %s is not decided", service, version)
	}
	return nil
}

// notDecided keeps an error from having the code that says that the release fails.
func notDecided(err error) error {
	var exit *exitError
	if errors.As(err, &exit) && exit.code == ExitFail {
		return fail(ExitUnreachable, "%w", err)
	}
	return err
}

func askGate(ctx context.Context, env Environment, server serverFlags, query url.Values) (gates.Answer, error) {
	var found gates.Answer
	client, err := newClient(env, server)
	if err != nil {
		return found, err
	}
	if err := client.get(ctx, &found, query, gates.Path); err != nil {
		return found, notDecided(err) // such as that the API knows no gates
	}
	switch found.Decision {
	case gates.Pass, gates.Fail, gates.Inconclusive:
		return found, nil
	}
	return found, fail(ExitUnreachable, "%s answered no decision that this program knows, but %q; is one of them older?", client.base.Host, clean(string(found.Decision)))
}

// gate prints a decision, why, and the numbers of both versions.
func (p printer) gate(a gates.Answer) {
	colour := map[gates.Decision]text.Color{gates.Pass: text.FgGreen, gates.Fail: text.FgRed, gates.Inconclusive: text.FgYellow}
	p.line(p.paint(string(a.Decision), colour[a.Decision]) + ": " + clean(a.Reason))
	p.blank()
	sides, roles := []gates.Side{a.Canary}, []string{"canary"}
	if a.Baseline != nil {
		sides, roles = append(sides, *a.Baseline), append(roles, "baseline")
	}
	var versions, failed, total, share []string
	for _, side := range sides {
		versions = append(versions, clean(side.Version))
		failed = append(failed, strconv.FormatInt(side.Failed, 10))
		total = append(total, strconv.FormatInt(side.Total, 10))
		if side.Ratio == nil {
			share = append(share, unseen)
		} else {
			share = append(share, fmt.Sprintf("%.2f %%", *side.Ratio*100))
		}
	}
	p.table([]column{
		{title: "version", left: true, cells: versions},
		{title: "as", name: "as", left: true, drop: 10, cells: roles},
		{title: "failed", cells: failed},
		{title: "of", cells: total},
		{title: "ratio", cells: share},
	})
}
