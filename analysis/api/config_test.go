package api

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

// load reads a configuration as the Collector does and returns its first error.
func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	config := defaults()
	if err := conf.Unmarshal(config); err != nil {
		return nil, err
	}
	return config, confmap.Validate(config)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	plain, err := load(t, "defaults")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4320", plain.ServerConfig.NetAddr.Endpoint)
	require.Equal(t, component.MustNewID("retryledger_store"), plain.Store)

	full, err := load(t, "full")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:14320", full.ServerConfig.NetAddr.Endpoint)
	require.Equal(t, component.MustNewIDWithName("retryledger_store", "second"), full.Store)
	require.Equal(t, 10*time.Second, full.QueryTimeout)
	require.Equal(t, []any{2, 50, []string{"ledger.example.com"}}, []any{full.MaxConcurrentQueries, full.MaxResults, full.AllowedHosts})
	require.Equal(t, time.Minute, full.ServerConfig.WriteTimeout)
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"bad_endpoint":        "endpoint: write host:port",
		"bad_store":           "store",
		"unknown_key":         "query_timout",
		"bad_timeout":         "query_timeout: give a time above zero",
		"timeout_above_write": "write_timeout: 20s is not longer than query_timeout 30s",
		"bad_concurrency":     "max_concurrent_queries: give a number above zero",
		"bad_memory":          "max_query_memory_mib: give a number above zero",
		"bad_rows":            "max_query_rows: give a number above zero",
		"bad_results":         "max_results: give a number above zero",
	} {
		_, err := load(t, name)
		require.ErrorContains(t, err, want, name)
	}
}
