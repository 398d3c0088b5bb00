package answer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
)

// Nanoseconds since the epoch wrap around in 1677 and in 2262: until the year 9999 is
// until the end, not before everything.
func TestInstantsFarOutStayInOrder(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	const week = int64(7 * 24 * time.Hour) // by which windows are widened
	before := int64(-1 << 63)
	for _, text := range []string{"0001-01-01T00:00:00Z", "1677-01-01T00:00:00Z", "1900-01-01T00:00:00Z", "36500d", "24h", "2026-01-31T12:00:00Z",
		"2200-01-01T00:00:00Z", "2263-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
		instant, err := answer.ParseInstant(text, now)
		require.NoError(t, err, text)
		assert.False(t, instant.IsZero(), text)
		ns := instant.UnixNano()
		assert.True(t, time.Unix(0, ns).Equal(instant), "%s is %s in nanoseconds", text, time.Unix(0, ns).UTC())
		assert.GreaterOrEqual(t, ns, before, text)
		assert.Less(t, ns-week, ns, text)
		assert.Greater(t, ns+week, ns, text)
		before = ns
	}
}
