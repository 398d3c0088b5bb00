package rules_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

const stalls = `
default_pack: false
rules:
  - {name: r, signal: operation_error_ratio, threshold: 2 %, window: 2m, min_samples: 50, keep_firing_for: 1m}
  - {name: stalled, signal: evaluation_stalled, window: 30s, keep_firing_for: 10s}
  - {name: behind, signal: ingest_stalled, window: 1m, keep_firing_for: 10s}
`

// at evaluates at a second that may be any.
func (b *bench) at(n int) (rules.Evaluation, error) {
	b.now = n
	out, err := b.Eval(b.t.Context(), second(n))
	b.notice(out)
	return out, err
}

// TestClockStepsBack: no instant is evaluated twice, alerts that fire are held, and an
// hour without evaluations is a stall by any clock.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.say(3, 100)
	for range 100 {
		b.next()
	}
	reads := b.reader.reads
	for n := 50; n < 100; n++ { // the clock went back by 50 s
		out, err := b.at(n)
		require.ErrorIs(t, err, rules.ErrInstantPassed)
		require.Empty(t, out.Samples)
		require.Equal(t, reads, b.reader.reads, "nothing is read")
		require.NotEmpty(t, out.Alerts)
		require.Equal(t, "r", out.Alerts[0].Rule)
		require.True(t, out.Alerts[0].EndsAt.After(second(99)))
	}
	assert.Equal(t, []string{"0 r fires", "81 stalled fires"}, b.notices, "31 s after the step")
	b.reader.say(0, 100)
	for n := 100; n <= 200; n++ {
		_, err := b.at(n)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"0 r fires", "81 stalled fires", "111 stalled resolved", "160 r resolved"}, b.notices)
}

// TestSameSecondTwice: a ticker that comes early is refused without any harm.
func TestSameSecondTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.say(3, 100)
	for range 120 {
		b.next()
		before := b.Snapshot()
		out, err := b.Eval(t.Context(), second(b.now).Add(900*time.Millisecond))
		require.ErrorIs(t, err, rules.ErrInstantPassed)
		require.Len(t, out.Alerts, 1)
		require.Equal(t, before, b.Snapshot())
	}
	assert.Equal(t, []string{"0 r fires"}, b.notices)
}

// TestPauseOfTheProcess: nothing happened for five minutes, not even a failed
// evaluation. What fired fires on, the pause counts towards no `for` and no hold, and it
// alerts by itself.
func TestPauseOfTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.say(3, 100)
	for range 10 {
		b.next()
	}
	b.reader.say(0, 100)
	for range 50 { // 50 s of the hold of 60
		b.next()
	}
	out, err := b.at(360)
	require.NoError(t, err)
	require.Equal(t, 301*time.Second, out.Stalled)
	require.Len(t, out.Transitions, 1)
	assert.Equal(t, "stalled", out.Transitions[0].Rule)
	assert.Equal(t, 301*time.Second, out.Transitions[0].Lasted)
	require.Len(t, out.Alerts, 2)
	assert.Equal(t, "stalled: 5m1s", out.Alerts[1].Annotations(rules.Explanation{})["summary"])
	_, ok := out.Alerts[1].Query()
	assert.False(t, ok, "a stall has no query")
	for n := 361; n <= 430; n++ {
		_, err := b.at(n)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"0 r fires", "360 stalled fires", "371 stalled resolved", "420 r resolved"}, b.notices)

	pending := newBench(t, hold)
	pending.reader.say(3, 100)
	_, err = pending.at(0)
	require.NoError(t, err)
	for n, want := range map[int]rules.State{60: rules.StatePending} {
		_, err = pending.at(n)
		require.NoError(t, err)
		assert.Equal(t, want, pending.Snapshot().Alerts[0].State)
		assert.Equal(t, second(n), pending.Snapshot().Alerts[0].Since, "`for` starts over")
	}
	for n := 61; n <= 65; n++ {
		_, err = pending.at(n)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"65 r fires"}, pending.notices)
}

// TestStoreIsAway: failing evaluations are a stall, which alerts while it lasts.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.err = errors.New("away")
	for n := range 60 {
		_, err := b.at(n)
		require.Error(t, err)
	}
	assert.Equal(t, []string{"31 stalled fires"}, b.notices, "from the first evaluation on")
	b.reader.err = nil
	for n := 60; n < 80; n++ {
		_, err := b.at(n)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"31 stalled fires", "71 stalled resolved"}, b.notices)
}

// TestLedgerIsBehind: it alerts, and what is missing meanwhile may only be late.
func TestLedgerIsBehind(t *testing.T) {
	t.Parallel()
	var lag time.Duration
	var failure error
	reader := &told{}
	b := &bench{t: t, reader: reader, now: -1, fires: map[string]bool{}, Evaluator: rules.NewEvaluator(load(t, stalls), reader, rules.Options{
		Lag: func(context.Context) (time.Duration, error) { return lag, failure },
	})}
	reader.say(3, 100)
	b.next()
	reader.say(0, 0)
	for n := 1; n <= 300; n++ {
		lag = time.Duration(n) * time.Second
		b.next()
	}
	assert.Equal(t, []string{"0 r fires", "61 behind fires"}, b.notices, "the hold is a minute, and does not begin")
	lag = 0
	for range 70 {
		b.next()
	}
	assert.Equal(t, []string{"0 r fires", "61 behind fires", "311 behind resolved", "360 r resolved"}, b.notices)
	failure = errors.New("away")
	_, err := b.at(b.now + 1)
	require.ErrorIs(t, err, failure)
}

// TestBacklogOfAStart: what has piled up before evaluations begin is no stall while it goes
// down, for ten windows; where it does not, it is one after a window.
func TestBacklogOfAStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lag  func(n int) int // seconds, by the second
		want []string
	}{
		"goes down":        {func(n int) int { return max(0, 900-3*n) }, nil},
		"stands still":     {func(int) int { return 900 }, []string{"60 behind fires"}},
		"grows":            {func(n int) int { return 900 + n }, []string{"60 behind fires"}},
		"stops going down": {func(n int) int { return max(600, 900-3*n) }, []string{"160 behind fires"}},
		"takes too long":   {func(n int) int { return 2000 - n }, []string{"600 behind fires"}},
		"grows after it":   {func(n int) int { return max(120-3*n, n-100) }, []string{"161 behind fires"}},
		"comes in strides": {func(n int) int {
			if n < 58 {
				return 41 + n
			}
			return 0
		}, nil},
		"a short one that stands": {func(n int) int { return 41 + n }, []string{"60 behind fires"}},
		"after a short one":       {func(n int) int { return max(50-n, n-100) }, []string{"161 behind fires"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lag := 0
			reader := &told{}
			reader.say(0, 100)
			b := &bench{t: t, reader: reader, now: -1, fires: map[string]bool{}, Evaluator: rules.NewEvaluator(load(t, stalls), reader, rules.Options{
				Lag: func(context.Context) (time.Duration, error) { return time.Duration(lag) * time.Second, nil },
			})}
			for n := range 650 {
				lag = c.lag(n)
				b.next()
			}
			assert.Equal(t, c.want, b.notices)
		})
	}
}

// TestStallOutlivesARestart: an alert that fires is not given the time of a backlog.
func TestStallOutlivesARestart(t *testing.T) {
	t.Parallel()
	lag := 900
	evaluator := func() *rules.Evaluator {
		reader := &told{}
		reader.say(0, 100)
		return rules.NewEvaluator(load(t, stalls), reader, rules.Options{Lag: func(context.Context) (time.Duration, error) { return time.Duration(lag) * time.Second, nil }})
	}
	b := &bench{t: t, now: -1, fires: map[string]bool{}, Evaluator: evaluator()}
	for range 100 {
		b.next()
	}
	assert.Equal(t, []string{"60 behind fires"}, b.notices)
	restarted := evaluator()
	require.NoError(t, restarted.Restore(b.Snapshot()))
	b.Evaluator = restarted
	for range 200 {
		lag--
		b.next()
	}
	assert.Len(t, b.notices, 1)
}

// TestLateDataChangeTheNextEvaluation and nothing that was said before.
func TestLateDataChangeTheNextEvaluation(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls)
	b.reader.say(2, 100)
	first := b.next()
	b.reader.say(3, 101)
	out := b.next()
	assert.Equal(t, int64(2), first.Samples[0].Numerator)
	require.Len(t, out.Alerts, 1)
	assert.Equal(t, second(1), out.Alerts[0].StartsAt, "now, not when the spans ended")
}

// TestOneRuleCannotBeRead: it alone is held and stalls; the others go on.
func TestOneRuleCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBench(t, stalls+"  - {name: other, signal: fallback_ratio, threshold: 2 %, window: 2m, min_samples: 50, keep_firing_for: 10s}\n")
	say := func(failed int64) {
		sample := []signals.Sample{{Numerator: failed, Denominator: 100}}
		b.reader.samples = map[signals.Signal][]signals.Sample{signals.OperationErrorRatio: sample, signals.FallbackRatio: sample}
	}
	say(3)
	_, err := b.at(0)
	require.NoError(t, err)
	say(0)
	b.reader.errOf = map[signals.Signal]error{signals.OperationErrorRatio: errors.New("no room")}
	for n := 1; n <= 100; n++ {
		out, err := b.at(n)
		require.ErrorContains(t, err, "read the operation_error_ratio of the rule r: no room")
		require.Len(t, out.Samples, 1)
		require.Equal(t, time.Duration(n)*time.Second, out.Stalled)
	}
	assert.Equal(t, []string{"0 r fires", "0 other fires", "11 other resolved", "31 stalled fires"}, b.notices)
	b.reader.errOf = nil
	for n := 101; n <= 200; n++ {
		_, err := b.at(n)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"111 stalled resolved", "161 r resolved"}, b.notices[4:], "its hold begins when it can be read again")
}
