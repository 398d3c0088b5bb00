package gates

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// events are a reader that looks at each event.
type events []signals.Event

func (e events) Window(_ context.Context, q signals.Query) ([]signals.Sample, error) {
	groups := map[signals.Labels]*signals.Sample{}
	for _, event := range e {
		if event.Signal != q.Signal || event.AtNs <= q.ToNs-q.WindowNs || event.AtNs > q.ToNs {
			continue
		}
		if slices.ContainsFunc(signals.Dimensions(), func(d signals.Dimension) bool {
			matcher, ok := q.Where[d]
			return ok && !matcher.Matches(event.Labels.Get(d))
		}) {
			continue
		}
		var labels signals.Labels
		for _, d := range q.GroupBy {
			labels = labels.With(d, event.Labels.Get(d))
		}
		if groups[labels] == nil {
			groups[labels] = &signals.Sample{Labels: labels}
		}
		groups[labels].Numerator += event.Numerator
		groups[labels].Denominator += event.Denominator
	}
	var samples []signals.Sample
	for _, sample := range groups {
		samples = append(samples, *sample)
	}
	return samples, nil
}

// add adds operations of a version that ended before noon by as much.
func (e events) add(version string, failed, total int64, before time.Duration) events {
	for i := range total {
		event := signals.Event{
			Signal: signals.OperationErrorRatio, Denominator: 1, AtNs: noon.Add(-before).UnixNano(),
			Labels: signals.Labels{Service: "checkout", Environment: "production", Version: version, Step: "resolve"},
		}
		if i < failed {
			event.Numerator = 1
		}
		e = append(e, event)
	}
	return e
}

func question() Question {
	return Question{Service: "checkout", Version: "v2", Signal: signals.OperationErrorRatio, Window: 3 * time.Minute, Rule: rule(0.01)}
}

func ask(t *testing.T, reader signals.Reader, change func(*Question)) Answer {
	t.Helper()
	q := question()
	if change != nil {
		change(&q)
	}
	a, err := Canary(t.Context(), reader, q, noon, noon, DefaultStaleAfter)
	require.NoError(t, err)
	return a
}

func TestTheWindowIsHalfOpen(t *testing.T) {
	e := events{}.add("v2", 0, 100, time.Minute)
	assert.Equal(t, Pass, ask(t, e, nil).Decision)
	assert.Equal(t, Fail, ask(t, e.add("v2", 9, 9, 0), nil).Decision, "its end is within")
	assert.Equal(t, Fail, ask(t, e.add("v2", 9, 9, 3*time.Minute-1), nil).Decision)
	assert.Equal(t, Pass, ask(t, e.add("v2", 9, 9, 3*time.Minute), nil).Decision, "its start is not")
	assert.Equal(t, Pass, ask(t, e.add("v2", 9, 9, -1), nil).Decision, "nor is the future")
}

func TestOnlyTheVersionAndItsBaselineCount(t *testing.T) {
	e := events{}.add("v2", 0, 1000, time.Minute).add("v1", 2, 1000, time.Minute).add("v3", 1000, 1000, time.Minute).add("", 50, 50, time.Minute)
	for i := range e[:10] { // of v2
		other := e[i]
		other.Labels.Service, other.Numerator = "cart", 1
		e = append(e, other)
	}
	a := ask(t, e, func(q *Question) { q.Baseline = "v1" })
	assert.Equal(t, Pass, a.Decision, a.Reason)
	assert.EqualValues(t, 0, a.Canary.Failed)
	assert.EqualValues(t, 1000, a.Canary.Total)
	assert.EqualValues(t, 2, a.Baseline.Failed)
	assert.Equal(t, CauseNoData, ask(t, e, func(q *Question) { q.Environment = "staging" }).Cause)
	assert.Equal(t, Pass, ask(t, e, func(q *Question) { q.Environment = "production" }).Decision)
	assert.Nil(t, ask(t, e, nil).Baseline)
}

func TestTheWindowEndsWhereTheDataDo(t *testing.T) {
	e := events{}.add("v2", 0, 200, 20*time.Second).add("v2", 200, 200, 5*time.Second)
	at := func(upTo, now time.Time) Answer {
		a, err := Canary(t.Context(), e, question(), upTo, now, DefaultStaleAfter)
		require.NoError(t, err)
		return a
	}
	behind := at(noon.Add(-10*time.Second+time.Millisecond), noon)
	assert.Equal(t, Pass, behind.Decision, "what is not whole yet is not judged")
	assert.Equal(t, noon.Add(-10*time.Second), behind.Instant)
	ahead := at(noon.Add(time.Minute), noon)
	assert.Equal(t, Fail, ahead.Decision)
	assert.Equal(t, noon, ahead.Instant)

	assert.NotEqual(t, CauseStale, at(noon.Add(-30*time.Second), noon).Cause)
	stale := at(noon.Add(-30*time.Second-1), noon)
	assert.Equal(t, Inconclusive, stale.Decision)
	assert.Equal(t, CauseStale, stale.Cause)
	assert.Contains(t, stale.Reason, "11:59:29")
	for _, zero := range []time.Time{{}, time.UnixMicro(0)} {
		none := at(zero, noon)
		assert.Equal(t, CauseUnavailable, none.Cause)
		assert.Nil(t, none.DataUpTo)
	}
}

type broken struct{}

func (broken) Window(context.Context, signals.Query) ([]signals.Sample, error) {
	return nil, context.DeadlineExceeded
}

func TestAReaderThatFailsDecidesNothing(t *testing.T) {
	a, err := Canary(t.Context(), broken{}, question(), noon, noon, DefaultStaleAfter)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "operation_error_ratio of service checkout")
	assert.Equal(t, Inconclusive, a.Decision)
	assert.Equal(t, CauseUnavailable, a.Cause)
}

// Other gates let a canary pass, or halt it, when a metric has no values.
func TestField48NoDataIsInconclusive(t *testing.T) {
	withBaseline := func(q *Question) { q.Baseline = "v1" }
	for name, e := range map[string]events{
		"nothing":              nil,
		"only the baseline":    events{}.add("v1", 0, 10_000, time.Minute),
		"one, failed":          events{}.add("v2", 1, 1, time.Minute).add("v1", 0, 10_000, time.Minute),
		"one sample short":     events{}.add("v2", 99, 99, time.Minute).add("v1", 0, 10_000, time.Minute),
		"before the window":    events{}.add("v2", 500, 500, time.Hour).add("v1", 0, 10_000, time.Minute),
		"of other versions":    events{}.add("v3", 500, 500, time.Minute),
		"without any baseline": events{}.add("v2", 0, 99, time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			for _, change := range []func(*Question){nil, withBaseline} {
				a := ask(t, e, change)
				assert.Equal(t, Inconclusive, a.Decision, a.Reason)
				assert.NotEmpty(t, a.Reason)
			}
		})
	}
	assert.Equal(t, Pass, ask(t, events{}.add("v2", 1, 100, time.Minute), nil).Decision, "and enough data decide")
	assert.Equal(t, Fail, ask(t, events{}.add("v2", 2, 100, time.Minute), nil).Decision)
}
