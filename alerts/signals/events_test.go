package signals_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

const second = int64(1e9)

// captured is the ledger of a capture and its rows, as if received a second after its
// last span had ended.
func captured(t testing.TB, capture capturetest.Capture) (attribution.Ledger, []schema.LedgerRow) {
	t.Helper()
	var spans []schema.Span
	for _, name := range capture.Files {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = otlpfile.Read(file, 0, func(td ptrace.Traces) error {
			rows, _ := dialect.Normalise(td, 0)
			spans = append(spans, rows...)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	opts := attribution.Defaults()
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
	}
	at := make(map[schema.TraceID]int)
	var bare []schema.LedgerRow
	for i := range spans {
		s := &spans[i]
		n, ok := at[s.TraceID]
		if !ok {
			n = len(bare)
			at[s.TraceID] = n
			bare = append(bare, schema.LedgerRow{
				TraceID: s.TraceID, FirstEndNs: s.EndNs, LastReceivedNs: opts.AtNs + second, Version: schema.LedgerVersion{InsertedUs: 1}, Spans: uint32(len(spans)),
			})
		}
		bare[n].FirstEndNs, bare[n].LastEndNs = min(bare[n].FirstEndNs, s.EndNs), max(bare[n].LastEndNs, s.EndNs)
	}
	account := attribution.Account(spans, opts)
	rows, err := ledger.Rows(account, bare)
	require.NoError(t, err)
	return account, rows
}

func eventsOf(rows []schema.LedgerRow) []signals.Event {
	var events []signals.Event
	for i := range rows {
		events = append(events, signals.Events(&rows[i])...)
	}
	return events
}

// sums writes "signal step provider: failed of total" for everything that events add up to.
func sums(events []signals.Event) []string {
	type group struct {
		signal         signals.Signal
		step, provider string
	}
	total := make(map[group][3]int64)
	for _, e := range events {
		g := group{e.Signal, e.Labels.Step, e.Labels.Provider}
		s := total[g]
		s[0], s[1] = s[0]+e.Numerator, s[1]+e.Denominator
		if e.Unsettled {
			s[2]++
		}
		total[g] = s
	}
	lines := make([]string, 0, len(total))
	for g, s := range total {
		line := fmt.Sprintf("%s: %d of %d", strings.Join(strings.Fields(fmt.Sprint(g.signal, " ", g.step, " ", g.provider)), " "), s[0], s[1])
		if s[2] > 0 {
			line += fmt.Sprintf(", %d unsettled", s[2])
		}
		lines = append(lines, strings.Replace(line, "_ratio", "", 1))
	}
	slices.Sort(lines)
	return lines
}

// TestEventsOfRealApplications: what each application counted of itself (truth.json of
// its capture), as the signals must say it.
func TestEventsOfRealApplications(t *testing.T) {
	for cell, want := range golden {
		t.Run(cell, func(t *testing.T) {
			_, rows := captured(t, capturetest.One(t, cell))
			assert.Equal(t, strings.Split(strings.TrimSpace(strings.ReplaceAll(want, "\t", "")), "\n"), sums(eventsOf(rows)))
		})
	}
}

// TestEventsAddUpToTheAccount: over all that happened, the signals are the account's
// own numbers.
func TestEventsAddUpToTheAccount(t *testing.T) {
	for _, capture := range capturetest.All(t) {
		t.Run(capture.Cell(), func(t *testing.T) {
			account, rows := captured(t, capture)
			got := make(map[string]int64)
			for _, e := range eventsOf(rows) {
				got[string(e.Signal)] += e.Numerator
				got[string(e.Signal)+" of"] += e.Denominator
			}
			want := make(map[string]int64)
			count := func(signal signals.Signal, numerator, denominator int) {
				want[string(signal)] += int64(numerator)
				want[string(signal)+" of"] += int64(denominator)
			}
			for i := range account.Runs {
				r := &account.Runs[i]
				hidden := make(map[string]bool) // steps and layers whose repeats the instrumentation hides
				for _, s := range r.Steps {
					for layer, n := range map[attribution.Layer]*int{
						attribution.LayerTransport: s.Retries.Transport, attribution.LayerCall: s.Retries.Call, attribution.LayerNode: s.Retries.Node,
						attribution.LayerOrchestrator: s.Retries.Orchestrator, attribution.LayerWorker: s.Retries.Worker,
					} {
						hidden[s.Step+" "+string(layer)] = n == nil
					}
				}
				retries := 0
				for _, a := range r.Attempts {
					if a.Charge != "" && a.Charge != attribution.ChargeFallback && !hidden[a.Step+" "+string(a.Charge)] {
						retries++
					}
				}
				count(signals.RetryRatio, retries, 0)
				for _, s := range r.Steps {
					count(signals.RetryRatio, 0, s.Operations)
					count(signals.FallbackRatio, s.FallbackOperations, s.Operations)
					count(signals.AttemptErrorRatio, s.CallsFailed, 0)
					count(signals.WastedTokenRatio, int(s.Wasted.Input+s.Wasted.Output), int(s.Tokens.Input+s.Tokens.Output))
				}
				exhausted := 0
				if r.Budget.Exhausted {
					exhausted = 1
				}
				count(signals.BudgetExhaustedRatio, exhausted, 1)
			}
			for name, n := range want {
				if name != string(signals.AttemptErrorRatio)+" of" {
					assert.Equal(t, n, got[name], name)
				}
			}
		})
	}
}

// drawnRow is a row in which every word that decides may stand anywhere.
func drawnRow(t *rapid.T, nowNs, spanNs int64) schema.LedgerRow {
	word := func(name string, words ...string) string { return rapid.SampledFrom(words).Draw(t, name) }
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	row := schema.LedgerRow{State: schema.StateAttributed, LastReceivedNs: nowNs, FirstEndNs: math.MaxInt64}
	at := func() int64 { // now and then a clock that runs ahead, and a whole second
		end := nowNs - rapid.Int64Range(-spanNs/10, spanNs).Draw(t, "end")
		if rapid.IntRange(0, 3).Draw(t, "whole") == 0 {
			end -= end % second
		}
		bounded := schema.BoundedEnd(end, nowNs)
		row.FirstEndNs, row.LastEndNs = min(row.FirstEndNs, bounded), max(row.LastEndNs, bounded)
		return end
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "runs") {
		row.Runs = append(row.Runs, schema.RunRow{
			RunID: fmt.Sprint("run-", i), Service: word("service", "a", "b"), Version: word("version", "", "2"), Environment: word("environment", "prod"), Anchor: flag("anchor"), Exhausted: flag("exhausted"), EndNs: at(),
			Completion: word("completion", "complete", "incomplete", "failed", "interrupted", "cancelled", "running", "orphaned", "unflagged"),
		})
	}
	run := func() uint32 { return rapid.Uint32Range(0, uint32(len(row.Runs)-1)).Draw(t, "run") }
	for range rapid.IntRange(0, 3).Draw(t, "operations") {
		row.Operations = append(row.Operations, schema.OperationRow{
			Run: run(), Step: word("step", "", "x", "y"), Grain: word("grain", "execution", "call", "tool", "http", "work"),
			Outcome: word("outcome", "succeeded_first_try", "succeeded_after_retry", "succeeded_by_fallback", "failed_after_retry", "failed_without_retry", "handled", "interrupted", "cancelled", "unknown"),
			Retries: 1, Fallbacks: rapid.Int64Range(0, 2).Draw(t, "fallbacks"), Provider: word("provider", "", "p"), EndNs: at(), CountsInStep: flag("counts"), Settled: flag("settled"),
		})
	}
	tokens := rapid.SampledFrom([]*int64{nil, new(int64), ptr(int64(-1)), ptr(int64(120))})
	for range rapid.IntRange(0, 4).Draw(t, "attempts") {
		row.Attempts = append(row.Attempts, schema.AttemptRow{
			Run: run(), Step: word("step", "", "x", "y"), Grain: word("grain", "execution", "call", "tool", "http", "work"), Charge: word("charge", "", "call", "node", "fallback"),
			Ending:     word("ending", "succeeded", "failed", "interrupted", "cancelled", "unknown"),
			ErrorClass: word("class", "", "RateLimitError", "OverloadedError", "overloaded_error", "ValueError"),
			HTTPStatus: rapid.SampledFrom([]int64{0, 200, 400, 429, 500, 503, 529, 600}).Draw(t, "status"), Provider: word("provider", "", "p"), EndNs: at(),
			InputTokens: tokens.Draw(t, "input"), OutputTokens: tokens.Draw(t, "output"), Counted: flag("counted"), Wasted: flag("wasted"),
			Request: flag("request"), Midway: flag("midway"), Violated: flag("violated"), Hidden: flag("hidden"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "violations") {
		row.Violations = append(row.Violations, schema.ViolationRow{
			Run: rapid.Int64Range(-1, int64(len(row.Runs)-1)).Draw(t, "run"), Node: word("node", "x", "y"), Count: rapid.Int64Range(1, 3).Draw(t, "count"), TimeNs: at(),
		})
	}
	return row
}

func ptr[T any](v T) *T { return &v }

func TestEveryEventIsOneOfItsSignal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := drawnRow(t, 1_800_000_000*second, 100*second)
		perAttempt := make(map[signals.Signal]int)
		for _, e := range signals.Events(&row) {
			require.NotNil(t, e.Signal.Dimensions())
			for _, d := range signals.Dimensions() {
				if !slices.Contains(e.Signal.Dimensions(), d) {
					require.Empty(t, e.Labels.Get(d), "%s of %s", d, e.Signal)
				}
			}
			require.LessOrEqual(t, e.AtNs, row.LastReceivedNs, "a clock that runs ahead is bounded by the receipt")
			require.GreaterOrEqual(t, e.Numerator, int64(0))
			if e.Signal != signals.RetryRatio {
				require.LessOrEqual(t, e.Numerator, e.Denominator)
			}
			if e.Unsettled {
				require.Equal(t, []int64{1, 1}, []int64{e.Numerator, e.Denominator}, "only a failure waits")
				require.Contains(t, []signals.Signal{signals.OperationErrorRatio, signals.CallOperationErrorRatio}, e.Signal)
			}
			perAttempt[e.Signal]++
		}
		require.LessOrEqual(t, perAttempt[signals.ServerErrorRatio], len(row.Attempts))
		require.Equal(t, perAttempt[signals.ServerErrorRatio], perAttempt[signals.ThrottledRatio], "of the same requests")
	})
}

func TestStatusOrClassTellsWhoseFaultARequestIs(t *testing.T) {
	for _, c := range []struct {
		status            int64
		class, ending     string
		server, throttled int64
	}{
		{500, "", "failed", 1, 0},
		{503, "RateLimitError", "failed", 1, 0}, // the status decides
		{529, "", "failed", 1, 0},
		{599, "", "failed", 1, 0},
		{600, "", "failed", 0, 0},
		{499, "", "failed", 0, 0},
		{429, "InternalServerError", "failed", 0, 1},
		{400, "BadRequestError", "failed", 0, 0},
		{0, "InternalServerError", "failed", 1, 0},
		{0, "overloaded_error", "failed", 1, 0},
		{0, "OverloadedError", "unknown", 1, 0},
		{0, "ServiceUnavailableException", "failed", 1, 0},
		{0, "UNAVAILABLE", "failed", 1, 0},
		{0, "RateLimitError", "failed", 0, 1},
		{0, "ThrottlingException", "failed", 0, 1},
		{0, "RESOURCE_EXHAUSTED", "failed", 0, 1},
		{0, "TooManyRequestsException", "failed", 0, 1},
		{0, "APITimeoutError", "failed", 0, 0}, // a provider that does not answer gave no status
		{0, "APIConnectionError", "failed", 0, 0},
		{0, "OverloadedError", "succeeded", 0, 0},
		{200, "", "succeeded", 0, 0},
	} {
		row := schema.LedgerRow{Attempts: []schema.AttemptRow{{Grain: "http", Request: true, Ending: c.ending, HTTPStatus: c.status, ErrorClass: c.class}}}
		got := make(map[signals.Signal]int64)
		for _, e := range signals.Events(&row) {
			assert.Equal(t, int64(1), e.Denominator)
			got[e.Signal] = e.Numerator
		}
		assert.Equal(t, map[signals.Signal]int64{signals.ServerErrorRatio: c.server, signals.ThrottledRatio: c.throttled}, got, "%+v", c)
	}
}

// A repeat in a layer that the instrumentation hides is in no number of its step, and in
// no ratio of retries either.
func TestHiddenLayersAreNoRetries(t *testing.T) {
	row := schema.LedgerRow{
		Runs: []schema.RunRow{{Service: "shop"}},
		Attempts: []schema.AttemptRow{
			{Step: "plan", Grain: "http", Charge: "transport", Hidden: true}, {Step: "plan", Grain: "http", Charge: "call"}, {Step: "plan", Grain: "http", Charge: "fallback"},
		},
	}
	assert.Equal(t, []signals.Event{{Signal: signals.RetryRatio, Labels: signals.Labels{Service: "shop", Step: "plan"}, Numerator: 1}}, signals.Events(&row))
}

// Of runs that are over, every operation is settled.
func TestEndedRunsAreSettled(t *testing.T) {
	ended := 0
	for _, capture := range capturetest.All(t) {
		account, _ := captured(t, capture)
		for i := range account.Runs {
			r := &account.Runs[i]
			if r.Outcome == "killed_or_running" || r.JoinedBy == "inferred" {
				continue
			}
			for _, o := range r.Operations {
				ended++
				assert.True(t, o.Settled, "%s: %s of %s, %s", capture.Cell(), o.Grain, o.Step, o.Outcome)
			}
		}
	}
	assert.Greater(t, ended, 100)
}

func TestGoldenCasesCoverEverySignal(t *testing.T) {
	seen := make(map[string]bool)
	for _, text := range golden {
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			name, counts, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if !strings.HasPrefix(counts, "0 of") {
				seen[strings.Fields(name)[0]+"_ratio"] = true
			}
		}
	}
	for _, s := range signals.All() {
		assert.True(t, seen[string(s)], "%s has a case that fails, among %v", s, slices.Sorted(maps.Keys(seen)))
	}
}

// A row that names a run it does not hold has events without a service.
func TestEventsOfABrokenRow(t *testing.T) {
	row := schema.LedgerRow{
		Operations: []schema.OperationRow{{Run: 7, Grain: "execution", Outcome: "handled"}},
		Violations: []schema.ViolationRow{{Run: 9, Node: "x", Count: 2}},
	}
	assert.Equal(t, []signals.Event{
		{Signal: signals.OperationErrorRatio, Numerator: 1, Denominator: 1, Unsettled: true},
		{Signal: signals.ContractViolationRatio, Labels: signals.Labels{Step: "x"}, Numerator: 2, Denominator: 2},
	}, signals.Events(&row))
}
