package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/internal/collectortest"
)

// changes are the history of one rule, the oldest first.
func (d daemon) changes(rule string) ([]report.Transition, error) {
	var history report.History
	if err := d.Get(context.Background(), report.HistoryPath+"?rule="+rule, &history); err != nil {
		return nil, err
	}
	slices.Reverse(history.Transitions)
	return history.Transitions, nil
}

// changesOnce waits for the changes of a rule's one alert, by what it came to, and returns them.
func (d daemon) changesOnce(rule string, want ...string) (found []report.Transition) {
	d.t.Helper()
	eventually(d.t, appearWithin, func() (err error) {
		found, err = d.changes(rule)
		if err != nil {
			return err
		}
		states := make([]string, len(found))
		for i, c := range found {
			states[i] = c.To
		}
		if !slices.Equal(states, want) {
			return fmt.Errorf("the history of %s is %q", rule, states)
		}
		return nil
	})
	return found
}

func count(t *testing.T, store driver.Conn, from string) (n uint64) {
	t.Helper()
	require.NoError(t, store.QueryRow(t.Context(), "SELECT count() FROM "+from).Scan(&n))
	return n
}

// What people were told of is in the history, once, with its numbers: though the store took
// none of it when it happened, or was away, and the collector was killed before it did.
func TestTransitionsOutliveAKill(t *testing.T) {
	hook := newReceiver(t)
	rulesFile := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rulesFile, []byte("rules:\n"+
		"  - {name: step_errors, window: 10s, keep_firing_for: 10s}\n"+
		"  - {name: evaluation_stalled, window: 5s, keep_firing_for: 10s}\n"), 0o600))
	t.Setenv("RETRYLEDGER_ALERTMANAGER_FILE", hook.file(t))
	t.Setenv("RETRYLEDGER_RULES_FILE", rulesFile)
	engine, join, store := sharedEngine(t)
	p := newPlace(t)
	d := start(t, p, join...)
	tables := []string{"alert_transitions", "breakers", "breaker_transitions"}
	for _, table := range tables {
		require.NoError(t, store.Exec(t.Context(), "ALTER TABLE "+table+" ADD CONSTRAINT refused CHECK 0"))
	}
	lines := d.events(t.Context())
	require.NoError(t, d.sender(ways[0]).Send(t.Context(), traffic("shop", "2.0", 60, 20)))
	hook.waitFor(t, "firing step_errors shop")
	fired, err := d.alert("step_errors", "shop")
	require.NoError(t, err)
	waitForLine(t, lines, "data: ", `"to":"open"`, `"openai"`)
	hook.waitFor(t, "resolved step_errors shop")
	d.Kill()
	for _, table := range tables {
		require.Zero(t, count(t, store, table), table)
		require.NoError(t, store.Exec(t.Context(), "ALTER TABLE "+table+" DROP CONSTRAINT refused"))
	}

	opened := func() {
		t.Helper()
		eventually(t, appearWithin, func() error {
			var openai breakers.View
			if err := d.Get(context.Background(), breakers.Path+"/openai", &openai); err != nil {
				return err
			}
			if openai.Trips != 1 || len(openai.History) == 0 || openai.History[0].To != breakers.Open {
				return fmt.Errorf("the breaker is %+v", openai)
			}
			if n := count(t, store, "breaker_transitions FINAL WHERE to = 'open' AND requests >= 20 AND server_errors > 0"); n != 1 {
				return fmt.Errorf("it opened %d times", n)
			}
			return nil
		})
	}
	for range 2 { // the second start finds what the first one kept
		d = start(t, p, join...)
		changes := d.changesOnce("step_errors", "firing", "resolved")
		assert.Equal(t, *fired.StartsAt, changes[0].At)
		assert.GreaterOrEqual(t, changes[0].Denominator, int64(50))
		assert.Positive(t, changes[0].Numerator)
		assert.Equal(t, *fired.StartsAt, *changes[1].StartsAt)
		assert.Equal(t, "no_data", changes[1].Reason)
		opened()
		d.Kill()
	}

	d = start(t, p, join...)
	opened()
	engine.Kill()
	stalled := hook.waitFor(t, "firing evaluation_stalled")
	assert.NotEmpty(t, stalled["summary"])
	d.Kill()
	engine = collectortest.LaunchCommand(t, engine.Place, "engine", "--data-dir", engine.Data, "--listen", join[0][len("--set=extensions.retryledger_store.endpoint="):])
	engine.WaitFor("listens at ")
	d = start(t, p, join...)
	changes := d.changesOnce("evaluation_stalled", "firing", "resolved")
	assert.Greater(t, changes[0].LastedSeconds, 5.0)
	d.Stop()
	engine.Stop()
}
