package delivery

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// amtool builds Alertmanager's command line and returns a function that runs it.
func amtool(tb testing.TB) func(args ...string) (string, error) {
	tb.Helper()
	dir := tb.TempDir()
	binary := filepath.Join(dir, "amtool")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/prometheus/alertmanager/cmd/amtool").CombinedOutput()
	require.NoError(tb, err, string(out))
	return func(args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "HOME="+dir) // no configuration file
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func TestAmtool(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	tool := amtool(t)
	remote := "--alertmanager.url=" + d.url("")
	must := func(args ...string) string {
		t.Helper()
		out, err := tool(args...)
		require.NoError(t, err, out)
		return out
	}

	d.put(t, firing("StepErrors", "service", "shop", "step", "plan"), firing("Fallbacks", "service", "shop"))
	hook.waitFor(t, "firing StepErrors")
	require.Contains(t, must(remote, "alert", "query", "-o", "extended", "step=plan"), "StepErrors")
	require.NotContains(t, must(remote, "alert", "query", "step=plan"), "Fallbacks")

	id := strings.TrimSpace(must(remote, "silence", "add", "--author=me", "--comment=known", "--duration=1h", "alertname=Fallbacks", `step=~"pl.*"`))
	require.Contains(t, must(remote, "silence", "query", "-o", "json"), id)
	require.Contains(t, must(remote, "silence", "query"), "known")
	must(remote, "silence", "expire", id)
	require.Equal(t, "[]", strings.TrimSpace(must(remote, "silence", "query", "-o", "json")))

	must(remote, "alert", "add", "--start="+time.Now().Format(time.RFC3339), "alertname=ByHand", "service=shop")
	hook.waitFor(t, "firing ByHand")
	require.Contains(t, must(remote, "config", "show"), "webhook_configs")
	require.Equal(t, "webhook", strings.TrimSpace(must(remote, "config", "routes", "test", "service=shop")))
	require.Contains(t, must(remote, "cluster", "show"), "disabled")

	require.Contains(t, must("check-config", "default.yml", d.file), "SUCCESS")
	out, err := tool("check-config", "testdata/alertmanager/receiver_missing.yml")
	require.Error(t, err)
	require.Contains(t, out, "undefined receiver")
}

// TestGrafana asks what Grafana's Alertmanager data source (implementation Prometheus) asks.
func TestGrafana(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	d.put(t, firing("StepErrors", "service", "shop"))
	hook.waitFor(t, "firing StepErrors")
	get := func(path string, into any) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(request(t, http.MethodGet, d.url(path), "", http.StatusOK)), into))
	}

	var status struct {
		Cluster struct{ Status string }
		Config  struct{ Original string }
		Uptime  time.Time
	}
	get("/api/v2/status", &status) // its health check
	require.Equal(t, "disabled", status.Cluster.Status)
	require.Contains(t, status.Config.Original, "webhook_configs")
	require.WithinDuration(t, time.Now(), status.Uptime, patience)

	var groups []struct {
		Labels   map[string]string
		Receiver struct{ Name string }
		Alerts   []struct {
			Labels map[string]string
			Status struct{ State string }
		}
	}
	get("/api/v2/alerts/groups?silenced=true&active=true&inhibited=true", &groups)
	require.Len(t, groups, 1)
	require.Equal(t, "webhook", groups[0].Receiver.Name)
	require.Equal(t, "active", groups[0].Alerts[0].Status.State)

	var alerts []struct{ Receivers []struct{ Name string } }
	get("/api/v2/alerts?active=true&filter="+`service%3D%22shop%22`, &alerts)
	require.Len(t, alerts, 1)
	var receivers []struct{ Name string }
	get("/api/v2/receivers", &receivers)
	require.Len(t, receivers, 1)

	silenceFor(t, d.url(""), "StepErrors")
	var silences []struct {
		ID     string
		Status struct{ State string }
	}
	get("/api/v2/silences", &silences)
	require.Equal(t, "active", silences[0].Status.State)
	get("/api/v2/silence/"+silences[0].ID, &struct{}{})
	request(t, http.MethodDelete, d.url("/api/v2/silence/"+silences[0].ID), "", http.StatusOK)

	request(t, http.MethodPost, d.url("/api/v2/silences"), `{"matchers":[]}`, http.StatusUnprocessableEntity)
	request(t, http.MethodGet, d.url("/"), "", http.StatusNotFound)
	request(t, http.MethodGet, d.api.URL+"/api/v2/status", "", http.StatusNotFound) // outside of the prefix
	require.Contains(t, request(t, http.MethodPost, d.url("/api/v2/alerts"),
		`[{"labels":{"a":"`+strings.Repeat("x", maxRequestBytes)+`"}}]`, http.StatusBadRequest), "too large")
}
