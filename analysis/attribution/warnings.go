package attribution

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Warnings: what the numbers alone do not tell a reader of a run.

const (
	// stagnantAfter is how many runs of one tool with the same arguments in one step,
	// none of them a retry, make a loop that gets nowhere.
	stagnantAfter = 5
	// maxWarnings bounds the warnings of one run, so that no run decides how large its
	// row becomes.
	maxWarnings = 20
)

// WarningSampled is the first warning of a run of a sampled source.
const WarningSampled = "sampled: counts are lower bounds"

// warning is a sentence and the instant that it is about.
type warning struct {
	atNs int64
	text string
}

// warn says what is suspicious about the run, in the order in which it happened.
func (a *account) warn() []string {
	found := slices.Concat(a.hollowSuccesses(), a.stagnation(), a.atOnce())
	slices.SortFunc(found, func(x, y warning) int {
		return cmp.Or(cmp.Compare(x.atNs, y.atNs), strings.Compare(x.text, y.text))
	})
	out := make([]string, 0, len(found)+1)
	if a.tree.facts.sampled {
		out = append(out, WarningSampled)
	}
	for _, w := range found[:min(len(found), maxWarnings-len(out))] {
		out = append(out, w.text)
	}
	return out
}

// hollowSuccesses are retry wrappers that ended well although their last attempt
// failed. LangChain's RunnableRetry can put the output of another input of its batch
// there (langchain-ai/langchain issue 35475), so that nothing downstream sees that
// the input failed. Which attempt belongs to which wrapper of a batch is not always
// known, so the wrappers of one name below one parent are counted together.
func (a *account) hollowSuccesses() []warning {
	type place struct {
		step, name string
	}
	count := make(map[place]int)
	at := make(map[place]int64)
	look := func(siblings []*node) {
		type tally struct{ hollow, lost, failed int }
		var tallies map[string]*tally
		for _, n := range siblings {
			last := lastAttempt(n)
			if last == nil || !failedUnit(n) && !last.Failed {
				continue
			}
			if tallies == nil {
				tallies = make(map[string]*tally)
			}
			t := tallies[n.base]
			if t == nil {
				t = &tally{}
				tallies[n.base] = t
			}
			if failedUnit(n) {
				t.failed++
			}
			if last.Failed {
				t.lost++
				if endedWell(n) && last.failedRepeat() {
					t.hollow++
				}
			}
		}
		for _, n := range siblings { // each name once, in time's order
			t, last := tallies[n.base], lastAttempt(n)
			if t == nil || n.exec == nil || last == nil {
				continue
			}
			delete(tallies, n.base)
			if more := min(t.hollow, t.lost-t.failed); more > 0 {
				p := place{n.exec.step, last.Name}
				count[p] += more
				if at[p] == 0 || n.EndNs < at[p] {
					at[p] = n.EndNs
				}
			}
		}
	}
	look(a.tree.roots)
	for _, n := range a.tree.nodes {
		look(n.children)
	}
	var out []warning
	for p, n := range count {
		out = append(out, warning{at[p], fmt.Sprintf("step %s: %s of %s ended well although the last attempt in it failed; what it returned may belong to another input",
			p.step, plural(n, "retry wrapper", "retry wrappers"), p.name)})
	}
	return out
}

func endedWell(n *node) bool {
	return !failedUnit(n) && n.Flow == schema.FlowNone && !n.OutputFailed && !n.StatedExhausted
}

// lastAttempt is the last of the attempts at one thing that n wraps, nil if n wraps
// anything else: a retry wrapper says so, or is named after what it wraps.
func lastAttempt(n *node) *node {
	if n.Role != schema.RoleChain || n.isExecution() || n.GraphRoot || n.FallbackWrapper {
		return nil
	}
	var last *node
	for _, c := range n.children {
		if c.shadow || c.isExecution() || c.base != n.base && !n.RetryWrapper {
			return nil
		}
		if last == nil || c.StartNs >= last.StartNs {
			last = c
		}
	}
	return last
}

// failedRepeat tells whether n is an attempt after the first, and failed.
func (n *node) failedRepeat() bool {
	return n.Failed && !n.continued && (n.again != nil || n.stated >= 2)
}

// stagnation finds steps in which one tool ran again and again with the same
// arguments, one run after the other. Retries of a failed run are no part of it: they
// are counted as retries.
func (a *account) stagnation() []warning {
	type place struct {
		step, tool string
		input      uint64
	}
	runs := make(map[place][]*callAttempt)
	for _, c := range a.calls {
		if c.grain == GrainTool && c.counted && c.charge == "" && c.node != nil && c.node.InputHash != 0 {
			p := place{c.exec.step, c.node.Name, c.node.InputHash}
			runs[p] = append(runs[p], c)
		}
	}
	var out []warning
	for p, list := range runs {
		if len(list) < stagnantAfter {
			continue
		}
		slices.SortFunc(list, func(x, y *callAttempt) int {
			return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end), bytes.Compare(x.node.SpanID[:], y.node.SpanID[:]))
		})
		count, end := 0, int64(0)
		for _, c := range list {
			if count > 0 && c.start < end-a.tree.slack {
				continue // beside another, not after it
			}
			count, end = count+1, max(end, c.end)
		}
		if count >= stagnantAfter {
			out = append(out, warning{end, fmt.Sprintf("step %s: tool %s ran %d times with the same arguments", p.step, p.tool, count)})
		}
	}
	return out
}

// atOnce counts the tasks that are shown twice at the same time, in two traces or in two
// runs of a graph. A run that is delivered twice at once, or resumed or forked while it
// runs, is executed and paid twice; a callback handler that is registered twice looks the
// same where nothing tells that both show one thing.
func (a *account) atOnce() []warning {
	var at int64
	count := 0
	var found map[*task]bool
	tasks := &a.tree.tasks
	tasks.begin()
	for _, e := range a.executions { // in time's order
		if e.task == nil || e.node == nil {
			continue
		}
		key := e.task.anywhere
		last := tasks.noted(key)
		if last != nil && a.apart(e, last) && beside(e, last, a.tree.slack) && !found[key] {
			if found == nil {
				found = make(map[*task]bool)
			}
			found[key] = true
			if count == 0 {
				at = e.start
			}
			count++
		}
		if last == nil || last.end < e.end {
			tasks.note(key, e)
		}
	}
	if count == 0 {
		return nil
	}
	return []warning{{at, plural(count, "task is shown twice at the same time, and counts", "tasks are shown twice at the same time, and count") +
		" twice: the run was delivered, resumed or forked while it was running, or a callback handler is registered twice"}}
}

// apart tells whether two executions of a task are of two deliveries, or of two runs of
// a graph.
func (a *account) apart(e, other *execution) bool {
	if e.trace != other.trace {
		return a.delivered(e, other)
	}
	return e.node.NodeRun == schema.FlagYes && other.node.NodeRun == schema.FlagYes && e.node.parent != other.node.parent && e.node.Scope == other.node.Scope
}

// beside tells whether two executions overlap for half of the shorter one at least: the
// clocks of two workers are never equal, and some cut the beginning to milliseconds.
func beside(e, other *execution, slack int64) bool {
	const wholeMs = 1_000_000
	if e.trace == other.trace && e.start%wholeMs != 0 {
		slack = 0
	}
	shared := min(e.end, other.end) - max(e.start, other.start)
	return shared > slack && shared >= min(e.end-e.start, other.end-other.start)/2
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
