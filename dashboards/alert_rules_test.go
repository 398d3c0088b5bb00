package dashboards

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// evaluated is what the collector's evaluator sees of a rule at an instant: the ratio of
// each group that is judged.
func evaluated(t *testing.T, store storetest.Store, r *rules.Rule, instant time.Time) map[signals.Labels]float64 {
	t.Helper()
	cache := signals.NewCache(signals.Keep{r.Signal: r.Window}, signals.Limits{})
	cache.Advance(instant.UnixMicro())
	for i := range store.Rows {
		cache.Put(schema.BriefOf(&store.Rows[i]))
	}
	samples, err := cache.Window(t.Context(), r.Query(instant))
	require.NoError(t, err)
	ratios := map[signals.Labels]float64{}
	for _, s := range samples {
		if s.Denominator > 0 && s.Denominator >= r.MinSamples {
			ratios[s.Labels] = float64(s.Numerator) / float64(s.Denominator)
		}
	}
	return ratios
}

// asGrafana is what Grafana gets for a rule that it evaluates at an instant.
func asGrafana(t *testing.T, store storetest.Store, r *rules.Rule, instant time.Time) map[signals.Labels]float64 {
	t.Helper()
	sql, err := ratioQuery(r)
	require.NoError(t, err)
	found, err := asked(t, store.Conn, selection{from: instant.Add(-r.Window), to: instant}.expanded(t, sql, 0))
	require.NoError(t, err, sql)
	ratios := map[signals.Labels]float64{}
	for _, row := range found.rows {
		var labels signals.Labels
		for column, value := range row {
			if name, ok := value.(string); ok {
				labels = labels.With(signals.Dimension(column), name)
			}
		}
		ratio, ok := row["ratio"].(float64)
		require.True(t, ok, "the one number of a row is the ratio: %v", row)
		require.Len(t, row, len(r.GroupBy)+1)
		ratios[labels] = ratio
	}
	return ratios
}

// TestAlertRulesAgreeWithTheEvaluator: for one instant Grafana's query and the evaluator say
// the same of each rule of the pack, over its own window and over a long one, for samples
// of any size and for those that the rule wants.
func TestAlertRulesAgreeWithTheEvaluator(t *testing.T) {
	t.Parallel()
	store := storetest.Of(t, capturetest.All(t), "checkout", "billing")
	require.NoError(t, schema.InsertLedger(t.Context(), store.Conn, []schema.LedgerRow{oddRow(0), oddRow(1)}))
	store.Rows = append(store.Rows, oddRow(0), oddRow(1))
	for _, r := range rules.Default().Rules() {
		if !watched(r) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			groups, above := 0, 0
			for _, window := range []time.Duration{r.Window, 55 * time.Minute} {
				for _, samples := range []int64{1, r.MinSamples} {
					changed := *r
					changed.Window, changed.MinSamples = window, samples
					for _, minutes := range []int{0, 25, 55, 110, 150} {
						instant := storetest.Day.Add(time.Duration(minutes)*time.Minute + 7*time.Second)
						want := evaluated(t, store, &changed, instant)
						require.Equal(t, want, asGrafana(t, store, &changed, instant), "%s over %s at %s", r.Name, window, instant)
						for _, ratio := range want {
							groups++
							if ratio > r.Threshold.Ratio() {
								above++
							}
						}
					}
				}
			}
			assert.Positive(t, groups)
			assert.Positive(t, above, "some group would fire")
		})
	}
}

// TestAlertRulesAreThePack: every rule of the pack but those about the collector's own
// evaluation, as Grafana takes it.
func TestAlertRulesAreThePack(t *testing.T) {
	t.Parallel()
	group, err := alertRules("a source")
	require.NoError(t, err)
	pack := map[string]*rules.Rule{}
	for _, r := range rules.Default().Rules() {
		if watched(r) {
			pack[r.Name] = r
		}
	}
	require.Len(t, pack, len(rules.Default().Rules())-2)
	var names []string
	for _, made := range group.Rules {
		names = append(names, made.Title)
		r := pack[made.Title]
		require.NotNil(t, r, made.Title)
		assert.LessOrEqual(t, len(*made.Uid), 40, "Grafana's limit")
		assert.Equal(t, r.Labels, made.Labels)
		require.Len(t, made.Data, 2)
		assert.Equal(t, "a source", *made.Data[0].DatasourceUid)
		assert.EqualValues(t, r.Window/time.Second, *made.Data[0].RelativeTimeRange.From)
		for _, text := range made.Annotations {
			assert.NotContains(t, text, "$", "Grafana fills the environment into provisioned files")
		}
		content, err := json.Marshal(made.Data[1].Model)
		require.NoError(t, err)
		var threshold struct {
			Type, Expression, RefID string
			Conditions              []struct {
				Evaluator struct {
					Type   string
					Params []float64
				}
			}
		}
		require.NoError(t, json.Unmarshal(content, &threshold))
		assert.Equal(t, []string{"threshold", *made.Data[0].RefId, made.Condition}, []string{threshold.Type, threshold.Expression, threshold.RefID})
		require.Len(t, threshold.Conditions, 1)
		assert.Equal(t, "gt", threshold.Conditions[0].Evaluator.Type)
		assert.Equal(t, []float64{r.Threshold.Ratio()}, threshold.Conditions[0].Evaluator.Params)
		anchor := strings.TrimPrefix(made.Annotations["runbook_url"], docs)
		page, heading, _ := strings.Cut(anchor, "#")
		assertAnchor(t, made.Title, page, "#"+heading)
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(pack)), names)
}
