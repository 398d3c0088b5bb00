package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger"
)

func TestTheLimitOfTheRuntime(t *testing.T) {
	const total = 8 << 30
	for name, c := range map[string]struct {
		processors string
		want       int64
	}{
		"shares of the machine":    {`{memory_limiter: {limit_percentage: 25, spike_limit_percentage: 10}}`, total*25/100 - total*10/100/2},
		"amounts":                  {`{memory_limiter: {limit_mib: 200, spike_limit_mib: 80}}`, 160 << 20},
		"amounts go before shares": {`{memory_limiter: {limit_mib: 200, spike_limit_mib: 80, limit_percentage: 25, spike_limit_percentage: 10}}`, 160 << 20},
		"the limiter's own spike":  {`{memory_limiter: {limit_mib: 200}}`, 180 << 20},
		"the least of several":     {`{memory_limiter: {limit_mib: 200}, memory_limiter/small: {limit_mib: 100}}`, 90 << 20},
		"none":                     {`{batch: {}}`, math.MaxInt64},
		"no processors":            {`{}`, math.MaxInt64},
		"settings that are wrong":  {`{memory_limiter: {limit_mib: many}}`, math.MaxInt64},
		"a spike above the limit":  {`{memory_limiter: {limit_mib: 100, spike_limit_mib: 200}}`, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			var processors map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(c.processors), &processors))
			got, err := runtimeLimit(confmap.NewFromStringMap(map[string]any{"processors": processors}), total)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTheRuntimeHasALimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(retryledger.DefaultConfiguration))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)

	t.Setenv(goMemoryLimit, "1GiB")
	require.NoError(t, limitMemory(conf))
	assert.Equal(t, before, debug.SetMemoryLimit(-1), "the user's own limit goes first")

	t.Setenv(goMemoryLimit, "")
	require.NoError(t, limitMemory(conf))
	assert.Less(t, debug.SetMemoryLimit(-1), int64(math.MaxInt64))
	assert.Greater(t, debug.SetMemoryLimit(-1), int64(32<<20))
}
