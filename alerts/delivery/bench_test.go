package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkPutToWebhook reports how long it takes from Put until the receiver has the notification, over loopback HTTP,
// with the default route.
func BenchmarkPutToWebhook(b *testing.B) {
	hook := newWebhook(b)
	d := start(b, hook.config(""))
	put := make([]time.Time, 0, b.N)
	for i := range b.N {
		a := firing(fmt.Sprint("A", i))
		put = append(put, time.Now())
		d.put(b, a)
		require.Eventually(b, func() bool { return len(hook.notifications()) > i }, patience, 100*time.Microsecond)
	}
	took := make([]time.Duration, b.N)
	for i, n := range hook.notifications() {
		took[i] = n.at.Sub(put[i])
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

// BenchmarkRefresh is what an evaluation each second costs while 1,000 alerts fire and nothing changes.
func BenchmarkRefresh(b *testing.B) {
	d := start(b, defaultConfig)
	alerts := named("A", 1000)
	d.put(b, alerts...)
	b.ReportAllocs()
	for b.Loop() {
		d.put(b, alerts...)
	}
}
