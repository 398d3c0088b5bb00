package breakers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// BenchmarkEvaluate is one second's evaluation of 5 providers over a cache of 1000 label
// sets (20 services with 10 steps) with a request each in every second of 5 minutes, one
// provider half-open since long.
func BenchmarkEvaluate(b *testing.B) {
	cache := signals.NewCache(DefaultSettings().Keep(), signals.Limits{})
	const seconds = 300
	for second := range seconds {
		cache.Advance(at(second).UnixMicro())
		for service := range 20 {
			r := &schema.LedgerRow{
				TraceID: schema.TraceID{byte(service), byte(second), byte(second >> 8)}, LastReceivedNs: at(second).UnixNano(),
				Runs: []schema.RunRow{{Service: fmt.Sprint("service ", service)}},
			}
			for i := range 50 {
				r.Attempts = append(r.Attempts, schema.AttemptRow{
					Grain: "call", Step: fmt.Sprint("step ", i/5), Provider: fmt.Sprint("provider ", i%5), Request: true, Ending: "succeeded",
					EndNs: at(second).UnixNano(),
				})
			}
			cache.Put(schema.BriefOf(r))
		}
	}
	halfOpen := Snapshot{Breakers: []Breaker{{Provider: "idle", State: HalfOpen, Since: at(10), Trips: 1}}}
	for b.Loop() {
		s, err := New(DefaultSettings(), "")
		require.NoError(b, err)
		s.Restore(halfOpen)
		_, err = s.Evaluate(b.Context(), cache, at(seconds), at(seconds))
		require.NoError(b, err)
	}
}
