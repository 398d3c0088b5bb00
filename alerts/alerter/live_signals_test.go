package alerter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const longer = `
default_pack: false
rules:
  - {name: failing, signal: operation_error_ratio, threshold: 2 %, window: 40m, min_samples: 50, keep_firing_for: 10s, group_by: [service, step]}
`

// stepUntil evaluates until a condition holds: what runs beside evaluations takes its time.
func (b *bed) stepUntil(c *collector, condition func() bool) {
	b.t.Helper()
	for range 300 {
		if condition() {
			return
		}
		b.step(1, c)
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(b.t, "it never came to that")
}

func (c *collector) window() time.Duration { return c.inForce().Rules()[0].Window }

// Rules with a longer window are in force once it is filled, and not before: half a
// window would be another number.
func TestReloadToALongerWindow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.set(b.now().Add(-20 * time.Minute))
	b.insert(work{service: "shop", visits: 100, failed: 50}) // older than the window before
	b.set(b.now().Add(20 * time.Minute))
	c := b.start("", testRules)
	b.step(2, c)
	assert.Empty(t, c.alerts().Alerts)

	b.fail(nil, "FROM ledger FINAL") // the read of whole windows
	write(t, c.rules, longer)
	b.step(5, c)
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.step(1, c)
	assert.Equal(t, time.Minute, c.window(), "what cannot be filled does not come into force")
	state, _ := c.alert("failing", "bank")
	assert.Equal(t, "firing", state, "the rules from before go on")
	assert.Less(t, c.alerts().StalledSeconds, 1.0)

	b.fail(nil, "")
	b.stepUntil(c, func() bool { return c.window() == 40*time.Minute })
	state, shop := c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
	assert.EqualValues(t, 100, shop.Denominator)
	state, _ = c.alert("failing", "bank")
	assert.Equal(t, "firing", state)

	write(t, c.rules, testRules) // what is held is enough
	b.step(2, c)                 // seen twice
	assert.Equal(t, time.Minute, c.window())
}

// Of two changes in a row the last one counts, and a mistake changes nothing.
func TestReloadWhileWindowsAreFilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", testRules)
	b.step(1, c)
	b.fail(nil, "FROM ledger FINAL")
	write(t, c.rules, longer)
	b.step(3, c)
	write(t, c.rules, "rules: [{name: step_errors, threshold: 2}]")
	b.step(2, c)
	assert.Contains(t, c.alerts().RulesError, "no unit")
	assert.Equal(t, time.Minute, c.window())
	write(t, c.rules, fmt.Sprintf("# %s\n%s", "the same", testRules))
	b.step(2, c)
	assert.Empty(t, c.alerts().RulesError)
	assert.True(t, c.live.prepared(), "nobody needs the longer window any more")
	b.fail(nil, "")
	b.step(3, c)
	assert.Equal(t, time.Minute, c.window())
}
