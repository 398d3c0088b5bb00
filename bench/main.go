//go:build linux

// The benchmark of the whole: retryledger's collector against a collector with the
// contributed ClickHouse exporter, on the same traffic, into the same engine, in turn.
//
//	go run ./bench
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := compare(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "rounds of each side, in turn")
	spans := flags.Int("spans", 200_000, "spans of a round")
	promptBytes := flags.Int("prompt-bytes", 2000, "length of a prompt or an answer, in bytes; 0 leaves them as they were recorded")
	seed := flags.Uint64("seed", 1, "of the traffic")
	captures := flags.String("captures", filepath.Join("testdata", "captures"), "recorded traffic to multiply")
	only := flags.Bool("ours", false, "leave contrib out")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // said to the user already
	}
	folder, err := os.MkdirTemp("", "retryledger-bench-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	ours, contrib := filepath.Join(folder, "collector"), filepath.Join(folder, "contrib")
	if err := build(ctx, ".", ours, "./cmd/collector"); err != nil {
		return err
	}
	if !*only {
		if err := build(ctx, filepath.Join("bench", "contrib"), contrib, "."); err != nil {
			return err
		}
	}
	recorded, err := readCaptures(*captures)
	if err != nil {
		return err
	}
	t, err := multiply(recorded, filepath.Join(folder, "traffic"), *spans, *promptBytes, *seed, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v, %d under way at the same time\n", t, senders)
	s, err := startStore(ctx, ours, filepath.Join(folder, "engine"))
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(s.conn.Close(), s.stop()) }()
	sides := []side{s.ours(ours)}
	if !*only {
		sides = append(sides, s.contrib(contrib, filepath.Join("bench", "contrib", "collector.yaml")))
	}
	results := make([][]*round, len(sides))
	for n := range *rounds {
		for i := range sides {
			k := (i + n) % len(sides) // each side is first as often
			r, err := s.run(ctx, sides[k], t, filepath.Join(folder, fmt.Sprintf("data-%d-%d", n, k)))
			if err != nil {
				return err
			}
			results[k] = append(results[k], r)
		}
	}
	return report(out, sides, results, t)
}

func build(ctx context.Context, folder, program, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", folder, "-buildvcs=false", "-o", program, what)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, text)
	}
	return nil
}

// figure is one measured number; less tells whether less of it is better.
type figure struct {
	name string
	less bool
	of   func(*round) float64
	text func(float64) string
}

func figures(t *traffic) []figure {
	perSecond := func(d time.Duration) float64 { return float64(t.spans) / d.Seconds() }
	perMillion := func(d time.Duration) float64 { return d.Seconds() / float64(t.spans) * 1e6 }
	number := func(format string) func(float64) string {
		return func(v float64) string { return fmt.Sprintf(format, v) }
	}
	size := func(v float64) string { return humanize.IBytes(uint64(v)) }
	return []figure{
		{"spans/s until acknowledged", false, func(r *round) float64 { return perSecond(r.took) }, number("%.0f")},
		{"spans/s until queryable", false, func(r *round) float64 { return perSecond(r.queryable) }, number("%.0f")},
		{"spans/s until in the ledger", false, func(r *round) float64 { return perSecond(r.caughtUp) }, number("%.0f")},
		{"CPU-s per million spans, collector", true, func(r *round) float64 { return perMillion(r.collector.cpu) }, number("%.1f")},
		{"CPU-s per million spans, engine", true, func(r *round) float64 { return perMillion(r.engine) }, number("%.1f")},
		{"CPU-s per million spans, both", true, func(r *round) float64 { return perMillion(r.collector.cpu + r.engine) }, number("%.1f")},
		{"peak memory of the collector", true, func(r *round) float64 { return float64(r.collector.peak) }, size},
		{"bytes per span on disk, spans", true, func(r *round) float64 { return float64(r.spanBytes) / float64(t.spans) }, number("%.0f")},
		{"bytes per span on disk, all", true, func(r *round) float64 { return float64(r.totalBytes) / float64(t.spans) }, number("%.0f")},
		{"answer p50, ms", true, func(r *round) float64 { return float64(r.p50.Microseconds()) / 1000 }, number("%.1f")},
		{"answer p99, ms", true, func(r *round) float64 { return float64(r.p99.Microseconds()) / 1000 }, number("%.1f")},
		{"answers that asked to wait", true, func(r *round) float64 { return float64(r.refusals) }, number("%.0f")},
	}
}

// report prints medians, and ratios of pairs of rounds, above 1 where ours is better.
func report(out io.Writer, sides []side, results [][]*round, t *traffic) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "median of rounds")
	for _, s := range sides {
		fmt.Fprint(w, "\t"+s.name)
	}
	if len(sides) == 2 {
		fmt.Fprint(w, "\tbetter by\t(least to most)")
	}
	fmt.Fprintln(w)
	for _, f := range figures(t) {
		fmt.Fprint(w, f.name)
		values := make([][]float64, len(sides))
		for k := range sides {
			for _, r := range results[k] {
				values[k] = append(values[k], f.of(r))
			}
			fmt.Fprint(w, "\t"+f.text(median(values[k])))
		}
		if len(sides) == 2 {
			var ratios []float64
			for n := range values[0] {
				ours, theirs := values[0][n], values[1][n]
				if f.less {
					ours, theirs = theirs, ours
				}
				if theirs != 0 {
					ratios = append(ratios, ours/theirs)
				}
			}
			if len(ratios) == 0 { // neither side had any
				fmt.Fprintln(w)
				continue
			}
			fmt.Fprintf(w, "\t%.2f\t(%.2f to %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the figures: %w", err)
	}
	return nil
}

// median changes the order of nothing.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
