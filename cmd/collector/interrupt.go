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

const (
	// stopWithin bounds a graceful stop. Components have bounds of their own
	// that are shorter; this one is for a component that hangs.
	stopWithin = 20 * time.Second
	// samePress is how long further signals count as the first one's echo: a
	// terminal and a wrapper such as timeout(1) both pass on one Ctrl-C.
	samePress = 500 * time.Millisecond
)

// untilInterrupted returns a context that ends with the first SIGINT or SIGTERM.
// A second one ends the process at once, which loses nothing that was
// acknowledged: the journal holds it. stop releases the signals.
func untilInterrupted(parent context.Context, stderr io.Writer) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(parent)
	ended := make(chan struct{})
	go watchSignals(signals, ended, cancel, stderr, os.Exit)
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}

// watchSignals ends the context at the first signal, and the process at a second
// one or when the stop takes too long. It returns when ended is closed.
func watchSignals(signals <-chan os.Signal, ended <-chan struct{}, cancel context.CancelCauseFunc, stderr io.Writer, exit func(int)) {
	const kept = "The journal holds what is not yet in the ledger and is read at the next start."
	select {
	case <-ended:
		return
	case <-signals:
	}
	first := time.Now()
	_, _ = fmt.Fprintln(stderr, "Stopping. Everything that was acknowledged is kept; interrupt again to stop at once.")
	cancel(errInterrupted)

	limit := time.NewTimer(stopWithin)
	defer limit.Stop()
	for {
		select {
		case <-ended:
			return
		case <-signals:
			if time.Since(first) < samePress {
				continue
			}
			_, _ = fmt.Fprintln(stderr, "Stopped at once. "+kept)
		case <-limit.C:
			_, _ = fmt.Fprintf(stderr, "Not stopped after %v, so it ends now. %s\n", stopWithin, kept)
		}
		exit(exitInterrupted)
		return
	}
}
