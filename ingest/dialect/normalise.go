// Package dialect reads spans as instrumentations really write them, one file
// per instrumentation, into the one row that everything else shares.
package dialect

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/schema"
)

// Normalise reads every span of td into its row, using only what the span itself
// and its resource and scope say. A span that cannot be kept (no trace or span id)
// is left out and counted in refused. receivedNs is the time of receipt.
func Normalise(td ptrace.Traces, receivedNs int64) (spans []schema.Span, refused int) {
	return nil, 0
}
