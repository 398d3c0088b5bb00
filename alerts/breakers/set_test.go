package breakers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/signals"
)

// drawTraffic is traffic of two providers with outages, some of it idle.
func drawTraffic(t *rapid.T, seconds int) *requests {
	r := &requests{}
	for _, provider := range []string{"anthropic", "openai"} {
		for second := 0; second < seconds; {
			length := rapid.IntRange(1, 60).Draw(t, "length")
			perSecond := rapid.IntRange(0, 8).Draw(t, "requests per second")
			failing := rapid.IntRange(0, 4).Draw(t, "failing of 8")
			for range length {
				for i := range perSecond {
					status := 200
					if (second*perSecond+i*5)%8 < failing {
						status = 503
					} else if (second+i)%11 == 0 {
						status = 429
					}
					r.add(provider, second, 1, status)
				}
				second++
			}
		}
	}
	return r
}

// oracle is what a provider's breaker must be at each second, from each of its requests,
// by the rules as docs/breakers.md words them.
func oracle(r *requests, provider string, seconds int) []string {
	type result struct {
		second int
		failed bool
	}
	var ended []result
	for _, one := range r.all {
		if one.provider == provider {
			ended = append(ended, result{one.second, one.status >= 500 && one.status <= 599})
		}
	}
	tally := func(after, until int) (n, failed int) {
		for _, e := range ended {
			if e.second > after && e.second <= until {
				n++
				if e.failed {
					failed++
				}
			}
		}
		return n, failed
	}
	states := make([]string, seconds)
	state, since, retry, cooldown, forget := "closed", -1000, 0, 10, -1000
	for now := 1; now < seconds; now++ {
		open := func() {
			state, since, retry = "open", now, now+cooldown
			cooldown = min(300, cooldown*2)
		}
		switch state {
		case "closed":
			if now-since >= 300 {
				cooldown = 10
			}
			if n, failed := tally(max(now-30, forget), now); n >= 20 && failed*100 > n*15 {
				open()
			}
		case "open":
			if now == retry {
				state, since = "half_open", now
			}
		case "half_open":
			n, failed := tally(since, now)
			switch {
			case failed*100 > max(n, 5)*15:
				open()
			case n >= 5 || now-since >= 300:
				state, since, forget = "closed", now, now
			}
		}
		states[now] = state
	}
	return states
}

func TestEverySecondIsWhatTheOracleSays(t *testing.T) {
	opened := 0
	rapid.Check(t, func(rt *rapid.T) {
		const seconds = 200
		r := drawTraffic(rt, seconds)
		s := newSet(t)
		want := map[string][]string{"anthropic": oracle(r, "anthropic", seconds), "openai": oracle(r, "openai", seconds)}
		for second := 1; second < seconds; second++ {
			evaluate(t, s, r, second)
			for provider, states := range want {
				got := s.View(provider, at(second))
				require.Equal(rt, states[second], string(got.State), "%s at %d: %s", provider, second, got.Why)
				if got.State == Open {
					opened++
				}
			}
		}
	})
	assert.Positive(t, opened, "traffic that opens none shows nothing")
}

func TestAFlappingProviderOpensSeldom(t *testing.T) {
	s, r := newSet(t), &requests{}
	for second := range 1800 { // up for ten seconds, down for ten
		status := 200
		if second/10%2 == 1 {
			status = 500
		}
		r.add("openai", second, 10, status)
	}
	for second := range 1800 {
		evaluate(t, s, r, second)
	}
	v := s.View("openai", at(1799))
	assert.LessOrEqual(t, v.Trips, int64(10), "in half an hour, in which it went down 90 times")
	assert.GreaterOrEqual(t, v.Trips, int64(4))
}

// TestCollectorsOnOneStoreAgree: one that evaluates each second, one that is held up,
// one that was restarted from a snapshot.
func TestCollectorsOnOneStoreAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seconds = 120
		r := drawTraffic(rt, seconds)
		steady, heldUp, restarted := newSet(t), newSet(t), newSet(t)
		next := 1
		for second := 1; second < seconds; second++ {
			evaluate(t, steady, r, second)
			if second == next {
				evaluate(t, heldUp, r, second)
				next += rapid.IntRange(1, 30).Draw(rt, "held up for")
				require.True(rt, reflect.DeepEqual(steady.Snapshot(), heldUp.Snapshot()), "at %d", second)
			}
			evaluate(t, restarted, r, second)
			if rapid.IntRange(0, 20).Draw(rt, "restart") == 0 {
				raw, err := json.Marshal(restarted.Snapshot())
				require.NoError(rt, err)
				var snapshot Snapshot
				require.NoError(rt, json.Unmarshal(raw, &snapshot))
				restarted = newSet(t)
				require.Equal(rt, len(snapshot.Breakers) > 0, restarted.Restore(snapshot))
				require.True(rt, reflect.DeepEqual(steady.Snapshot(), restarted.Snapshot()), "at %d", second)
			}
		}
		require.Equal(rt, steady.Snapshot(), restarted.Snapshot())
	})
}

// TestCollectorsThatHearOfEachOtherAgree, in whatever order, though they saw late spans
// at different seconds.
func TestCollectorsThatHearOfEachOtherAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seconds = 120
		r := drawTraffic(rt, seconds)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		sets := []*Set{newSet(t), newSet(t), newSet(t)}
		for second := 1; second < seconds; second++ {
			for _, s := range sets {
				if random.IntN(3) > 0 {
					seen := *r
					seen.until = max(1, second-random.IntN(3))
					evaluate(t, s, &seen, second)
				}
			}
		}
		var snapshots []Snapshot
		for _, s := range sets {
			snapshots = append(snapshots, s.Snapshot())
		}
		for _, s := range sets {
			random.Shuffle(len(snapshots), func(i, j int) { snapshots[i], snapshots[j] = snapshots[j], snapshots[i] })
			for _, snapshot := range snapshots {
				s.Restore(snapshot)
				require.False(rt, s.Restore(snapshot), "twice changes nothing")
			}
		}
		for _, s := range sets[1:] {
			for i, b := range s.Snapshot().Breakers {
				first := sets[0].Snapshot().Breakers[i]
				require.Equal(rt, []any{first.Provider, first.State, first.Since, first.Trips}, []any{b.Provider, b.State, b.Since, b.Trips})
			}
		}
	})
}

func TestRestoreTakesNoNonsense(t *testing.T) {
	s := newSet(t)
	good := Breaker{Provider: "openai", State: Open, Since: at(0), RetryAt: at(10), Trips: 1}
	for name, change := range map[string]func(*Breaker){
		"no provider":              func(b *Breaker) { b.Provider = "" },
		"an unknown state":         func(b *Breaker) { b.State = "ajar" },
		"no instant":               func(b *Breaker) { b.Since = time.Time{} },
		"open for longer than may": func(b *Breaker) { b.RetryAt = at(301) },
	} {
		bad := good
		change(&bad)
		assert.False(t, s.Restore(Snapshot{Breakers: []Breaker{bad}}), name)
	}
	assert.True(t, s.Restore(Snapshot{Breakers: []Breaker{good}}))
	later, sooner := good, good
	later.Since, sooner.Since = at(1), at(-1)
	sooner.RetryAt = at(9)
	assert.False(t, s.Restore(Snapshot{Breakers: []Breaker{later}}))
	assert.True(t, s.Restore(Snapshot{Breakers: []Breaker{sooner}}), "it came there first")
	older := good
	older.Trips, older.State = 0, Closed
	assert.False(t, s.Restore(Snapshot{Breakers: []Breaker{older}}))
}

// broken is a reader that fails.
type broken struct{}

func (broken) Window(context.Context, signals.Query) ([]signals.Sample, error) {
	return nil, errors.New("no answer")
}

func TestStaleDataCloseAndSaySo(t *testing.T) {
	down := func(t *testing.T) (*Set, *requests) {
		t.Helper()
		s, r := newSet(t), &requests{}
		r.add("openai", 1, 100, 500)
		evaluate(t, s, r, 1)
		require.Equal(t, Open, s.View("openai", at(1)).State)
		return s, r
	}
	wantStale := func(t *testing.T, s *Set, second int) {
		t.Helper()
		v := s.View("openai", at(second))
		assert.True(t, v.Stale)
		assert.Equal(t, Closed, v.State)
		assert.Nil(t, v.ProbesAllowed)
		assert.Nil(t, v.RetryAt)
		assert.Contains(t, v.Why, "Then it was open: 100 of 100 requests in 30s")
		assert.Len(t, v.History, 1)
		assert.True(t, s.Permit("openai", at(second)).Granted)
		views := s.Views(at(second), true)
		assert.True(t, views.Stale)
		assert.Equal(t, Closed, views.Breakers[0].State)
	}
	t.Run("before the first", func(t *testing.T) {
		s := newSet(t)
		assert.True(t, s.Stale(at(0)))
		assert.True(t, s.View("openai", at(0)).Stale)
		transitions, err := s.Evaluate(t.Context(), &requests{}, time.Time{}, at(0))
		require.NoError(t, err)
		assert.Empty(t, transitions)
		assert.True(t, s.Stale(at(0)), "evaluated, but nothing was read")
		_, err = s.Evaluate(t.Context(), &requests{}, time.UnixMicro(0), at(0))
		require.NoError(t, err)
		assert.Nil(t, s.Views(at(0), true).DataUpTo)
	})
	t.Run("the store is behind", func(t *testing.T) {
		s, r := down(t)
		for second := 2; second <= 31; second++ {
			_, err := s.Evaluate(t.Context(), r, at(1), at(second))
			require.NoError(t, err)
		}
		assert.Equal(t, Open, s.View("openai", at(31)).State, "30 s are not too long")
		_, err := s.Evaluate(t.Context(), r, at(1), at(32))
		require.NoError(t, err)
		wantStale(t, s, 32)
		r.add("openai", 59, 3, 200)
		evaluate(t, s, r, 60)
		v := s.View("openai", at(60))
		assert.False(t, v.Stale)
		assert.Equal(t, HalfOpen, v.State, "after an outage of the data it is found out with probes")
		assert.Equal(t, at(11), v.Since)
	})
	t.Run("evaluations stop", func(t *testing.T) {
		s, _ := down(t)
		assert.Equal(t, Open, s.View("openai", at(31)).State)
		wantStale(t, s, 32)
	})
	t.Run("the reader fails", func(t *testing.T) {
		s, r := down(t)
		for second := 2; second <= 40; second++ {
			_, err := s.Evaluate(t.Context(), broken{}, at(second), at(second))
			require.ErrorContains(t, err, "count server_error_ratio over")
		}
		wantStale(t, s, 40)
		evaluate(t, s, r, 41)
		assert.Equal(t, HalfOpen, s.View("openai", at(41)).State)
	})
}

// What changes is handed over to be kept before anybody can hear or see it.
func TestChangesAreKeptFirst(t *testing.T) {
	s, r := newSet(t), &requests{}
	subscriber, err := s.subscribe("", 1)
	require.NoError(t, err)
	defer s.unsubscribe(subscriber)
	var kept []Transition
	s.KeepFirst(func(transitions []Transition, changed []Breaker) {
		require.Len(t, changed, len(transitions))
		for i, b := range changed {
			assert.Equal(t, transitions[i].Provider, b.Provider)
			assert.Equal(t, transitions[i].To, b.State)
			assert.Equal(t, transitions[i], b.History[len(b.History)-1])
			assert.NotEqual(t, b.State, s.View(b.Provider, at(1)).State, "nobody can see it yet")
		}
		for len(subscriber.events) > 0 {
			assert.NotContains(t, string((<-subscriber.events).data), string(transitions[0].To))
		}
		kept = append(kept, transitions...)
	})
	evaluate(t, s, r, 1)
	assert.Empty(t, kept)
	r.add("anthropic", 2, 100, 500)
	r.add("openai", 2, 100, 500)
	r.add("other", 2, 100, 200)
	told := each(t, s, r, 2, 20)
	require.GreaterOrEqual(t, len(told), 4, "opened and half-open, both")
	assert.Equal(t, told, kept)
	assert.Equal(t, HalfOpen, s.View("openai", at(20)).State)
}

func TestTheProvidersAreBounded(t *testing.T) {
	s, r := newSet(t), &requests{}
	for i := range maxProviders + 7 {
		r.add(fmt.Sprintf("provider-%04d", i), 1, 1, 200)
	}
	r.add("", 1, 100, 500)
	evaluate(t, s, r, 1)
	views := s.Views(at(1), true)
	assert.Len(t, views.Breakers, maxProviders)
	assert.Equal(t, 7, views.BreakersLeftOff)
	evaluate(t, s, &requests{}, 3601)
	assert.Len(t, s.Views(at(3601), true).Breakers, maxProviders)
	evaluate(t, s, &requests{}, 3602)
	views = s.Views(at(3602), true)
	assert.Empty(t, views.Breakers, "an hour without requests")
	assert.Zero(t, views.BreakersLeftOff)
}

// TestField51StateAndTransitionsAreVisible in the answers and as metrics.
func TestField51StateAndTransitionsAreVisible(t *testing.T) {
	s, r := newSet(t), &requests{}
	r.add("openai", 1, 100, 500)
	r.add("anthropic", 1, 100, 200)
	each(t, s, r, 1, 12)
	r.add("openai", 13, 1, 500)
	evaluate(t, s, r, 13)

	v := s.View("openai", at(13))
	assert.EqualValues(t, 2, v.Trips, "how often it has opened")
	var story []string
	for _, transition := range v.History {
		story = append(story, fmt.Sprintf("%s: %s to %s, %d of %d", transition.At.Format("05"), transition.From, transition.To,
			transition.Counts.ServerErrors, transition.Counts.Requests))
	}
	assert.Equal(t, []string{"01: closed to open, 100 of 100", "11: open to half_open, 100 of 100", "13: half_open to open, 1 of 1"}, story)

	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	stop, err := Measure(provider, s, func() time.Time { return at(13) })
	require.NoError(t, err)
	read := func() []string {
		var collected metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &collected))
		var lines []string
		for _, scope := range collected.ScopeMetrics {
			for _, m := range scope.Metrics {
				var points []metricdata.DataPoint[int64]
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					points = data.DataPoints
				case metricdata.Sum[int64]:
					points = data.DataPoints
				}
				for _, p := range points {
					state, _ := p.Attributes.Value("state")
					name, _ := p.Attributes.Value("provider")
					lines = append(lines, strings.Join([]string{m.Name, name.AsString(), state.AsString(), fmt.Sprint(p.Value)}, " "))
				}
			}
		}
		slices.Sort(lines)
		return lines
	}
	assert.Equal(t, []string{
		"retryledger_breaker_state anthropic closed 1",
		"retryledger_breaker_state anthropic half_open 0",
		"retryledger_breaker_state anthropic open 0",
		"retryledger_breaker_state openai closed 0",
		"retryledger_breaker_state openai half_open 0",
		"retryledger_breaker_state openai open 1",
		"retryledger_breaker_trips anthropic  0",
		"retryledger_breaker_trips openai  2",
	}, read())
	require.NoError(t, stop())
	assert.Empty(t, read())
}
