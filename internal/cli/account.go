package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

type accountFlags struct {
	format     string
	at         string
	runLimit   int
	stepLimits []string
	fileLimit  int64
	ladder     bool
}

func newAccount(env Environment) *cobra.Command {
	var flags accountFlags
	cmd := &cobra.Command{
		Use:   "account FILE...",
		Short: "Account for the spans in files, without a server",
		Long: `Reads OTLP trace export requests from files and prints their ledger.

A file holds one request in protobuf or JSON, or JSON lines of requests as the
Collector's file exporter writes them, or gzip of any of these; the content says
which. "-" is standard input; a pipe is read to its end. All files together are one set of spans: a run may
be spread over them, and a span that is in two of them counts once.

` + exitCodes,
		Example: `  retryledger account traces.jsonl
  retryledger account --format json *.pb.gz | jq '.runs[].steps[]'
  retryledger account --step-limit 3 --step-limit resolve=5 traces.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fail(ExitUsage, `account wants at least one file of OTLP spans, or "-" for standard input`)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd.Context(), env, args)
		},
	}
	defaults := attribution.Defaults()
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table or json")
	f.StringVar(&flags.at, "at", "", `the instant that "running" and "orphaned" are judged by, RFC 3339 (default: the end of the last span)`)
	f.IntVar(&flags.runLimit, "run-limit", defaults.RunLimit, "retries that a run may use")
	f.StringArrayVar(&flags.stepLimits, "step-limit", []string{strconv.Itoa(defaults.StepLimit)},
		"retries that every step of a run may use (N), or one step (NAME=N); repeatable")
	f.Int64Var(&flags.fileLimit, "file-limit", otlpfile.DefaultLimit, "bytes that one file may hold after decompression")
	f.BoolVar(&flags.ladder, "ladder", false, "with --format table: print every run's ladder of attempts too")
	return cmd
}

func (f accountFlags) run(ctx context.Context, env Environment, names []string) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	if f.fileLimit <= 0 {
		return fail(ExitUsage, "--file-limit %d: give a number of bytes above zero", f.fileLimit)
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	read, err := unlessInterrupted(ctx, "the spans", func() (input, error) { return readSpans(env.Stdin, names, f.fileLimit) })
	for _, name := range read.empty {
		_, _ = fmt.Fprintf(env.Stderr, "retryledger: %s is empty\n", display(name))
	}
	if err != nil {
		return err
	}
	if read.refused > 0 {
		_, _ = fmt.Fprintf(env.Stderr, "retryledger: %d spans without a trace id or a span id were left out\n", read.refused)
	}
	if f.at == "" {
		for i := range read.spans {
			opts.AtNs = max(opts.AtNs, read.spans[i].EndNs)
		}
	}
	ledger := answer.Complete(attribution.Account(read.spans, opts))
	if f.format == "json" {
		return writeJSON(env.Stdout, ledger)
	}
	p := newPrinter(env)
	p.ledger(ledger, f.ladder)
	return p.flush(env)
}

// options are the settings of attribution that the flags state.
func (f accountFlags) options() (attribution.Options, error) {
	opts := attribution.Defaults()
	if f.at != "" {
		at, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return opts, fail(ExitUsage, "--at %s: write an instant as 2026-01-31T12:00:00Z", f.at)
		}
		opts.AtNs = at.UnixNano()
	}
	if f.runLimit < 0 {
		return opts, fail(ExitUsage, "--run-limit %d: a limit is not negative", f.runLimit)
	}
	opts.RunLimit = f.runLimit
	opts.StepLimits = map[string]int{}
	for _, text := range f.stepLimits {
		name, number := "", text
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			name, number = text[:i], text[i+1:]
			if name == "" {
				return opts, fail(ExitUsage, "--step-limit %s: name the step before =, or leave out =", text)
			}
		}
		limit, err := strconv.Atoi(number)
		if err != nil || limit < 0 {
			return opts, fail(ExitUsage, "--step-limit %s: write N for every step or NAME=N for one", text)
		}
		if name == "" {
			opts.StepLimit = limit
		} else {
			opts.StepLimits[name] = limit
		}
	}
	return opts, nil
}

// input is what files hold.
type input struct {
	spans   []schema.Span
	refused int      // spans without an identity
	empty   []string // names of files with nothing in them
}

// readSpans reads the rows of all spans in the files, in order. Beside an error it returns
// what came before.
func readSpans(stdin io.Reader, names []string, limit int64) (of input, err error) {
	for _, name := range names {
		n, err := readFile(stdin, name, limit, func(td ptrace.Traces) error {
			rows, left := dialect.Normalise(td, 0)
			of.spans = append(of.spans, rows...)
			of.refused += left
			return nil
		})
		if err != nil {
			return of, err
		}
		if n == 0 {
			of.empty = append(of.empty, name)
		}
	}
	return of, nil
}

// readFile reads one file (or standard input) of OTLP requests; its errors name the
// file and the remedy.
func readFile(stdin io.Reader, name string, limit int64, each func(ptrace.Traces) error) (int, error) {
	if name == "-" {
		n, err := otlpfile.Read(stdin, limit, each)
		return n, inputError(name, err)
	}
	file, err := os.Open(name)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return 0, fail(ExitInput, "%s cannot be opened: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return 0, fail(ExitInput, "%s is a folder; name the files in it, for example %s/*", name, strings.TrimRight(name, "/"))
	}
	n, err := otlpfile.Read(file, limit, each)
	return n, inputError(name, err)
}

func inputError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, otlpfile.ErrTooLarge):
		return fail(ExitInput, "%s: %w; raise it with --file-limit, or split the file", display(name), err)
	case errors.Is(err, otlpfile.ErrNotTraces):
		return fail(ExitInput, "%s: %w\nGive files of ExportTraceServiceRequest, protobuf or JSON, as an OTLP exporter sends them "+
			"or the Collector's file exporter writes them, and leave out all others: an account of some of the files would look like one of all",
			display(name), err)
	default:
		return fail(ExitInput, "%s cannot be read: %w", display(name), err)
	}
}

func display(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fail(ExitNoAnswer, "write the answer as JSON: %w", err)
	}
	return nil
}
