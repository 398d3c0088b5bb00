package delivery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

// says is what the user is told of each mistake in testdata; a file without an entry fails the test.
func mistakes(t *testing.T, dir string, says map[string]string, check func(path string) error) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, len(says))
	for _, f := range files {
		t.Run(strings.TrimSuffix(f.Name(), filepath.Ext(f.Name())), func(t *testing.T) {
			require.Contains(t, says, f.Name())
			require.ErrorContains(t, check(filepath.Join(dir, f.Name())), says[f.Name()])
		})
	}
}

func TestMistakesInAnAlertmanagerConfiguration(t *testing.T) {
	t.Parallel()
	mistakes(t, "testdata/alertmanager", map[string]string{
		"empty.yml":                "no route provided in config",
		"event_recorder.yml":       "event_recorder: transitions of alerts are kept in the store; remove it here",
		"group_interval.yml":       `group_interval: 1s of a route to "team" lets a group that keeps changing tell people as often; give 5s or more`,
		"group_interval_below.yml": `group_interval: 4s of a route to "night"`,
		"matcher.yml":              "bad matcher",
		"receiver_missing.yml":     `undefined receiver "tema"`,
		"receiver_unused.yml":      "unable to read CA cert",
		"template.yml":             "unclosed action",
		"time_interval.yml":        `undefined time interval "weekend"`,
		"tracing.yml":              "tracing: it is the collector that is traced; remove it here",
		"unknown_field.yml":        "field recipient not found",
		"yaml.yml":                 "yaml: line",
	}, func(path string) error {
		err := Check(path)
		require.ErrorContains(t, err, path)
		cfg := NewDefaultConfig()
		cfg.ConfigFile = path
		_, again := New(&cfg, settings(t, t.TempDir()))
		require.EqualError(t, again, err.Error(), "the check and the start say the same")
		return err
	})
	require.ErrorContains(t, Check("testdata/nowhere.yml"), "testdata/nowhere.yml does not exist; mend config_file")
	require.NoError(t, Check(""))
}

func TestMistakesInTheConfiguration(t *testing.T) {
	t.Parallel()
	mistakes(t, "testdata/config", map[string]string{
		"advertise_address.yaml":    `cluster: advertise_address: "10.0.0.1" is not host:port`,
		"bind_address.yaml":         `cluster: bind_address: "9094" is not host:port`,
		"cluster_and_external.yaml": "cluster: it joins Alertmanagers in collectors",
		"config_and_external.yaml":  "config_file: it configures the Alertmanager in this process",
		"endpoint.yaml":             `external: alertmanagers: endpoint: "alertmanager:9093" is not a URL`,
		"endpoint_of_api.yaml":      "https://alertmanager.example.com/api/v2 names the API",
		"external_url.yaml":         "external_url:",
		"loopback.yaml":             "cluster: bind_address: 127.0.0.1:9094 listens to this machine only, so 10.0.0.2:9094 cannot answer",
		"password_in_endpoint.yaml": "https://me:xxxxx@alertmanager.example.com has a password in it; use auth",
		"peer.yaml":                 `cluster: peers: "10.0.0.2" is not host:port`,
		"peer_timeout.yaml":         "cluster: peer_timeout: 0s is not between 100ms and 1m",
		"resend_interval.yaml":      "external: resend_interval: 10m0s is not between 1s and 2m30s",
		"retention.yaml":            "retention: 1m0s is too short",
	}, func(path string) error {
		conf, err := confmaptest.LoadConf(path)
		require.NoError(t, err)
		cfg := NewDefaultConfig()
		require.NoError(t, conf.Unmarshal(&cfg))
		err = cfg.Validate()
		if err != nil {
			require.NotContains(t, err.Error(), "SECRET")
		}
		return err
	})
}

func TestDefaultConfigIsValid(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	require.NoError(t, cfg.Validate())
	_, err := New(&cfg, Settings{})
	require.ErrorContains(t, err, "needs a logger")
	_, err = New(&cfg, settings(t, ""))
	require.ErrorContains(t, err, "needs a data folder")
}
