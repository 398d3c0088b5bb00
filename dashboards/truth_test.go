package dashboards

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	questions "github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/internal/syntheticledger"
	"github.com/retryledger/retryledger/schema"
)

// One truth: a panel shows the numbers that the API, and so the command line, answers
// for the same filter. truths compute what a panel must show from those answers.

// truth is what is known beside the store for one filter.
type truth struct {
	from   time.Time // the range's beginning; that of the filter is its whole hour, if the range is long
	filter answer.Filter
	top    answer.Top
	before answer.Top // of the period of the same length just before
	runs   answer.Runs
	ledger attribution.Ledger
	events []signals.Event // what the signals of alerts count

	transitions []schema.AlertTransition // up to the end of the range, as the API reads them
	samples     []schema.AlertSample     // of the range
	status      answer.Status
	store       storetest.Store
}

// shown is a table as tests compare it: a line for each row, numbers to six digits.
type shown []string

func (s *shown) row(values ...any) {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = text(v)
	}
	*s = append(*s, strings.Join(texts, " | "))
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case float64:
		return fmt.Sprintf("%.6g", v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case *int:
		if v == nil {
			return "none"
		}
		return fmt.Sprint(*v)
	case *float64:
		if v == nil {
			return "none"
		}
		return text(*v)
	}
	return fmt.Sprint(v)
}

// panelTruth says what a panel shows: of which columns, and the rows.
type panelTruth struct {
	columns []string
	rows    func(truth) shown
}

// touchedHour is the hour since the epoch that is read from the ledger.
var touchedHour = uint32(storetest.Day.Unix()/3600) + 7

// touched tells whether ns lies in it.
func (truth) touched(ns int64) bool { return ns/int64(time.Hour) == int64(touchedHour) }

// seenAt is the time of what ended at ns as views have it, in seconds: in a long range the
// hour, where that is answered from its sums.
func (k truth) seenAt(ns int64) int64 {
	at := ns / int64(time.Second)
	if k.filter.Until.Sub(k.filter.Since) > 6*time.Hour && !k.touched(ns) {
		at -= at % 3600
	}
	return at
}

// of are the columns that count of an answer.
func (p panelTruth) of(t testing.TB, found answered) (got shown) {
	t.Helper()
	for _, row := range found.rows {
		values := make([]any, len(p.columns))
		for i, column := range p.columns {
			require.Contains(t, found.columns, column)
			values[i] = row[column]
		}
		got.row(values...)
	}
	return got
}

func TestPanelsShowWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	store := storetest.Of(t, capturetest.All(t), "checkout", "billing")
	insertHistory(t, store)
	ctx := context.Background()
	// Long ranges are answered from the sums of hours, but for one that was touched since.
	built, err := schema.BuildUsageHours(ctx, store.Conn, 0, 100)
	require.NoError(t, err)
	require.Greater(t, built, 8)
	require.NoError(t, schema.TouchHours(ctx, store.Conn, []uint32{touchedHour}))
	known := facts{store: store, of: map[string]truth{}}
	for uid, panels := range panelTruths {
		whole := everything(documents(t)[uid])
		half := whole
		half.from = storetest.Day.Add(40 * time.Minute)
		half.to = storetest.Day.Add(2 * time.Hour)
		uneven := whole
		uneven.from, uneven.to = whole.from.Add(100*time.Minute+17*time.Millisecond), storetest.Day.Add(500*time.Minute)
		for name, selected := range map[string]selection{
			"all": whole, "a service": whole.restricted(map[string][]string{"service": {"checkout"}}), "a range": half, "an uneven range": uneven,
		} {
			compare(t, known.about(t, name, selected), uid, panels, name, selected)
		}
	}
}

// atSize is how many runs TestPanelsShowWhatTheAPIAnswersAtSize makes up, of about 11
// attempts each.
const atSize = 6000

// ofCaptures are panels about what made-up runs do not have, or that stand in no ledger.
var ofCaptures = map[string][]string{
	uidAlerts: {"At the end of the range", "Fires, or is about to", "Failed visits of steps, 2 % over 2 min", "Failed visits by version, 1 % over 3 min",
		"Server errors (5xx) of providers, 15 % over 30 s", "Alerts over time", "History"},
	uidProviders: {"Circuit breakers", "Why breakers changed"},
	uidLedger: {"Spans in the range", "How far behind at the end", "Spans per second", "Waiting in the journals", "From receipt to ledger", "Evaluation of alert rules",
		"Spans of no run, by instrumentation"},
}

// TestPanelsShowWhatTheAPIAnswersAtSize compares over days of made-up runs, of which hours
// are summed up, what the captures cannot show: more rows than lists have, many hours.
func TestPanelsShowWhatTheAPIAnswersAtSize(t *testing.T) {
	if collectortest.RaceDetector {
		t.Skip("nearly all of it is the engine's work, where the detector sees nothing")
	}
	t.Parallel()
	store := storetest.Empty(t)
	ctx := context.Background()
	from := storetest.Day.Add(-60 * time.Hour)
	require.NoError(t, syntheticledger.Fill(ctx, store.Conn, syntheticledger.Options{Seed: "at size", Traces: atSize, From: from, To: storetest.Day.Add(12 * time.Hour)}))
	built, err := schema.BuildUsageHours(ctx, store.Conn, 0, 100)
	require.NoError(t, err)
	require.Greater(t, built, 70)
	require.NoError(t, schema.TouchHours(ctx, store.Conn, []uint32{touchedHour}))
	var texts []string
	require.NoError(t, store.Conn.QueryRow(ctx, "SELECT groupArray(lower(hex(trace_id))) FROM ledger").Scan(&texts))
	ids := make([]schema.TraceID, len(texts))
	for i, text := range texts {
		ids[i], err = schema.ParseTraceID(text)
		require.NoError(t, err)
	}
	store.Rows, err = schema.LedgerOfTraces(ctx, store.Conn, ids)
	require.NoError(t, err)
	require.Len(t, store.Rows, atSize)
	store.Ledger = attribution.Ledger{Runs: ledger.Runs(store.Rows)}
	known := facts{store: store, of: map[string]truth{}}
	for uid, panels := range panelTruths {
		panels = maps.Clone(panels)
		for _, title := range ofCaptures[uid] {
			require.Contains(t, panels, title)
			delete(panels, title)
		}
		whole := everything(documents(t)[uid])
		whole.from, whole.to = from, storetest.Day.Add(12*time.Hour+time.Minute)
		compare(t, known.about(t, "all", whole), uid, panels, "all", whole)
		uneven := whole
		uneven.from, uneven.to = from.Add(10*time.Hour+17*time.Millisecond), storetest.Day.Add(500*time.Minute)
		uneven = uneven.restricted(map[string][]string{"service": {"claims"}})
		const name = "a service in an uneven range"
		compare(t, known.about(t, name, uneven), uid, panels, name, uneven)
	}
}

// facts are what is known of selections, by their names: all dashboards share them.
type facts struct {
	store storetest.Store
	of    map[string]truth
}

// about asks the API and the ledger once for the filter of a selection.
func (f facts) about(t *testing.T, name string, selected selection) truth {
	t.Helper()
	if known, ok := f.of[name]; ok {
		return known
	}
	ctx, store := context.Background(), f.store
	asker := questions.New(store.Conn, questions.Limits{})
	known := truth{from: selected.from, filter: answer.Filter{Since: selected.from, Until: selected.to}, ledger: store.Ledger, store: store}
	for i := range store.Rows {
		known.events = append(known.events, signals.Events(&store.Rows[i])...)
	}
	length := selected.to.Sub(selected.from)
	if length > 6*time.Hour { // a long range begins with its first hour
		known.filter.Since = selected.from.Truncate(time.Hour)
		length = (length + time.Hour - 1).Truncate(time.Hour)
	}
	if services := selected.values["service"]; len(services) > 0 {
		known.filter.Service = services[0]
	}
	earlier := known.filter
	earlier.Since, earlier.Until = known.filter.Since.Add(-length), known.filter.Since
	var err error
	known.top, err = asker.Top(ctx, known.filter)
	require.NoError(t, err)
	known.before, err = asker.Top(ctx, earlier)
	require.NoError(t, err)
	known.runs, err = asker.Runs(ctx, answer.RunFilter{Filter: known.filter})
	require.NoError(t, err)
	known.transitions, err = schema.AlertTransitions(ctx, store.Conn, schema.AlertFilter{Until: selected.to})
	require.NoError(t, err)
	known.samples, err = schema.AlertSamples(ctx, store.Conn, schema.AlertFilter{Since: selected.from, Until: selected.to})
	require.NoError(t, err)
	known.status, err = asker.Status(ctx)
	require.NoError(t, err)
	f.of[name] = known
	return known
}

// compare asks what panels show of a selection, which must be what is known.
func compare(t *testing.T, known truth, uid string, panels map[string]panelTruth, name string, selected selection) {
	t.Helper()
	for title, want := range panels {
		t.Run(uid+"/"+title+"/"+name, func(t *testing.T) {
			t.Parallel()
			p := panelOf(t, uid, title)
			found, err := asked(t, known.store.Conn, selected.expanded(t, p.Targets[0].RawSQL, p.MaxDataPoints))
			require.NoError(t, err)
			require.Equal(t, want.rows(known), want.of(t, found))
		})
	}
}

// exactly is about panels that read no view of the ledger: their range begins where it was
// chosen.
func exactly(rows func(truth) shown) func(truth) shown {
	return func(k truth) shown {
		k.filter.Since = k.from
		return rows(k)
	}
}

// TestEveryPanelHasItsTruth, but for those listed here with the reason.
func TestEveryPanelHasItsTruth(t *testing.T) {
	t.Parallel()
	for uid, d := range documents(t) {
		for _, p := range d.all() {
			if _, ok := panelTruths[uid][p.Title]; !ok && p.Type != "text" {
				require.Contains(t, withoutTruth, uid+": "+p.Title, "no test compares its numbers")
			}
		}
	}
}

// operations calls f for each operation that counts.
func (k truth) operations(f func(attribution.Operation)) {
	for _, run := range k.ledger.Runs {
		if k.filter.Service != "" && run.Service != k.filter.Service {
			continue
		}
		for _, o := range run.Operations {
			if at := time.Unix(0, o.EndNs); o.CountsInStep && !at.Before(k.filter.Since) && at.Before(k.filter.Until) {
				f(o)
			}
		}
	}
}

// outcomeOf is the panels' name for an operation's outcome.
func outcomeOf(o attribution.Outcome) string {
	switch o {
	case attribution.OutcomeFirstTry:
		return "first try"
	case attribution.OutcomeAfterRetry:
		return "after retry"
	case attribution.OutcomeByFallback:
		return "by fallback"
	case attribution.OutcomeHandled:
		return "failed, handled"
	case attribution.OutcomeFailed, attribution.OutcomeFailedAfterRetry:
		return "failed"
	}
	return "undecided"
}

func zero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func layerCounts(r attribution.Retries) (counts [5]int) {
	for i, n := range layersOf(r) {
		counts[i] = zero(n)
	}
	return counts
}

// layersOf are the layers in order, nil where a layer is hidden.
func layersOf(r attribution.Retries) [5]*int {
	return [5]*int{r.Transport, r.Call, r.Node, r.Orchestrator, r.Worker}
}

// perOperation is retries ÷ operations of an answer, nil where there are no operations or
// every layer of every step is hidden.
func perOperation(top answer.Top) any {
	operations, shown := 0, false
	for _, s := range top.Steps {
		operations += s.Operations
		shown = shown || s.RetriesTotal != nil
	}
	if operations == 0 || !shown {
		return nil
	}
	return float64(top.RetriesTotal) / float64(operations)
}

// ofStep is retries ÷ operations of one step.
func ofStep(s answer.TopStep) any {
	return perOperation(answer.Top{RetriesTotal: zero(s.RetriesTotal), Steps: []answer.TopStep{s}})
}

// knownTokens are the wasted tokens of an answer, nil where no lost call states any.
func knownTokensOf(wasted attribution.Wasted) any {
	if wasted.Input+wasted.Output == 0 && wasted.UnknownCalls > 0 {
		return nil
	}
	return wasted.Input + wasted.Output
}

// points are the intervals of the range that a panel over time draws.
func (k truth) points(interval time.Duration) []answer.Filter {
	var list []answer.Filter
	for at := k.filter.Since.Truncate(interval); at.Before(k.filter.Until); at = at.Add(interval) {
		f := k.filter
		f.Since, f.Until = later(at, f.Since), earlier(at.Add(interval), f.Until)
		list = append(list, f)
	}
	return list
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pointInterval is the interval of a panel of 120 points, in hours for long ranges.
func (k truth) pointInterval() time.Duration {
	interval := selection{from: k.from, to: k.filter.Until}.interval(120)
	if k.filter.Until.Sub(k.from) > 6*time.Hour {
		interval = max(interval, time.Hour)
	}
	return interval
}

// retrying are the steps with retries, the most first.
func retrying(top answer.Top) []answer.TopStep {
	steps := slices.DeleteFunc(slices.Clone(top.Steps), func(s answer.TopStep) bool { return zero(s.RetriesTotal) == 0 })
	slices.SortStableFunc(steps, func(a, b answer.TopStep) int {
		return cmp.Or(cmp.Compare(zero(b.RetriesTotal), zero(a.RetriesTotal)), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Step, b.Step))
	})
	return steps
}

// layerMost is the layer with the most retries of a step, the innermost of equals.
func layerMost(r attribution.Retries) string {
	counts := layerCounts(r)
	best := 0
	for i, n := range counts {
		if n > counts[best] {
			best = i
		}
	}
	return layers[best].name
}
