package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/demo"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

// otlpPort is where a collector receives OTLP over HTTP by default.
const otlpPort = "4318"

// OTLPEndpoint is where the demo sends to the collector whose API is at server, unless it is
// told: by the same scheme to the same host, whose port for OTLP over HTTP it takes to be
// the default one. "" where server is no address.
func OTLPEndpoint(server string) string {
	base, err := url.Parse(server)
	if err != nil || base.Hostname() == "" {
		return ""
	}
	return base.Scheme + "://" + net.JoinHostPort(base.Hostname(), otlpPort)
}

type demoFlags struct {
	endpoint string
	wait     time.Duration
}

func newDemo(env Environment, server *serverFlags) *cobra.Command {
	var flags demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Send captures of real applications to the collector and show the answer",
		Long: `Sends spans that real applications wrote to a running collector, as if they ran
now (fresh ids, times moved), waits until the ledger has them, and shows what
"top" and "run" say. The services are called demo-…; nothing else is touched.

` + exitCodes,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), env, *server) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.endpoint, "endpoint", "", "the collector's OTLP receiver over HTTP (default: port "+otlpPort+" where --server is)")
	f.DurationVar(&flags.wait, "wait", 30*time.Second, "how long to wait for the ledger to show the spans")
	return cmd
}

func (f demoFlags) run(ctx context.Context, env Environment, server serverFlags) error {
	client, err := newClient(env, server)
	if err != nil {
		return err
	}
	if f.endpoint == "" {
		f.endpoint = OTLPEndpoint(client.base.String())
	}
	var seed [16]byte
	if _, err := io.ReadFull(env.Random, seed[:]); err != nil {
		return fail(ExitNoAnswer, "draw random ids: %w", err)
	}
	now := env.Now()
	requests := make([][]ptrace.Traces, len(demo.Stories))
	for i, story := range demo.Stories {
		// Half a second apart, the first one last: it shows as the newest run.
		if requests[i], err = story.Requests(replay.NewIdentities(seed), now.Add(-time.Duration(i)*time.Second/2)); err != nil {
			return fail(ExitInput, "%w", err)
		}
	}
	expected := accountOf(requests)
	if err := f.send(ctx, client.access, requests); err != nil {
		return err
	}
	p := newPrinter(env)
	p.line(fmt.Sprintf("Sent %s of real applications to %s:", plural(len(demo.Stories), "capture"), f.endpoint))
	for _, story := range demo.Stories {
		p.line("  " + story.Service() + ": " + story.Tale)
	}
	p.blank()
	if err := f.await(ctx, client, expected); err != nil {
		return errors.Join(p.flush(env), err)
	}
	return f.show(ctx, env, p, client, expected)
}

// send hands every request to the receiver, in the order of arrival.
func (f demoFlags) send(ctx context.Context, access replay.Access, stories [][]ptrace.Traces) error {
	sender, err := replay.NewHTTP(f.endpoint, replay.Protobuf, true, access)
	if err != nil {
		return fail(ExitUsage, "--endpoint: %w", err)
	}
	defer func() { _ = sender.Close() }()
	for _, requests := range stories {
		for _, td := range requests {
			err := sender.Send(ctx, td)
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return fmt.Errorf("send the demo: %w", ctx.Err())
			case errors.Is(err, replay.ErrRefused):
				return fail(ExitUnreachable, "send the demo: %w", err)
			default:
				return fail(ExitUnreachable, "send the demo: %w\nIs the collector running? Start it with: go run ./cmd/collector\n"+
					"If it receives OTLP over HTTP elsewhere, say where with --endpoint.", err)
			}
		}
	}
	return nil
}

// accountOf is the ledger that the collector should come to.
func accountOf(stories [][]ptrace.Traces) attribution.Ledger {
	var spans []schema.Span
	opts := attribution.Defaults()
	for _, requests := range stories {
		for _, td := range requests {
			rows, _ := dialect.Normalise(td, 0)
			spans = append(spans, rows...)
		}
	}
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
	}
	return attribution.Account(spans, opts)
}

// await waits until the ledger holds every expected run with all its spans.
func (f demoFlags) await(ctx context.Context, client *client, expected attribution.Ledger) error {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	query := url.Values{"since": {earliest(expected)}, "limit": {"0"}}
	for {
		var runs answer.Runs
		err := client.get(ctx, &runs, query, "api/v1/runs")
		if err == nil && holds(runs, expected) {
			return nil
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("wait for the ledger: %w", ctx.Err())
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return fail(ExitNoAnswer, "the collector took the spans, but its ledger does not show all of them after %s\n"+
				"Ask again with: retryledger top. If it stays so, the collector's log says why.", f.wait)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// holds tells whether runs has every expected run with as many spans.
func holds(runs answer.Runs, expected attribution.Ledger) bool {
	spans := map[string]int{}
	for i := range runs.Runs {
		for _, trace := range runs.Runs[i].TraceIDs {
			spans[trace] = max(spans[trace], runs.Runs[i].Spans)
		}
	}
	for i := range expected.Runs {
		for _, trace := range expected.Runs[i].TraceIDs {
			if spans[trace] < expected.Runs[i].Spans {
				return false
			}
		}
	}
	return true
}

func earliest(ledger attribution.Ledger) string {
	start := int64(0)
	for i := range ledger.Runs {
		if s := ledger.Runs[i].StartNs; start == 0 || s < start {
			start = s
		}
	}
	return time.Unix(0, start).UTC().Format(time.RFC3339Nano)
}

// show prints what top and run answer, as they would.
func (f demoFlags) show(ctx context.Context, env Environment, p printer, client *client, expected attribution.Ledger) error {
	var top answer.Top
	if err := client.get(ctx, &top, url.Values{"since": {earliest(expected)}, "limit": {"20"}}, "api/v1/top"); err != nil {
		return err
	}
	p.line(p.command("retryledger top"))
	p.top(top)
	for i := range expected.Runs {
		if expected.Runs[i].Service != demo.Stories[0].Service() {
			continue
		}
		id := expected.Runs[i].TraceIDs[0]
		var run answer.Run
		if err := client.get(ctx, &run, nil, "api/v1/runs", id); err != nil {
			return err
		}
		p.blank()
		p.line(p.command("retryledger run " + id))
		p.run(run, 200)
	}
	return p.flush(env)
}
