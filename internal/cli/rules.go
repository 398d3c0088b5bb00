package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/rules/ruletest"
	"github.com/retryledger/retryledger/internal/regularfile"
)

const rulesExitCodes = `Exit codes:
  0  the rules are right, every expectation is met
  1  an expectation is not met
  2  a file has a mistake, or cannot be read`

func newRules(env Environment, server *serverFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check and test alert rules, and try them on the past",
		Long: `Works on files of alert rules. A file lies over the default pack: a rule of a name that
the pack has changes that rule, any other is added.

"check", "test" and "default" need no server; "replay" asks a running collector.

` + rulesExitCodes,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check files of alert rules and list what they watch",
		Long: `Reads files of alert rules as the collector does when it loads them: keys, values,
what each signal can be grouped by, and every template, executed on an example.

` + rulesExitCodes,
		Example: "  retryledger rules check rules.yaml",
		Args:    someFiles("check", "of rules"),
		RunE:    func(cmd *cobra.Command, args []string) error { return checkRules(cmd.Context(), env, args) },
	}
	test := &cobra.Command{
		Use:   "test FILE...",
		Short: "Test alert rules: counts or spans over time in, expected alerts out",
		Long: `Runs files of rule tests: counts per second or spans go in, and at the instants that
the file names the alerts have to be the ones that it lists. Names of other files are
relative to the file of tests.

` + rulesExitCodes,
		Example: "  retryledger rules test rules_test.yaml",
		Args:    someFiles("test", "of rule tests"),
		RunE:    func(cmd *cobra.Command, args []string) error { return testRules(cmd.Context(), env, args) },
	}
	pack := &cobra.Command{
		Use:   "default",
		Short: "Print the default pack of alert rules, with its comments",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := env.Stdout.Write(rules.DefaultPack); err != nil {
				return fail(ExitNoAnswer, "write the default pack: %w", err)
			}
			return nil
		},
	}
	cmd.AddCommand(check, test, newReplay(env, server), pack)
	return cmd
}

func someFiles(command, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fail(ExitUsage, `rules %s wants at least one file %s, or "-" for standard input`, command, what)
		}
		return nil
	}
}

// readText reads a whole file of at most limit bytes, and one more if it has more.
func readText(ctx context.Context, env Environment, name string, limit int64) ([]byte, error) {
	if name == "-" {
		return readInput(ctx, env.Stdin, limit)
	}
	file, err := openFile(name)
	if err != nil {
		return nil, fail(ExitUsage, "%w", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fail(ExitUsage, "%s cannot be read: %w", name, err)
	}
	return content, nil
}

// readInput is readText of standard input, until ctx ends: nobody may ever write to it.
func readInput(ctx context.Context, stdin io.Reader, limit int64) ([]byte, error) {
	return unlessInterrupted(ctx, "standard input", func() ([]byte, error) {
		content, err := io.ReadAll(io.LimitReader(stdin, limit+1))
		if err != nil {
			return nil, fail(ExitUsage, "standard input cannot be read: %w", err)
		}
		return content, nil
	})
}

func openFile(name string) (io.ReadCloser, error) {
	file, err := regularfile.Open(name)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		remedy := ""
		if errors.Is(err, regularfile.ErrNotRegular) {
			remedy = `; name a file, or "-" for standard input`
		}
		return nil, fmt.Errorf("%s cannot be opened: %w%s", name, err, remedy)
	}
	return file, nil
}

func checkRules(ctx context.Context, env Environment, names []string) error {
	p := newPrinter(env)
	var mistakes []error
	for _, name := range names {
		content, err := readText(ctx, env, name, rules.MaxFileBytes)
		if err != nil {
			return err
		}
		set, err := rules.Load(display(name), content)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		if set.Blank() {
			mistakes = append(mistakes, fmt.Errorf("%s is empty, which a running collector does not take; for the default pack alone write \"rules: []\" into it", display(name)))
			continue
		}
		p.ruleSet(display(name), set)
	}
	if err := p.flush(env); err != nil {
		return err
	}
	if len(mistakes) > 0 {
		return fail(ExitUsage, "%w", errors.Join(mistakes...))
	}
	return nil
}

// ruleSet prints what a file's rules watch.
func (p printer) ruleSet(name string, set *rules.Set) {
	all := set.Rules()
	line := fmt.Sprintf("%s: %s", clean(name), plural(len(all), "rule"))
	if off := set.Disabled(); len(off) > 0 {
		line += "; switched off: " + strings.Join(off, ", ")
	}
	p.line(line)
	for _, r := range all {
		head := r.Name
		if severity := r.Labels["severity"]; severity != "" {
			head += " (" + clean(severity) + ")"
		}
		p.line(head)
		condition := clean(r.Condition())
		if r.MinSamples > 1 {
			condition += fmt.Sprintf(", of %d samples or more", r.MinSamples)
		}
		p.line("  " + condition + "; keeps firing for " + shortTime(r.KeepFiringFor))
	}
	p.blank()
}

// shortTime writes 2m instead of 2m0s.
func shortTime(d time.Duration) string {
	if d < time.Minute {
		return d.String()
	}
	return milliseconds(float64(d.Milliseconds()))
}

func testRules(ctx context.Context, env Environment, names []string) error {
	const limit = 4 << 20
	p := newPrinter(env)
	failed, passed := 0, 0
	for _, name := range names {
		content, err := readText(ctx, env, name, limit)
		if err != nil {
			return err
		}
		folder := "."
		if name != "-" {
			folder = filepath.Dir(name)
		}
		suite, err := ruletest.Load(display(name), content, func(other string) (io.ReadCloser, error) {
			if !filepath.IsAbs(other) {
				other = filepath.Join(folder, other)
			}
			return openFile(other)
		})
		if err != nil {
			return fail(ExitUsage, "%w", err)
		}
		results, err := suite.Run(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("test %s: %w", display(name), err)
			}
			return fail(ExitUsage, "%s: %w", display(name), err)
		}
		for _, r := range results {
			if len(r.Failures) == 0 {
				passed++
				p.line(p.paint("ok    ", text.FgGreen) + testName(name, r))
				continue
			}
			failed++
			p.line(p.paint("FAILED", text.FgRed) + " " + testName(name, r))
			for _, f := range r.Failures {
				for line := range strings.Lines(f.String()) {
					p.line("  " + cleanIndented(strings.TrimRight(line, "\n")))
				}
			}
		}
	}
	p.line(fmt.Sprintf("%s passed, %d failed", plural(passed, "test"), failed))
	if err := p.flush(env); err != nil {
		return err
	}
	if failed > 0 {
		return fail(ExitNoAnswer, "%s failed", plural(failed, "test"))
	}
	return nil
}

func testName(file string, r ruletest.Result) string {
	name := fmt.Sprintf("%s:%d", display(file), r.Line)
	if r.Name != "" {
		name += " " + r.Name
	}
	return clean(name)
}

// cleanIndented is clean for a line whose leading spaces are meant.
func cleanIndented(s string) string {
	trimmed := strings.TrimLeft(s, " ")
	return s[:len(s)-len(trimmed)] + clean(trimmed)
}
