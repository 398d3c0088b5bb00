package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// stopWithin bounds a graceful stop. Components have bounds of their own that
// are shorter; this one is for a component that hangs.
const stopWithin = 20 * time.Second

// untilInterrupted returns a context that ends with the first SIGINT or SIGTERM.
// A second one ends the process at once, which loses nothing that was
// acknowledged: the journal holds it. stop releases the signals.
func untilInterrupted(parent context.Context, stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-signals:
		}
		_, _ = fmt.Fprintln(stderr, "Stopping. Everything that was acknowledged is kept; interrupt again to stop at once.")
		cancel(errInterrupted)
		limit := time.NewTimer(stopWithin)
		defer limit.Stop()
		select {
		case <-ended:
			return
		case <-signals:
			_, _ = fmt.Fprintln(stderr, "Stopped at once. The journal holds what is not yet in the ledger and is read at the next start.")
		case <-limit.C:
			_, _ = fmt.Fprintf(stderr, "Still not stopped after %v, so it ends now. The journal holds what is not yet in the ledger and is read at the next start.\n", stopWithin)
		}
		os.Exit(exitInterrupted)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}
