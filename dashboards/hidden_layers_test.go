package dashboards

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// hideLayers are instrumentations that re-prompt inside one call, or show one span for
// many sends.
var hideLayers = []string{"ai-sdk-7", "mastra", "openai-agents-otel", "openllmetry-openai", "py-logfire"}

// TestHiddenLayersAreNeverZero: a panel's column that is named by a layer which no run
// shows holds no number, read from the ledger and from the sums of hours.
func TestHiddenLayersAreNeverZero(t *testing.T) {
	t.Parallel()
	captures := slices.DeleteFunc(capturetest.All(t), func(c capturetest.Capture) bool { return !slices.Contains(hideLayers, c.Instrumentation) })
	store := storetest.Of(t, captures, "checkout")
	hidden, shown := map[string]bool{}, map[string]bool{}
	for _, step := range answer.TopOf(store.Ledger, answer.Filter{}).Steps {
		for i, n := range layersOf(step.Retries) {
			hidden[layers[i].name] = hidden[layers[i].name] || n == nil
			shown[layers[i].name] = shown[layers[i].name] || n != nil
		}
	}
	require.True(t, hidden["transport"] && hidden["call"], "the captures hide them")
	require.True(t, hidden["transport"] && !shown["transport"], "in every run")
	require.True(t, shown["orchestrator"], "and show others")

	for _, from := range []string{"the ledger", "the sums of hours"} {
		if from != "the ledger" {
			built, err := schema.BuildUsageHours(t.Context(), store.Conn, 0, 100)
			require.NoError(t, err)
			require.Positive(t, built)
		}
		seen := map[string]bool{}
		for uid, d := range documents(t) {
			whole := everything(d)
			for _, p := range d.all() {
				if p.Title == "Layers that instrumentations hide" {
					continue // its columns are shares of steps
				}
				found, err := asked(t, store.Conn, whole.expanded(t, p.Targets[0].RawSQL, p.MaxDataPoints))
				require.NoError(t, err, p.Title)
				for _, l := range layers {
					if shown[l.name] || !slices.Contains(found.columns, l.name) {
						continue
					}
					seen[uid+": "+p.Title] = len(found.rows) > 0
					for _, row := range found.rows {
						assert.Nil(t, row[l.name], "%s: %s shows a number of the hidden layer %s, from %s: %v", uid, p.Title, l.name, from, row)
					}
				}
			}
		}
		for _, name := range []string{
			uidRetryBudget + ": Steps", uidRetryBudget + ": Steps by retries, stacked by layer", uidRetryBudget + ": Retries by layer over time",
			uidStep + ": Retries by layer over time", uidRuns + ": Steps of the run",
		} {
			assert.True(t, seen[name], "%s shows layers, from %s", name, from)
		}
	}
}
