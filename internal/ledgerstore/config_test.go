package ledgerstore

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
)

// mistakes says for each file what the sentence must contain: the setting, and
// the way out.
var mistakes = map[string][]string{
	"bad_endpoint_scheme":           {"endpoint", "without a scheme", ":9000"},
	"bad_endpoint_no_port":          {"endpoint", "host:port"},
	"bad_endpoint_port":             {"endpoint", "no number between 1 and 65535"},
	"bad_endpoint_http_port":        {"endpoint", "8123", "native protocol, usually 9000"},
	"bad_username_empty":            {"username is empty", "default"},
	"bad_password_without_endpoint": {"password is set but endpoint is not", "remove password"},
	"bad_username_without_endpoint": {"username is set but endpoint is not", "engine::readonly"},
	"bad_tls_without_endpoint":      {"tls is set but endpoint is not", "remove tls"},
	"bad_engine_with_endpoint":      {"engine is set and endpoint too", "remove one"},
	"bad_database_characters":       {`database is "my-ledger"`, "letters, digits and underscores"},
	"bad_database_reserved":         {`database is "system"`, "choose another name"},
	"bad_retention_too_short":       {"retention::spans is 1h", "24h"},
	"bad_retention_too_long":        {"retention::ledger", "20 years"},
	"bad_retention_ledger_shorter":  {"retention::ledger", "shorter than retention::spans", "at least as long"},
	"bad_engine_lib_relative":       {"engine::lib", "full path"},
	"bad_engine_memory":             {"engine::memory_limit_mib is 100", "at least 512"},
	"bad_engine_port":               {"engine::port is 70000", "between 1 and 65535"},
	"bad_engine_same_ports":         {"engine::port and engine::http_port are both 19000"},
	"bad_engine_log_level":          {`engine::log_level is "loud"`, "information"},
	"bad_readonly_without_password": {"engine::readonly::password is empty", "set one"},
	"bad_readonly_without_username": {"engine::readonly::username", "choose another name"},
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
			assert.NotContains(t, err.Error(), "secret")
			assert.NotContains(t, err.Error(), "\n", "one mistake, one sentence")
		})
	}
	assert.Len(t, mistakes, found, "every mistake has its file")
}

func TestDefaultConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	assert.Equal(t, createDefaultConfig(), load(t, "testdata/empty.yaml"))
}

func TestFullConfigIsRead(t *testing.T) {
	c := load(t, "testdata/full_engine.yaml")
	assert.Equal(t, "grafana", c.Engine.Readonly.Get().Username)
	assert.EqualValues(t, 2048, c.Engine.MemoryLimitMiB)
	assert.Equal(t, 168*time.Hour, c.Retention.Spans)
	c = load(t, "testdata/full_endpoint.yaml")
	assert.True(t, c.TLS.HasValue())
	assert.Equal(t, "[REDACTED]", c.Password.String())
}
