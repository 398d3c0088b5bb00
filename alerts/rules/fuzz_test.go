package rules_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// FuzzLoad: no file panics or hangs; what loads keeps its bounds, renders, and evaluates.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(f, err)
	for _, name := range append(files, "default.yaml", "ruletest/testdata/own_rules.yaml") {
		content, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		set, err := rules.Load("rules.yaml", content)
		if err != nil {
			require.Nil(t, set)
			require.NotEmpty(t, err.Error())
			return
		}
		reader := &told{samples: map[signals.Signal][]signals.Sample{}}
		for _, s := range signals.All() {
			reader.samples[s] = []signals.Sample{{Numerator: rules.MaxMinSamples, Denominator: rules.MaxMinSamples}}
		}
		names := map[string]bool{}
		for _, r := range set.Rules() {
			require.False(t, names[r.Name], "twice")
			names[r.Name] = true
			require.True(t, r.Window >= rules.MinWindow && r.Window <= rules.MaxWindow)
			require.True(t, r.Threshold >= 0 && r.Threshold.Ratio() < 1)
			require.True(t, r.MinSamples >= 1 && r.KeepFiringFor >= rules.MinKeepFiringFor && r.MaxGroups >= 1)
			require.NotEmpty(t, r.Condition())
		}
		out, err := rules.NewEvaluator(set, reader, rules.Options{}).Eval(t.Context(), second(1))
		require.NoError(t, err)
		for i := range out.Alerts {
			out.Alerts[i].Annotations(rules.Explanation{})
		}
	})
}
