package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// fill lets messages in until one is turned away.
func fill(g *gate) (n int, why reason) {
	for {
		if why = g.enter(); why != admitted {
			return n, why
		}
		n++
	}
}

func leaveAll(g *gate, n int, how outcome) {
	for range n {
		g.leave(how)
	}
}

func TestNoMoreThanTheSettingAreUnderWay(t *testing.T) {
	c := &clock{start}
	g := newGate(8, c.now)
	n, why := fill(g)
	assert.Equal(t, 8, n)
	assert.Equal(t, full, why)
	g.leave(taken)
	assert.Equal(t, admitted, g.enter(), "one has left")
	assert.Equal(t, full, g.enter())
}

func TestRefusalsHalveAndWhatIsTakenRaises(t *testing.T) {
	c := &clock{start}
	g := newGate(16, c.now)
	n, _ := fill(g)
	require.Equal(t, 16, n)
	leaveAll(g, n, refused) // at one moment: once
	n, why := fill(g)
	assert.Equal(t, 8, n)
	assert.Equal(t, lowered, why)
	for range 10 {
		c.at = c.at.Add(pause)
		g.leave(refused)
		require.Equal(t, admitted, func() reason { // down to one, never to none
			for g.underWay > 0 {
				g.leave(neither)
			}
			return g.enter()
		}())
	}
	n, _ = fill(g)
	assert.Zero(t, n, "one is under way, and no more")

	// Soon after a refusal: one more for a whole round of them.
	g.leave(taken)
	n, _ = fill(g)
	assert.Equal(t, 2, n)
	leaveAll(g, n, taken)
	n, _ = fill(g)
	assert.Equal(t, 2, n, "two taken of two make it not quite three")
	// When it has been calm: one more for each.
	c.at = c.at.Add(calm)
	leaveAll(g, n, taken)
	n, _ = fill(g)
	assert.Equal(t, 4, n)
	for range 100 {
		g.leave(taken)
		require.Equal(t, admitted, g.enter())
	}
	leaveAll(g, n, neither)
	n, why = fill(g)
	assert.Equal(t, 16, n)
	assert.Equal(t, full, why)
}

func TestRefusalsAreForgotten(t *testing.T) {
	c := &clock{start}
	g := newGate(8, c.now)
	n, _ := fill(g)
	leaveAll(g, n, refused)
	c.at = c.at.Add(forgotten - time.Millisecond)
	n, why := fill(g)
	assert.Equal(t, 4, n)
	assert.Equal(t, lowered, why)
	leaveAll(g, n, neither)
	c.at = c.at.Add(time.Millisecond)
	n, _ = fill(g)
	assert.Equal(t, 8, n, "nobody sent since")
}

func TestWhateverHappensTheGateIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{start}
		most := rapid.IntRange(1, 20).Draw(t, "max")
		g := newGate(most, c.now)
		inside := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			c.at = c.at.Add(time.Duration(rapid.IntRange(-50, 400).Draw(t, "ms")) * time.Millisecond)
			if rapid.Bool().Draw(t, "enters") {
				if g.enter() == admitted {
					inside++
				} else if inside == 0 {
					t.Fatal("turned away by an empty gate")
				}
			} else if inside > 0 {
				inside--
				g.leave(rapid.SampledFrom([]outcome{taken, refused, neither}).Draw(t, "how"))
			}
			if g.underWay != inside || inside > most || g.limit < 1 || g.limit > float64(most) {
				t.Fatalf("%d inside of %d, limit %g, the gate says %d", inside, most, g.limit, g.underWay)
			}
		}
	})
}
