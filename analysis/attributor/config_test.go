package attributor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// mistakes says for each file what the sentence must contain.
var mistakes = map[string][]string{
	"bad_interval_short":    {"interval is 1ms", "between 50ms and 1m"},
	"bad_interval_long":     {"interval is 1h0m0s", "between 50ms and 1m"},
	"bad_run_limit":         {"run_limit is 0", "1 or more"},
	"bad_step_limit":        {"step_limit is -1", "1 or more"},
	"bad_step_limits_value": {"step_limits::resolve is 0", "1 or more"},
	"bad_step_limits_name":  {"step_limits", "write the step's name"},
	"bad_orphan_after":      {"orphan_after is 0s", "at least 1s"},
	"bad_max_resumes":       {"max_resumes is 0", "1 or more"},
	"bad_join_window":       {"join_window is -1h0m0s", "0s"},
	"bad_max_spans":         {"max_spans_per_run is 10", "1000 or more"},
	"bad_max_traces":        {"max_traces_per_run is 0", "1 or more"},
	"bad_batch_traces":      {"batch_traces is 0", "1 or more"},
}

func load(t *testing.T, path string) *Config {
	t.Helper()
	conf, err := confmaptest.LoadConf(path)
	require.NoError(t, err)
	config := defaultConfig()
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
			err := confmap.Validate(load(t, path))
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
	config := defaultConfig()
	require.NoError(t, componenttest.CheckConfigStruct(config))
	assert.Equal(t, config, load(t, "testdata/empty.yaml"))

	now := time.Unix(1_800_000_000, 0)
	want := attribution.Defaults()
	want.AtNs = now.UnixNano()
	assert.Equal(t, want, config.options(now))
}

func TestFullConfigIsRead(t *testing.T) {
	o := load(t, "testdata/full.yaml").options(time.Unix(0, 1))
	assert.Equal(t, 20, o.RunLimit)
	assert.Equal(t, map[string]int{"resolve": 2}, o.StepLimits)
	assert.Equal(t, int64(time.Hour), o.OrphanAfterNs)
	assert.Equal(t, int64(48*time.Hour), o.JoinWindowNs)
}
