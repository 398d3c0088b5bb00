package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// What users of other systems were bitten by, as far as rules decide it.

// pack is a bench on the default pack in which one signal of one group has numbers.
func pack(t *testing.T) (b *bench, say func(signal signals.Signal, labels signals.Labels, failed, total int64)) {
	t.Helper()
	b = newBench(t, "{}")
	return b, func(signal signals.Signal, labels signals.Labels, failed, total int64) {
		b.reader.samples = map[signals.Signal][]signals.Sample{}
		if total > 0 {
			b.reader.samples[signal] = []signals.Sample{{Labels: labels, Numerator: failed, Denominator: total}}
		}
	}
}

// TestField44NothingOfNothing: 0 of 0, 1 of 1, 1 of 49 at 2 % have a defined outcome.
func TestField44NothingOfNothing(t *testing.T) {
	t.Parallel()
	group := signals.Labels{Service: "a", Step: "s"}
	for _, c := range []struct {
		failed, total int64
		fires         bool
	}{{0, 0, false}, {1, 1, false}, {1, 49, false}, {49, 49, false}, {1, 50, false}, {2, 50, true}, {2, 99, true}, {2, 100, false}} {
		b, say := pack(t)
		say(signals.FallbackRatio, group, c.failed, c.total)
		out := b.next()
		assert.Equal(t, c.fires, len(out.Alerts) == 1, "%d of %d", c.failed, c.total)
		for range 10 { // nor does it fire by itself later
			assert.Empty(t, b.next().Transitions)
		}
	}
}

// TestField45PauseShorterThanTheMargin: a pause of evaluations does not let alerts expire,
// and a hold too short to be meant is refused.
func TestField45PauseShorterThanTheMargin(t *testing.T) {
	t.Parallel()
	b, say := pack(t)
	say(signals.FallbackRatio, signals.Labels{Service: "a", Step: "s"}, 9, 100)
	out := b.next()
	require.Len(t, out.Alerts, 1)
	assert.Equal(t, second(0).Add(15*time.Minute), out.Alerts[0].EndsAt)
	out, err := b.at(14*60 + 59)
	require.NoError(t, err)
	assert.Equal(t, second(0), out.Alerts[0].StartsAt)
	assert.NotContains(t, b.notices, "fallbacks resolved")
	_, err = rules.Load("r.yaml", []byte("rules: [{name: fallbacks, keep_firing_for: 1s}]"))
	require.ErrorContains(t, err, "whole seconds from 10s")
}

// TestField46Oscillation: a value that oscillates around 2 % for ten minutes is one
// notification, and one more when it is over.
func TestField46Oscillation(t *testing.T) {
	t.Parallel()
	b, say := pack(t)
	for i := range 1200 {
		failed := int64(2)
		if i < 600 && i%13 < 6 {
			failed = 3
		}
		say(signals.FallbackRatio, signals.Labels{Service: "a", Step: "s"}, failed, 100)
		b.next()
	}
	require.Len(t, b.notices, 2)
	assert.Equal(t, "0 fallbacks fires", b.notices[0])
	assert.Equal(t, "720 fallbacks resolved", b.notices[1], "the last breach is at 599")
}

// TestField47StartsAtIsOursAndMonotonic: it is the instant of the evaluation, whatever
// the spans' times, never moves while the alert fires, and is later the next time.
func TestField47StartsAtIsOursAndMonotonic(t *testing.T) {
	t.Parallel()
	b, say := pack(t)
	var last time.Time
	var starts []time.Time
	for i := range 2000 {
		failed := int64(0)
		if i%500 < 100 {
			failed = 9
		}
		say(signals.FallbackRatio, signals.Labels{Service: "a", Step: "s"}, failed, 100)
		for _, a := range b.next().Alerts {
			require.False(t, a.StartsAt.Before(last), "it moved back")
			require.False(t, a.StartsAt.After(second(b.now)))
			if a.StartsAt.After(last) {
				require.Equal(t, second(b.now), a.StartsAt, "it begins now")
				starts = append(starts, a.StartsAt)
			}
			last = a.StartsAt
		}
	}
	assert.Equal(t, []time.Time{second(0), second(500), second(1000), second(1500)}, starts)
}

// TestField50BreakerNeedsRequests: 15 % over 30 s with three requests does not trip, and
// what the provider refuses for its rate is not its failure.
func TestField50BreakerNeedsRequests(t *testing.T) {
	t.Parallel()
	provider := signals.Labels{Provider: "openai"}
	for _, c := range []struct {
		signal        signals.Signal
		failed, total int64
		trips         bool
	}{
		{signals.ServerErrorRatio, 3, 3, false},
		{signals.ServerErrorRatio, 19, 19, false},
		{signals.ServerErrorRatio, 3, 20, false},
		{signals.ServerErrorRatio, 4, 20, true},
		{signals.ThrottledRatio, 100, 100, false},
	} {
		b, say := pack(t)
		say(c.signal, provider, c.failed, c.total)
		out := b.next()
		require.Equal(t, c.trips, len(out.Alerts) == 1, "%s %d of %d", c.signal, c.failed, c.total)
		if c.trips {
			assert.Equal(t, "breaker", out.Alerts[0].Labels["severity"])
			assert.Equal(t, "openai", out.Alerts[0].Labels["provider"])
		}
	}
}

// TestField51TransitionsAreCounted: how often it opened is in the transitions.
func TestField51TransitionsAreCounted(t *testing.T) {
	t.Parallel()
	b, say := pack(t)
	opened := 0
	for i := range 600 {
		failed := int64(0)
		if i%200 < 20 {
			failed = 10
		}
		say(signals.ServerErrorRatio, signals.Labels{Provider: "openai"}, failed, 20)
		for _, tr := range b.next().Transitions {
			if tr.To == rules.StateFiring {
				opened++
				assert.Equal(t, int64(10), tr.Numerator)
				assert.Equal(t, int64(20), tr.Denominator)
			}
		}
	}
	assert.Equal(t, 3, opened)
}

// TestField52DataThatComesLate: while the source is behind, what is missing resolves
// nothing, and once it has caught up the next evaluation sees it.
func TestField52DataThatComesLate(t *testing.T) {
	t.Parallel()
	b, say := pack(t)
	group := signals.Labels{Service: "a", Step: "s"}
	say(signals.FallbackRatio, group, 9, 100)
	b.next()
	say(signals.FallbackRatio, group, 0, 0)
	for range 119 { // shorter than the hold
		require.Len(t, b.next().Alerts, 1)
	}
	say(signals.FallbackRatio, group, 9, 100) // the spans of those two minutes
	for range 119 {
		out := b.next()
		require.Empty(t, out.Transitions)
		require.Equal(t, second(0), out.Alerts[0].StartsAt)
	}
	assert.Equal(t, []string{"0 fallbacks fires"}, b.notices)
}
