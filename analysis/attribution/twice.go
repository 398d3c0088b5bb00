package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// A callback handler that an application registers twice, given to a graph and bound to
// it once more, shows each step, call and tool twice (langfuse #10914).
//
// Equal names, inputs, tokens and instants alone make no two views: a fan-out of equal
// calls has them, and a hedged call, and a job that two workers took. What does is where
// they hang, an engine's task ids, and the order in which handlers are told:
//   - one graph's run hangs directly in the other, or what is around it in what is around
//     the other, and both hold the run of one task at the same time, by one
//     instrumentation of one process;
//   - all handlers are told of a beginning before the work begins, so that neither view
//     begins after something that the other holds began. A run that is started while
//     another is read, as after a timeout of a stream, hangs in that one's span too, and
//     begins after that one's node did;
//   - what both show of a task is the same, but for what only one of them shows.
//
// Handlers that begin traces of their own (in asynchronous code, and in JavaScript) are
// no such case: two workers that resume one thread at the same time look the same.

const (
	// maxViews is how many views of one thing hang directly in one other: handlers are
	// few, and each finds the one before it.
	maxViews = 4
	// maxAround is how far up two views may hang in something that both show.
	maxAround = 16
	// inTurnNs is how far apart two views of a run that holds nothing may begin and end:
	// then nothing else tells in which order handlers were told.
	inTurnNs = 50_000_000
	// maxApart bounds with how many others a span is compared to find its other view.
	maxApart = 8
)

// twins are two spans of one instrumentation that may be two views of one thing.
type twins struct{ first, second *node }

// noteNodeRun notes n, the run of a node of its task, with those of the runs before it
// that it may be another view of.
func (t *tree) noteNodeRun(n *node) {
	last := &n.task.nodeRuns
	for _, m := range last {
		if m != nil && n.StartNs <= m.EndNs && n.ParentID != m.ParentID && n.Scope == m.Scope && n.Name == m.Name &&
			n.Service == m.Service && n.WorkerID == m.WorkerID {
			t.twins = append(t.twins, twins{m, n})
		}
	}
	copy(last[1:], last[:])
	last[0] = n
}

// views are all that tells of two views of one thing.
type views struct {
	top   twins   // the second hangs in the first; of the first no span has come where it is nil
	above []twins // of the runs, up to the top
	runs  []twins // of nodes
}

// foldSecondViews leaves one of two views, with all that hangs in either.
func (t *tree) foldSecondViews() {
	if len(t.twins) == 0 {
		return
	}
	known := make(map[*node]*views)
	var all []*views
	for _, p := range t.twins {
		top, above := p.top()
		if top.second == nil {
			p = twins{p.second, p.first}
			if top, above = p.top(); top.second == nil {
				continue
			}
		}
		v := known[top.second]
		if v == nil {
			v = &views{top: top}
			known[top.second] = v
			all = append(all, v)
		}
		v.runs = append(v.runs, p)
		v.above = append(v.above, above...)
	}
	hang := make(map[*node]int)
	for _, v := range all {
		if v.top.first != nil {
			hang[v.top.first]++
		}
	}
	all = slices.DeleteFunc(all, func(v *views) bool { return hang[v.top.first] > maxViews || !v.certain() })
	// Of several views each hangs in the one before: the innermost first.
	slices.SortFunc(all, func(v, w *views) int { return compareNodes(w.top.second, v.top.second) })
	for _, v := range all {
		if v.top.first != nil {
			t.fold(v.top)
			continue
		}
		for _, p := range v.runs {
			t.fold(p)
		}
		v.top.second.children = slices.DeleteFunc(v.top.second.children, func(c *node) bool { return c.twin != nil })
	}
}

// top goes up from two runs of a node until one hangs in the other, or both in a span
// that has not come: what is around them must be of one name, as views are.
func (p twins) top() (top twins, above []twins) {
	for range maxAround {
		a, b := p.first.parent, p.second.parent
		switch {
		case b == nil, a == b, b.NodeRun == schema.FlagYes && b.task == p.second.task:
			return twins{}, nil
		case b.parent == a && a != nil && alike(a, b):
			return twins{a, b}, above
		case a == nil && b.parent == nil && b.ParentID == p.first.ParentID && !b.ParentID.IsZero() && len(above) == 0 && b.Scope == p.second.Scope:
			return twins{nil, b}, nil
		case a == nil || !alike(a, b):
			return twins{}, nil
		}
		p = twins{a, b}
		above = append(above, p)
	}
	return twins{}, nil
}

// alike tells whether two spans may be views of one thing, by what does not change until
// it ends.
func alike(a, b *node) bool {
	return a.Name == b.Name && a.Scope == b.Scope && a.Role == b.Role && a.task.name() == b.task.name() && a.Service == b.Service && a.WorkerID == b.WorkerID
}

// certain tells whether nothing says that two views are of two things, and something
// that they are of one.
func (v *views) certain() bool {
	if v.top.first != nil && !inOrder(v.top) {
		return false
	}
	for _, p := range v.above {
		if !inOrder(p) {
			return false
		}
	}
	told := false
	for _, p := range v.runs {
		if p.first.StartNs < v.top.second.StartNs || !inOrder(p) || contradict(p) {
			return false
		}
		told = told || len(p.first.children)+len(p.second.children) > 0
	}
	return told || !slices.ContainsFunc(v.runs, func(p twins) bool { return !p.inTurn() })
}

// inOrder tells whether neither span began after something that the other holds.
func inOrder(p twins) bool {
	before := func(a, b *node) bool {
		for _, c := range a.children { // in time's order
			if c != b {
				return b.StartNs <= c.StartNs
			}
		}
		return true
	}
	return before(p.first, p.second) && before(p.second, p.first)
}

// inTurn tells whether the second view began and ended soon after the first, as that of
// a handler does that is called after another.
func (p twins) inTurn() bool {
	began, ended := p.second.StartNs-p.first.StartNs, p.second.EndNs-p.first.EndNs
	return 0 <= began && began <= inTurnNs && 0 <= ended && ended <= inTurnNs
}

// contradict tells whether two views show one call or step in different ways: it ended
// otherwise, or took other tokens. What one of them lacks is no contradiction.
func contradict(p twins) bool {
	pairs := pairViews(p.first.children, p.second.children)
	paired := make(map[*node]bool, len(pairs))
	for _, a := range pairs {
		paired[a] = true
	}
	for _, b := range p.second.children {
		if pairs[b] != nil || b.Scope != p.second.Scope {
			continue
		}
		for _, a := range around(p.first.children, b) {
			if !paired[a] && overlap(a, b) && alike(a, b) && a.InputHash == b.InputHash {
				return true
			}
		}
	}
	return false
}

// around is what of a list in time's order began about when n did.
func around(list []*node, n *node) []*node {
	at, _ := slices.BinarySearchFunc(list, n.StartNs, func(m *node, at int64) int { return cmp.Compare(m.StartNs, at) })
	return list[max(0, at-maxApart):min(len(list), at+maxApart)]
}

func overlap(a, b *node) bool { return a.StartNs <= b.EndNs && b.StartNs <= a.EndNs }

// fold makes one of two views, and of all that both show below them. What one of them
// lacks is left: spans may be lost, and a call may be given one handler alone.
func (t *tree) fold(p twins) {
	for p.first.twin != nil {
		p.first = p.first.twin
	}
	if p.second.twin != nil || p.first == p.second {
		return
	}
	stack := []twins{p}
	for len(stack) > 0 {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		first := slices.DeleteFunc(p.first.children, func(c *node) bool { return c == p.second })
		second := p.second.children
		p.second.twin, p.second.parent, p.second.children, p.second.orphan = p.first, nil, nil, false
		t.folded++

		seen := pairViews(first, second)
		for _, c := range second {
			if a, twice := seen[c]; twice {
				stack = append(stack, twins{a, c})
				continue
			}
			c.parent = p.first
			first = append(first, c)
		}
		slices.SortFunc(first, compareNodes)
		p.first.children = first
	}
}

// pairViews pairs what two views hold: of equal spans that overlap those that began and
// ended closest.
func pairViews(first, second []*node) map[*node]*node {
	first, second = slices.Clone(first), slices.Clone(second)
	slices.SortStableFunc(first, compareViews) // equal ones stay in time's order
	slices.SortStableFunc(second, compareViews)
	pairs := make(map[*node]*node, min(len(first), len(second)))
	for i, j := 0, 0; i < len(first) && j < len(second); {
		switch order := compareViews(first[i], second[j]); {
		case order < 0:
			i++
		case order > 0:
			j++
		default:
			n, m := equals(first[i:]), equals(second[j:])
			pairEquals(first[i:i+n], second[j:j+m], pairs)
			i, j = i+n, j+m
		}
	}
	return pairs
}

// equals is how many spans at the beginning of a list are equal.
func equals(list []*node) int {
	n := 1
	for n < len(list) && compareViews(list[0], list[n]) == 0 {
		n++
	}
	return n
}

// pairEquals pairs equal spans, both in time's order.
func pairEquals(first, second []*node, pairs map[*node]*node) {
	type choice struct {
		apart int64
		twins
	}
	distance := func(a, b int64) int64 { return max(a, b) - min(a, b) }
	var choices []choice
	for _, b := range second {
		for _, a := range around(first, b) {
			if overlap(a, b) {
				choices = append(choices, choice{distance(a.StartNs, b.StartNs) + distance(a.EndNs, b.EndNs), twins{a, b}})
			}
		}
	}
	slices.SortStableFunc(choices, func(x, y choice) int { return cmp.Compare(x.apart, y.apart) })
	taken := make(map[*node]bool, len(second))
	for _, c := range choices {
		if !taken[c.first] && !taken[c.second] {
			taken[c.first], taken[c.second] = true, true
			pairs[c.second] = c.first
		}
	}
}

// compareViews orders spans by what two views of one thing have in common.
func compareViews(a, b *node) int {
	if c := cmp.Or(
		strings.Compare(a.task.name(), b.task.name()), strings.Compare(a.Name, b.Name), strings.Compare(string(a.Role), string(b.Role)),
		cmp.Compare(a.InputHash, b.InputHash), strings.Compare(a.Scope, b.Scope), strings.Compare(a.Model, b.Model),
		strings.Compare(a.ErrorClass, b.ErrorClass), strings.Compare(string(a.Flow), string(b.Flow)),
		cmp.Compare(a.InputTokens, b.InputTokens), cmp.Compare(a.OutputTokens, b.OutputTokens), cmp.Compare(a.stated, b.stated),
	); c != 0 {
		return c
	}
	switch {
	case a.Failed == b.Failed:
		return 0
	case a.Failed:
		return -1
	}
	return 1
}
