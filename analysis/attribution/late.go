package attribution

import (
	"cmp"
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// Which abandoned attempt late work belongs to.

// abandonedAttempts are the executions of a task that did not end well, wherever it
// ran, by their start: an entry for each instant. To visit all of them for each late
// span costs their square.
type abandonedAttempts []abandonedAttempt

type abandonedAttempt struct {
	first *execution // of those that began at one instant
	other *execution // the first of them in another trace than first's, nil if there is none
	prior int32      // the last entry before this that has one in another trace than first's, -1 if none has
}

// abandonedByTask are the executions that did not end well, of each task by its
// anywhere.
func abandonedByTask(executions []*execution) map[*task]abandonedAttempts {
	lists := make(map[*task][]*execution)
	for _, e := range executions {
		if e.task != nil && e.node != nil && (e.node.Failed || e.node.Flow == schema.FlowCancelled) {
			lists[e.task.anywhere] = append(lists[e.task.anywhere], e)
		}
	}
	found := make(map[*task]abandonedAttempts, len(lists))
	for t, list := range lists {
		slices.SortStableFunc(list, func(a, b *execution) int { return cmp.Compare(a.start, b.start) })
		var attempts abandonedAttempts
		for _, e := range list {
			attempts = attempts.with(e)
		}
		found[t] = attempts
	}
	return found
}

// with adds e, which began after all others or with the last of them.
func (l abandonedAttempts) with(e *execution) abandonedAttempts {
	at := len(l) - 1
	if at >= 0 && l[at].first.start == e.start {
		if l[at].other == nil && l[at].first.trace != e.trace {
			l[at].other = e
		}
		return l
	}
	prior := int32(at)
	if at >= 0 && l[at].other == nil && l[at].first.trace == e.trace {
		prior = l[at].prior
	}
	return append(l, abandonedAttempt{first: e, prior: prior})
}

// before is the last, in another trace, that had begun by an instant; of those of one
// instant the first.
func (l abandonedAttempts) before(instant int64, trace schema.TraceID) *execution {
	after, _ := slices.BinarySearchFunc(l, instant, func(a abandonedAttempt, at int64) int {
		if a.first.start <= at {
			return -1
		}
		return 1
	})
	for i := int32(after) - 1; i >= 0; i = l[i].prior { // twice at most
		switch a := &l[i]; {
		case a.first.trace != trace:
			return a.first
		case a.other != nil:
			return a.other
		}
	}
	return nil
}
