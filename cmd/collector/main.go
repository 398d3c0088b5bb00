// Command collector is retryledger's daemon: an OpenTelemetry Collector that
// keeps a ledger of retries. Without arguments it runs the configuration of
// otel-collector.yaml, which is part of the binary.
package main

import (
	"context"
	"os"

	"github.com/retryledger/retryledger/internal/engine"
)

func main() {
	// The embedded engine is this program, started again. That must come before
	// anything of the Collector.
	if len(os.Args) > 1 && os.Args[1] == engine.HostCommand {
		os.Exit(engine.HostMain(os.Args[2:]))
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
