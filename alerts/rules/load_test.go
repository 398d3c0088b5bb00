package rules_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/internal/mistaketest"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// load loads a file that has to be right.
func load(t testing.TB, content string) *rules.Set {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(content))
	require.NoError(t, err)
	return set
}

// named is one rule of a set.
func named(t testing.TB, set *rules.Set, name string) *rules.Rule {
	t.Helper()
	for _, r := range set.Rules() {
		if r.Name == name {
			return r
		}
	}
	require.Fail(t, "no rule "+name)
	return nil
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	mistaketest.Run(t, func(_ *testing.T, name string, content []byte) error {
		_, err := rules.Load(name, content)
		return err
	})
}

func TestMistakesAreListedInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	_, err := rules.Load("r.yaml", []byte("rules:\n  - {name: step_errors, window: 1ms}\n  - {name: fallbacks, threshold: 2}\n  - {name: x!}\n"))
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		assert.True(t, strings.HasPrefix(line, "r.yaml:"+strconv.Itoa(i+2)+": "), line)
	}
	var many strings.Builder
	many.WriteString("rules:\n")
	for range 100 {
		many.WriteString("  - {name: x!}\n")
	}
	_, err = rules.Load("r.yaml", []byte(many.String()))
	require.Len(t, strings.Split(err.Error(), "\n"), 20, "no more than a person reads")
}

func TestBoundsOfAFile(t *testing.T) {
	t.Parallel()
	_, err := rules.Load("r.yaml", []byte(strings.Repeat("#", rules.MaxFileBytes+1)))
	require.ErrorContains(t, err, "at most 1048576 are read")
	_, err = rules.Load("r.yaml", []byte("rules: \xff"))
	require.ErrorContains(t, err, "not UTF-8")
	var many strings.Builder
	many.WriteString("default_pack: false\nrules:\n")
	for i := range rules.MaxRules + 1 {
		many.WriteString("  - {name: r" + strconv.Itoa(i) + ", signal: retry_ratio, threshold: 1 %, window: 1m}\n")
	}
	_, err = rules.Load("r.yaml", []byte(many.String()))
	require.ErrorContains(t, err, "there are 501 rules; at most 500 are evaluated")
}

// TestDefaultPack holds what the pack promises.
func TestDefaultPack(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"step_errors":            "operation_error_ratio above 2 % over 2m by service, step",
		"fallbacks":              "fallback_ratio above 2 % over 2m by service, step",
		"canary_errors":          `operation_error_ratio above 1 % over 3m where version!="" by service, version`,
		"provider_server_errors": "server_error_ratio above 15 % over 30s by provider",
		"retries_high":           "retry_ratio above 10 % over 5m by service",
		"retries_very_high":      "retry_ratio above 20 % over 5m by service",
		"run_budget_exhausted":   "budget_exhausted_ratio above 0 % over 10m by service",
		"incomplete_runs":        "incomplete_run_ratio above 1 % over 10m by service",
		"contract_violations":    "contract_violation_ratio above 0 % over 5m by service, step",
		"evaluation_stalled":     "evaluation_stalled for more than 30s",
		"ingest_stalled":         "ingest_stalled for more than 1m",
	} {
		assert.Equal(t, want, named(t, rules.Default(), name).Condition())
	}
	require.Len(t, rules.Default().Rules(), 11)
	severities := map[string]string{}
	for _, r := range rules.Default().Rules() {
		assert.True(t, r.DefaultPack)
		severities[r.Name] = r.Labels["severity"]
		assert.Contains(t, r.Annotations, "summary")
		assert.Contains(t, r.Annotations, "show", "the pack's defaults")
	}
	assert.Equal(t, "page", severities["step_errors"])
	assert.Equal(t, "ticket", severities["fallbacks"])
	assert.Equal(t, "breaker", severities["provider_server_errors"])
	windows := rules.Default().Windows()
	assert.Len(t, windows, 7)
	assert.Equal(t, 3*time.Minute, windows[signals.OperationErrorRatio], "the longest of two rules")
	assert.Equal(t, 30*time.Second, windows[signals.ServerErrorRatio])
}

// TestFileLiesOverTheDefaultPack: a name of the pack changes what the file states and
// nothing else.
func TestFileLiesOverTheDefaultPack(t *testing.T) {
	t.Parallel()
	set := load(t, `
defaults: {min_samples: 7, labels: {team: agents}}
rules:
  - name: step_errors
    threshold: 5 %
    labels: {severity: ticket}
    annotations: {show: ""}
  - {name: fallbacks, enabled: false}
  - {name: mine, signal: throttled_ratio, threshold: 0.5%, window: 90s}
`)
	changed, original := named(t, set, "step_errors"), named(t, rules.Default(), "step_errors")
	assert.Equal(t, rules.Threshold(50_000), changed.Threshold)
	assert.Equal(t, original.Window, changed.Window)
	assert.Equal(t, original.GroupBy, changed.GroupBy)
	assert.Equal(t, int64(50), changed.MinSamples, "the pack says so, defaults are for who does not")
	assert.Equal(t, map[string]string{"severity": "ticket", "team": "agents"}, changed.Labels)
	assert.Equal(t, original.Annotations["summary"], changed.Annotations["summary"])
	assert.NotContains(t, changed.Annotations, "show", "an empty text takes one away")
	assert.True(t, changed.DefaultPack)
	assert.Equal(t, []string{"fallbacks"}, set.Disabled())
	mine := named(t, set, "mine")
	assert.Equal(t, "throttled_ratio above 0.5 % over 1m30s", mine.Condition())
	assert.Equal(t, int64(7), mine.MinSamples)
	assert.False(t, mine.DefaultPack)
	assert.Len(t, set.Rules(), 11)
	assert.Len(t, load(t, "default_pack: false\nrules: [{name: step_errors, signal: retry_ratio, threshold: 1 %, window: 1m}]").Rules(), 1)
	assert.Len(t, load(t, "").Rules(), 11)
}

func TestWhatARuleNeedNotSay(t *testing.T) {
	t.Parallel()
	set := load(t, `
rules:
  - {name: a, signal: retry_ratio, threshold: 2 %, window: 5s}
  - {name: b, signal: retry_ratio, threshold: 0 %, window: 10m}
  - {name: c, signal: retry_ratio, threshold: 15 %, window: 2m, where: {service: 3}}
`)
	a, b, c := named(t, set, "a"), named(t, set, "b"), named(t, set, "c")
	assert.Equal(t, int64(50), a.MinSamples, "one failure alone is never above the threshold")
	assert.Equal(t, int64(1), b.MinSamples)
	assert.Equal(t, int64(7), c.MinSamples)
	assert.Equal(t, time.Minute, a.KeepFiringFor, "at least a minute")
	assert.Equal(t, 10*time.Minute, b.KeepFiringFor, "as long as the window")
	assert.Zero(t, a.For)
	assert.Equal(t, 10*time.Second, a.Settle)
	assert.Equal(t, 1000, a.MaxGroups)
	assert.Contains(t, a.Annotations, "summary")
	assert.True(t, c.Where[signals.Service].Matches("3"), "a text as it is written")
}

// TestDefaultsAreForWhoCanHaveThem: none of them is a mistake for a rule of the pack.
func TestDefaultsAreForWhoCanHaveThem(t *testing.T) {
	t.Parallel()
	set := load(t, "defaults: {window: 7s, min_samples: 3, for: 5s, keep_firing_for: 20s, settle: 3s, max_groups: 9, labels: {team: a}, annotations: {more: x}}")
	assert.Equal(t, 5*time.Second, named(t, set, "step_errors").For)
	assert.Equal(t, 3*time.Second, named(t, set, "step_errors").Settle)
	assert.Equal(t, 2*time.Minute, named(t, set, "step_errors").Window, "the pack says so")
	assert.Zero(t, named(t, set, "ingest_stalled").For)
	assert.Equal(t, "x", named(t, set, "ingest_stalled").Annotations["more"])
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]rules.Threshold{"2 %": 20_000, "2%": 20_000, "0 %": 0, "0.5 %": 5_000, "0.0001 %": 1, "99.9999%": 999_999, "007%": 70_000} {
		got, err := rules.ParseThreshold(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
		again, err := rules.ParseThreshold(got.String())
		require.NoError(t, err, got.String())
		assert.Equal(t, got, again)
	}
	for _, text := range []string{"", "%", "2", "2 percent", ".5 %", "1. %", "1e1 %", "0x1 %", "1 2 %", "+1 %", "1000 %", "100.0 %"} {
		_, err := rules.ParseThreshold(text)
		require.Error(t, err, text)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	set := load(t, `
rules:
  - name: a
    signal: attempt_error_ratio
    threshold: 2 %
    window: 1m
    where:
      service: {equals: checkout}
      version: {regex: "v2|v3.*"}
      provider: {not: openai}
      step: {not_regex: "test_.*"}
      environment: ""
`)
	where := named(t, set, "a").Where
	for _, c := range []struct {
		d     signals.Dimension
		value string
		want  bool
	}{
		{signals.Service, "checkout", true},
		{signals.Service, "checkouts", false},
		{signals.Version, "v2", true},
		{signals.Version, "v31", true},
		{signals.Version, "v21", false},
		{signals.Provider, "", true},
		{signals.Provider, "openai", false},
		{signals.Step, "test_a", false},
		{signals.Step, "a_test_a", true},
		{signals.Environment, "", true},
		{signals.Environment, "prod", false},
	} {
		assert.Equal(t, c.want, where[c.d].Matches(c.value), "%s %q", c.d, c.value)
	}
	assert.Equal(t, `attempt_error_ratio above 2 % over 1m where service="checkout" environment="" version=~"v2|v3.*" step!~"test_.*" provider!="openai"`,
		named(t, set, "a").Condition())
}
