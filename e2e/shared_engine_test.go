package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// sharedEngine runs an engine alone, and returns the settings of collectors that join it
// and a connection of the test's own.
func sharedEngine(t *testing.T) (engine *collectortest.Collector, join []string, store driver.Conn) {
	t.Helper()
	address := porttest.Free(t, 1)[0]
	folder := t.TempDir()
	engine = collectortest.LaunchCommand(t, collectortest.Place{Data: folder}, "engine", "--data-dir", folder, "--listen", address)
	engine.WaitFor("listens at " + address)
	content, err := os.ReadFile(filepath.Join(folder, "password"))
	require.NoError(t, err)
	password := strings.TrimSpace(string(content))
	assert.NotContains(t, engine.Output(), password)
	t.Setenv("SHARED_PASSWORD", password)
	store, err = clickhouse.Open(&clickhouse.Options{Addr: []string{address}, Auth: clickhouse.Auth{Database: "retryledger", Username: "retryledger", Password: password}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return engine, []string{
		"--set=extensions.retryledger_store.endpoint=" + address,
		"--set=extensions.retryledger_store.username=retryledger",
		"--set=extensions.retryledger_store.password=${env:SHARED_PASSWORD}",
	}, store
}

// Two collectors that share an engine answer about each other's spans.
func TestCollectorsShareAnEngine(t *testing.T) {
	shared, join, _ := sharedEngine(t)
	first, second := start(t, newPlace(t), join...), start(t, newPlace(t), join...)
	var traces []string
	for _, d := range []daemon{first, second} {
		sender := d.sender(ways[0])
		for range 5 {
			td, trace := smallRun()
			require.NoError(t, sender.Send(t.Context(), td))
			traces = append(traces, trace)
		}
	}
	first.waitForSmallRuns(t, traces)
	second.waitForSmallRuns(t, traces)
	first.Stop()
	second.Stop()
	shared.Stop()
}
