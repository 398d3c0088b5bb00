package alerter

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

// mistakes says for each file what the sentence must contain.
var mistakes = map[string][]string{
	"bad_dashboard_url":     {"dashboard_url is no address", "https://"},
	"bad_breakers":          {"breakers", "threshold", "0.15 for 15 %"},
	"bad_gate_window_short": {"max_gate_window is 1m0s", "between 3m0s and 1h0m0s"},
	"bad_gate_window_long":  {"max_gate_window is 2h0m0s", "between 3m0s and 1h0m0s"},
	"bad_max_series":        {"max_series is 10", "100 or more"},
	"bad_rules_file":        {"rules_mistake.yaml:3", "has no unit"},
	"bad_rules_file_gone":   {"nowhere.yaml", "mend rules_file"},
	"bad_config_file":       {"alertmanager_mistake.yml", "group_interval"},
	"bad_config_file_gone":  {"nowhere.yml", "mend config_file"},
	"bad_max_traces":        {"max_traces is 10", "1000 or more"},
	"bad_delivery":          {"delivery", "retention", "1h or more"},
	"bad_delivery_peers":    {"delivery", "peers", `"elsewhere" is not host:port`},
}

func loaded(t *testing.T, path string) *Config {
	t.Helper()
	conf, err := confmaptest.LoadConf(path)
	require.NoError(t, err)
	config := defaults()
	require.NoError(t, conf.Unmarshal(config))
	return config
}

func TestConfigFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	found := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			err := confmap.Validate(loaded(t, path))
			if !strings.HasPrefix(name, "bad_") {
				require.NoError(t, err)
				return
			}
			found++
			require.Error(t, err)
			require.Contains(t, mistakes, name)
			for _, part := range mistakes[name] {
				assert.ErrorContains(t, err, part)
			}
			assert.NotContains(t, err.Error(), "\n", "one mistake, one sentence")
		})
	}
	assert.Len(t, mistakes, found, "every mistake has its file")
}

func TestDefaultConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(defaults()))
	assert.Equal(t, defaults(), loaded(t, "testdata/empty.yaml"))
}

func TestFullConfigIsRead(t *testing.T) {
	c := loaded(t, "testdata/full.yaml")
	assert.Equal(t, component.MustNewIDWithName(defaultStore, "other"), c.Store)
	assert.Equal(t, component.MustNewIDWithName(defaultAPI, "other"), c.API)
	assert.Equal(t, []string{"127.0.0.1:9095"}, c.Delivery.Cluster.Peers)
	assert.InDelta(t, 0.3, c.Breakers.Threshold, 0)
	assert.Equal(t, time.Minute, c.Breakers.Window)
	assert.EqualValues(t, 20, c.Breakers.MinRequests, "what is not stated is as it was")
	assert.Equal(t, 30*time.Minute, c.MaxGateWindow)
	assert.Equal(t, 1000, c.MaxSeries)
	assert.Equal(t, 5000, c.MaxTraces)
}
