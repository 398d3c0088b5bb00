package breakers

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// row is a row of the ledger with one request.
func row(number int, one request) *schema.LedgerRow {
	r := &schema.LedgerRow{
		State: schema.StateAttributed, LastReceivedNs: at(one.second).UnixNano(),
		Runs: []schema.RunRow{{Service: "checkout"}},
		Attempts: []schema.AttemptRow{{
			Grain: "call", Step: "resolve", Ending: "succeeded", Provider: one.provider, Request: true, Counted: true,
			EndNs: at(one.second).UnixNano(),
		}},
	}
	if one.status >= 400 {
		r.Attempts[0].Ending, r.Attempts[0].HTTPStatus = "failed", int64(one.status)
	}
	binary.BigEndian.PutUint64(r.TraceID[:], uint64(number)+1)
	return r
}

// TestOverTheCacheOfTheLedger: the breakers are the same over what an evaluator really
// holds.
func TestOverTheCacheOfTheLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seconds = 80
		traffic := drawTraffic(rt, seconds)
		cache := signals.NewCache(DefaultSettings().Keep(), signals.Limits{})
		over, want := newSet(t), newSet(t)
		bySecond := map[int][]int{}
		for i, one := range traffic.all {
			bySecond[one.second] = append(bySecond[one.second], i)
		}
		for second := range seconds {
			cache.Advance(at(second).UnixMicro())
			for _, i := range bySecond[second] {
				cache.Put(schema.BriefOf(row(i, traffic.all[i])))
			}
			evaluate(t, over, cache, second)
			traffic.until = second
			evaluate(t, want, traffic, second)
		}
		require.NotEmpty(rt, want.Snapshot())
		for _, b := range want.Snapshot().Breakers {
			got := over.View(b.Provider, at(seconds-1))
			require.Equal(rt, []any{b.State, b.Since, b.Why, b.Trips}, []any{got.State, got.Since, got.Why, got.Trips})
		}
	})
}

// TestACacheThatIsShortOfMemory answers windows, but not all of a long half-open phase.
func TestACacheThatIsShortOfMemory(t *testing.T) {
	s, r := newSet(t), &requests{}
	r.add("openai", 1, 20, 503)
	cache := signals.NewCache(DefaultSettings().Keep(), signals.Limits{Traces: 60})
	put := func(from int) {
		for i, one := range r.all[from:] {
			cache.Put(schema.BriefOf(row(from+i, one)))
		}
	}
	cache.Advance(at(1).UnixMicro())
	put(0)
	evaluate(t, s, r, 1)
	for second := 2; second <= 200; second++ {
		n := len(r.all)
		r.add("others", second, 1, 200)
		cache.Advance(at(second).UnixMicro())
		put(n)
		evaluate(t, s, cache, second)
	}
	_, err := count(t.Context(), cache, at(11), at(200))
	notHeld := new(signals.NotHeldError)
	require.ErrorAs(t, err, &notHeld)
	v := s.View("openai", at(200))
	assert.Equal(t, HalfOpen, v.State)
	assert.False(t, v.Stale)
	assert.Equal(t, at(11), v.Since)
}
