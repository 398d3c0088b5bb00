package alerter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/schema"
)

func (c *collector) breaker() breakers.View { return c.breakers.set.View("openai", c.bed.now()) }

func (b *bed) kept() []schema.BreakerRow {
	b.t.Helper()
	rows, err := schema.Breakers(b.t.Context(), b.real)
	require.NoError(b.t, err)
	return rows
}

func TestBreakersAreKeptAndTakenUp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := b.start("", "")
	b.step(1, first)
	b.insert(work{service: "shop", requests: 40, errs: 20})
	b.step(1, first)
	opened := first.breaker()
	require.Equal(t, breakers.Open, opened.State)
	require.Len(t, b.kept(), 1)
	first.end()

	second := b.start("", "") // on another folder
	b.step(1, second)
	taken := second.breaker()
	assert.Equal(t, breakers.Open, taken.State)
	assert.Equal(t, opened.Since, taken.Since)
	assert.Equal(t, opened.RetryAt, taken.RetryAt, "the cool-down does not begin anew")
	assert.Equal(t, opened.History, taken.History)
	b.step(9, second)
	assert.Equal(t, breakers.HalfOpen, second.breaker().State)
}

// What one collector came to alone, the others learn within seconds.
func TestBreakersAreExchanged(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first, second := b.start("", ""), b.start("", "")
	b.step(1, first, second)
	b.insert(work{service: "shop", requests: 40, errs: 20})
	b.step(1, first)
	b.set(b.now().Add(-time.Second))
	b.insert(work{service: "shop", requests: 200}) // late: the second never sees the share above the threshold
	b.set(b.now().Add(time.Second))
	second.pass(t.Context(), b.now())
	require.Equal(t, breakers.Open, first.breaker().State)
	require.Equal(t, breakers.Closed, second.breaker().State)
	b.step(int(compareEvery/time.Second), first, second)
	assert.Equal(t, breakers.Open, second.breaker().State)
	assert.Equal(t, first.breaker().Since, second.breaker().Since)
}

// Changes wait for a store that is away.
func TestBreakersWaitForTheStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", "")
	b.step(1, c)
	b.insert(work{service: "shop", requests: 40, errs: 20})
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE breakers TO hidden"))
	b.step(2, c)
	assert.Equal(t, breakers.Open, c.breaker().State)
	require.NoError(t, b.real.Exec(t.Context(), "RENAME TABLE hidden TO breakers"))
	b.step(1, c)
	require.Len(t, b.kept(), 1)
	var n uint64
	require.NoError(t, b.real.QueryRow(t.Context(), "SELECT count() FROM breaker_transitions FINAL").Scan(&n))
	assert.EqualValues(t, 1, n)
}
