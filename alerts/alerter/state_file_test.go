package alerter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

func state(at time.Time) rules.Snapshot {
	return rules.Snapshot{Instant: at, Alerts: []rules.AlertState{{
		Rule: "step_errors", Signal: signals.OperationErrorRatio, Group: signals.Labels{Service: "shop"}, Labels: map[string]string{"alertname": "step_errors"},
		State: rules.StateFiring, Since: at, StartsAt: at, Numerator: 3, Denominator: 50, Threshold: 20_000, Window: time.Minute,
	}}}
}

func TestStateFile(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	_, found, err := f.read()
	require.NoError(t, err)
	assert.False(t, found)
	for _, at := range []time.Time{time.Unix(1_800_000_000, 0).UTC(), time.Unix(1_800_000_010, 0).UTC()} {
		require.NoError(t, f.write(state(at)))
		got, found, err := f.read()
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, state(at), got)
	}
	left, err := os.ReadDir(filepath.Dir(f.path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing half-written is left behind")

	write(t, f.path, `{"instant":"2026-01-`)
	_, found, err = f.read()
	require.ErrorContains(t, err, f.path)
	assert.False(t, found)
}

// A crash in mid-write leaves a file beside the old one, which counts.
func TestStateFileOfACrash(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	at := time.Unix(1_800_000_000, 0).UTC()
	require.NoError(t, f.write(state(at)))
	write(t, f.path+".tmp", `{"instant":"2027-`)
	got, found, err := f.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, state(at), got)

	require.NoError(t, f.write(state(at.Add(time.Second))))
	assert.NoFileExists(t, f.path+".tmp", "what crashes left does not pile up")
}

// What cannot be written leaves the old state, and nothing else.
func TestStateFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	err := (&stateFile{path: filepath.Join(dir, "state.json")}).write(state(time.Unix(1_800_000_000, 0)))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "keep the state of the alerts")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "state.json"), 0o700)) // a folder cannot be replaced by a file
	err = (&stateFile{path: filepath.Join(dir, "state.json")}).write(state(time.Unix(1_800_000_000, 0)))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrNotExist)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

// What is written beside is there after the wait, and never after something newer.
func TestStateFileBeside(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	at := time.Unix(1_800_000_000, 0).UTC()
	var told []error
	f.wait()
	f.writeBeside(state(at), func(err error) { told = append(told, err) })
	f.wait()
	got, found, err := f.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, state(at), got)
	require.NoError(t, os.MkdirAll(f.path+".tmp", 0o700))
	f.writeBeside(state(at.Add(time.Second)), func(err error) { told = append(told, err) })
	f.wait()
	require.Len(t, told, 2)
	require.NoError(t, told[0])
	require.Error(t, told[1])
}
