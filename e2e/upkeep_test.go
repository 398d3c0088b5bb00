package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/collectortest"
)

// runOf is a small run of a service in a thread.
func runOf(service, thread string) (ptrace.Traces, string) {
	td, trace := smallRun()
	rs := td.ResourceSpans().At(0)
	rs.Resource().Attributes().PutStr("service.name", service)
	for _, span := range rs.ScopeSpans().At(0).Spans().All() {
		span.Attributes().PutStr("thread.id", thread)
	}
	return td, trace
}

// known are the runs of a service that a collector knows, by trace, in JSON.
func known(t *testing.T, d daemon, service string) map[string]string {
	t.Helper()
	var runs answer.Runs
	require.NoError(t, d.Get(context.Background(), "/api/v1/runs?limit=0&service="+service, &runs))
	found := map[string]string{}
	for _, run := range runs.Runs {
		found[run.TraceIDs[0]] = asJSON(t, run)
	}
	return found
}

// The store is backed up while it runs, its folder moved, runs deleted for good, and the
// backup restored on a new folder, by the commands that docs/operating.md names.
func TestTheStoreIsLookedAfter(t *testing.T) {
	p := newPlace(t)
	d := start(t, p)
	sender := d.sender(ways[0])
	all := map[string][]string{}
	var traces []string
	for i := range 6 {
		service, thread := []string{"checkout", "billing"}[i%2], fmt.Sprint("user-", i%3)
		td, trace := runOf(service, thread)
		require.NoError(t, sender.Send(t.Context(), td))
		traces = append(traces, trace)
		all[service] = append(all[service], trace)
	}
	d.waitForSmallRuns(t, traces)
	checkout, billing := known(t, d, "checkout"), known(t, d, "billing")
	require.Len(t, checkout, 3)
	require.Len(t, billing, 3)

	store := func(p collectortest.Place, args ...string) (string, int) {
		return asked(t, []string{"RETRYLEDGER_DATA_DIR=" + p.Data}, append([]string{"store"}, args...)...)
	}
	said, code := store(p, "backup", "monday")
	require.Equal(t, 0, code, said)
	backup := filepath.Join(p.Data, "engine", "backups", "monday")
	assert.Contains(t, said, backup)
	said, code = store(p, "backup", "../elsewhere")
	assert.Equal(t, 2, code, said)

	said, code = store(p, "backup", "monday")
	assert.Equal(t, 2, code, said)
	assert.Contains(t, said, "there is a backup monday in")
	said, code = store(p, "backup", "tuesday", "--base", "nope")
	assert.Equal(t, 2, code, said)
	assert.Contains(t, said, "--base nope: there is no backup of this name in")

	// More comes, and goes into a second backup on top of the first.
	td, late := runOf("late", "user-9")
	require.NoError(t, sender.Send(t.Context(), td))
	d.waitForSmallRuns(t, []string{late})
	said, code = store(p, "backup", "tuesday", "--base", "monday")
	require.Equal(t, 0, code, said)

	// Another folder, another machine.
	d.Stop()
	said, code = store(p, "backup", "wednesday")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "start the collector")
	moved := p
	moved.Data = filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(p.Data, moved.Data))
	t.Cleanup(func() { _ = os.MkdirAll(p.Data, 0o700) })
	d = start(t, moved)
	assert.Equal(t, checkout, known(t, d, "checkout"))

	// A service, and a person.
	said, code = store(moved, "delete", "--service", "checkout")
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "--yes")
	said, code = store(moved, "delete", "--service", "checkout", "--yes")
	require.Equal(t, 0, code, said)
	assert.Contains(t, said, "deleted 9 spans of 3 traces")
	assert.Empty(t, known(t, d, "checkout"))
	assert.Equal(t, billing, known(t, d, "billing"))
	said, code = store(moved, "delete", "--thread", "user-1", "--yes")
	require.Equal(t, 0, code, said)
	assert.Contains(t, said, "deleted 3 spans of 1 trace")
	assert.Len(t, known(t, d, "billing"), 2)
	for _, unknown := range [][]string{{"--service", "checkout"}, {"--thread", "user-1"}} {
		said, code = store(moved, append([]string{"delete", "--yes"}, unknown...)...)
		assert.Equal(t, 1, code, said)
		assert.Contains(t, said, "nothing is deleted: no run of the store is of the "+unknown[0][2:]+` "`+unknown[1])
	}
	// One run, by the beginning of its id; of several, none.
	said, code = store(moved, "delete", "--run", "", "--yes")
	assert.Equal(t, 2, code, said)
	said, code = store(moved, "delete", "--run", traces[3][:8], "--yes")
	require.Equal(t, 0, code, said)
	assert.Contains(t, said, "deleted 3 spans of 1 trace")
	left := known(t, d, "billing")
	assert.Len(t, left, 1)
	assert.NotContains(t, left, traces[3])
	said, code = store(moved, "delete", "--run", "nobody's", "--yes")
	assert.Equal(t, 1, code, said)
	assert.Contains(t, said, `no run of the store has the id "nobody's"`)
	// It stays so when more is written and accounted for.
	sender = d.sender(ways[0])
	td, more := runOf("more", "user-8")
	require.NoError(t, sender.Send(t.Context(), td))
	d.waitForSmallRuns(t, []string{more})
	assert.Empty(t, known(t, d, "checkout"))
	assert.Equal(t, left, known(t, d, "billing"))
	said, code = store(moved, "restore", "monday")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "holds spans already")
	d.Stop()

	// A new collector, with nothing but the copies.
	fresh := newPlace(t)
	d = start(t, fresh)
	said, code = store(fresh, "restore", "tuesday")
	assert.Equal(t, 4, code)
	assert.Contains(t, said, "copy it to")
	require.NoError(t, os.MkdirAll(filepath.Join(fresh.Data, "engine", "backups"), 0o700))
	for _, name := range []string{"monday", "tuesday"} {
		out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(moved.Data, "engine", "backups", name), filepath.Join(fresh.Data, "engine", "backups", name)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	said, code = store(fresh, "restore", "tuesday")
	require.Equal(t, 0, code, said)
	d.waitForSmallRuns(t, append([]string{late}, traces...))
	assert.Equal(t, checkout, known(t, d, "checkout"))
	assert.Equal(t, billing, known(t, d, "billing"))
	td, again := runOf("checkout", "user-7")
	require.NoError(t, d.sender(ways[0]).Send(t.Context(), td))
	d.waitForSmallRuns(t, []string{again})
	assert.Len(t, known(t, d, "checkout"), 4)
	d.Stop()
}

// A store that a newer release migrated is refused with a sentence, and left as it is.
func TestANewerStoreIsRefused(t *testing.T) {
	p := newPlace(t)
	start(t, p).Stop()
	folder := filepath.Join(p.Data, "engine")
	alone := collectortest.LaunchCommand(t, collectortest.Place{Data: p.Data}, "engine", "--data-dir", folder, "--listen", "127.0.0.1:0")
	alone.WaitFor("listens at ")
	_, after, _ := strings.Cut(alone.Output(), "listens at ")
	address, _, _ := strings.Cut(after, "\n")
	password, err := os.ReadFile(filepath.Join(folder, "password"))
	require.NoError(t, err)
	execOn(t, strings.TrimSpace(address), strings.TrimSpace(string(password)), "INSERT INTO schema_migrations (version, name) VALUES (9999, 'of the future')")
	alone.Stop()

	d := launch(t, p)
	assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
	assert.Contains(t, d.Output(), "9999")
	assertOneSentence(t, d)
}
