package alerter

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// firingSince is a state with one alert, and what the store may lack.
func firingSince(at time.Time) state {
	opened := breakers.Transition{Provider: "openai", From: breakers.Closed, To: breakers.Open, At: at, Why: "20 of 40 failed.", Counts: breakers.Counts{Requests: 40, ServerErrors: 20}}
	return state{
		Snapshot: rules.Snapshot{Instant: at, Alerts: []rules.AlertState{{
			Rule: "step_errors", Signal: signals.OperationErrorRatio, Group: signals.Labels{Service: "shop"}, Labels: map[string]string{"alertname": "step_errors"},
			State: rules.StateFiring, Since: at, StartsAt: at, Numerator: 3, Denominator: 50, Threshold: 20_000, Window: time.Minute,
		}}},
		Transitions: []schema.AlertTransition{{
			At: at, Rule: "step_errors", Signal: string(signals.OperationErrorRatio), Group: schema.AlertGroup{Service: "shop"}, Fingerprint: math.MaxUint64,
			Labels: map[string]string{"alertname": "step_errors"}, From: "inactive", To: "firing", Reason: "breach", Since: at, StartsAt: at,
			WindowS: 60, Numerator: 3, Denominator: 50, Threshold: 0.02, MinSamples: 50, TopError: "TimeoutError", TopErrorCount: 3, Runs: []string{"a"}, Writer: "host/1",
		}},
		BreakerTransitions: []schema.BreakerTransition{{At: at, Provider: "openai", From: "closed", To: "open", Why: opened.Why, Requests: 40, ServerErrors: 20, Writer: "host/1"}},
		Breakers:           []breakers.Breaker{{Provider: "openai", State: breakers.Open, Since: at, Trips: 1, RetryAt: at.Add(time.Minute), History: []breakers.Transition{opened}}},
	}
}

func TestStateFile(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	_, found, err := f.read()
	require.NoError(t, err)
	assert.False(t, found)
	for _, at := range []time.Time{time.Unix(1_800_000_000, 0).UTC(), time.Unix(1_800_000_010, 0).UTC()} {
		require.NoError(t, f.write(firingSince(at)))
		got, found, err := f.read()
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, firingSince(at), got)
	}
	left, err := os.ReadDir(filepath.Dir(f.path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing half-written is left behind")

	write(t, f.path, `{"instant":"2026-01-`)
	_, found, err = f.read()
	require.ErrorContains(t, err, f.path)
	assert.False(t, found)
}

// The file of a release that kept no changes there is a state without any.
func TestStateFileWithoutChanges(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	write(t, f.path, `{"instant":"2027-01-15T08:00:00Z","alerts":[{"rule":"step_errors","signal":"operation_error_ratio","group":{"service":"shop"},`+
		`"labels":{"alertname":"step_errors"},"state":"firing","since":"2027-01-15T08:00:00Z","starts_at":"2027-01-15T08:00:00Z","numerator":3,"denominator":50,`+
		`"threshold_millionths":20000,"window":60000000000}]}`)
	got, found, err := f.read()
	require.NoError(t, err)
	assert.True(t, found)
	want := firingSince(time.Unix(1_800_000_000, 0).UTC())
	assert.Equal(t, state{Snapshot: want.Snapshot}, got)
}

// A crash in mid-write leaves a file beside the old one, which counts.
func TestStateFileOfACrash(t *testing.T) {
	f := stateFile{path: filepath.Join(t.TempDir(), "state.json")}
	at := time.Unix(1_800_000_000, 0).UTC()
	require.NoError(t, f.write(firingSince(at)))
	write(t, f.path+".tmp", `{"instant":"2027-`)
	got, found, err := f.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, firingSince(at), got)

	require.NoError(t, f.write(firingSince(at.Add(time.Second))))
	assert.NoFileExists(t, f.path+".tmp", "what crashes left does not pile up")
}

// What cannot be written leaves the old state, and nothing else.
func TestStateFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	err := (&stateFile{path: filepath.Join(dir, "state.json")}).write(firingSince(time.Unix(1_800_000_000, 0)))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "keep the state of the alerts")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "state.json"), 0o700)) // a folder cannot be replaced by a file
	err = (&stateFile{path: filepath.Join(dir, "state.json")}).write(firingSince(time.Unix(1_800_000_000, 0)))
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
	f.writeBeside(firingSince(at), func(err error) { told = append(told, err) })
	f.wait()
	got, found, err := f.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, firingSince(at), got)
	require.NoError(t, os.MkdirAll(f.path+".tmp", 0o700))
	f.writeBeside(firingSince(at.Add(time.Second)), func(err error) { told = append(told, err) })
	f.wait()
	require.Len(t, told, 2)
	require.NoError(t, told[0])
	require.Error(t, told[1])
}
