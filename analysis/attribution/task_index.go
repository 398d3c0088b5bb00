package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// task is what an engine's task id names, within one trace of a run.
type task struct {
	trace    schema.TraceID
	key      string
	anywhere *task // the task of the same key in the trace that had it first: itself, or another's

	nodeRuns   [maxViews - 1]*node // the last that say of themselves that they are a node's runs
	executions []*execution        // those that are known, as hold was told
	own        [1]*execution
	unseen     *execution // known by its children only
	noted      *execution // by the stage that called begin last, if it is of that round
	round      int32
	roundHere  int32
	notedHere  *execution // the same, of its trace alone
}

// name is the task's id, "" without one.
func (t *task) name() string {
	if t == nil {
		return ""
	}
	return t.key
}

// namespace is the id of the task around a task, "" at the outermost.
func namespace(key string) string {
	return key[:max(0, strings.LastIndexByte(key, '|'))]
}

// taskIndex is the tasks of a run.
type taskIndex struct {
	all    []*task
	first  map[string]*task // of each key
	others map[taskOf]*task // the same key in further traces
	latest *task            // the one asked for last: spans of one task stand together
	blank  blocks[task]
	round  int32
	traces int // how many the run has
}

// taskOf is one task within one trace: to hash the key again costs more.
type taskOf struct {
	trace    schema.TraceID
	anywhere *task
}

// find is the task of a key in a trace, nil if no span names it.
func (x *taskIndex) find(trace schema.TraceID, key string) *task {
	t := x.first[key]
	if t != nil && t.trace != trace {
		t = x.others[taskOf{trace, t}]
	}
	return t
}

// of is the task of a key in a trace, made if it is new.
func (x *taskIndex) of(trace schema.TraceID, key string) *task {
	if x.latest == nil || x.latest.key != key {
		x.latest = x.first[key]
	}
	switch t := x.latest; {
	case t == nil:
		x.latest = x.add(trace, key, nil)
	case t.trace == trace:
	case t.anywhere.trace == trace:
		x.latest = t.anywhere
	default:
		if x.latest = x.others[taskOf{trace, t.anywhere}]; x.latest == nil {
			x.latest = x.add(trace, key, t.anywhere)
		}
	}
	return x.latest
}

// add makes the task of a key in a trace; first is that of the trace that had the key
// first, nil if none had.
func (x *taskIndex) add(trace schema.TraceID, key string, first *task) *task {
	t := x.blank.next()
	*t = task{trace: trace, key: key, anywhere: first}
	if t.anywhere != nil {
		if x.others == nil {
			x.others = make(map[taskOf]*task, x.traces)
		}
		x.others[taskOf{trace, t.anywhere}] = t
	} else {
		if x.first == nil {
			x.first = make(map[string]*task)
		}
		x.first[key] = t
		t.anywhere = t
	}
	x.all = append(x.all, t)
	return t
}

// begin forgets what a stage before has noted of tasks.
func (x *taskIndex) begin() { x.round++ }

// note keeps an execution with a task until the next begin.
func (x *taskIndex) note(t *task, e *execution) { t.noted, t.round = e, x.round }

// noted is the execution kept with a task, nil if none was since begin.
func (x *taskIndex) noted(t *task) *execution {
	if t == nil || t.round != x.round {
		return nil
	}
	return t.noted
}

// noteHere keeps an execution with a task of its trace until the next begin, beside what
// note keeps.
func (x *taskIndex) noteHere(t *task, e *execution) { t.notedHere, t.roundHere = e, x.round }

// notedHere is the execution kept by noteHere, nil if none was since begin.
func (x *taskIndex) notedHere(t *task) *execution {
	if t.roundHere != x.round {
		return nil
	}
	return t.notedHere
}

// hold notes the executions of every task, in time's order.
func (x *taskIndex) hold(executions []*execution) {
	for _, t := range x.all {
		t.executions = t.own[:0]
	}
	for _, e := range executions {
		if e.task != nil {
			e.task.executions = append(e.task.executions, e)
		}
	}
	for _, t := range x.all {
		if len(t.executions) > 1 {
			slices.SortStableFunc(t.executions, func(a, b *execution) int { return cmp.Compare(a.start, b.start) })
		}
	}
}
