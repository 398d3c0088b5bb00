package breakers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

// request is one that ended.
type request struct {
	provider       string
	second, status int
}

// requests are a reader of what was added, second by second.
type requests struct {
	all      []request
	bySecond map[int]map[string]Counts
	// until hides what ended after it, as spans that are late are; 0 hides nothing.
	until int
}

// add adds requests that ended in a second with a status.
func (r *requests) add(provider string, second, n, status int) {
	if r.bySecond == nil {
		r.bySecond = map[int]map[string]Counts{}
	}
	if r.bySecond[second] == nil {
		r.bySecond[second] = map[string]Counts{}
	}
	c := r.bySecond[second][provider]
	for range n {
		r.all = append(r.all, request{provider, second, status})
		c.Requests++
		if status >= 500 {
			c.ServerErrors++
		}
		if status == 429 {
			c.Throttled++
		}
	}
	r.bySecond[second][provider] = c
}

func (r *requests) Window(_ context.Context, q signals.Query) ([]signals.Sample, error) {
	to := int((q.ToNs - noon.UnixNano()) / 1e9)
	if !slices.Equal(q.GroupBy, []signals.Dimension{signals.Provider}) || len(q.Where) > 0 || q.ToNs%1e9 != 0 || q.WindowNs%1e9 != 0 {
		return nil, errors.New("this reader knows no such question")
	}
	sums := map[string]*signals.Sample{}
	for second := to - int(q.WindowNs/1e9) + 1; second <= to; second++ {
		if r.until > 0 && second > r.until {
			break
		}
		for provider, c := range r.bySecond[second] {
			if sums[provider] == nil {
				sums[provider] = &signals.Sample{Labels: signals.Labels{Provider: provider}}
			}
			sums[provider].Denominator += c.Requests
			if q.Signal == signals.ServerErrorRatio {
				sums[provider].Numerator += c.ServerErrors
			} else {
				sums[provider].Numerator += c.Throttled
			}
		}
	}
	samples := make([]signals.Sample, 0, len(sums))
	for _, provider := range slices.Sorted(maps.Keys(sums)) {
		samples = append(samples, *sums[provider])
	}
	return samples, nil
}

func newSet(t *testing.T) *Set {
	t.Helper()
	s, err := New(DefaultSettings(), "test")
	require.NoError(t, err)
	return s
}

// evaluate brings a set to a second with data up to it.
func evaluate(t *testing.T, s *Set, r signals.Reader, second int) []Transition {
	t.Helper()
	transitions, err := s.Evaluate(t.Context(), r, at(second), at(second))
	require.NoError(t, err)
	return transitions
}

// each evaluates every second of [from, to] and returns what changed.
func each(t *testing.T, s *Set, r signals.Reader, from, to int) []Transition {
	t.Helper()
	var all []Transition
	for second := from; second <= to; second++ {
		all = append(all, evaluate(t, s, r, second)...)
	}
	return all
}
