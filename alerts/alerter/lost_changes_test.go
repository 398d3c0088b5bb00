package alerter

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/schema"
)

// Texts of inserts, for bed.fail.
const (
	intoTransitions        = "INTO alert_transitions"
	intoBreakerTransitions = "INTO breaker_transitions"
)

func (b *bed) rows() []schema.AlertTransition {
	b.t.Helper()
	rows, err := schema.AlertTransitions(b.t.Context(), b.real, schema.AlertFilter{})
	require.NoError(b.t, err)
	return rows
}

func (b *bed) breakerChanges() []string {
	b.t.Helper()
	rows, err := b.real.Query(b.t.Context(), "SELECT provider, from, to, requests, server_errors FROM breaker_transitions FINAL ORDER BY at")
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, rows.Close()) }()
	list := []string{}
	for rows.Next() {
		var provider, from, to string
		var requests, errs int64
		require.NoError(b.t, rows.Scan(&provider, &from, &to, &requests, &errs))
		list = append(list, fmt.Sprintf("%s %s→%s %d of %d", provider, from, to, errs, requests))
	}
	require.NoError(b.t, rows.Err())
	return list
}

// What was told while the store took nothing is kept by the next start, in order, at its
// instants and with its numbers, once, and so is what the start itself leads to.
func TestChangesOutliveAKill(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]string{"inserts of changes fail": intoTransitions, "all inserts fail": "INTO "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.fail(nil, fails)
			first := firing(t, b, "")
			_, fired := first.alert("failing", "shop")
			b.hook.waitFor(t, "firing failing shop")
			b.insert(work{service: "shop", visits: 500})
			b.step(11, first)
			state, resolved := first.alert("failing", "shop")
			require.Equal(t, "resolved", state)
			b.hook.waitFor(t, "resolved failing shop")
			require.Empty(t, b.transitions())
			first.end() // killed

			b.fail(nil, "")
			second := b.start(first.dir, testRules)
			b.step(1, second)
			check := func() {
				t.Helper()
				assert.Equal(t, []string{"failing shop inactive→firing breach", "failing shop firing→resolved recovered"}, b.transitions())
				rows := b.rows()
				assert.Equal(t, []time.Time{*fired.StartsAt, *resolved.ResolvedAt}, []time.Time{rows[0].At, rows[1].At})
				assert.Equal(t, []int64{3, 100, 3, 600}, []int64{rows[0].Numerator, rows[0].Denominator, rows[1].Numerator, rows[1].Denominator})
			}
			check()
			b.step(12, second) // the state file without them is written
			second.end()
			third := b.start(first.dir, testRules)
			b.step(2, third)
			check()
			third.end()
			fourth := b.start("", testRules)
			b.step(1, fourth)
			check()
		})
	}
}

// A kill between the state and the insert: the state fires already, so nothing fires anew,
// and the change must come from the state file, with its reasons once they can be asked for.
func TestChangeBetweenStateAndInsert(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.fail(nil, intoTransitions)
	first := firing(t, b, "")
	first.end()
	b.fail(nil, "")
	second := b.start(first.dir, testRules)
	b.step(1, second)
	require.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions())
	assert.Equal(t, "TimeoutError", b.rows()[0].TopError)
	assert.Len(t, b.rows()[0].Runs, 1)
}

// A change that the store has already stays as it is there: what the state file says of it
// was written before its reasons were known.
func TestTheStoreMaySayMoreThanTheStateFile(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := firing(t, b, "")
	first.end()
	require.Equal(t, "TimeoutError", b.rows()[0].TopError)
	kept, _, err := first.state.read()
	require.NoError(t, err)
	require.Len(t, kept.Transitions, 1)
	b.fail(nil, "groupUniqArray") // the questions for reasons
	second := b.start(first.dir, testRules)
	b.step(1, second)
	assert.Empty(t, second.archive.transitions)
	assert.Equal(t, "TimeoutError", b.rows()[0].TopError)
}

// What others on the store came to does not push out what this collector told.
func TestChangesOfTwoCollectorsAfterAKill(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.fail(nil, intoTransitions)
	first := firing(t, b, "") // alone
	first.end()
	b.fail(nil, "")
	second := b.start("", testRules) // knows of nothing, sees the same
	b.step(2, second)
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.step(1, second)
	again := b.start(first.dir, testRules)
	b.step(1, again, second)
	assert.Equal(t, []string{"failing shop inactive→firing breach", "failing shop inactive→firing breach", "failing bank inactive→firing breach"}, b.transitions(),
		"each collector told of its own")
	state, _ := again.alert("failing", "bank")
	assert.Equal(t, "firing", state)
	b.insert(work{service: "shop", visits: 5000})
	b.step(12, again, second)
	require.Len(t, b.transitions(), 4)
	assert.Equal(t, "failing shop firing→resolved recovered", b.transitions()[3])
}

// An end while the store is away leaves the changes to the next start, and loses none.
func TestChangesOutliveAnEndWithoutTheStore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.fail(nil, intoTransitions)
	first := firing(t, b, "")
	b.fail(errAway, "")
	first.watch.end(t.Context())
	assert.Zero(t, first.archive.lostChanges)
	b.fail(nil, "")
	second := b.start(first.dir, testRules)
	b.step(1, second)
	assert.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions())
	second.watch.end(t.Context())
	kept, found, err := second.state.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Empty(t, kept.Transitions)
}

// An end that writes what waited takes it out of the state file.
func TestAnEndWritesWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.fail(nil, intoTransitions)
	c := firing(t, b, "")
	b.fail(nil, "")
	c.watch.end(t.Context())
	assert.Equal(t, []string{"failing shop inactive→firing breach"}, b.transitions())
	kept, found, err := c.state.read()
	require.NoError(t, err)
	assert.True(t, found)
	assert.Empty(t, kept.Transitions)
}

// Changes of breakers that clients heard of are in the history after a kill, and the
// breaker goes on from there.
func TestChangesOfBreakersOutliveAKill(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"INTO breakers", intoBreakerTransitions} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.fail(nil, fails)
			first := b.start("", "")
			b.step(1, first)
			b.insert(work{service: "shop", requests: 40, errs: 20})
			b.step(1, first)
			opened := first.breaker()
			require.Equal(t, breakers.Open, opened.State)
			b.step(10, first)
			require.Equal(t, breakers.HalfOpen, first.breaker().State)
			require.Empty(t, b.breakerChanges())
			first.end() // killed

			b.fail(nil, "")
			second := b.start(first.dir, "")
			b.step(1, second)
			taken := second.breaker()
			assert.Equal(t, breakers.HalfOpen, taken.State)
			assert.Equal(t, opened.RetryAt, &taken.Since)
			want := []string{"openai closed→open 20 of 40", "openai open→half_open 0 of 40"}
			got := b.breakerChanges()
			require.Len(t, got, 2)
			assert.Equal(t, want[0], got[0])
			assert.Regexp(t, `^openai open→half_open `, got[1])
			require.Len(t, b.kept(), 1)
			b.step(12, second)
			second.end()
			third := b.start(first.dir, "")
			b.step(2, third)
			assert.Equal(t, got, b.breakerChanges())
		})
	}
}

// Changes that wait are bounded, those of one evaluation apart; the oldest go, and are told.
func TestChangesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	changes := func(n int) []rules.Transition {
		list := make([]rules.Transition, n)
		for i := range list {
			list[i] = rules.Transition{At: at, Rule: "step_errors", Numerator: int64(i)}
		}
		return list
	}
	a := archive{}
	a.change(changes(maxChanges + 5))
	assert.Zero(t, a.lostChanges)
	assert.Len(t, a.transitions, maxChanges+5)
	a.change(changes(1))
	assert.Equal(t, 5, a.lostChanges)
	assert.Len(t, a.transitions, maxChanges+1)
	assert.EqualValues(t, 5, a.transitions[0].Numerator)

	k := breakerKeeper{changed: map[string]breakers.Breaker{}}
	for i := range maxChanges + 7 {
		provider := fmt.Sprint("provider ", i%1000)
		if i == 0 {
			provider = "gone"
		}
		k.change([]breakers.Transition{{Provider: provider, At: at}}, []breakers.Breaker{{Provider: provider}})
	}
	assert.Equal(t, 6, k.lost)
	assert.Len(t, k.waiting, maxChanges+1)
	assert.Len(t, k.changed, 1000)
	assert.NotContains(t, k.changed, "gone")
}

func TestWhatIsLostIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.fail(nil, intoTransitions)
	c := firing(t, b, "")
	core, logs := observer.New(zap.ErrorLevel)
	c.log = zap.New(core)
	rest := make([]rules.Transition, maxChanges)
	for i := range rest {
		rest[i] = rules.Transition{At: b.now(), Rule: fmt.Sprint(i), To: rules.StateFiring}
	}
	c.archive.change(rest)
	b.insert(work{service: "bank", visits: 50, failed: 50})
	b.step(1, c)
	told := logs.FilterMessageSnippet("is not kept: the oldest").All()
	require.Len(t, told, 1)
	assert.Equal(t, map[string]any{"samples": int64(0), "changes_of_alerts": int64(1), "changes_of_breakers": int64(0)}, told[0].ContextMap())
	kept, _, err := (&stateFile{path: filepath.Join(c.dir, stateName)}).read()
	require.NoError(t, err)
	assert.Len(t, kept.Transitions, maxChanges+1)
}
