package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/rules"
)

type replayFlags struct {
	format, since, until string
	limit                int
}

func newReplay(env Environment, server *serverFlags) *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use:   "replay [FILE]",
		Short: "Say what rules would have fired in the past; asks a running collector",
		Long: `Asks a running collector to evaluate rules on the past of its ledger: how often each
would have fired and for how long, and the highest ratio that it saw, above which no
threshold fires. So a threshold is chosen from data. Without a FILE, the rules that are
in force are evaluated. At most 31 days.

` + exitCodes,
		Example: `  retryledger rules replay --since 7d
  retryledger rules replay --since 7d rules.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fail(ExitUsage, "rules replay takes one file of rules, or none for the rules in force")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd.Context(), env, *server, args) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table or json")
	f.StringVar(&flags.since, "since", "24h", "start of the past: how long ago (90m, 24h, 7d) or an RFC 3339 instant")
	f.StringVar(&flags.until, "until", "", "end of the past, written like --since (default: now)")
	f.IntVar(&flags.limit, "limit", 20, "alerts to list, 0 for all that the collector gives; all are counted")
	return cmd
}

func (f replayFlags) run(ctx context.Context, env Environment, server serverFlags, files []string) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	if f.limit < 0 {
		return fail(ExitUsage, "--limit %d: give a number of alerts, 0 for all", f.limit)
	}
	query, err := window(f.since, f.until, env.Now())
	if err != nil {
		return err
	}
	var content []byte
	for _, name := range files {
		if content, err = readText(ctx, env, name, rules.MaxFileBytes); err != nil {
			return err
		}
		if _, err := rules.Load(display(name), content); err != nil {
			return fail(ExitUsage, "%w", err)
		}
		if len(bytes.TrimSpace(content)) == 0 {
			content = []byte("{}\n") // a file that changes nothing; no body is the rules in force
		}
	}
	client, err := newClient(env, server)
	if err != nil {
		return err
	}
	var found report.Replay
	if err := client.ask(ctx, &found, http.MethodPost, query, content, report.ReplayPath); err != nil {
		return err
	}
	if f.format == "json" {
		return writeJSON(env.Stdout, found)
	}
	p := newPrinter(env)
	p.replay(found, f.limit)
	return p.flush(env)
}

// replay prints what each rule came to, and then its alerts.
func (p printer) replay(found report.Replay, limit int) {
	p.line(fmt.Sprintf("What %s would have fired %s. Late data count as if they had been in time.",
		plural(len(found.Rules), "rule"), windowText(&found.Since, &found.Until, "")))
	if found.StepSeconds > 1 {
		step := shortSeconds(found.StepSeconds)
		p.line(fmt.Sprintf("Evaluated every %s, for the time is long: an alert shorter than that may be missing, and each time is right to %s. A shorter time is evaluated every second, up to a day.", step, step))
	}
	p.blank()
	each := func(cell func(*report.ReplayedRule) string) []string {
		cells := make([]string, len(found.Rules))
		for i := range found.Rules {
			cells[i] = cell(&found.Rules[i])
		}
		return cells
	}
	p.table([]column{
		{title: "rule", left: true, cells: each(func(r *report.ReplayedRule) string { return clean(r.Rule) })},
		{title: "fired", cells: each(func(r *report.ReplayedRule) string {
			if r.Fired == 0 {
				return "0"
			}
			return p.paint(count(r.Fired), text.FgRed)
		})},
		{title: "for", name: "for", drop: 40, cells: each(func(r *report.ReplayedRule) string { return lasted(r.FiringSeconds) })},
		{title: "longest", name: "longest", drop: 30, cells: each(func(r *report.ReplayedRule) string { return lasted(r.LongestSeconds) })},
		{title: "highest\nratio", name: "highest ratio", drop: 50, cells: each(func(r *report.ReplayedRule) string {
			if r.HighestRatio == nil {
				return unseen
			}
			return share(*r.HighestRatio)
		})},
		{title: "fires on", name: "fires on", left: true, drop: 20, cells: each(func(r *report.ReplayedRule) string { return clean(r.Condition) })},
	})
	for i := range found.Rules {
		if found.Rules[i].HighestRatio == nil {
			p.line(unseen + " never as many samples as the rule wants.")
			break
		}
	}
	if len(found.Incidents) > 0 {
		p.blank()
		p.incidents(found, limit)
	}
}

func lasted(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return shortSeconds(seconds)
}

// incidents prints the alerts that would have been, the first ones first.
func (p printer) incidents(found report.Replay, limit int) {
	shown := found.Incidents
	if limit > 0 && len(shown) > limit {
		shown = shown[:limit]
	}
	each := func(cell func(*report.Incident) string) []string {
		cells := make([]string, len(shown))
		for i := range shown {
			cells[i] = cell(&shown[i])
		}
		return cells
	}
	p.table([]column{
		{title: "alert", left: true, cells: each(func(i *report.Incident) string { return clean(i.Rule) })},
		{title: "where", name: "where", left: true, drop: 30, cells: each(func(i *report.Incident) string { return p.where(i.Group) })},
		{title: "fired", left: true, cells: each(func(i *report.Incident) string { return instant(i.StartsAt) })},
		{title: "for", cells: each(func(i *report.Incident) string {
			if i.EndsAt == nil {
				return "≥" + shortTime(found.Until.Sub(i.StartsAt).Round(time.Second))
			}
			return shortTime(i.EndsAt.Sub(i.StartsAt))
		})},
		{title: "failed of total", name: "failed of total", drop: 20, cells: each(func(i *report.Incident) string { return measured(i.Numerator, i.Denominator, -1, 0) })},
	})
	if total := len(found.Incidents); len(shown) < total || found.More {
		p.blank()
		more := "; --limit 0 shows all that the collector lists"
		if len(shown) == total {
			more = "; ask for a shorter time"
		}
		p.line(fmt.Sprintf("The first %d are shown%s.", len(shown), more))
	}
}
