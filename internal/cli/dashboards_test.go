package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/cli"
)

func TestDashboardsExportListsWhatItWrote(t *testing.T) {
	folder := t.TempDir()
	written := process{}.must(t, "dashboards", "export", "--clickhouse", "clickhouse:9000", "--path", "/seen", folder)
	for name := range strings.Lines(written) {
		_, err := os.Stat(strings.TrimSpace(name))
		require.NoError(t, err)
	}
	assert.Contains(t, written, filepath.Join(folder, "dashboards", "retryledger-budget.json"))
	provider, err := os.ReadFile(filepath.Join(folder, "provisioning", "dashboards", "retryledger.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(provider), "path: /seen")
	assert.NotContains(t, written, "alerting")
	assert.Contains(t, process{}.must(t, "dashboards", "export", "--alert-rules", folder), filepath.Join(folder, "provisioning", "alerting", "retryledger.yaml"))
}

// A data source that is made without a password cannot read, and nobody may notice before
// the first dashboard is open.
func TestDashboardsSayThatThereIsNoPassword(t *testing.T) {
	grafana := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	t.Cleanup(grafana.Close)
	apply := func(password string) string {
		p := process{variables: map[string]string{"GRAFANA_TOKEN": "t", "RETRYLEDGER_CLICKHOUSE_PASSWORD": password}}
		_, stderr, code := p.run(t, "dashboards", "apply", "--grafana", grafana.URL, "--clickhouse", "127.0.0.1:9000")
		require.Equal(t, cli.ExitOK, code, stderr)
		return stderr
	}
	assert.Equal(t, "retryledger: RETRYLEDGER_CLICKHOUSE_PASSWORD is not set, so the data source has no password for ClickHouse's user grafana\n", apply(""))
	assert.Empty(t, apply("secret"))
}

func TestDashboardsSayWhatIsWrong(t *testing.T) {
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(forbidden.Close)
	file := filepath.Join(t.TempDir(), "a file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	withToken := process{variables: map[string]string{"GRAFANA_TOKEN": "t"}}
	for _, c := range []struct {
		p    process
		args []string
		code int
		says string
	}{
		{process{}, []string{"export"}, cli.ExitUsage, "one folder"},
		{process{}, []string{"export", "--clickhouse", "nowhere", t.TempDir()}, cli.ExitUsage, "host:port"},
		{process{}, []string{"export", file}, cli.ExitInput, "a file"},
		{process{}, []string{"apply", "--grafana", "127.0.0.1:3000"}, cli.ExitUsage, "http://127.0.0.1:3000"},
		{process{}, []string{"apply", "--grafana", forbidden.URL}, cli.ExitUsage, "GRAFANA_TOKEN"},
		{withToken, []string{"apply", "--grafana", forbidden.URL}, cli.ExitUnreachable, "role Admin"},
		{withToken, []string{"apply", "--grafana", "http://127.0.0.1:1"}, cli.ExitUnreachable, "no answer from 127.0.0.1:1"},
	} {
		_, stderr, code := c.p.run(t, append([]string{"dashboards"}, c.args...)...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, stderr, c.says, c.args)
	}
}
