package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// An instrumentation that an application registered twice, as a callback handler given
// to a graph and bound to it once more, shows each step, call and tool twice.

const (
	// apartNs is how far apart the two views of something may begin and end that holds
	// nothing which would tell more.
	apartNs = 1_000_000_000
	// inTurnNs is how far apart they may at most where only their order tells.
	inTurnNs = 100_000_000
	// wholeMs is the grain to which JavaScript SDKs cut start times.
	wholeMs = 1_000_000
	// maxTwins bounds how often one span is compared with others.
	maxTwins = 4
)

// twins are two spans of one instrumentation that may be two views of one thing.
type twins struct{ first, second *node }

// suspectTwins notes n if it may be such a view: it hangs in a span of its name that
// ended before it, for handlers are told of the end in the order of the beginning, or
// it is an execution of a task that another span, below another parent, shows at the
// same time. A task's id is its engine's word for one thing: graphs that run beside
// each other have their own.
func (t *tree) suspectTwins(n, parent *node) {
	if parent != nil && parent.EndNs < n.EndNs && parent.StartNs <= n.StartNs && parent.base == n.base && parent.Role == n.Role &&
		parent.task == n.task && parent.Scope == n.Scope {
		t.nestedTwins = append(t.nestedTwins, twins{parent, n})
	}
	if n.task == nil || parent != nil && parent.task == n.task {
		return
	}
	tops := &n.task.anywhere.tops
	for _, top := range tops { // of several instrumentations
		if top != nil && n.StartNs < top.EndNs && (n.ParentID != top.ParentID || n.TraceID != top.TraceID) && n.Scope == top.Scope && n.Name == top.Name {
			t.taskTwins = append(t.taskTwins, twins{top, n})
			break
		}
	}
	tops[0], tops[1] = n, tops[0]
}

// foldTwins makes one of two views by one instrumentation where it is certain that
// they are, and counts where it is not. Both views are told of a beginning before the
// work begins and of an end when it has ended, so that what either holds lies in both;
// and what one view shows the other shows too.
func (t *tree) foldTwins() {
	if len(t.nestedTwins)+len(t.taskTwins) == 0 {
		return
	}
	folded := false
	times := make(map[*node]int)
	for _, p := range slices.Backward(t.nestedTwins) { // the innermost first
		times[p.first]++
		if times[p.first] <= maxTwins {
			folded = t.foldNested(p.first, p.second, false) || folded
		}
	}
	clear(times)
	tried := make(map[twins]bool)
	for _, p := range t.taskTwins {
		p = twins{p.first.live(), p.second.live()}
		if p.first == p.second || p.second.twin != nil || p.first.parent != nil && p.first.parent == p.second.parent {
			continue
		}
		nodes := p
		p = highest(p)
		done, known := tried[p]
		if !known && times[p.first] < maxTwins && times[p.second] < maxTwins {
			times[p.first]++
			times[p.second]++
			switch {
			case p.second.parent == p.first:
				done = t.foldNested(p.first, p.second, true)
			case p.first.parent == p.second:
				done = t.foldNested(p.second, p.first, true)
			default:
				done = t.foldBeside(p.first, p.second)
			}
			tried[p] = done
			folded = folded || done
		}
		if !done && nodes.second.live() != nodes.first.live() {
			t.unsureTwins = append(t.unsureTwins, nodes)
		}
	}
	if folded {
		t.replant()
	}
}

// live is the span that stands for n.
func (n *node) live() *node {
	for n.twin != nil {
		n = n.twin
	}
	return n
}

// highest is the outermost views around two views of one task: their parents, as long
// as these are views of one thing themselves.
func highest(p twins) twins {
	for range maxUp {
		a, b := p.first.parent, p.second.parent
		if a == nil || b == nil || a == b {
			return p
		}
		a, b = a.live(), b.live()
		if a == b || a.Scope != p.first.Scope || compareViews(a, b) != 0 {
			return p
		}
		p = twins{a, b}
		if a.parent == b || b.parent == a {
			return p
		}
	}
	return p
}

// foldNested folds a view that hangs in the other: beside it hangs what the outer one
// shows, below it what it shows itself. sure is whether a task's id says that both show
// one thing.
func (t *tree) foldNested(outer, inner *node, sure bool) bool {
	if inner.twin != nil || outer.twin != nil || inner.parent != outer || compareViews(outer, inner) != 0 {
		return false
	}
	return t.fold(t.mirrored(outer, inner, sure))
}

// foldBeside folds views that hang in different places, or in none.
func (t *tree) foldBeside(a, b *node) bool {
	if compareViews(a, b) != 0 || a.parent == nil != (b.parent == nil) {
		return false
	}
	return t.fold(t.mirrored(a, b, true))
}

// mirrored is a and b with all that both show below them, nil unless they are views of
// one thing. Sure of that it is by a task's id, if not by the caller's then by one below.
func (t *tree) mirrored(a, b *node, sure bool) []twins {
	pairs := []twins{{a, b}}
	nested := b.parent == a
	t.marks++ // in the places that order will give
	a.at, b.at = t.marks, t.marks
	for i := 0; i < len(pairs); i++ {
		p := pairs[i]
		first, second := p.first.views(p.second), p.second.views(p.first)
		if !t.inStep(p, first, second, nested) {
			return nil
		}
		from := len(pairs)
		onlyFirst, onlySecond := 0, 0
		for j, k := 0, 0; j < len(first) || k < len(second); {
			order := len(second) - k - (len(first) - j) // which of them has come to its end
			if j < len(first) && k < len(second) {
				order = compareViews(first[j], second[k])
			}
			switch {
			case order < 0:
				onlyFirst++
				j++
			case order > 0:
				onlySecond++
				k++
			default:
				sure = sure || first[j].task != nil && first[j].task != p.first.task
				if first[j].at == t.marks || second[k].at == t.marks {
					return nil // one of the two lies in the other
				}
				first[j].at, second[k].at = t.marks, t.marks
				pairs = append(pairs, twins{first[j], second[k]})
				j, k = j+1, k+1
			}
		}
		// One view may miss what the other has: callbacks that a node gives to what it calls
		// replace the handlers around it.
		if onlyFirst > 0 && onlySecond > 0 || onlyFirst+onlySecond > 0 && !sure {
			return nil
		}
		if i == 0 && len(pairs) == from && (len(first)+len(second) > 0 || !nested) {
			return nil // nothing is mirrored
		}
	}
	if !sure && slices.ContainsFunc(pairs, func(p twins) bool { return !p.inTurn() }) {
		return nil
	}
	return pairs
}

// inTurn tells whether the second view began and ended right after the first, as that of
// a handler does that is called after another.
func (p twins) inTurn() bool {
	began, ended := p.second.StartNs-p.first.StartNs, p.second.EndNs-p.first.EndNs
	return 0 <= began && began <= inTurnNs && 0 <= ended && ended <= inTurnNs
}

// views are what the instrumentation of n shows directly below it, but for the other
// view of n, in the order of compareViews.
func (n *node) views(other *node) []*node {
	var out []*node
	for _, c := range n.children {
		if c.twin == nil && c != other && c.Scope == n.Scope {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, compareViews)
	return out
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

// inStep tells whether two spans began before, and ended after, what either holds. In
// JavaScript views do not nest, and their handlers are told of things in the background.
func (t *tree) inStep(p twins, first, second []*node, nested bool) bool {
	a, b := p.first, p.second
	grain := int64(0)
	if !nested && a.StartNs%wholeMs == 0 && b.StartNs%wholeMs == 0 {
		grain = t.slack
	}
	if max(a.StartNs, b.StartNs) > min(a.EndNs, b.EndNs)+grain {
		return false // one after the other
	}
	if len(first)+len(second) == 0 {
		return max(a.StartNs, b.StartNs)-min(a.StartNs, b.StartNs) <= apartNs && max(a.EndNs, b.EndNs)-min(a.EndNs, b.EndNs) <= apartNs
	}
	return holdsAll(b, a, first, grain) && holdsAll(a, b, second, grain)
}

// holdsAll tells whether what n holds lies in its other view too; what outlives n may
// outlive that.
func holdsAll(view, n *node, inside []*node, grain int64) bool {
	for _, c := range inside {
		if c.StartNs+grain < view.StartNs || c.EndNs > view.EndNs+grain && c.EndNs <= n.EndNs {
			return false
		}
	}
	return true
}

// fold leaves the first of each pair, with all that hangs in either.
func (t *tree) fold(pairs []twins) bool {
	for _, p := range pairs {
		p.second.twin, p.first.seenTwice = p.first, true
	}
	t.twice += len(pairs)
	for _, p := range pairs {
		for _, c := range p.second.children {
			if c.twin == nil && c != p.first {
				c.parent = p.first
				p.first.children = append(p.first.children, c)
			}
		}
		if p.first.parent == p.second {
			p.first.parent = p.second.parent
		}
	}
	return len(pairs) > 0
}

// replant hangs every span that is left below its parent again, siblings in time's order.
func (t *tree) replant() {
	t.roots = t.roots[:0]
	for i := range t.all {
		t.all[i].children = t.all[i].children[:0]
	}
	for i := range t.all {
		n := &t.all[i]
		switch {
		case n.twin != nil:
		case n.parent == nil:
			t.roots = append(t.roots, n)
		default:
			n.parent = n.parent.live()
			n.parent.children = append(n.parent.children, n)
		}
	}
	t.cutCycles()
}

// seenTwice counts what one instrumentation seems to show twice, and what counts twice
// for want of certainty.
func (a *account) seenTwice() []warning {
	var at int64
	count := 0
	for _, p := range a.tree.unsureTwins {
		a, b := p.first.live(), p.second.live()
		if a.seenTwice && b.seenTwice || a.exec == nil || b.exec == nil || a.shadow || b.shadow {
			continue // each has found its other view
		}
		if count == 0 || p.second.EndNs < at {
			at = p.second.EndNs
		}
		count++
	}
	if count == 0 {
		return nil
	}
	return []warning{{at, plural(count, "span seems", "spans seem") + " to be shown twice by one instrumentation, and count twice: is its handler registered twice?"}}
}
