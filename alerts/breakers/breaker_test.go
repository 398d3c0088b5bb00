package breakers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWhatOpensABreaker(t *testing.T) {
	for _, c := range []struct {
		requests, serverErrors, throttled int64
		want                              State
	}{
		{0, 0, 0, Closed},
		{1, 1, 0, Closed},
		{3, 3, 0, Closed},
		{19, 19, 0, Closed}, // one short of the minimum
		{20, 0, 0, Closed},
		{20, 3, 0, Closed}, // exactly at 15 %
		{20, 4, 0, Open},
		{20, 20, 0, Open},
		{20, 0, 20, Closed}, // throttled is not down
		{20, 3, 17, Closed},
		{1000, 150, 0, Closed},
		{1000, 151, 0, Open},
	} {
		b, transition := DefaultSettings().Next(newBreaker("openai", at(0)), at(1), Counts{c.requests, c.serverErrors, c.throttled})
		assert.Equal(t, c.want, b.State, "%+v", c)
		if c.want == Open {
			require.NotNil(t, transition)
			assert.Equal(t, Transition{"openai", Closed, Open, at(1), b.Why, b.Counts}, *transition)
			assert.Equal(t, at(11), b.RetryAt)
			assert.Contains(t, b.Why, fmt.Sprintf("%d of %d requests in 30s ended in a server error", c.serverErrors, c.requests))
			assert.Contains(t, b.Why, "%, above 15 %)")
		} else {
			assert.Nil(t, transition)
		}
	}
}

// What is above the threshold does not read as equal to it.
func TestWhyOfAShareCloseToTheThreshold(t *testing.T) {
	b, _ := DefaultSettings().Next(newBreaker("openai", at(0)), at(1), Counts{Requests: 153, ServerErrors: 23})
	assert.Equal(t, "23 of 153 requests in 30s ended in a server error (15.03 %, above 15 %).", b.Why)
}

// drive steps a breaker through counts, one second each.
func drive(b Breaker, second *int, counts ...Counts) Breaker {
	for _, c := range counts {
		*second++
		b, _ = DefaultSettings().Next(b, at(*second), c)
	}
	return b
}

func tripped(second *int) Breaker {
	return drive(newBreaker("openai", at(*second)), second, Counts{Requests: 100, ServerErrors: 50})
}

func TestOpenLastsForItsCooldown(t *testing.T) {
	second := 0
	b := tripped(&second)
	for range 9 {
		b = drive(b, &second, Counts{Requests: 1000, ServerErrors: 1000})
		require.Equal(t, Open, b.State, "what ends meanwhile does not matter")
	}
	b = drive(b, &second, Counts{Requests: 1000})
	assert.Equal(t, HalfOpen, b.State)
	assert.Equal(t, at(11), b.Since)
	assert.True(t, b.RetryAt.IsZero())

	late, _ := DefaultSettings().Next(tripped(new(int)), at(500), Counts{})
	assert.Equal(t, HalfOpen, late.State)
	assert.Equal(t, at(11), late.Since, "when it was promised, however late the evaluation is")
}

func halfOpen(second *int) Breaker {
	b := tripped(second)
	for b.State == Open {
		b = drive(b, second, Counts{})
	}
	return b
}

func TestHalfOpenIsDecidedByItsProbes(t *testing.T) {
	for _, c := range []struct {
		counts Counts
		want   State
	}{
		{Counts{}, HalfOpen},
		{Counts{Requests: 1}, HalfOpen}, // one success closes nothing
		{Counts{Requests: 4}, HalfOpen},
		{Counts{Requests: 5}, Closed},
		{Counts{Requests: 5, Throttled: 5}, Closed},
		{Counts{Requests: 1, ServerErrors: 1}, Open},
		{Counts{Requests: 5, ServerErrors: 1}, Open},
		{Counts{Requests: 7, ServerErrors: 1}, Closed}, // 14.3 %, of clients that asked nobody
		{Counts{Requests: 6, ServerErrors: 1}, Open},
		{Counts{Requests: 1000, ServerErrors: 150}, Closed},
		{Counts{Requests: 1000, ServerErrors: 151}, Open},
	} {
		second := 0
		b := drive(halfOpen(&second), &second, c.counts)
		assert.Equal(t, c.want, b.State, "%+v: %s", c.counts, b.Why)
	}
}

func TestTooLittleTrafficForAllProbes(t *testing.T) {
	second := 0
	b := halfOpen(&second)
	since := second
	for second < since+299 {
		b = drive(b, &second, Counts{Requests: 2})
		require.Equal(t, HalfOpen, b.State)
	}
	b = drive(b, &second, Counts{Requests: 2})
	assert.Equal(t, Closed, b.State)
	assert.Contains(t, b.Why, "too little traffic to wait for 5")
}

func TestAnOutageThatIsOverCountsNoMore(t *testing.T) {
	second := 0
	b := drive(halfOpen(&second), &second, Counts{Requests: 5})
	require.Equal(t, Closed, b.State)
	closed := at(second)
	assert.Equal(t, closed, DefaultSettings().countFrom(b, closed.Add(10*time.Second)), "not 30 s before, when the provider was down")
	assert.Equal(t, closed.Add(10*time.Second), DefaultSettings().countFrom(b, closed.Add(40*time.Second)))
}

func TestCooldownGrowsAndIsForgotten(t *testing.T) {
	settings := DefaultSettings()
	second := 0
	b := halfOpen(&second)
	var open []time.Duration
	for range 8 {
		b = drive(b, &second, Counts{Requests: 1, ServerErrors: 1})
		require.Equal(t, Open, b.State)
		open = append(open, b.RetryAt.Sub(b.Since)/time.Second)
		second = int(b.RetryAt.Sub(noon)/time.Second) - 1
		b = drive(b, &second, Counts{})
		require.Equal(t, HalfOpen, b.State)
	}
	assert.Equal(t, []time.Duration{20, 40, 80, 160, 300, 300, 300, 300}, open)
	assert.EqualValues(t, 9, b.Trips)

	recovered := func(closedFor int) time.Duration {
		second := second
		b := drive(b, &second, Counts{Requests: 5})
		require.Equal(t, Closed, b.State)
		for range closedFor {
			b = drive(b, &second, Counts{Requests: 100})
		}
		b = drive(b, &second, Counts{Requests: 100, ServerErrors: 100})
		require.Equal(t, Open, b.State)
		return b.RetryAt.Sub(b.Since)
	}
	assert.Equal(t, settings.CooldownMax, recovered(1))
	assert.Equal(t, settings.CooldownMax, recovered(298))
	assert.Equal(t, settings.CooldownMin, recovered(299), "closed for cooldown_max at the next evaluation")

	for streak := int64(1); streak < 200; streak++ {
		assert.LessOrEqual(t, settings.cooldown(streak), settings.CooldownMax)
		assert.GreaterOrEqual(t, settings.cooldown(streak), settings.CooldownMin)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	second := 0
	b := halfOpen(&second)
	for range 100 {
		b = drive(b, &second, Counts{Requests: 1, ServerErrors: 1})
		second = int(b.RetryAt.Sub(noon)/time.Second) - 1
		b = drive(b, &second, Counts{})
	}
	require.Len(t, b.History, historyLimit)
	for i, transition := range b.History[1:] {
		assert.Equal(t, b.History[i].To, transition.From)
		assert.False(t, transition.At.Before(b.History[i].At))
		assert.NotEmpty(t, transition.Why)
	}
	assert.EqualValues(t, 101, b.Trips, "which are counted on")
}

// TestField49HalfOpenIsBounded: whatever the requests, one success never closes a
// breaker that has opened, no more probes go at a time than are set, and a provider that
// stays down is tried more and more seldom.
func TestField49HalfOpenIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := DefaultSettings()
		b := newBreaker("openai", at(0))
		for second := 1; second <= 400; second++ {
			requests := rapid.Int64Range(0, 40).Draw(t, "requests")
			c := Counts{Requests: requests, ServerErrors: rapid.Int64Range(0, requests).Draw(t, "errors")}
			next, transition := settings.Next(b, at(second), c)
			if transition != nil && transition.From != Closed && transition.To == Closed {
				require.Equal(t, HalfOpen, transition.From, "never from open at once")
				require.True(t, c.Requests >= settings.Probes || second-int(b.Since.Sub(noon)/time.Second) >= 300)
			}
			b = next
		}
	})
	t.Run("a provider that stays down", func(t *testing.T) {
		s, r := newSet(t), &requests{}
		permits := 0
		for second := range 3600 {
			if second < 60 {
				r.add("openai", second, 5, 503)
			} else if s.Permit("openai", at(second)).Granted {
				permits++
				r.add("openai", second, 1, 503)
			}
			evaluate(t, s, r, second)
		}
		v := s.View("openai", at(3599))
		assert.LessOrEqual(t, v.Trips, int64(17), "10, 20, 40, 80, 160, then every 300 s")
		assert.LessOrEqual(t, permits, 17*2)
	})
	t.Run("probes at a time", func(t *testing.T) {
		s, r := newSet(t), &requests{}
		r.add("openai", 1, 100, 500)
		evaluate(t, s, r, 1)
		assert.False(t, s.Permit("openai", at(2)).Granted)
		evaluate(t, s, r, 11)
		granted := 0
		for range 1000 {
			if s.Permit("openai", at(12)).Granted {
				granted++
			}
		}
		assert.Equal(t, 5, granted)
		assert.EqualValues(t, 0, *s.View("openai", at(12)).ProbesAllowed)
		evaluate(t, s, r, 42)
		require.EqualValues(t, 5, *s.View("openai", at(42)).ProbesAllowed, "their lease is over: perhaps they never went")
		for range 5 {
			require.True(t, s.Permit("openai", at(42)).Granted)
		}
		r.add("openai", 43, 1, 503)
		evaluate(t, s, r, 43)
		require.Equal(t, at(63), *s.View("openai", at(43)).RetryAt)
		evaluate(t, s, r, 63)
		require.EqualValues(t, 5, *s.View("openai", at(63)).ProbesAllowed, "those that went before belong to the last time")
		r.add("openai", 64, 5, 200)
		evaluate(t, s, r, 64)
		v := s.View("openai", at(64))
		assert.Equal(t, Closed, v.State)
		assert.Nil(t, v.ProbesAllowed)
	})
}

// TestField50ThreeRequestsTripNothing: 15 % over 30 s of three requests says nothing,
// errors of the asker are no outage, and throttling is counted apart.
func TestField50ThreeRequestsTripNothing(t *testing.T) {
	s, r := newSet(t), &requests{}
	r.add("anthropic", 1, 3, 500)
	r.add("openai", 1, 100, 400)
	r.add("mistral", 1, 100, 429)
	r.add("bedrock", 1, 84, 200)
	r.add("bedrock", 1, 16, 529)
	transitions := evaluate(t, s, r, 1)
	require.Len(t, transitions, 1)
	assert.Equal(t, "bedrock", transitions[0].Provider)
	assert.Equal(t, Closed, s.View("anthropic", at(1)).State)
	assert.Equal(t, Closed, s.View("openai", at(1)).State)
	throttled := s.View("mistral", at(1))
	assert.Equal(t, Closed, throttled.State)
	assert.Equal(t, Counts{Requests: 100, Throttled: 100}, throttled.Counts)
	unknown := s.View("nobody", at(1))
	assert.Equal(t, Closed, unknown.State, "no data: requests go")
	assert.True(t, unknown.Stale)

	settings := DefaultSettings()
	settings.MinRequests = 3
	_, err := New(settings, "")
	require.ErrorContains(t, err, "three requests say nothing")
}

func TestSettingsSayWhatIsWrong(t *testing.T) {
	require.NoError(t, DefaultSettings().Validate())
	for want, change := range map[string]func(*Settings){
		"threshold: write a share":                       func(s *Settings) { s.Threshold = 15 },
		"threshold: write":                               func(s *Settings) { s.Threshold = 0 },
		"window: write whole seconds":                    func(s *Settings) { s.Window = 1500 * time.Millisecond },
		"window: write":                                  func(s *Settings) { s.Window = 31 * time.Minute },
		"cooldown_min: write whole":                      func(s *Settings) { s.CooldownMin = 0 },
		"cooldown_min: it must not be above":             func(s *Settings) { s.CooldownMin = 6 * time.Minute },
		"probes: write a number of requests from 1":      func(s *Settings) { s.Probes = 0 },
		"probes: write a number of requests from 1 to 1": func(s *Settings) { s.Probes = 1001 },
		"probe_lease: write":                             func(s *Settings) { s.ProbeLease = -time.Second },
		"half_open_max: write":                           func(s *Settings) { s.HalfOpenMax = 0 },
		"stale_after: write":                             func(s *Settings) { s.StaleAfter = 0 },
		"min_requests: write at least 4":                 func(s *Settings) { s.MinRequests = 3 },
	} {
		settings := DefaultSettings()
		change(&settings)
		require.ErrorContains(t, settings.Validate(), want)
	}
	require.ErrorContains(t, Settings{}.Validate(), "stale_after")
	require.ErrorContains(t, Settings{}.Validate(), "threshold", "all of it")
}
