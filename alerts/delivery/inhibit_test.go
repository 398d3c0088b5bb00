package delivery

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/rules"
)

// ofDefaultPack is the default file with a receiver, and a wait of tickets that a test has time for.
func ofDefaultPack(hook *webhook) string {
	text := strings.ReplaceAll(defaultConfig, "  - name: nobody\n", "  - name: nobody\n    webhook_configs: [{url: "+hook.URL+"}]\n")
	text = strings.ReplaceAll(text, "group_wait: 1m", "group_wait: 3s")
	return strings.ReplaceAll(text, "group_interval: 30s", "group_interval: 5s")
}

// labelled is an alert of a rule of the default pack, as the evaluator labels it.
func labelled(t *testing.T, rule string, group ...string) Alert {
	t.Helper()
	for _, r := range rules.Default().Rules() {
		if r.Name == rule {
			for name, value := range r.Labels {
				group = append(group, name, value)
			}
			a := firing(rule, group...)
			a.StartsAt = time.Now() // the wait of a group counts from there
			return a
		}
	}
	t.Fatalf("the default pack has no rule %s", rule)
	return Alert{}
}

// inhibited are the names of the alerts that others keep from being told.
func (r *running) inhibited(t *testing.T) []string {
	t.Helper()
	var alerts []struct {
		Labels map[string]string
		Status struct{ InhibitedBy []string }
	}
	require.NoError(t, json.Unmarshal([]byte(request(t, http.MethodGet, r.url("/api/v2/alerts?inhibited=true"), "", http.StatusOK)), &alerts))
	names := []string{}
	for _, a := range alerts {
		if len(a.Status.InhibitedBy) > 0 {
			names = append(names, a.Labels["alertname"]+" "+a.Labels["service"])
		}
	}
	slices.Sort(names)
	return names
}

// One cause is one page: the tickets of the same service that say the same are not told, those of others are, and
// what still fires when the page is over is told then.
func TestPagesInhibitTheirTickets(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, ofDefaultPack(hook))
	steps := labelled(t, "step_errors", "service", "shop", "step", "plan")
	high := labelled(t, "retries_high", "service", "shop")
	d.put(t,
		high, labelled(t, "fallbacks", "service", "shop", "step", "plan"), labelled(t, "run_budget_exhausted", "service", "shop"), steps,
		labelled(t, "retries_high", "service", "bank"), labelled(t, "retries_very_high", "service", "bank"), labelled(t, "run_budget_exhausted", "service", "bank"),
		labelled(t, "fallbacks", "service", "bank", "step", "plan"), labelled(t, "contract_violations", "service", "shop", "step", "plan"),
		labelled(t, "retries_high", "service", "post"), labelled(t, "provider_server_errors", "provider", "openai"),
	)
	told := func() []string {
		var all []string
		for _, n := range hook.notifications() {
			for _, a := range n.Alerts {
				all = append(all, strings.TrimSpace(a.Status+" "+a.Labels["alertname"]+" "+a.Labels["service"]))
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	want := []string{
		"firing contract_violations shop", "firing fallbacks bank", "firing provider_server_errors", "firing retries_high post", "firing retries_very_high bank", "firing step_errors shop",
	}
	require.Eventually(t, func() bool { return len(told()) >= len(want) }, patience, 10*time.Millisecond)
	require.Equal(t, want, told())
	require.Equal(t, []string{"fallbacks shop", "retries_high bank", "retries_high shop", "run_budget_exhausted bank", "run_budget_exhausted shop"}, d.inhibited(t))

	d.put(t, resolved(steps))
	hook.waitFor(t, "resolved step_errors")
	require.Eventually(t, func() bool { return slices.Contains(told(), "firing retries_high shop") }, patience, 10*time.Millisecond)
}

// The example of the documentation inhibits as the default file does.
func TestExampleInhibitsAsTheDefault(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alert-delivery.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\n# alertmanager.yml\n")
	example, _, _ = strings.Cut(example, "```")
	type file struct {
		InhibitRules []map[string]any `yaml:"inhibit_rules"`
	}
	var documented, ours file
	require.NoError(t, yaml.Unmarshal([]byte(example), &documented))
	require.NoError(t, yaml.Unmarshal([]byte(defaultConfig), &ours))
	require.NotEmpty(t, ours.InhibitRules)
	require.Equal(t, ours.InhibitRules, documented.InhibitRules)
}
