package alerter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

func evaluationOf(at time.Time, samples int) rules.Evaluation {
	e := rules.Evaluation{Instant: at, Samples: make([]rules.Sample, samples)}
	for i := range e.Samples {
		e.Samples[i] = rules.Sample{
			Rule: "step_errors", Signal: signals.OperationErrorRatio, Labels: signals.Labels{Service: "shop", Step: "resolve"}, Numerator: int64(i), Denominator: 1_000_000,
		}
	}
	return e
}

// What waits for the store is bounded, and what is given up is counted: the oldest.
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	a := archive{}
	a.add(evaluationOf(at, maxWaiting-1), rules.Default())
	assert.Zero(t, a.lost)
	a.add(evaluationOf(at.Add(time.Second), 3), rules.Default())
	assert.Equal(t, 2, a.lost)
	assert.Len(t, a.samples, maxWaiting)
	assert.EqualValues(t, 2, a.samples[0].Numerator)
	assert.Equal(t, at.Add(time.Second), a.samples[maxWaiting-1].Instant)
	assert.EqualValues(t, 120, a.samples[0].WindowS, "of the rule")
	assert.InDelta(t, 0.02, a.samples[0].Threshold, 0)
}

// Samples are written every few seconds, and at once where an alert changes.
func TestArchiveWritesNowAndThen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a := archive{writer: "test"}
	at := b.now().Truncate(time.Second)
	written := func() []int {
		rows, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{})
		require.NoError(t, err)
		seconds := []int{}
		for _, s := range rows {
			seconds = append(seconds, int(s.Instant.Sub(at)/time.Second))
		}
		return seconds
	}
	second := func(n int, changes ...rules.Transition) {
		e := evaluationOf(at.Add(time.Duration(n)*time.Second), 1)
		a.change(changes)
		a.add(e, rules.Default())
		require.NoError(t, a.keep(t.Context(), b.real, e.Instant))
		require.NoError(t, a.wait())
	}
	second(0)
	assert.Equal(t, []int{0}, written())
	for n := 1; n < 5; n++ {
		second(n)
	}
	assert.Equal(t, []int{0}, written())
	second(5)
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, written())
	second(6)
	second(7, rules.Transition{At: at.Add(7 * time.Second), Rule: "step_errors", To: rules.StateFiring})
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, written())
	assert.Len(t, b.transitions(), 1)
	second(4) // the clock was set back
	require.Empty(t, a.samples)
	a.add(evaluationOf(at.Add(8*time.Second), samplesAtOnce), rules.Default())
	require.NoError(t, a.keep(t.Context(), b.real, at.Add(8*time.Second)))
	assert.Empty(t, a.samples, "there are many")
	require.NoError(t, a.wait())
}

// What could not be written beside waits again, before what came meanwhile, and is
// written with the next.
func TestArchiveWritesAgainWhatFailedBeside(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a := archive{writer: "test"}
	at := b.now().Truncate(time.Second)
	second := func(n int) {
		a.add(evaluationOf(at.Add(time.Duration(n)*time.Second), 1), rules.Default())
	}
	second(0)
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE alert_samples TO hidden"))
	require.NoError(t, a.keep(t.Context(), b.real, at), "it is not waited for")
	second(1)
	require.Eventually(t, func() bool { return len(a.written) > 0 }, patienceOfTests, time.Millisecond)
	require.Error(t, a.keep(t.Context(), b.real, at.Add(time.Second)))
	require.Len(t, a.samples, 2)
	assert.Equal(t, at, a.samples[0].Instant)
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE hidden TO alert_samples"))
	require.NoError(t, a.keep(t.Context(), b.real, at.Add(2*time.Second)), "it is tried again without five seconds between")
	second(3)
	require.NoError(t, a.flush(t.Context(), b.real))
	assert.Zero(t, a.lost)
	samples, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{})
	require.NoError(t, err)
	assert.Len(t, samples, 3)
}

// After an error everything waits on, and stands once however often it is written.
func TestArchiveIsRetried(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a := archive{writer: "test"}
	e := evaluationOf(b.now().Truncate(time.Second), 1)
	e.Transitions = []rules.Transition{{
		At: e.Instant, Rule: "step_errors", Signal: signals.OperationErrorRatio, Group: signals.Labels{Service: "shop", Step: "resolve"},
		Labels: map[string]string{"alertname": "step_errors"}, From: rules.StateInactive, To: rules.StateFiring, Reason: rules.ReasonBreach,
		Since: e.Instant, StartsAt: e.Instant, Numerator: 3, Denominator: 100, Threshold: 20_000, Window: 2 * time.Minute, MinSamples: 50, Lasted: 1500 * time.Millisecond,
	}}
	a.change(e.Transitions)
	a.add(e, rules.Default())
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE alert_samples TO hidden"))
	require.Error(t, a.flush(t.Context(), b.real))
	a.change(e.Transitions)
	a.add(e, rules.Default()) // the transition is written, so it comes again
	require.Error(t, a.flush(t.Context(), b.real))
	assert.Len(t, a.samples, 2)
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE hidden TO alert_samples"))
	require.NoError(t, a.flush(t.Context(), b.real))
	assert.Empty(t, a.samples)
	samples, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{})
	require.NoError(t, err)
	assert.Len(t, samples, 1)
	assert.Len(t, b.transitions(), 1)

	// What is kept is what was.
	kept, err := new(archive).state(t.Context(), b.real)
	require.NoError(t, err)
	assert.Equal(t, rules.SnapshotOf(e.Instant, e.Transitions), kept)
}

func TestStateOfAnEmptyStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s, err := new(archive).state(t.Context(), b.real)
	require.NoError(t, err)
	assert.Empty(t, s.Alerts)
	assert.True(t, s.Instant.IsZero())
}
