package attribution

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/schema"
)

// Look-ups that stand for a visit of all executions find what that visit finds.

// someExecutions draws executions in time's order, of few traces and at few instants.
func someExecutions(t *rapid.T) []*execution {
	list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *execution {
		start := rapid.Int64Range(0, 12).Draw(t, "start")
		return &execution{start: start, end: start + rapid.Int64Range(-1, 12).Draw(t, "length"), trace: schema.TraceID{rapid.Byte().Draw(t, "trace") % 3}}
	}), 0, 40).Draw(t, "executions")
	slices.SortStableFunc(list, func(a, b *execution) int { return int(a.start - b.start) })
	return list
}

func TestLateWorkFindsTheLastAbandonedAttemptOfAnotherTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := someExecutions(t)
		var attempts abandonedAttempts
		for _, e := range list {
			attempts = attempts.with(e)
		}
		for i, a := range attempts { // what bounds the way back to two entries
			if a.prior >= 0 {
				p := attempts[a.prior]
				assert.True(t, p.other != nil || p.first.trace != a.first.trace, "entry %d leads to one that is no help", i)
			}
		}
		for instant := int64(-1); instant < 14; instant++ {
			for trace := range byte(4) {
				id := schema.TraceID{trace}
				var want *execution
				for _, e := range list {
					if e.trace != id && e.start <= instant && (want == nil || e.start > want.start) {
						want = e
					}
				}
				assert.Same(t, want, attempts.before(instant, id))
			}
		}
	})
}

func TestAViolationFindsTheLastOpenExecution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := someExecutions(t)
		times := &openTimes{executions: list}
		for instant := int64(-2); instant < 26; instant++ {
			var open, before *execution
			for _, e := range list {
				if e.start <= instant {
					before = e
					if e.end >= instant {
						open = e
					}
				}
			}
			if open == nil {
				open = before
			}
			assert.Same(t, open, times.at(instant))
		}
	})
}

// The attempts of operations that merge level by level stay in order, and the way to
// the operation that has them stays short.
func TestMergedOperationsAreFoundInOneStep(t *testing.T) {
	const levels = 50
	var inner, top *operation
	for i := range levels {
		c := &callAttempt{ordinal: i}
		top = &operation{}
		top.add(c)
		if inner != nil {
			top.absorb(inner)
		} else {
			inner = top
		}
	}
	assert.Same(t, top, inner.resolve())
	assert.Same(t, top, inner.merged)
	assert.Equal(t, levels, top.count)
	at := levels
	for c := range top.attempts {
		at--
		assert.Equal(t, at, c.ordinal)
	}
	assert.Zero(t, at)
}
