package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit codes of the command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitInterrupted = 130 // 128 + SIGINT, as a shell would report it
)

// run executes the command line args and returns the exit code. It ends when the
// command does, when ctx ends, or on an interrupt.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := untilInterrupted(ctx, stderr)
	defer stop()

	var config effectiveConfig
	cmd := newCommand(&config, stdout) //nolint:contextcheck // cobra hands the context to the commands
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(context.Cause(ctx), errInterrupted) && errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(stderr, "Interrupted before it was ready. Nothing is lost: start it again to go on.")
		return exitInterrupted
	}
	_, _ = fmt.Fprintln(stderr, explain(err, &config))
	return exitFailed
}
