// Command retryledger answers where retries go: from files of spans, or from a
// running collector.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/retryledger/retryledger/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.Process())
	stop()
	os.Exit(code)
}
