package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/alerts/breakers"
)

func newBreakers(env Environment, server *serverFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "breakers [PROVIDER]",
		Short: "Show which providers are to be spared, why and since when",
		Long: `Asks a running collector for the breakers of all providers, or for one with its history.

` + exitCodes,
		Example: `  retryledger breakers
  retryledger breakers openai`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] == "" {
				return fail(ExitUsage, "breakers takes the name of one provider, or none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return fail(ExitUsage, "--format %s: choose table or json", format)
			}
			client, err := newClient(env, *server)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return allBreakers(cmd.Context(), env, client, format)
			}
			return oneBreaker(cmd.Context(), env, client, format, args[0])
		},
	}
	cmd.Flags().StringVar(&format, "format", "table", "table or json")
	return cmd
}

func allBreakers(ctx context.Context, env Environment, client *client, format string) error {
	var views breakers.Views
	if err := client.get(ctx, &views, nil, breakers.Path); err != nil {
		return err
	}
	if format == "json" {
		return writeJSON(env.Stdout, views)
	}
	p := newPrinter(env)
	if views.Stale {
		p.line(p.paint("Nothing recent enough is known to spare a provider; all breakers are closed. The collector's log says what holds the data up.", text.FgYellow))
		p.blank()
	}
	if len(views.Breakers) == 0 {
		p.line("No request to a provider is known. Send spans first: retryledger demo")
		return p.flush(env)
	}
	p.breakers(views.Breakers)
	if views.BreakersLeftOff > 0 {
		p.blank()
		p.line(fmt.Sprintf("%s more have no breaker: there are too many.", plural(views.BreakersLeftOff, "provider")))
	}
	return p.flush(env)
}

func oneBreaker(ctx context.Context, env Environment, client *client, format, provider string) error {
	var view breakers.View
	if err := client.get(ctx, &view, nil, breakers.Path, url.PathEscape(provider)); err != nil {
		return err
	}
	if format == "json" {
		return writeJSON(env.Stdout, view)
	}
	p := newPrinter(env)
	if view.Stale && view.To.IsZero() {
		p.line(clean(view.Provider) + " was not seen: no request to a provider of this name is known, so nothing holds one back. " +
			"Names are those in the spans; these are known: " + p.command("retryledger breakers"))
		return p.flush(env)
	}
	p.line(fmt.Sprintf("%s is %s since %s. %s", clean(view.Provider), p.paintState(view), instant(view.Since), clean(view.Why)))
	if view.RetryAt != nil {
		p.line("It will be found out with a few requests from " + instant(*view.RetryAt) + ".")
	}
	if len(view.History) > 0 {
		p.blank()
		p.history(view.History)
	}
	return p.flush(env)
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// paintState names a breaker's state.
func (p printer) paintState(v breakers.View) string {
	colour := map[breakers.State]text.Color{breakers.Closed: text.FgGreen, breakers.Open: text.FgRed, breakers.HalfOpen: text.FgYellow}
	state := p.paint(clean(string(v.State)), colour[v.State])
	if v.Stale {
		state += " (stale)"
	}
	return state
}

// breakers prints one line a provider.
func (p printer) breakers(views []breakers.View) {
	each := func(cell func(breakers.View) string) []string {
		cells := make([]string, len(views))
		for i := range views {
			cells[i] = cell(views[i])
		}
		return cells
	}
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	p.table([]column{
		{title: "provider", left: true, cells: each(func(v breakers.View) string { return clean(v.Provider) })},
		{title: "state", left: true, cells: each(p.paintState)},
		{title: "requests", name: "requests", drop: 20, cells: each(func(v breakers.View) string { return whole(v.Requests) })},
		{title: "server\nerrors", name: "server errors", drop: 40, cells: each(func(v breakers.View) string { return whole(v.ServerErrors) })},
		{title: "throttled", name: "throttled", drop: 10, cells: each(func(v breakers.View) string { return whole(v.Throttled) })},
		{title: "opened", name: "opened", drop: 30, cells: each(func(v breakers.View) string { return whole(v.Trips) })},
		{title: "since", name: "since", left: true, drop: 50, cells: each(func(v breakers.View) string { return instant(v.Since) })},
		{title: "half-open at", name: "half-open at", left: true, drop: 60, cells: each(func(v breakers.View) string {
			if v.RetryAt == nil {
				return ""
			}
			return instant(*v.RetryAt)
		})},
	})
}

// history prints transitions, the last first.
func (p printer) history(transitions []breakers.Transition) {
	var at, to, why []string
	for i := len(transitions) - 1; i >= 0; i-- {
		t := transitions[i]
		at, to, why = append(at, instant(t.At)), append(to, clean(string(t.To))), append(why, clean(t.Why))
	}
	p.table([]column{
		{title: "at", left: true, cells: at},
		{title: "became", left: true, cells: to},
		{title: "why", left: true, cells: why},
	})
}
