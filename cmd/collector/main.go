// Command collector is retryledger's daemon: an OpenTelemetry Collector that
// keeps a ledger of retries. Without arguments it runs the configuration of
// otel-collector.yaml, which is part of the binary.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
