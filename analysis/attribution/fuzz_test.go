package attribution_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
)

// FuzzAccount feeds any OTLP request through the dialects and attribution: nothing
// panics or hangs, the identities hold, and neither order nor repetition matters.
// The seeds are one small capture of every instrumentation.
func FuzzAccount(f *testing.F) {
	seeded := make(map[string]bool)
	marshal := ptrace.ProtoMarshaler{}
	for _, c := range capturetest.All(f) {
		if seeded[c.Instrumentation] {
			continue
		}
		for _, name := range c.Files[:1] {
			file, err := os.Open(name)
			require.NoError(f, err)
			_, err = otlpfile.Read(file, otlpfile.DefaultLimit, func(td ptrace.Traces) error {
				if td.SpanCount() > 40 {
					return nil
				}
				seed, err := marshal.MarshalTraces(td)
				if err == nil {
					f.Add(seed)
					seeded[c.Instrumentation] = true
				}
				return err
			})
			require.NoError(f, err)
			require.NoError(f, file.Close())
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil || td.SpanCount() > 2_000 {
			return
		}
		accountHolds(t, td)
	})
}

// accountHolds tells whether the identities hold of what was received, and whether
// neither order nor repetition matters.
func accountHolds(t *testing.T, td ptrace.Traces) {
	t.Helper()
	rows, _ := dialect.Normalise(td, 1)
	opts := attribution.Defaults()
	opts.AtNs = math.MaxInt64 / 2
	ledger := attribution.Account(rows, opts)
	for i := range ledger.Runs {
		if bad := ledger.Runs[i].BrokenIdentities(); len(bad) > 0 {
			t.Fatalf("%v", bad)
		}
	}
	want := written(t, ledger)
	again := append(slices.Clone(rows), rows...)
	slices.Reverse(again)
	if got := written(t, attribution.Account(again, opts)); got != want {
		t.Fatalf("backwards and twice gives\n%s\ninstead of\n%s", got, want)
	}
}
