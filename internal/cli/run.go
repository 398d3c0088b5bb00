package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit codes. They are part of the interface: the help states them.
const (
	ExitOK          = 0 // answered
	ExitNoAnswer    = 1 // the question has no answer: no such run, several runs fit, the demo's spans did not show
	ExitUsage       = 2 // a flag or an argument is wrong
	ExitUnreachable = 3 // the collector cannot be reached, or could not answer
	ExitInput       = 4 // a file cannot be read as spans
)

const exitCodes = `Exit codes:
  0  answered
  1  the question has no answer: no such run, or several runs fit
  2  a flag or an argument is wrong
  3  the collector cannot be reached, or could not answer
  4  a file cannot be read as spans`

// exitError carries the exit code that an error stands for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// Run runs the command line and returns its exit code. args are without the
// program's name.
func Run(ctx context.Context, args []string, env Environment) int {
	root := newRoot(env) //nolint:contextcheck // the commands take theirs from ExecuteContext
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		_, _ = fmt.Fprintln(env.Stderr, "retryledger: interrupted")
		return 130
	}
	_, _ = fmt.Fprintf(env.Stderr, "retryledger: %v\n", err)
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return ExitUsage // cobra's own errors: unknown commands and flags
}

func newRoot(env Environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "retryledger",
		Short: "Which step eats the retry budget",
		Long: `retryledger says where the retries of agent pipelines go and what they cost.

"top", "runs", "run", "alerts", "gate", "breakers", "demo" and "rules replay" ask a
running collector (go run ./cmd/collector).
"account" reads files of OTLP spans, "rules" checks and tests alert rules, "dashboards" brings
dashboards into Grafana; they need no collector. "deadletter" and "store" work on the
folder of a collector on this machine.

` + exitCodes,
		Version:       env.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	var server serverFlags
	addServerFlags(root.PersistentFlags(), &server)
	root.AddCommand(newTop(env, &server), newRuns(env, &server), newRun(env, &server), newDemo(env, &server), newAccount(env), newRules(env, &server), newAlerts(env, &server),
		newGate(env, &server), newBreakers(env, &server), newDashboards(env), newDeadletter(env), newStore(env))
	return root
}
