package alerter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryledger/retryledger/schema"
)

// firing is a watch with one alert that fires.
func firing(t *testing.T, b *bed, dir string) *collector {
	t.Helper()
	c := b.start(dir, testRules)
	b.step(1, c)
	b.insert(work{service: "shop", visits: 100, failed: 3})
	b.step(1, c)
	state, _ := c.alert("failing", "shop")
	require.Equal(t, "firing", state)
	return c
}

func TestWatchFiresAndResolves(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", testRules)
	b.insert(work{service: "shop", visits: 100, failed: 2}) // exactly at the threshold
	b.step(2, c)
	assert.Empty(t, b.transitions())
	b.insert(work{service: "shop", visits: 1, failed: 1}) // 3 of 101
	b.insert(work{service: "small", visits: 49, failed: 49})
	b.step(1, c)
	told := b.hook.waitFor(t, "firing failing shop")
	assert.Equal(t, "shop resolve: 3 of 101", told["summary"])
	assert.Equal(t, "TimeoutError", told["errors"])
	assert.Equal(t, "2 runs", told["runs"])
	assert.Contains(t, told["show"], "retryledger top --since ")
	assert.Contains(t, told["show"], "--service shop")
	rows, err := schema.AlertTransitions(t.Context(), b.real, schema.AlertFilter{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.EqualValues(t, 3, rows[0].Numerator)
	assert.EqualValues(t, 101, rows[0].Denominator)
	assert.Equal(t, "TimeoutError", rows[0].TopError)
	assert.Len(t, rows[0].Runs, 2)

	b.insert(work{service: "shop", visits: 500})
	b.step(10, c)
	state, alert := c.alert("failing", "shop")
	assert.Equal(t, "recovered", alert.Held)
	assert.Equal(t, time.Second, alert.HeldSince.Sub(*alert.CountedAt), "the numbers are those of the breach")
	assert.Equal(t, "firing", state, "the hold is ten seconds, from the first evaluation without a breach")
	b.step(1, c)
	state, _ = c.alert("failing", "shop")
	assert.Equal(t, "resolved", state)
	b.hook.waitFor(t, "resolved failing shop")
	b.step(30, c)
	assert.Equal(t, []string{"failing shop inactive→firing breach", "failing shop firing→resolved recovered"}, b.transitions())
	assert.Equal(t, map[string]int{"firing failing shop": 1, "resolved failing shop": 1}, b.hook.told)
}

func TestWatchWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := firing(t, b, "")
	b.fail(errAway, "")
	b.step(29, c)
	assert.Zero(t, b.hook.count("firing stalled"))
	state, _ := c.alert("stalled", "")
	assert.Empty(t, state)
	b.step(90, c) // the window is long over
	b.hook.waitFor(t, "firing stalled")
	state, _ = c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
	assert.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions(), "kept for when the store is back")

	b.fail(nil, "")
	b.step(5, c)
	state, _ = c.alert("failing", "shop")
	assert.Equal(t, "firing", state, "what happened meanwhile is not known, so the hold begins now")
	b.step(7, c)
	state, _ = c.alert("failing", "shop")
	assert.Equal(t, "resolved", state)
	state, _ = c.alert("stalled", "")
	assert.Equal(t, "resolved", state)
	b.hook.waitFor(t, "resolved failing shop")
	b.hook.waitFor(t, "resolved stalled")
	assert.ElementsMatch(t, []string{
		"failing shop inactive→firing breach", "stalled  inactive→firing breach",
		"failing shop firing→resolved no_data", "stalled  firing→resolved recovered",
	}, b.transitions())
	assert.Len(t, b.hook.told, 4)
	for key, n := range b.hook.told {
		assert.Equal(t, 1, n, key)
	}
}

// A start while the store is away evaluates nothing, and takes up what fires when it is back.
func TestWatchStartsWithoutTheStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := firing(t, b, "")
	_, before := first.alert("failing", "shop")
	b.hook.waitFor(t, "firing failing shop")
	first.end()
	b.fail(errAway, "")
	c := b.start("", testRules)
	b.step(3, c)
	assert.Empty(t, c.alerts().Alerts)
	assert.Nil(t, c.alerts().EvaluatedAt)
	b.fail(nil, "")
	b.step(1, c)
	state, after := c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
	assert.Equal(t, before.StartsAt, after.StartsAt)
	assert.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions())
}

// A restart neither repeats, nor resolves, nor loses: on the same folder, on an empty
// one, and on one whose file of states is damaged.
func TestWatchRestarts(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]func(*testing.T, string) string{
		"same folder":  func(_ *testing.T, dir string) string { return dir },
		"empty folder": func(*testing.T, string) string { return "" },
		"damaged file": func(t *testing.T, dir string) string {
			t.Helper()
			write(t, filepath.Join(dir, stateName), `{"instant":"20`)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			first := firing(t, b, "")
			_, before := first.alert("failing", "shop")
			b.hook.waitFor(t, "firing failing shop")
			b.insert(work{service: "shop", visits: 500}) // it recovers
			b.step(4, first)
			first.end() // killed: nothing is written at the end

			second := b.start(folder(t, first.dir), testRules)
			b.step(1, second)
			state, after := second.alert("failing", "shop")
			assert.Equal(t, "firing", state)
			assert.Equal(t, before.StartsAt, after.StartsAt)
			assert.Equal(t, before.Fingerprint, after.Fingerprint)
			b.step(11, second) // a hold from the restart on, at the latest
			state, _ = second.alert("failing", "shop")
			assert.Equal(t, "resolved", state)
			assert.Equal(t, []string{"failing shop inactive→firing breach", "failing shop firing→resolved recovered"}, b.transitions())
			b.hook.waitFor(t, "resolved failing shop")
			if name != "empty folder" { // who was told of what is in the folder
				assert.Equal(t, 1, b.hook.count("firing failing shop"))
			}
		})
	}
}

// What was behind an alert outlives a restart, even where the ledger cannot say it again.
func TestReasonsOutliveARestart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := firing(t, b, "")
	_, before := first.alert("failing", "shop")
	require.Equal(t, "TimeoutError", before.TopError)
	first.end()
	b.fail(nil, "groupUniqArray") // the questions for reasons
	second := b.start(first.dir, testRules)
	b.step(1, second)
	_, after := second.alert("failing", "shop")
	assert.Equal(t, before.TopErrorCount, after.TopErrorCount)
	assert.Equal(t, before.Runs, after.Runs)
	assert.Equal(t, "TimeoutError", after.Annotations["errors"])
	b.insert(work{service: "shop", visits: 500})
	b.step(12, second)
	state, resolved := second.alert("failing", "shop")
	require.Equal(t, "resolved", state)
	assert.Equal(t, "TimeoutError", resolved.TopError)
	second.end()

	third := b.start("", testRules)
	b.step(1, third)
	state, resolved = third.alert("failing", "shop")
	require.Equal(t, "resolved", state)
	assert.Equal(t, "TimeoutError", resolved.TopError)
	rows, err := schema.AlertTransitions(t.Context(), b.real, schema.AlertFilter{})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for _, row := range rows {
		assert.Equal(t, before.TopErrorCount, row.TopErrorCount, row.To)
	}
}

// A collector that was away while others went on takes up what they came to.
func TestWatchTakesUpWhatOthersCameTo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := firing(t, b, "")
	second := b.start("", testRules)
	b.step(1, first, second)
	first.end()
	b.insert(work{service: "shop", visits: 500})
	b.step(12, second)
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.step(1, second)
	want := []string{"failing shop inactive→firing breach", "failing shop firing→resolved recovered", "failing bank inactive→firing breach"}
	require.Equal(t, want, b.transitions())
	_, ofSecond := second.alert("failing", "bank")
	b.step(1, second)

	again := b.start(first.dir, testRules)
	b.step(1, again, second)
	state, _ := again.alert("failing", "shop")
	assert.Equal(t, "resolved", state)
	_, ofAgain := again.alert("failing", "bank")
	assert.Equal(t, ofSecond.StartsAt, ofAgain.StartsAt)
	b.step(15, again, second)
	assert.Equal(t, want, b.transitions())
}

// Two collectors on one store come to the same: one row for each change.
func TestTwoWatchesOnOneStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first, second := b.start("", testRules), b.start("", testRules)
	b.step(1, first, second)
	for i := range 40 {
		failed := 0
		if i%20 < 3 {
			failed = 50
		}
		b.insert(work{service: "shop", visits: 50, failed: failed, requests: 30, errs: failed / 2})
		b.insert(work{service: "bank", visits: 60, failed: 1})
		b.step(1, first, second)
	}
	b.step(90, first, second)
	assert.Equal(t, []string{"failing shop inactive→firing breach", "failing shop firing→resolved recovered"}, b.transitions())
	assert.Equal(t, first.evaluator.Snapshot(), second.evaluator.Snapshot())
	for _, c := range []*collector{first, second} {
		require.NoError(t, c.archive.flush(t.Context(), b.real))
	}
	samples, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{Rule: "failing"})
	require.NoError(t, err)
	instants := map[string]bool{}
	for _, s := range samples {
		key := s.Instant.String() + s.Group.Service
		assert.False(t, instants[key], "one row for each instant and group")
		instants[key] = true
	}
	assert.NotEmpty(t, instants)
}

// A clock of the store that steps back evaluates nothing twice and resolves nothing.
func TestStoreClockStepsBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := firing(t, b, "")
	b.step(2, c)
	_, before := c.alert("failing", "shop")
	ahead := b.now()
	samples := func() int {
		t.Helper()
		require.NoError(t, c.archive.flush(t.Context(), b.real))
		rows, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{})
		require.NoError(t, err)
		return len(rows)
	}
	evaluated := samples()
	b.set(ahead.Add(-20 * time.Second))
	b.step(19, c)
	assert.Equal(t, evaluated, samples())
	state, after := c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
	assert.Equal(t, before, after)
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.step(3, c) // past where it was
	state, _ = c.alert("failing", "bank")
	assert.Equal(t, "firing", state)
	assert.Equal(t, []string{"failing shop inactive→firing breach", "failing bank inactive→firing breach"}, b.transitions())
}

// A pass within the same second says nothing new, and asks to come again at the next.
func TestOneEvaluationASecond(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := firing(t, b, "")
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.set(b.now().Add(300 * time.Millisecond)) // .4 of the same second
	assert.Equal(t, 600*time.Millisecond, c.pass(t.Context(), b.now()))
	state, _ := c.alert("failing", "bank")
	assert.Empty(t, state)
	b.set(b.now().Add(600 * time.Millisecond))
	assert.Equal(t, time.Second, c.pass(t.Context(), b.now()))
	state, _ = c.alert("failing", "bank")
	assert.Equal(t, "firing", state)
}

// A folder that takes no file costs no evaluation; the store knows what fires.
func TestWatchWithoutAFolder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", testRules)
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, stateName, "taken"), 0o700))
	b.step(1, c)
	b.insert(work{service: "shop", visits: 50, failed: 50})
	b.step(1, c)
	state, _ := c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
	assert.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions())
}

// An explanation is made anew after one minute, two, four, eight, and then every ten.
func TestExplanationsGrowOld(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	x := explanation{startsAt: at}
	var asked []int
	for minute := range 41 {
		if now := at.Add(time.Duration(minute) * time.Minute); x.old(now) {
			asked = append(asked, minute)
			x.madeAt = now
		}
	}
	assert.Equal(t, []int{0, 1, 2, 4, 8, 16, 26, 36}, asked)
}

// A rule that leaves groups off says so, in the list of alerts and now and then in the log.
func TestGroupsLeftOffAreTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", "default_pack: false\nrules: [{name: many, signal: operation_error_ratio, threshold: 2 %, window: 1m, group_by: [service], max_groups: 1}]\n")
	core, logs := observer.New(zap.WarnLevel)
	c.log = zap.New(core)
	b.step(1, c)
	for _, service := range []string{"shop", "bank", "post"} {
		b.insert(work{service: service, visits: 5})
	}
	b.step(5, c)
	assert.Equal(t, map[string]int{"many": 2}, c.alerts().LeftOff)
	told := logs.FilterMessageSnippet("max_groups").All()
	require.Len(t, told, 1)
	assert.Equal(t, map[string]any{"rule": "many", "left_off": int64(2)}, told[0].ContextMap())
	b.set(b.now().Add(leftOffEvery))
	b.insert(work{service: "shop", visits: 5})
	b.insert(work{service: "bank", visits: 5})
	b.step(1, c)
	assert.Len(t, logs.FilterMessageSnippet("max_groups").All(), 2)
}

// What is behind an alert that goes on firing is asked anew beside the evaluations.
func TestExplanationsFollow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := firing(t, b, "")
	_, alert := c.alert("failing", "shop")
	require.Equal(t, "TimeoutError", alert.TopError)
	fails := func() {
		row := b.row(work{service: "shop", visits: 100, failed: 100}, b.now())
		for i := range row.Operations {
			row.Operations[i].LastError = "QuotaError"
		}
		require.NoError(t, schema.InsertLedger(t.Context(), b.real, []schema.LedgerRow{row}))
	}
	fails()
	b.step(50, c)
	_, alert = c.alert("failing", "shop")
	require.Equal(t, "TimeoutError", alert.TopError, "not before a minute has gone by")
	fails()
	b.step(12, c)
	require.Eventually(t, func() bool {
		fails()
		b.step(1, c)
		_, alert = c.alert("failing", "shop")
		return alert.TopError == "QuotaError"
	}, patienceOfTests, 10*time.Millisecond)
	state, _ := c.alert("failing", "shop")
	assert.Equal(t, "firing", state)
}
