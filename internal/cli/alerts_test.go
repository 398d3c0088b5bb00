package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/cli"
)

func ago(d time.Duration) *time.Time {
	at := gateNow.Add(-d)
	return &at
}

// someAlerts are of every state, one of them by spans that mean harm.
func someAlerts() report.Alerts {
	return report.Alerts{EvaluatedAt: ago(0), Rules: 11, Alerts: []report.Alert{
		{
			Fingerprint: "6b1f0a3c5d7e9f12", Rule: "step_errors", State: "firing", Group: signals.Labels{Service: "checkout", Step: "resolve"},
			Labels: map[string]string{"severity": "page"}, StartsAt: ago(90 * time.Second), Since: ago(90 * time.Second),
			CountedAt: ago(0), Numerator: 9, Denominator: 412, ExplainedAt: ago(30 * time.Second), TopError: "RateLimitError 429", TopErrorCount: 7,
		},
		{
			Fingerprint: "00000000000000a9", Rule: "fallbacks", State: "firing", Group: signals.Labels{Service: "checkout"}, StartsAt: ago(5 * time.Minute),
			Held: "no_data", HeldSince: ago(59 * time.Second), CountedAt: ago(time.Minute), Numerator: 84, Denominator: 119,
		},
		{Fingerprint: "00000000000000aa", Rule: "evaluation_stalled", State: "firing", Muted: "silenced", StartsAt: ago(30 * time.Hour), LastedSeconds: 95.5},
		{Fingerprint: "00000000000000ab", Rule: "retries", State: "pending", Group: signals.Labels{Service: hostileName}, Since: ago(time.Second), Numerator: 12345, Denominator: 67890},
		{Fingerprint: "00000000000000ac", Rule: "canary", State: "resolved", ResolvedAt: ago(2 * time.Minute), StartsAt: ago(time.Hour), TopError: hostileName},
	}}
}

func narrow(p process, width string) process {
	p.variables["COLUMNS"] = width
	return p
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	var asked http.Request
	golden(t, "alerts", serve(t, http.StatusOK, someAlerts(), &asked).must(t, "alerts"))
	require.Equal(t, "/api/v1/alerts", asked.URL.Path)
	golden(t, "alerts_80", narrow(serve(t, http.StatusOK, someAlerts(), nil), "80").must(t, "alerts"))
	require.Equal(t, "No alert fires or is about to. 11 rules are watched.\n",
		serve(t, http.StatusOK, report.Alerts{EvaluatedAt: ago(0), StalledSeconds: 1, Rules: 11}, nil).must(t, "alerts"))
	golden(t, "alerts_doubtful", serve(t, http.StatusOK, report.Alerts{
		EvaluatedAt: ago(95 * time.Second), StalledSeconds: 95, RulesError: "rules.yaml:3: threshold \"2\x1b\" has no unit", Rules: 1,
		LeftOff: map[string]int{"b": 1, "a": 20},
	}, nil).must(t, "alerts"))
	require.Contains(t, serve(t, http.StatusOK, report.Alerts{}, nil).must(t, "alerts"), "No rule has been evaluated yet")

	var same report.Alerts
	require.NoError(t, json.Unmarshal([]byte(serve(t, http.StatusOK, someAlerts(), nil).must(t, "alerts", "--format", "json")), &same))
	require.Equal(t, someAlerts(), same)
}

func someChanges() []report.Transition {
	ratio := 9.0 / 412
	of := report.Transition{
		Fingerprint: "6b1f0a3c5d7e9f12", Rule: "step_errors", Group: signals.Labels{Service: "checkout", Step: "resolve"}, Threshold: 0.02, WindowSeconds: 120, MinSamples: 50,
	}
	firing, resolved, stall := of, of, of
	firing.At, firing.From, firing.To, firing.Reason = *ago(10 * time.Minute), "inactive", "firing", "breach"
	firing.Numerator, firing.Denominator, firing.Ratio = 9, 412, &ratio
	firing.TopError, firing.TopErrorCount, firing.Runs = "RateLimitError 429", 7, []string{"order-4711", "it's\x1b[2J"}
	resolved.At, resolved.From, resolved.To, resolved.Reason = *ago(2 * time.Minute), "firing", "resolved", "no_data"
	stall.At, stall.Rule, stall.To, stall.Reason, stall.LastedSeconds, stall.Group = *ago(20 * time.Minute), hostileName, "firing", "breach", 31, signals.Labels{Provider: hostileName}
	return []report.Transition{resolved, firing, stall}
}

func TestAlertsHistory(t *testing.T) {
	t.Parallel()
	var asked http.Request
	p := serve(t, http.StatusOK, report.History{Since: ago(24 * time.Hour), Transitions: someChanges(), More: true}, &asked)
	golden(t, "alerts_history", p.must(t, "alerts", "history"))
	require.Equal(t, "/api/v1/alerts/history", asked.URL.Path)
	require.Equal(t, map[string][]string{"since": {"2026-03-01T12:00:00Z"}, "limit": {"50"}}, map[string][]string(asked.URL.Query()))
	p.must(t, "alerts", "history", "--since", "7d", "--until", "1h", "--rule", "a&b", "--limit", "500", "--format", "json")
	require.Equal(t, map[string][]string{"since": {"2026-02-23T12:00:00Z"}, "until": {"2026-03-02T11:00:00Z"}, "limit": {"500"}, "rule": {"a&b"}},
		map[string][]string(asked.URL.Query()))
	require.Contains(t, serve(t, http.StatusOK, report.History{}, nil).must(t, "alerts", "history", "--rule", "x"), "No alert changed its state at any time of the rule x.")
}

func TestAlertsWhy(t *testing.T) {
	t.Parallel()
	why := report.Why{Condition: "operation_error_ratio above 2 % over 2m by service, step", Transitions: someChanges()[:2]}
	sample := func(second, numerator int64, state string) {
		why.Samples = append(why.Samples, report.Sample{
			Instant: ago(12 * time.Minute).Add(time.Duration(second) * time.Second), Numerator: numerator, Denominator: 412, Ratio: float64(numerator) / 412, State: state,
		})
	}
	for s := range int64(120) {
		sample(s, s/20, "inactive")
	}
	for s := range int64(60) {
		sample(120+s, 9+s/30, "firing")
	}
	for s := range int64(60) {
		if s != 20 && s != 21 { // evaluations that came late are no pause
			sample(520+s, 3, "firing")
		}
	}
	for s := range int64(10) {
		sample(600+s, 3, "firing")
	}
	why.LeftOff = &report.Period{From: ago(12 * time.Minute).Add(180 * time.Second), To: ago(12 * time.Minute).Add(520 * time.Second)}
	why.Held, why.HeldSince = "too_few_samples", ago(3*time.Minute)
	var asked http.Request
	p := serve(t, http.StatusOK, why, &asked)
	golden(t, "alerts_why", p.must(t, "alerts", "why", "6b1f0a3c5d7e9f12"))
	require.Equal(t, "/api/v1/alerts/6b1f0a3c5d7e9f12", asked.URL.Path)
	p.must(t, "alerts", "why", "a/../b", "--format", "json")
	require.Equal(t, "/api/v1/alerts/a%2F..%2Fb", asked.URL.EscapedPath())

	flapping := why
	flapping.LeftOff, flapping.Samples = nil, nil
	for s := range int64(200) {
		sample(s, s%2*400, "firing")
		flapping.Samples = append(flapping.Samples, why.Samples[len(why.Samples)-1])
	}
	out := serve(t, http.StatusOK, flapping, nil).must(t, "alerts", "why", "6b1f0a3c5d7e9f12")
	require.Contains(t, out, "160 more")
	require.Less(t, strings.Count(out, "\n"), 70, "bounded")

	gone := report.Why{Transitions: someChanges()[2:]}
	out = serve(t, http.StatusOK, gone, nil).must(t, "alerts", "why", "00000000000000aa")
	require.Contains(t, out, "Its rule is not in force any more.")
	require.NotContains(t, out, "\x1b")
	_, _, code := serve(t, http.StatusNotFound, answer.Failure{Error: "no alert has it"}, nil).run(t, "alerts", "why", "00")
	require.Equal(t, cli.ExitNoAnswer, code)
}

func someReplay() report.Replay {
	high := 0.0321
	over := gateNow.Add(-6 * 24 * time.Hour).Add(4 * time.Minute)
	return report.Replay{
		Since: gateNow.Add(-7 * 24 * time.Hour), Until: gateNow, StepSeconds: 7, Evaluations: 86400,
		Rules: []report.ReplayedRule{
			{Rule: "step_errors", Condition: "operation_error_ratio above 2 % over 2m by service, step", Fired: 2, FiringSeconds: 300, LongestSeconds: 240, HighestRatio: &high},
			{Rule: "canary_errors", Condition: "operation_error_ratio above 1 % over 3m where version!=\"\" by service, version"},
		},
		Incidents: []report.Incident{
			{Rule: "step_errors", Group: signals.Labels{Service: "checkout", Step: "resolve"}, StartsAt: gateNow.Add(-6 * 24 * time.Hour), EndsAt: &over, Numerator: 9, Denominator: 412},
			{Rule: "step_errors", Group: signals.Labels{Service: hostileName}, StartsAt: gateNow.Add(-time.Minute), Numerator: 3, Denominator: 100},
		},
	}
}

func TestRulesReplay(t *testing.T) {
	t.Parallel()
	var asked http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = *r
		body, _ = io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(someReplay())
	}))
	t.Cleanup(server.Close)
	p := process{variables: map[string]string{"RETRYLEDGER_SERVER": server.URL}}
	golden(t, "rules_replay", p.must(t, "rules", "replay", "--since", "7d"))
	require.Equal(t, http.MethodPost, asked.Method)
	require.Equal(t, "/api/v1/rules/replay", asked.URL.Path)
	require.Equal(t, map[string][]string{"since": {"2026-02-23T12:00:00Z"}}, map[string][]string(asked.URL.Query()))
	require.Empty(t, body, "the rules in force")
	golden(t, "rules_replay_80", narrow(p, "80").must(t, "rules", "replay", "--since", "7d"))
	require.Contains(t, p.must(t, "rules", "replay", "--limit", "1"), "The first 1 are shown; --limit 0")

	file := filepath.Join(t.TempDir(), "rules.yaml")
	for content, want := range map[string]string{"rules: []\n": "rules: []\n", "": "{}\n", " \n": "{}\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		p.must(t, "rules", "replay", "--since", "7d", "--until", "1d", file)
		require.Equal(t, want, string(body))
	}
	require.NoError(t, os.WriteFile(file, []byte("rules:\n  - {name: step_errors, threshold: 2}\n"), 0o600))
	_, stderr, code := p.run(t, "rules", "replay", file)
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, stderr, "rules.yaml:2: threshold \"2\" has no unit")
	var same report.Replay
	require.NoError(t, json.Unmarshal([]byte(p.must(t, "rules", "replay", "--format", "json")), &same))
	require.Equal(t, someReplay(), same)
}

func TestAlertsAskedInVain(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"alerts", "--format", "csv"},
		{"alerts", "x"},
		{"alerts", "why"},
		{"alerts", "why", ""},
		{"alerts", "why", "a", "b"},
		{"alerts", "history", "--since", "soon"},
		{"alerts", "history", "--format", "csv"},
		{"alerts", "history", "--since", "1h", "--until", "2h"},
		{"rules", "replay", "--since", "soon"},
		{"rules", "replay", "--format", "csv"},
		{"rules", "replay", "--limit", "-1"},
		{"rules", "replay", "a", "b"},
		{"rules", "replay", "nowhere.yaml"},
	} {
		_, stderr, code := serve(t, http.StatusOK, struct{}{}, nil).run(t, args...)
		assert.Equal(t, cli.ExitUsage, code, args)
		assert.NotEmpty(t, stderr)
	}
	nobody := process{variables: map[string]string{"RETRYLEDGER_SERVER": "http://127.0.0.1:1"}}
	for _, args := range [][]string{{"alerts"}, {"alerts", "history"}, {"alerts", "why", "00"}, {"rules", "replay"}} {
		_, _, code := nobody.run(t, args...)
		assert.Equal(t, cli.ExitUnreachable, code, args)
	}
}

// TestAlertsFitTheTerminal, whatever its width.
func TestAlertsFitTheTerminal(t *testing.T) {
	t.Parallel()
	why := report.Why{Condition: "c", Transitions: someChanges(), Samples: []report.Sample{{Instant: gateNow, Numerator: 1, Denominator: 2, Ratio: 0.5, State: "firing"}}}
	for _, c := range []struct {
		value any
		args  []string
	}{
		{someAlerts(), []string{"alerts"}},
		{report.History{Transitions: someChanges()}, []string{"alerts", "history"}},
		{why, []string{"alerts", "why", "00"}},
		{someReplay(), []string{"rules", "replay"}},
	} {
		for _, width := range []int{30, 52, 60, 80, 100, 120, 160} {
			p := serve(t, http.StatusOK, c.value, nil)
			p.width = width
			out := p.must(t, c.args...)
			require.NotContains(t, text.StripEscape(out), "\x1b")
			for line := range strings.Lines(out) {
				line = strings.TrimRight(line, "\n")
				if strings.Contains(line, "$ retryledger ") { // a word is left whole
					continue
				}
				require.LessOrEqual(t, text.StringWidthWithoutEscSequences(line), width, "%v: %q", c.args, line)
			}
		}
	}
}
