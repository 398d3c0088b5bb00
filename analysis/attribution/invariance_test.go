package attribution_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// captured are the rows of every capture, each under a service of its own, so that
// no run id joins two of them.
func captured(t testing.TB) map[string][]schema.Span {
	t.Helper()
	out := make(map[string][]schema.Span)
	for _, c := range capturetest.All(t) {
		var spans []schema.Span
		for _, name := range c.Files {
			file, err := os.Open(name)
			require.NoError(t, err)
			_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
				rows, refused := dialect.Normalise(td, 1)
				assert.Zero(t, refused)
				spans = append(spans, rows...)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		for i := range spans {
			spans[i].Service = c.Cell()
			spans[i].ContentHash = spans[i].Hash()
		}
		if len(spans) > 0 {
			out[c.Cell()] = spans
		}
	}
	return out
}

func written(t require.TestingT, ledger attribution.Ledger) string {
	text, err := json.MarshalIndent(ledger, "", " ")
	require.NoError(t, err)
	return string(text)
}

// Any partition, order and repetition of the same spans, in whatever company, gives
// the same ledger.
func TestLedgerDependsOnNothingButTheSpans(t *testing.T) {
	cells := captured(t)
	names := make([]string, 0, len(cells))
	for name := range cells {
		names = append(names, name)
	}
	slices.Sort(names)
	alone := make(map[string]string)
	for _, name := range names {
		alone[name] = written(t, account(cells[name]...))
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "capture")
		spans := rapid.Permutation(cells[name]).Draw(rt, "order")
		if again := rapid.IntRange(0, len(spans)).Draw(rt, "repeated"); again > 0 {
			spans = append(slices.Clone(spans), spans[:again]...)
		}
		if got := written(rt, account(spans...)); got != alone[name] {
			rt.Fatalf("%s: another order gives another ledger:\n%s\ninstead of\n%s", name, got, alone[name])
		}
		other := rapid.SampledFrom(names).Draw(rt, "company")
		if other == name {
			return
		}
		opts := attribution.Defaults()
		for _, s := range spans {
			opts.AtNs = max(opts.AtNs, s.EndNs)
		}
		both := attribution.Account(append(slices.Clone(spans), cells[other]...), opts)
		mine := attribution.Ledger{Runs: []attribution.Run{}, ContractViolations: []attribution.ContractViolation{}}
		for _, run := range both.Runs {
			if run.Service == name {
				mine.Runs = append(mine.Runs, run)
			}
		}
		if got, want := written(rt, mine), alone[name]; len(mine.Runs) > 0 && got != written(rt, runsOnly(rt, want)) {
			rt.Fatalf("%s changes in the company of %s", name, other)
		}
	})
}

func runsOnly(t require.TestingT, text string) attribution.Ledger {
	var ledger attribution.Ledger
	require.NoError(t, json.Unmarshal([]byte(text), &ledger))
	return attribution.Ledger{Runs: ledger.Runs, ContractViolations: []attribution.ContractViolation{}}
}

// Spans that never came make numbers smaller, never larger, and never a run complete.
func TestMissingSpansNeverFlatter(t *testing.T) {
	cells := captured(t)
	names := make([]string, 0, len(cells))
	for name := range cells {
		names = append(names, name)
	}
	slices.Sort(names)
	calls := func(l attribution.Ledger) (n int) {
		for _, r := range l.Runs {
			for _, s := range r.Steps {
				n += s.Calls
			}
		}
		return n
	}
	complete := func(l attribution.Ledger) bool {
		return slices.ContainsFunc(l.Runs, func(r attribution.Run) bool { return r.Completion == "complete" })
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "capture")
		whole := account(cells[name]...)
		keep := rapid.SliceOfN(rapid.IntRange(0, 9), len(cells[name]), len(cells[name])).Draw(rt, "kept")
		var someCallsGone, some []schema.Span
		for i, s := range cells[name] {
			if keep[i] > 2 || s.Role != schema.RoleModel {
				someCallsGone = append(someCallsGone, s)
			}
			if keep[i] > 2 || s.Complete != schema.FlagUnset {
				some = append(some, s)
			}
		}
		if got := calls(account(someCallsGone...)); got > calls(whole) {
			rt.Fatalf("%s: %d calls without some of the calls' spans, %d with all", name, got, calls(whole))
		}
		rest := account(some...)
		if complete(rest) && !complete(whole) {
			rt.Fatalf("%s: complete only because spans are missing", name)
		}
		for i := range rest.Runs {
			if bad := rest.Runs[i].BrokenIdentities(); len(bad) > 0 {
				rt.Fatalf("%s: %v", name, bad)
			}
		}
	})
}

func TestIdentitiesHoldOnEveryCapture(t *testing.T) {
	for name, spans := range captured(t) {
		for _, run := range account(spans...).Runs {
			assert.Empty(t, run.BrokenIdentities(), name)
		}
	}
}
