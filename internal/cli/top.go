package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/analysis/answer"
)

type topFlags struct {
	format, since, until, service string
	limit                         int
}

func newTop(env Environment, server *serverFlags) *cobra.Command {
	var flags topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Rank steps by how much of the retry budget they eat",
		Long: `Asks a running collector which steps the retries of a time window belong to.
Every number is a sum over the attempts that ended within the window.

` + exitCodes,
		Example: `  retryledger top
  retryledger top --since 7d --service checkout --limit 5
  retryledger top --format csv > steps.csv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), env, *server) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table, json or csv")
	f.StringVar(&flags.since, "since", "24h", "start of the window: how long ago (90m, 24h, 7d) or an RFC 3339 instant")
	f.StringVar(&flags.until, "until", "", "end of the window, written like --since (default: no end)")
	f.StringVar(&flags.service, "service", "", "only runs of this service.name")
	f.IntVar(&flags.limit, "limit", 20, "steps to show, 0 for all; shares are of all steps")
	return cmd
}

func (f topFlags) run(ctx context.Context, env Environment, server serverFlags) error {
	if f.format != "table" && f.format != "json" && f.format != "csv" {
		return fail(ExitUsage, "--format %s: choose table, json or csv", f.format)
	}
	if f.limit < 0 {
		return fail(ExitUsage, "--limit %d: give a number of steps, 0 for all", f.limit)
	}
	query, err := window(f.since, f.until, env.Now())
	if err != nil {
		return err
	}
	query.Set("limit", strconv.Itoa(f.limit))
	if f.service != "" {
		query.Set("service", f.service)
	}
	client, err := newClient(env, server)
	if err != nil {
		return err
	}
	var top answer.Top
	if err := client.get(ctx, &top, query, "api/v1/top"); err != nil {
		return err
	}
	switch f.format {
	case "json":
		return writeJSON(env.Stdout, top)
	case "csv":
		return writeCSV(env, top)
	default:
		p := newPrinter(env)
		p.top(top)
		return p.flush(env)
	}
}

// window reads --since and --until into the API's parameters.
func window(since, until string, now time.Time) (url.Values, error) {
	query := url.Values{}
	for _, bound := range []struct{ name, text string }{{"since", since}, {"until", until}} {
		if bound.text == "" {
			continue
		}
		instant, err := answer.ParseInstant(bound.text, now)
		if err != nil {
			return nil, fail(ExitUsage, "--%s %w", bound.name, err)
		}
		query.Set(bound.name, instant.UTC().Format(time.RFC3339Nano))
	}
	if query.Has("since") && query.Has("until") {
		from, _ := time.Parse(time.RFC3339Nano, query.Get("since"))
		to, _ := time.Parse(time.RFC3339Nano, query.Get("until"))
		if !from.Before(to) {
			return nil, fail(ExitUsage, "--since %s is not before --until %s; the window is empty", since, until)
		}
	}
	return query, nil
}

// top prints the heading of an answer and its steps.
func (p printer) top(top answer.Top) {
	if len(top.Steps) == 0 {
		p.line("No attempt ended " + windowText(top.Since, top.Until, top.Service) + ". Widen the window with --since, or send spans first: retryledger demo")
		return
	}
	p.line(fmt.Sprintf("%s in %s %s (%s)", plural2(top.RetriesTotal, "retry", "retries"), plural(top.Runs, "run"),
		windowText(top.Since, top.Until, top.Service), completions(top.Completion)))
	p.blank()
	p.steps(top)
}

func windowText(since, until *time.Time, service string) string {
	const layout = "2006-01-02 15:04:05Z"
	var text string
	switch {
	case since != nil && until != nil:
		text = "from " + since.UTC().Format(layout) + " to " + until.UTC().Format(layout)
	case since != nil:
		text = "since " + since.UTC().Format(layout)
	case until != nil:
		text = "until " + until.UTC().Format(layout)
	default:
		text = "at any time"
	}
	if service != "" {
		text += " in service " + clean(service)
	}
	return text
}

// completions lists how many runs are in each state, in the order in which a reader
// may trust their results.
func completions(counts map[string]int) string {
	var parts []string
	for _, state := range []string{"complete", "unflagged", "running", "interrupted", "incomplete", "failed", "cancelled", "orphaned"} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// csvHeader names the columns of --format csv: the JSON's names, nested ones joined
// by an underscore.
var csvHeader = []string{
	"service", "step", "retries_total", "retry_share", "retries_transport", "retries_call", "retries_node",
	"retries_orchestrator", "retries_worker", "partly_hidden", "executions", "visits", "operations", "calls",
	"calls_failed", "tool_calls", "http_calls", "fallbacks", "fallback_operations", "fallback_rate", "runs", "runs_over_budget",
	"tokens_input", "tokens_output", "tokens_unknown_calls", "wasted_input", "wasted_output", "wasted_unknown_calls",
	"wasted_time_ms", "wasted_wait_ms", "wasted_cost_usd", "error_class", "error_http_status", "error_count",
}

// writeCSV writes one line a step; what is not known or not observable is empty.
func writeCSV(env Environment, top answer.Top) error {
	w := csv.NewWriter(env.Stdout)
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	maybe := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	decimal := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	rows := [][]string{csvHeader}
	for i := range top.Steps {
		s := &top.Steps[i]
		hidden := make([]string, len(s.PartlyHidden))
		for j, layer := range s.PartlyHidden {
			hidden[j] = string(layer)
		}
		cost, class, status, errors := "", "", "", ""
		if s.Wasted.CostUSD != nil {
			cost = decimal(*s.Wasted.CostUSD)
		}
		if len(s.Errors) > 0 {
			class, errors = s.Errors[0].Class, count(s.Errors[0].Count)
			if s.Errors[0].HTTPStatus != 0 {
				status = count(s.Errors[0].HTTPStatus)
			}
		}
		rows = append(rows, []string{
			s.Service, s.Step, maybe(s.RetriesTotal), decimal(s.RetryShare), maybe(s.Retries.Transport), maybe(s.Retries.Call),
			maybe(s.Retries.Node), maybe(s.Retries.Orchestrator), maybe(s.Retries.Worker), strings.Join(hidden, " "),
			count(s.Executions), count(s.Visits), count(s.Operations), count(s.Calls), count(s.CallsFailed), count(s.ToolCalls),
			count(s.HTTPCalls), count(s.Fallbacks), count(s.FallbackOperations), decimal(s.FallbackRate), count(s.Runs), count(s.RunsOverBudget),
			whole(s.Tokens.Input), whole(s.Tokens.Output), count(s.Tokens.UnknownCalls),
			whole(s.Wasted.Input), whole(s.Wasted.Output), count(s.Wasted.UnknownCalls),
			decimal(s.Wasted.TimeMs), decimal(s.Wasted.WaitMs), cost, class, status, errors,
		})
	}
	if err := w.WriteAll(rows); err != nil {
		return fail(ExitNoAnswer, "write the answer as CSV: %w", err)
	}
	return nil
}
