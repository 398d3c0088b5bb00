package rules_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// rule is a file of one rule with other values than hold has.
func rule(replace ...string) string { return strings.NewReplacer(replace...).Replace(hold) }

// firing is a bench whose only alert fires since second 5, and is at second 10.
func firing(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, hold)
	script(t, b, "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "5× 3/100 firing")
	return b
}

func TestReloadKeepsStateOfWhatDidNotChange(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"same":        hold,
		"other rules": hold + "  - {name: q, signal: retry_ratio, threshold: 2 %, window: 2m}\n",
		"threshold":   rule("2 %", "1 %"),
		"window":      rule("2m", "3m"),
		"for":         rule("for: 5s", "for: 1h"),
		"annotations": rule("for: 5s", "annotations: {summary: x}, for: 5s"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := firing(t)
			b.Reload(load(t, file))
			out := b.next()
			assert.Empty(t, out.Transitions)
			require.Len(t, out.Alerts, 1)
			assert.Equal(t, second(5), out.Alerts[0].StartsAt)
		})
	}
}

// TestReloadOfAThreshold: the alert is judged by the new one, through the hold.
func TestReloadOfAThreshold(t *testing.T) {
	t.Parallel()
	b := firing(t)
	b.Reload(load(t, rule("2 %", "3 %")))
	script(t, b, "10× 3/100 firing", "1× 3/100 resolved recovered")
	b.Reload(load(t, rule("2 %", "1 %", "for: 5s", "for: 0s")))
	script(t, b, "1× 2/100 firing breach")

	pending := newBench(t, hold)
	script(t, pending, "1× 3/100 pending breach", "2× 3/100 pending")
	pending.Reload(load(t, rule("for: 5s", "for: 3s")))
	script(t, pending, "1× 3/100 firing breach")
}

func TestReloadResolvesWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file   string
		reason rules.Reason
	}{
		"removed":  {"default_pack: false", rules.ReasonRemoved},
		"disabled": {rule("for: 5s", "enabled: false"), rules.ReasonRemoved},
		"renamed":  {rule("name: r", "name: q"), rules.ReasonRemoved},
		"signal":   {rule("operation_error_ratio", "fallback_ratio"), rules.ReasonChanged},
		"groups":   {rule("for: 5s", "for: 5s, group_by: [service]"), rules.ReasonChanged},
		"filter":   {rule("for: 5s", "for: 5s, where: {service: a}"), rules.ReasonChanged},
		"labels":   {rule("for: 5s", "for: 5s, labels: {severity: page}"), rules.ReasonChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := firing(t)
			b.Reload(load(t, c.file))
			b.reader.say(0, 0)
			out := b.next()
			require.Len(t, out.Transitions, 1)
			assert.Equal(t, c.reason, out.Transitions[0].Reason)
			assert.Equal(t, rules.StateResolved, out.Transitions[0].To)
			assert.Equal(t, map[string]string{"alertname": "r"}, out.Transitions[0].Labels, "the old ones")
			require.Len(t, out.Alerts, 1)
			assert.Equal(t, second(11), out.Alerts[0].EndsAt)
			for range 899 {
				out = b.next()
				require.Empty(t, out.Transitions)
				require.Len(t, out.Alerts, 1, "told for a quarter of an hour")
			}
			assert.Empty(t, b.next().Alerts)
			assert.Empty(t, b.Snapshot().Alerts, "and forgotten")
		})
	}
}

// TestReloadWithOtherLabels: the old alert resolves, the new one begins at once.
func TestReloadWithOtherLabels(t *testing.T) {
	t.Parallel()
	b := firing(t)
	b.Reload(load(t, rule("for: 5s", "for: 0s, labels: {severity: page}")))
	out := b.next()
	require.Len(t, out.Alerts, 2)
	assert.Equal(t, rules.StateResolved, out.Alerts[0].State)
	assert.Empty(t, out.Alerts[0].Labels["severity"])
	assert.Equal(t, rules.StateFiring, out.Alerts[1].State)
	assert.Equal(t, "page", out.Alerts[1].Labels["severity"])

	// With the same labels there is one alert for Alertmanager: it is not told as over
	// and as firing at once.
	same := firing(t)
	same.Reload(load(t, rule("for: 5s", "for: 0s, where: {service: a}")))
	out = same.next()
	require.Len(t, out.Transitions, 2)
	require.Len(t, out.Alerts, 1)
	assert.Equal(t, rules.StateFiring, out.Alerts[0].State)
	assert.Equal(t, second(11), out.Alerts[0].StartsAt)
}

// TestReloadWaitsForData: rules do not change under an evaluation that fails.
func TestReloadWaitsForData(t *testing.T) {
	t.Parallel()
	b := firing(t)
	b.Reload(load(t, "default_pack: false"))
	b.reader.err = assert.AnError
	out, err := b.at(11)
	_ = err // of the reader, or none: there is nothing to read any more
	require.Len(t, out.Transitions, 1)
	assert.Equal(t, rules.ReasonRemoved, out.Transitions[0].Reason)

	b = firing(t)
	b.Reload(load(t, rule("name: r", "name: q")))
	b.reader.err = assert.AnError
	out, err = b.at(11)
	require.Error(t, err)
	assert.Empty(t, out.Transitions)
	require.Len(t, out.Alerts, 1)
	assert.Equal(t, "r", out.Alerts[0].Rule)
}

// restarted is an evaluator in a new process, with the state carried as JSON.
func restarted(t require.TestingT, set *rules.Set, reader signals.Reader, s rules.Snapshot) *rules.Evaluator {
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var carried rules.Snapshot
	require.NoError(t, json.Unmarshal(text, &carried))
	e := rules.NewEvaluator(set, reader, rules.Options{})
	require.NoError(t, e.Restore(carried))
	return e
}

// TestRestartChangesNothing: at any second of any course, an evaluator that restores
// the snapshot goes on as the one that made it; two over the same data agree.
func TestRestartChangesNothing(t *testing.T) {
	t.Parallel()
	set := load(t, hold+`  - {name: q, signal: fallback_ratio, threshold: 10 %, window: 30s, min_samples: 10, keep_firing_for: 10s, group_by: [service, step], where: {version: {not: ""}}, labels: {severity: page}}
  - {name: stalled, signal: evaluation_stalled, window: 3s, keep_firing_for: 10s}
`)
	rapid.Check(t, func(t *rapid.T) {
		reader := &told{samples: map[signals.Signal][]signals.Sample{}}
		one, other := rules.NewEvaluator(set, reader, rules.Options{}), rules.NewEvaluator(set, reader, rules.Options{})
		now, fresh := 0, false
		for range rapid.IntRange(1, 60).Draw(t, "evaluations") {
			reader.samples[signals.OperationErrorRatio] = nil
			if total := rapid.SampledFrom([]int64{0, 49, 100, 100, 100}).Draw(t, "total"); total > 0 {
				reader.samples[signals.OperationErrorRatio] = []signals.Sample{{Numerator: rapid.Int64Range(0, 5).Draw(t, "failed"), Denominator: total}}
			}
			var groups []signals.Sample
			for _, step := range []string{"", "rank", "resolve"} {
				if rapid.Bool().Draw(t, "there") {
					groups = append(groups, signals.Sample{Labels: signals.Labels{Service: "a", Step: step}, Numerator: rapid.Int64Range(0, 3).Draw(t, "failed"), Denominator: 10})
				}
			}
			reader.samples[signals.FallbackRatio] = groups
			now += rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 5, 30}).Draw(t, "step")
			fresh = fresh || rapid.IntRange(0, 3).Draw(t, "restart") == 0
			if fresh {
				other = restarted(t, set, reader, one.Snapshot())
			}
			want, err := one.Eval(t.Context(), second(now))
			require.NoError(t, err)
			got, err := other.Eval(t.Context(), second(now))
			require.NoError(t, err)
			if fresh && want.Stalled > 3*time.Second { // only who lives through it tells a stall
				continue
			}
			fresh = false
			want.Stalled, got.Stalled = 0, 0
			require.Equal(t, plain(want), plain(got))
			require.Equal(t, one.Snapshot(), other.Snapshot())
		}
	})
}

// plain is an evaluation without what only tells where its alerts come from.
func plain(out rules.Evaluation) string {
	text, _ := json.Marshal(out)
	for i := range out.Alerts {
		more, _ := json.Marshal(out.Alerts[i].Annotations(rules.Explanation{}))
		text = append(text, more...)
	}
	return string(text)
}

// TestRestartFromTransitions: the history alone is enough to neither resolve nor repeat.
func TestRestartFromTransitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, hold)
	var history []rules.Transition
	for i := range 40 {
		b.reader.say(3, 100)
		if i > 20 && i < 32 {
			b.reader.say(0, 100)
		}
		history = append(history, b.next().Transitions...)
	}
	require.Len(t, history, 5, "pending, firing, resolved, pending, firing")
	for i := range history { // they come back in no order
		history[i], history[len(history)-1-i] = history[len(history)-1-i], history[i]
		if i >= len(history)/2 {
			break
		}
	}
	e := restarted(t, load(t, hold), b.reader, rules.SnapshotOf(second(39), history))
	b.reader.say(0, 0)
	for n := 40; n < 50; n++ {
		out, err := e.Eval(t.Context(), second(n))
		require.NoError(t, err)
		require.Empty(t, out.Transitions)
		require.Len(t, out.Alerts, 1)
		require.Equal(t, second(37), out.Alerts[0].StartsAt, "the one it had")
	}
	out, err := e.Eval(t.Context(), second(50))
	require.NoError(t, err)
	require.Len(t, out.Transitions, 1)
	assert.Equal(t, rules.ReasonNoData, out.Transitions[0].Reason)
}

// TestRestartWithOtherRules: what is gone resolves with the labels it had.
func TestRestartWithOtherRules(t *testing.T) {
	t.Parallel()
	b := firing(t)
	e := restarted(t, load(t, "default_pack: false"), b.reader, b.Snapshot())
	out, err := e.Eval(t.Context(), second(11))
	require.NoError(t, err)
	require.Len(t, out.Transitions, 1)
	assert.Equal(t, rules.ReasonRemoved, out.Transitions[0].Reason)
	require.Len(t, out.Alerts, 1)
	assert.Equal(t, map[string]string{"alertname": "r"}, out.Alerts[0].Labels)
	assert.Equal(t, "r: 3 of 100 (3 %) within 2m, the limit is 2 %", out.Alerts[0].Annotations(rules.Explanation{})["summary"])
	again := restarted(t, load(t, "default_pack: false"), b.reader, e.Snapshot())
	out, err = again.Eval(t.Context(), second(12))
	require.NoError(t, err)
	assert.Empty(t, out.Transitions)
	require.Len(t, out.Alerts, 1, "still told")
}

// TestRestartEvaluatesNothingTwice, and is a gap but no stall.
func TestRestartEvaluatesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.say(3, 100)
	for range 10 {
		b.next()
	}
	e := restarted(t, load(t, stalls), b.reader, b.Snapshot())
	_, err := e.Eval(t.Context(), second(9))
	require.ErrorIs(t, err, rules.ErrInstantPassed)
	e = restarted(t, load(t, stalls), b.reader, b.Snapshot())
	b.reader.say(0, 0)
	out, err := e.Eval(t.Context(), second(3600))
	require.NoError(t, err)
	assert.Empty(t, out.Transitions, "an hour of nothing neither resolves nor stalls")
	require.Len(t, out.Alerts, 1)
	require.Error(t, e.Restore(b.Snapshot()), "too late")
}

func TestRestoreRefusesWhatIsNoState(t *testing.T) {
	t.Parallel()
	for _, s := range []rules.AlertState{
		{Rule: "r", State: "odd"},
		{Rule: "r", State: rules.StatePending},
		{Rule: "r", State: rules.StateFiring},
		{Rule: "r", State: rules.StateResolved, StartsAt: second(1)},
	} {
		e := rules.NewEvaluator(load(t, hold), &told{}, rules.Options{})
		require.ErrorContains(t, e.Restore(rules.Snapshot{Instant: second(1), Alerts: []rules.AlertState{s}}), "restore the alert of r")
		assert.Empty(t, e.Snapshot().Alerts)
	}
}
