package seldom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFloodIsToldNowAndThen(t *testing.T) {
	var told Lines
	at := time.Unix(1_700_000_000, 0)
	since, due := told.Due("a", 3, at)
	assert.True(t, due)
	assert.Zero(t, since)
	for range 10 {
		_, due = told.Due("a", 2, at.Add(Every-1))
		assert.False(t, due)
	}
	_, due = told.Due("b", 1, at)
	assert.True(t, due)
	since, due = told.Due("a", 5, at.Add(Every))
	assert.True(t, due)
	assert.Equal(t, 20, since)
	_, due = told.Due("a", 1, at)
	assert.True(t, due, "a clock that went backwards silences nothing")
}
