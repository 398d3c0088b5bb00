package rules_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

var start = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// second is the instant n seconds after the start.
func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// told is a reader that says what it was told to say.
type told struct {
	samples map[signals.Signal][]signals.Sample
	err     error
	errOf   map[signals.Signal]error
	reads   int
}

func (r *told) Window(_ context.Context, q signals.Query) ([]signals.Sample, error) {
	r.reads++
	return r.samples[q.Signal], errors.Join(r.err, r.errOf[q.Signal])
}

// say sets the only group of the operation errors.
func (r *told) say(failed, total int64) {
	r.samples = map[signals.Signal][]signals.Sample{}
	if total > 0 {
		r.samples[signals.OperationErrorRatio] = []signals.Sample{{Numerator: failed, Denominator: total}}
	}
}

// bench is an evaluator with its reader, second by second.
type bench struct {
	t      *testing.T
	reader *told
	*rules.Evaluator
	now int
	// notices are what a person would be told: what began to fire and what resolved.
	notices []string
	fires   map[string]bool
}

func newBench(t *testing.T, file string) *bench {
	t.Helper()
	reader := &told{}
	return &bench{t: t, reader: reader, Evaluator: rules.NewEvaluator(load(t, file), reader, rules.Options{}), now: -1, fires: map[string]bool{}}
}

// next evaluates the next second.
func (b *bench) next() rules.Evaluation {
	b.t.Helper()
	b.now++
	out, err := b.Eval(b.t.Context(), second(b.now))
	require.NoError(b.t, err)
	b.notice(out)
	return out
}

// notice does what Alertmanager does with what is delivered: one notice for each change.
func (b *bench) notice(out rules.Evaluation) {
	for _, a := range out.Alerts {
		key := fmt.Sprint(a.Labels)
		fires := a.EndsAt.After(out.Instant)
		if fires != b.fires[key] {
			b.fires[key] = fires
			b.notices = append(b.notices, fmt.Sprintf("%d %s %s", int(out.Instant.Sub(start).Seconds()), a.Rule, map[bool]string{true: "fires", false: "resolved"}[fires]))
		}
	}
}

// states are the states that one evaluation leaves, as "rule state" of all but the inactive.
func states(out rules.Evaluation) []string {
	var all []string
	for _, s := range out.Samples {
		if s.State != rules.StateInactive {
			all = append(all, s.Rule+" "+string(s.State))
		}
	}
	return all
}

// The three thresholds of the default pack, each alone and without groups.
const three = `
default_pack: false
rules:
  - {name: steps, signal: operation_error_ratio, threshold: 2 %, window: 2m, min_samples: 50}
  - {name: canary, signal: fallback_ratio, threshold: 1 %, window: 3m, min_samples: 100}
  - {name: provider, signal: server_error_ratio, threshold: 15 %, window: 30s, min_samples: 20}
`

// TestBoundaries: exactly at, just above, one sample short, empty, one of one, for all
// three thresholds.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule          string
		signal        signals.Signal
		failed, total int64
		fires         bool
	}{
		{"steps", signals.OperationErrorRatio, 2, 100, false},
		{"steps", signals.OperationErrorRatio, 3, 100, true},
		{"steps", signals.OperationErrorRatio, 2, 99, true},
		{"steps", signals.OperationErrorRatio, 1, 50, false},
		{"steps", signals.OperationErrorRatio, 49, 49, false}, // one sample short
		{"steps", signals.OperationErrorRatio, 50, 50, true},
		{"steps", signals.OperationErrorRatio, 20_000_000_000_000, 1_000_000_000_000_000, false}, // no rounding
		{"steps", signals.OperationErrorRatio, 20_000_000_000_001, 1_000_000_000_000_000, true},
		{"steps", signals.OperationErrorRatio, 0, 1000, false},
		{"steps", signals.OperationErrorRatio, 1, 1, false},
		{"steps", signals.OperationErrorRatio, 0, 0, false},
		{"canary", signals.FallbackRatio, 1, 100, false},
		{"canary", signals.FallbackRatio, 2, 100, true},
		{"canary", signals.FallbackRatio, 2, 199, true},
		{"canary", signals.FallbackRatio, 2, 200, false},
		{"canary", signals.FallbackRatio, 99, 99, false},
		{"canary", signals.FallbackRatio, 1, 1, false},
		{"canary", signals.FallbackRatio, 0, 0, false},
		{"provider", signals.ServerErrorRatio, 3, 20, false},
		{"provider", signals.ServerErrorRatio, 4, 20, true},
		{"provider", signals.ServerErrorRatio, 15, 100, false},
		{"provider", signals.ServerErrorRatio, 151, 1000, true},
		{"provider", signals.ServerErrorRatio, 19, 19, false},
		{"provider", signals.ServerErrorRatio, 1, 1, false},
		{"provider", signals.ServerErrorRatio, 0, 0, false},
	} {
		t.Run(fmt.Sprintf("%s_%d_of_%d", c.rule, c.failed, c.total), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, three)
			b.reader.samples = map[signals.Signal][]signals.Sample{c.signal: {{Numerator: c.failed, Denominator: c.total}}}
			out := b.next()
			if !c.fires {
				assert.Empty(t, states(out))
				assert.Empty(t, out.Alerts)
				assert.Empty(t, out.Transitions)
				return
			}
			assert.Equal(t, []string{c.rule + " firing"}, states(out))
			require.Len(t, out.Transitions, 1)
			assert.Equal(t, c.failed, out.Transitions[0].Numerator)
			assert.Equal(t, c.total, out.Transitions[0].Denominator)
			require.Len(t, out.Alerts, 1)
			assert.Equal(t, second(0), out.Alerts[0].StartsAt)
			assert.Equal(t, map[string]string{"alertname": c.rule}, out.Alerts[0].Labels)
		})
	}
}

func TestEmptyIsNoSample(t *testing.T) {
	t.Parallel()
	b := newBench(t, three)
	b.reader.samples = map[signals.Signal][]signals.Sample{signals.OperationErrorRatio: {{Numerator: 3, Denominator: 0}}}
	assert.Empty(t, b.next().Samples, "3 of 0 is no ratio")
}

// hold is a rule with a `for` of 5 s and a hold of 10 s.
const hold = `
default_pack: false
rules:
  - {name: r, signal: operation_error_ratio, threshold: 2 %, window: 2m, min_samples: 50, for: 5s, keep_firing_for: 10s}
`

// script runs lines "N× failed/total state [reason]" through the rule, N seconds each, and expects
// the state after each of the seconds. "-" is no data.
func script(t *testing.T, b *bench, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		n, err := strconv.Atoi(strings.TrimSuffix(words[0], "×"))
		require.NoError(t, err)
		var failed, total int64
		if words[1] != "-" {
			_, err := fmt.Sscanf(words[1], "%d/%d", &failed, &total)
			require.NoError(t, err)
		}
		for i := range n {
			b.reader.say(failed, total)
			out := b.next()
			state := rules.StateInactive
			for _, s := range b.Snapshot().Alerts {
				state = s.State
			}
			require.Equal(t, words[2], string(state), "%s, second %d of it, instant %d", line, i+1, b.now)
			if len(words) > 3 && i == 0 {
				require.Len(t, out.Transitions, 1, line)
				require.Equal(t, words[3], string(out.Transitions[0].Reason), line)
			} else {
				require.Empty(t, out.Transitions, "%s, second %d of it", line, i+1)
			}
		}
	}
}

func TestLifeOfAnAlert(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"recovery": {"3× 0/100 inactive", "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "20× 3/100 firing",
			"10× 2/100 firing", "1× 2/100 resolved recovered", "5× 2/100 resolved"},
		"for starts over":         {"1× 3/100 pending breach", "3× 3/100 pending", "1× 2/100 inactive recovered", "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach"},
		"no data while pending":   {"1× 3/100 pending breach", "1× - inactive no_data"},
		"few while pending":       {"1× 3/100 pending breach", "1× 40/49 inactive too_few_samples"},
		"no data within the hold": {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "10× - firing", "3× 3/100 firing"},
		"no data after the hold":  {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "10× - firing", "1× - resolved no_data"},
		"few after the hold":      {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "10× 40/49 firing", "1× 40/49 resolved too_few_samples"},
		"calm, then no data":      {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "9× 2/100 firing", "1× - firing", "1× - resolved no_data"},
		"no data, then calm":      {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "9× - firing", "1× 0/100 firing", "1× 0/100 resolved recovered"},
		"a breach ends the calm":  {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "9× 2/100 firing", "1× 3/100 firing", "10× 2/100 firing", "1× 2/100 resolved recovered"},
		"again after it resolved": {"1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "10× 2/100 firing", "1× 2/100 resolved recovered", "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach"},
		"never begins on no data": {"30× - inactive", "30× 49/49 inactive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script(t, newBench(t, hold), lines...)
		})
	}
}

// Who looks at an alert within its hold sees what it waits on, and since when.
func TestAnAlertThatIsHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t, hold)
	held := func() (rules.Reason, time.Time) {
		a := b.Snapshot().Alerts[0]
		return a.Held, a.HeldSince
	}
	script(t, b, "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "1× 3/100 firing")
	why, _ := held()
	assert.Empty(t, why)
	script(t, b, "1× 0/100 firing")
	why, since := held()
	assert.Equal(t, rules.ReasonRecovered, why)
	assert.Equal(t, second(b.now), since)
	script(t, b, "3× - firing")
	why, since = held()
	assert.Equal(t, rules.ReasonNoData, why)
	assert.Equal(t, second(b.now-2), since)
	script(t, b, "1× 3/100 firing")
	why, since = held()
	assert.Empty(t, why)
	assert.True(t, since.IsZero())
	script(t, b, "1× 40/49 firing")
	why, _ = held()
	assert.Equal(t, rules.ReasonFewSamples, why)
	script(t, b, "9× 40/49 firing", "1× 40/49 resolved too_few_samples")
	why, _ = held()
	assert.Empty(t, why, "it is over")
}

// TestFlapNotifiesOnce: a value that swings around the threshold every second, every few
// seconds, or with holes, for five minutes: it fires once and resolves once.
func TestFlapNotifiesOnce(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]struct {
		signal signals.Signal
		above  [2]int64
		at     [2]int64
	}{
		"steps":    {signals.OperationErrorRatio, [2]int64{3, 100}, [2]int64{2, 100}},
		"canary":   {signals.FallbackRatio, [2]int64{2, 100}, [2]int64{1, 100}},
		"provider": {signals.ServerErrorRatio, [2]int64{4, 20}, [2]int64{3, 20}},
	} {
		for _, period := range []int{1, 5, 20} {
			t.Run(fmt.Sprintf("%s_%d", name, period), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, three)
				for i := range 900 {
					values := rule.at
					if i < 300 && i/period%2 == 0 {
						values = rule.above
					}
					b.reader.samples = map[signals.Signal][]signals.Sample{}
					if i%7 != 3 {
						b.reader.samples[rule.signal] = []signals.Sample{{Numerator: values[0], Denominator: values[1]}}
					}
					b.next()
				}
				require.Len(t, b.notices, 2, b.notices)
				assert.Equal(t, "0 "+name+" fires", b.notices[0])
			})
		}
	}
}

// TestGroupsAreAlertsOfTheirOwn: labels, order, and one group's recovery leaves the other.
func TestGroupsAreAlertsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, "{}")
	group := func(service, step string, failed, total int64) signals.Sample {
		return signals.Sample{Labels: signals.Labels{Service: service, Step: step}, Numerator: failed, Denominator: total}
	}
	say := func(s ...signals.Sample) {
		b.reader.samples = map[signals.Signal][]signals.Sample{signals.OperationErrorRatio: s}
	}
	// The pack's canary rule reads the same signal here, and the reader does not filter.
	b.Reload(load(t, "rules: [{name: canary_errors, enabled: false}]"))
	say(group("a", "", 9, 100), group("a", "resolve", 9, 100), group("b", "rank", 0, 100))
	out := b.next()
	assert.Equal(t, []string{"step_errors firing", "step_errors firing"}, states(out))
	require.Len(t, out.Samples, 3)
	require.Len(t, out.Alerts, 2)
	assert.Equal(t, map[string]string{"alertname": "step_errors", "service": "a", "severity": "page"}, out.Alerts[0].Labels)
	assert.Equal(t, map[string]string{"alertname": "step_errors", "service": "a", "step": "resolve", "severity": "page"}, out.Alerts[1].Labels)
	texts := out.Alerts[1].Annotations(rules.Explanation{
		TopError: "RateLimitError 429", TopErrorCount: 8, Runs: []string{"r1", "r2", "r3", "r4"}, Dashboard: "http://grafana/d/x",
	})
	assert.Equal(t, map[string]string{
		"summary": "a: step resolve failed in 9 of 100 visits (9 %) within 2m, above 2 %", "errors": "most frequent error: RateLimitError 429 (8 times)",
		"runs": "r1 r2 r3", "dashboard": "http://grafana/d/x",
		"show": "retryledger top --since 2026-03-02T11:58:00Z --until 2026-03-02T12:00:00Z --service a",
	}, texts)
	assert.NotContains(t, out.Alerts[1].Annotations(rules.Explanation{}), "errors", "what is not known is not there")
	query, ok := out.Alerts[1].Query()
	assert.True(t, ok)
	assert.Equal(t, second(0).UnixNano(), query.ToNs)
	for range 121 {
		say(group("a", "", 9, 100), group("a", "resolve", 0, 100))
		out = b.next()
	}
	require.Len(t, out.Transitions, 1)
	assert.Equal(t, "resolve", out.Transitions[0].Group.Step)
	assert.Equal(t, rules.ReasonRecovered, out.Transitions[0].Reason)
	assert.Equal(t, []string{"step_errors firing"}, states(out))
	require.Len(t, out.Alerts, 2, "what resolved is still told")
	assert.Equal(t, second(121), out.Alerts[1].EndsAt)
	assert.Equal(t, int64(9), out.Alerts[1].Facts.Failed, "an alert speaks of its last breach")
}

// TestMaxGroups: a rule with more groups than it may have keeps those that matter, says
// how many it left, and the same ones whatever the order of their coming.
func TestMaxGroups(t *testing.T) {
	t.Parallel()
	b := newBench(t, `
default_pack: false
rules: [{name: r, signal: operation_error_ratio, threshold: 2 %, window: 2m, min_samples: 10, group_by: [step], max_groups: 3, keep_firing_for: 10s}]
`)
	group := func(step string, failed, total int64) signals.Sample {
		return signals.Sample{Labels: signals.Labels{Step: step}, Numerator: failed, Denominator: total}
	}
	say := func(s ...signals.Sample) {
		slices.SortFunc(s, func(a, b signals.Sample) int { return strings.Compare(a.Labels.Step, b.Labels.Step) })
		b.reader.samples = map[signals.Signal][]signals.Sample{signals.OperationErrorRatio: s}
	}
	steps := func(out rules.Evaluation) (names []string) {
		for _, s := range out.Samples {
			names = append(names, s.Labels.Step+" "+string(s.State))
		}
		return names
	}
	say(group("a", 0, 1000), group("b", 0, 500), group("c", 0, 2000), group("d", 5, 10), group("e", 0, 10))
	out := b.next()
	assert.Equal(t, []string{"a inactive", "c inactive", "d firing"}, steps(out))
	assert.Equal(t, []rules.LeftOff{{Rule: "r", Groups: 2}}, out.LeftOff)

	say(group("a", 0, 1000), group("d", 0, 10), group("x", 9, 10), group("y", 8, 10), group("z", 7, 10))
	out = b.next()
	assert.Equal(t, []string{"d firing", "x firing", "y firing"}, steps(out), "who fires stays, then the most failures")
	assert.Equal(t, []rules.LeftOff{{Rule: "r", Groups: 2}}, out.LeftOff)

	// Only two groups have data, but three alerts are held already: a fourth waits.
	say(group("m", 9, 10), group("n", 9, 10))
	out = b.next()
	assert.Equal(t, []string{"m inactive", "n inactive"}, steps(out))
	assert.Equal(t, []rules.LeftOff{{Rule: "r", Groups: 2}}, out.LeftOff)
	require.Len(t, out.Alerts, 3)
	for range 9 {
		say(group("m", 9, 10))
		out = b.next()
	}
	assert.Equal(t, []string{"m inactive"}, steps(out), "resolved in the same second as the others end")
	out = b.next()
	assert.Equal(t, []string{"m firing"}, steps(out), "the oldest resolved alert makes room")
	require.Len(t, out.Alerts, 3)
}

// TestReadingFails: nothing about the data changes, and nothing half.
func TestReadingFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, hold)
	script(t, b, "1× 3/100 pending breach", "4× 3/100 pending", "1× 3/100 firing breach", "9× 0/100 firing")
	b.reader.err = errors.New("the store is away")
	for range 60 {
		b.now++
		out, err := b.Eval(t.Context(), second(b.now))
		require.ErrorContains(t, err, "the store is away")
		require.Empty(t, out.Transitions)
		require.Empty(t, out.Samples)
		require.Len(t, out.Alerts, 1)
		require.Equal(t, rules.StateFiring, out.Alerts[0].State)
		require.Equal(t, second(b.now).Add(15*time.Minute), out.Alerts[0].EndsAt)
		require.Equal(t, second(5), out.Alerts[0].StartsAt)
	}
	b.reader.err = nil
	script(t, b, "10× 0/100 firing", "1× 0/100 resolved recovered")
}

// TestOneReadServesTwoRules of the same question.
func TestOneReadServesTwoRules(t *testing.T) {
	t.Parallel()
	b := newBench(t, "{}")
	b.next()
	assert.Equal(t, 8, b.reader.reads, "nine rules on data, two of which ask the same")
}
