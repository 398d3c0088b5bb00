package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// Two collectors that share an engine answer about each other's spans.
func TestCollectorsShareAnEngine(t *testing.T) {
	address := porttest.Free(t, 1)[0]
	folder := t.TempDir()
	shared := collectortest.LaunchCommand(t, collectortest.Place{Data: folder}, "engine", "--data-dir", folder, "--listen", address)
	shared.WaitFor("listens at " + address)
	password, err := os.ReadFile(filepath.Join(folder, "password"))
	require.NoError(t, err)
	assert.NotContains(t, shared.Output(), strings.TrimSpace(string(password)))

	t.Setenv("SHARED_PASSWORD", strings.TrimSpace(string(password)))
	join := []string{
		"--set=extensions.retryledger_store.endpoint=" + address,
		"--set=extensions.retryledger_store.username=retryledger",
		"--set=extensions.retryledger_store.password=${env:SHARED_PASSWORD}",
	}
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
