package delivery

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReceivers sends through the receivers most people have, to an address of this machine, with a template of ours.
func TestReceivers(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	templates := filepath.Join(t.TempDir(), "text.tmpl")
	write(t, templates, `{{ define "failed" }}{{ .CommonAnnotations.summary }} ({{ .ExternalURL }}){{ end }}`)
	d := start(t, fmt.Sprintf(`
route:
  receiver: all
  group_by: ['...']
  group_wait: 0s
receivers:
  - name: all
    slack_configs:
      - api_url: %[1]s/slack
        channel: '#agents'
        text: '{{ template "failed" . }}'
    pagerduty_configs:
      - url: %[1]s/pagerduty
        routing_key: abc
        description: '{{ template "failed" . }}'
    msteamsv2_configs:
      - webhook_url: %[1]s/teams
        text: '{{ template "failed" . }}'
    webhook_configs:
      - url: %[1]s/webhook
templates: [%[2]s]
`, hook.URL, templates), func(c *Config, _ *Settings) { c.ExternalURL = "https://ledger.example.com/alerts/" })

	a := firing("StepErrors", "service", "shop")
	a.Annotations = map[string]string{"summary": "12 of 300 failed"}
	d.put(t, a)
	for _, path := range []string{"/slack", "/pagerduty", "/teams", "/webhook"} {
		var body string
		require.Eventually(t, func() bool {
			for _, n := range hook.notifications() {
				if n.path == path {
					body = n.body
				}
			}
			return body != ""
		}, patience, 5*1e6, path)
		want := "12 of 300 failed (https://ledger.example.com/alerts)"
		if path == "/webhook" {
			want = `"externalURL":"https://ledger.example.com/alerts"`
		}
		require.Contains(t, body, want)
		require.Contains(t, strings.ToLower(body), "steperrors")
	}
}
