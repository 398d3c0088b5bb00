package traffic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A second of traffic is what it is said to be: about 10,000 spans, of traces that
// ended in that second, accounted for as any other.
func TestSecond(t *testing.T) {
	until := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	rows := New(1).Second(until)
	require.Len(t, rows, TracesPerSecond)
	spans, visits, failed, retries, fallbacks := 0, 0, 0, int64(0), int64(0)
	ids := make(map[schema.TraceID]bool)
	for i := range rows {
		r := &rows[i]
		ids[r.TraceID] = true
		spans += int(r.Spans)
		assert.Equal(t, r.TraceID.String(), r.Runs[0].RunID)
		assert.Positive(t, until.Add(time.Millisecond).UnixNano()-r.LastEndNs)
		assert.Less(t, until.Add(-time.Second).UnixNano(), r.LastEndNs)
		assert.Equal(t, r.LastEndNs, r.Runs[0].EndNs)
		for _, o := range r.Operations {
			assert.Less(t, o.EndNs, r.LastEndNs)
			assert.Less(t, r.LastEndNs-o.EndNs, 10*second)
			switch o.Grain {
			case "execution":
				visits++
				if o.Outcome == "handled" {
					failed++
				}
			case "call":
				retries += o.Retries
				fallbacks += o.Fallbacks
			}
		}
	}
	assert.Len(t, ids, TracesPerSecond)
	assert.InDelta(t, 10_500, spans, 500)
	assert.Equal(t, steps*TracesPerSecond, visits)
	assert.InDelta(t, 30, failed, 20)
	assert.InDelta(t, 240, retries, 60)
	assert.InDelta(t, 30, fallbacks, 20)
}
