package alerter

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// visits is what the windows count of a service.
func (c *collector) visits(service string) (total int64) {
	samples, err := c.live.Window(c.bed.t.Context(), signals.Query{
		Signal: signals.OperationErrorRatio, ToNs: c.live.UpTo().Truncate(time.Second).UnixNano(), WindowNs: int64(2 * time.Minute),
		GroupBy: []signals.Dimension{signals.Service},
	})
	require.NoError(c.bed.t, err)
	for _, s := range samples {
		if s.Labels.Service == service {
			total += s.Denominator
		}
	}
	return total
}

// What is deleted for good is in no answer of a collector that runs any more, nor in its
// state file, and no later change brings it back. All else goes on.
func TestWhatIsDeletedIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", "")
	b.step(1, c)
	for _, service := range []string{"shop", "bank"} {
		b.insert(work{service: service, visits: 100, failed: 10})
	}
	b.stepUntil(c, func() bool {
		shop, _ := c.alert("step_errors", "shop")
		bank, _ := c.alert("step_errors", "bank")
		return shop == "firing" && bank == "firing"
	})
	require.EqualValues(t, 100, c.visits("shop"))

	_, err := schema.Delete(t.Context(), b.real, schema.Doomed{Service: "shop"})
	require.NoError(t, err)
	b.stepUntil(c, func() bool { shop, _ := c.alert("step_errors", "shop"); return shop == "" })
	assert.Zero(t, c.visits("shop"))
	assert.EqualValues(t, 100, c.visits("bank"))
	c.state.wait()
	kept, err := os.ReadFile(c.state.path)
	require.NoError(t, err)
	assert.NotContains(t, string(kept), "shop")
	bank, _ := c.alert("step_errors", "bank")
	assert.Equal(t, "firing", bank)

	b.step(10, c)
	for _, row := range b.rows() {
		assert.NotEqual(t, "shop", row.Group.Service, "%s became %s", row.Rule, row.To)
	}
	shop, _ := c.alert("step_errors", "shop")
	assert.Empty(t, shop)

	// What comes later is new.
	b.insert(work{service: "shop", visits: 100, failed: 10})
	b.stepUntil(c, func() bool { shop, _ := c.alert("step_errors", "shop"); return shop == "firing" })
}

// A state file of before the deletion brings nothing back.
func TestAStateOfBeforeADeletion(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	dir := t.TempDir()
	c := b.start(dir, "")
	b.step(1, c)
	b.insert(work{service: "shop", visits: 100, failed: 10})
	b.stepUntil(c, func() bool { shop, _ := c.alert("step_errors", "shop"); return shop == "firing" })
	c.archive.transitions = b.rows() // the file was written before the store took them
	require.NotEmpty(t, c.archive.transitions)
	require.NoError(t, c.keepState())
	c.end()
	_, err := schema.Delete(t.Context(), b.real, schema.Doomed{Service: "shop"})
	require.NoError(t, err)
	c = b.start(dir, "")
	b.step(5, c)
	shop, _ := c.alert("step_errors", "shop")
	assert.Empty(t, shop)
	c.state.wait()
	assert.Empty(t, b.rows())
}
