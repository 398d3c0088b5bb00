package report

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

func migrated(t testing.TB) *enginetest.DB {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(context.Background(), db.Conn, schema.MigrateOptions{}))
	return db
}

func loaded(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	require.NoError(t, err)
	return set
}

// mixed differ in signal, window, settling, hold and groups.
const mixed = `
default_pack: false
rules:
  - {name: steps, signal: operation_error_ratio, threshold: 20 %, window: 2m, min_samples: 3, group_by: [service, step], for: 5s, keep_firing_for: 10s}
  - {name: patient, signal: operation_error_ratio, threshold: 10 %, window: 30s, min_samples: 1, settle: 40s, keep_firing_for: 15s}
  - {name: hour, signal: operation_error_ratio, threshold: 15 %, window: 1h, min_samples: 5, group_by: [service], keep_firing_for: 1m}
  - {name: providers, signal: server_error_ratio, threshold: 15 %, window: 30s, min_samples: 2, group_by: [provider], where: {provider: {not: ""}}, keep_firing_for: 10s}
  - {name: retries, signal: retry_ratio, threshold: 20 %, window: 1m, min_samples: 2, group_by: [service], keep_firing_for: 10s}
  - {name: stall, signal: evaluation_stalled, window: 30s}
`

// drawn are traces whose spans ended within some time before end, in bad and in good
// minutes; some run for longer than a chunk.
func drawn(random *rand.Rand, n int, end time.Time, within time.Duration) []schema.LedgerRow {
	rows := make([]schema.LedgerRow, n)
	for i := range rows {
		row := &rows[i]
		last := end.Add(-time.Duration(random.Int64N(int64(within))))
		long := time.Minute
		if random.IntN(10) == 0 {
			long = 3 * time.Hour
		}
		at := func() int64 {
			ns := last.UnixNano() - random.Int64N(int64(long))
			if random.IntN(4) == 0 {
				ns -= ns % int64(time.Second)
			}
			row.FirstEndNs = min(cmp.Or(row.FirstEndNs, ns), ns)
			row.LastEndNs = max(row.LastEndNs, ns)
			return ns
		}
		row.TraceID = schema.TraceID{byte(i), byte(i >> 8), 1}
		row.State, row.Spans = schema.StateAttributed, 10
		row.LastReceivedNs = end.Add(time.Minute).UnixNano()
		row.Version = schema.LedgerVersion{InsertedUs: row.LastReceivedNs / 1000, Spans: 10}
		row.Runs = []schema.RunRow{{RunID: fmt.Sprint("run-", i), Service: []string{"a", "b"}[random.IntN(2)], Completion: "complete", Anchor: true, EndNs: at()}}
		for range 1 + random.IntN(4) {
			ns := at()
			bad := time.Unix(0, ns).Minute()%7 < 2
			o := schema.OperationRow{Step: []string{"plan", "rank"}[random.IntN(2)], Grain: "execution", Outcome: "succeeded_first_try", CountsInStep: true, Settled: random.IntN(3) > 0, EndNs: ns}
			a := schema.AttemptRow{Step: o.Step, Grain: "call", Provider: []string{"", "openai"}[random.IntN(2)], Request: true, Ending: "succeeded", EndNs: ns}
			if bad && random.IntN(2) == 0 {
				o.Outcome = "failed_after_retry"
				a.Ending, a.HTTPStatus, a.Charge = "failed", 503, "call"
			}
			row.Operations, row.Attempts = append(row.Operations, o), append(row.Attempts, a)
		}
	}
	return rows
}

// plain reads windows by counting all events one by one; it knows no seconds, chunks
// and caches.
type plain []signals.Event

func (p plain) Window(_ context.Context, q signals.Query) ([]signals.Sample, error) {
	var samples []signals.Sample
	for _, e := range p {
		waits := e.Unsettled && e.AtNs+q.Settle() > q.ToNs
		if e.Signal != q.Signal || e.AtNs <= q.ToNs-q.WindowNs || e.AtNs > q.ToNs || waits {
			continue
		}
		if m := q.Where[signals.Provider]; m != nil && !m.Matches(e.Labels.Provider) {
			continue
		}
		var labels signals.Labels
		for _, d := range q.GroupBy {
			labels = labels.With(d, e.Labels.Get(d))
		}
		i, found := slices.BinarySearchFunc(samples, labels, func(s signals.Sample, l signals.Labels) int { return s.Labels.Compare(l) })
		if !found {
			samples = slices.Insert(samples, i, signals.Sample{Labels: labels})
		}
		samples[i].Numerator += e.Numerator
		samples[i].Denominator += e.Denominator
	}
	return samples, nil
}

// live is what an evaluator came to that looked every second.
func live(t *testing.T, set *rules.Set, rows []schema.LedgerRow, since, until time.Time) (incidents []Incident, highest map[string]float64) {
	t.Helper()
	var events plain
	for i := range rows {
		events = append(events, signals.Events(&rows[i])...)
	}
	slices.SortFunc(events, func(a, b signals.Event) int { return cmp.Compare(a.AtNs, b.AtNs) })
	evaluator := rules.NewEvaluator(set, events, rules.Options{})
	incidents, highest = []Incident{}, map[string]float64{}
	minimum := map[string]int64{}
	for _, r := range set.Rules() {
		minimum[r.Name] = r.MinSamples
	}
	for at := since.Add(time.Second); !at.After(until); at = at.Add(time.Second) {
		evaluation, err := evaluator.Eval(t.Context(), at)
		require.NoError(t, err)
		for _, s := range evaluation.Samples {
			if s.Denominator >= minimum[s.Rule] {
				highest[s.Rule] = max(highest[s.Rule], float64(s.Numerator)/float64(s.Denominator))
			}
		}
		for _, change := range evaluation.Transitions {
			switch {
			case change.To == rules.StateFiring:
				incidents = append(incidents, Incident{Rule: change.Rule, Group: change.Group, StartsAt: at, Numerator: change.Numerator, Denominator: change.Denominator})
			case change.From == rules.StateFiring:
				for i := range incidents {
					if incidents[i].Rule == change.Rule && incidents[i].Group == change.Group && incidents[i].EndsAt == nil {
						incidents[i].EndsAt = &at
					}
				}
			}
		}
	}
	slices.SortStableFunc(incidents, func(a, b Incident) int {
		return cmp.Or(a.StartsAt.Compare(b.StartsAt), cmp.Compare(a.Rule, b.Rule), a.Group.Compare(b.Group))
	})
	return incidents, highest
}

// A replay says what an evaluator would have said that looked every second and counted
// everything by itself: over random ledgers, whatever the size of the chunks, with
// traces in several chunks, over times shorter and longer than any window, with alerts
// that fire at the beginning.
func TestReplayIsWhatWouldHaveFired(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	set := loaded(t, mixed)
	end := time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour) // so that bad minutes are always the same
	seen := map[string]int{}
	for i, c := range []struct {
		traces         int
		within, period time.Duration
		limit          int
	}{
		{60, 10 * time.Minute, 10 * time.Minute, maxHistory},
		{300, 40 * time.Minute, 35 * time.Minute, 700},
		{400, 3 * time.Hour, 150 * time.Minute, maxHistory},
		{400, 3 * time.Hour, 130 * time.Minute, 1500},
		{5, time.Minute, 20 * time.Second, 20},
	} {
		require.NoError(t, db.Conn.Exec(t.Context(), "TRUNCATE TABLE ledger"))
		rows := drawn(rand.New(rand.NewPCG(7, uint64(i))), c.traces, end, c.within)
		// What an earlier version of a row said does not count.
		older := rows[0]
		older.Version.InsertedUs--
		older.Operations = slices.Repeat(older.Operations, 3)
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, []schema.LedgerRow{older}))
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
		since := end.Add(-c.period)
		want, highest := live(t, set, rows, since, end)
		got, err := replayOf(t.Context(), db.Conn, set, since.Add(300*time.Millisecond), end.Add(300*time.Millisecond), c.limit)
		require.NoError(t, err)
		require.Equal(t, int(c.period/time.Second), got.Evaluations)
		require.InDelta(t, 1, got.StepSeconds, 0)
		require.False(t, got.More)
		require.Equal(t, want, got.Incidents, "case %d", i)

		require.Len(t, got.Rules, 5, "the past knows no stalls")
		for _, r := range got.Rules {
			fired, all, longest := 0, time.Duration(0), time.Duration(0)
			for _, incident := range want {
				if incident.Rule != r.Rule {
					continue
				}
				until := end
				if incident.EndsAt != nil {
					until = *incident.EndsAt
				}
				fired++
				all += until.Sub(incident.StartsAt)
				longest = max(longest, until.Sub(incident.StartsAt))
				seen[r.Rule]++
				if incident.StartsAt.Equal(since.Add(time.Second)) {
					seen["at the beginning"]++
				}
				if incident.EndsAt == nil {
					seen["at the end"]++
				}
			}
			assert.Equal(t, fired, r.Fired, r.Rule)
			assert.InDelta(t, all.Seconds(), r.FiringSeconds, 1e-6)
			assert.InDelta(t, longest.Seconds(), r.LongestSeconds, 1e-6)
			if h, ok := highest[r.Rule]; ok {
				require.NotNil(t, r.HighestRatio, r.Rule)
				assert.InDelta(t, h, *r.HighestRatio, 1e-12, r.Rule)
			} else {
				assert.Nil(t, r.HighestRatio, r.Rule)
			}
		}
	}
	for _, what := range []string{"steps", "patient", "hour", "providers", "retries", "at the beginning", "at the end"} {
		assert.NotZero(t, seen[what], what)
	}
}

// All alerts are counted, and the first are listed: what is held is bounded.
func TestReplayListsTheFirstAlerts(t *testing.T) {
	t.Parallel()
	r := &replaying{replay: Replay{Rules: []ReplayedRule{{Rule: "x"}}}, byRule: map[string]int{"x": 0}, minSamples: []int64{1}, open: map[rules.Key]opened{}}
	at := time.Unix(1_800_000_000, 0).UTC()
	for i := range maxIncidents + 5 {
		change := rules.Transition{Rule: "x", Group: signals.Labels{Service: fmt.Sprint(i)}, At: at, StartsAt: at, From: rules.StateInactive, To: rules.StateFiring}
		r.take(rules.Evaluation{Transitions: []rules.Transition{change}})
		change.At, change.From, change.To = at.Add(10*time.Second), rules.StateFiring, rules.StateResolved
		if i != 3 && i != maxIncidents+4 { // which fire to the end
			r.take(rules.Evaluation{Transitions: []rules.Transition{change}})
		}
		at = at.Add(time.Minute)
	}
	out := r.end(at)
	require.Len(t, out.Incidents, maxIncidents)
	assert.True(t, out.More)
	assert.Equal(t, "999", out.Incidents[maxIncidents-1].Group.Service)
	assert.Nil(t, out.Incidents[3].EndsAt)
	assert.NotNil(t, out.Incidents[4].EndsAt)
	assert.Equal(t, maxIncidents+5, out.Rules[0].Fired)
	assert.InDelta(t, float64((maxIncidents+3)*10+(maxIncidents+2)*60+60), out.Rules[0].FiringSeconds, 1e-6)
}
