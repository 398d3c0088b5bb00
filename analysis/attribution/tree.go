package attribution

import (
	"cmp"
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// node is one span in the tree of its run. The tree is not always the one that the
// parent ids draw: spans that some instrumentations leave beside their parents are
// moved to where they belong.
type node struct {
	*schema.Span
	// What every stage asks of every span, beside it: a row is large, and each look
	// at it misses the cache.
	StartNs, EndNs int64
	Role           schema.Role
	task           *task // nil without an engine
	Step           string
	Node           string
	Failed         bool
	Hidden         bool

	parent   *node // nil at the top
	children []*node
	orphan   bool  // it names a parent that never came
	at, past int32 // its place in the order of the tree, and that after the last span below it
	reached  bool  // it hangs below a root
	lost     bool  // it lies in an attempt that did not contribute to a success

	retriesBelow   [2]int32 // charges at or below it in its execution, of the layers transport and call
	fallbacksBelow int32

	base      string     // the name without its numbers
	stated    int32      // the attempt's ordinal as the span states it of itself, 0 if it does not
	twin      *node      // the other view of it, which stands for it: it hangs nowhere itself
	home      *execution // the execution that this span is, or hangs directly below
	exec      *execution // the innermost execution that this span is or lies in
	shadow    bool       // another instrumentation shows the same
	sending   bool       // a send lies below it
	holds     bool       // an execution lies below it
	broken    bool       // what it ran last failed, though it ended well
	unitLost  bool       // it is an attempt that did not contribute to a success
	modelled  bool       // a model call lies below it
	again     *node      // the unit whose repeat or fallback it is
	continued bool       // another unit repeats it
	usedUp    bool       // attempts were repeated directly below it
	attempt   *callAttempt
	inside    *callAttempt // the innermost attempt around it in its execution
	lead      *callAttempt // the first call at or below it
	lastModel string       // the requested model of the last model call at or below it
}

// standFor makes s the span that n is.
func (n *node) standFor(s *schema.Span) {
	n.Span = s
	n.StartNs, n.EndNs, n.Role, n.Step, n.Node, n.Failed, n.Hidden = s.StartNs, s.EndNs, s.Role, s.Step, s.Node, s.Failed, s.Hidden
}

func (n *node) isCall() bool { return n.Role == schema.RoleModel || n.Role == schema.RoleTool }

// isExecution tells whether n is an execution's own span.
func (n *node) isExecution() bool { return n.home != nil && n.home.node == n }

// holdsNode tells whether n is m or lies above it.
func (n *node) holdsNode(m *node) bool { return n.at <= m.at && m.at < n.past }

func (n *node) isSend() bool { return n.Role == schema.RoleHTTP || n.Role == schema.RoleRPC }

// tree is the forest of a run's spans.
type tree struct {
	all     []node  // in the order of the spans
	nodes   []*node // parents before children
	roots   []*node // by time
	orphans int
	folded  int // second views
	twins   []twins
	slack   int64
	tasks   taskIndex
	facts   runFacts
}

func compareNodes(a, b *node) int { return compareSpans(a.Span, b.Span) }

// plant builds the forest of spans, which are of so many traces. It needs no recursion, so that depth costs
// nothing, and survives cycles of parents.
func plant(list spanList, traces int, opts Options) *tree {
	t := &tree{slack: opts.OverlapSlackNs}
	t.tasks.traces = traces
	all := make([]node, len(list.spans))
	children := make([]int32, len(all)) // how many each has
	kept := 0
	for i, s := range list.spans {
		if i > 0 && s.Name == list.spans[i-1].Name {
			all[i].base = all[i-1].base
		} else {
			all[i].base = numberless(s.Name)
		}
		all[i].stated = s.Attempt
		all[i].standFor(s)
		t.facts.gather(s)
		if s.TaskKey != "" {
			all[i].task = t.tasks.of(s.TraceID, s.TaskKey)
			if s.NodeRun == schema.FlagYes {
				t.noteNodeRun(&all[i])
			}
		}
		if parent := list.parents[i]; parent >= 0 {
			children[parent]++
			kept++
		}
	}
	places := make([]*node, kept) // one allocation for the children of all
	for i := range all {
		n := &all[i]
		if count := int(children[i]); count > 0 {
			n.children, places = places[:0:count], places[count:]
		}
	}
	for i, parent := range list.parents {
		n := &all[i]
		if parent >= 0 {
			n.parent = &all[parent]
			n.parent.children = append(n.parent.children, n) // in time's order, for spans are
			continue
		}
		n.orphan = !n.ParentID.IsZero()
		t.roots = append(t.roots, n)
	}
	t.all = all
	t.cutCycles()
	t.foldSecondViews()
	for _, r := range t.roots {
		if r.orphan {
			t.orphans++
		}
	}
	t.adoptOrphans(all)
	t.adoptByChildlessWrappers(all)
	t.foldParts(all)
	t.order(len(all))
	t.nestViews()
	t.foldToolViews()
	return t
}

// order lists the nodes, parents before children and siblings by time.
func (t *tree) order(size int) {
	if t.nodes == nil {
		t.nodes = make([]*node, 0, size)
	}
	t.nodes = t.nodes[:0]
	slices.SortFunc(t.roots, compareNodes)
	stack := slices.Clone(t.roots)
	slices.Reverse(stack)
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t.nodes = append(t.nodes, n)
		for i := len(n.children) - 1; i >= 0; i-- {
			stack = append(stack, n.children[i])
		}
	}
	for i, n := range t.nodes {
		n.at, n.past = int32(i), int32(i)+1
	}
	for i := len(t.nodes) - 1; i >= 0; i-- {
		if n := t.nodes[i]; n.parent != nil {
			n.parent.past = max(n.parent.past, n.past)
		}
	}
}

// cutCycles makes roots of spans whose parents lead back to themselves.
func (t *tree) cutCycles() {
	all := t.all
	for i := range all {
		all[i].reached = false
	}
	reached := t.folded
	var stack []*node
	mark := func(from *node) {
		stack = append(stack[:0], from)
		for len(stack) > 0 {
			n := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if !n.reached {
				n.reached = true
				reached++
				stack = append(stack, n.children...)
			}
		}
	}
	for _, r := range t.roots {
		mark(r)
	}
	if reached == len(all) {
		return
	}
	for i := range all {
		if n := &all[i]; !n.reached && n.twin == nil {
			n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
			n.parent, n.orphan = nil, true
			t.roots = append(t.roots, n)
			mark(n)
		}
	}
}

// move takes spans from their parents and puts them below others, keeping siblings
// in time's order.
func (t *tree) move(to map[*node]*node) {
	left, joined := make(map[*node]bool), make(map[*node]bool)
	roots := false
	for n, parent := range to {
		if n.parent == nil {
			roots = true
		} else {
			left[n.parent] = true
		}
		joined[parent] = true
	}
	gone := func(from *node) func(*node) bool {
		return func(c *node) bool { _, moved := to[c]; return moved && c.parent == from }
	}
	for parent := range left {
		parent.children = slices.DeleteFunc(parent.children, gone(parent))
	}
	if roots {
		t.roots = slices.DeleteFunc(t.roots, gone(nil))
	}
	for n, parent := range to {
		n.parent = parent
		parent.children = append(parent.children, n)
	}
	for parent := range joined {
		slices.SortFunc(parent.children, compareNodes)
	}
	t.cutCycles() // of odd spans, two may have been put below each other
}

// covers tells whether inner lies in outer's time.
func (t *tree) covers(outer, inner *schema.Span) bool {
	return outer.StartNs <= inner.StartNs+t.slack && inner.EndNs <= outer.EndNs+t.slack
}

// adoptByChildlessWrappers gives wrappers the children that LangChain for Python
// leaves beside them: the candidates of a fallback that is invoked in a node
// (langchain #36072), and the attempts of a batch.
func (t *tree) adoptByChildlessWrappers(all []node) {
	for i := range all {
		p := &all[i]
		if len(p.children) < 2 {
			continue
		}
		var wrappers []*node
		for _, c := range p.children {
			if c.Role == schema.RoleChain && len(c.children) == 0 {
				wrappers = append(wrappers, c)
			}
		}
		if len(wrappers) == 0 {
			continue
		}
		t.adopt(p, wrappers)
	}
}

func (t *tree) adopt(p *node, wrappers []*node) {
	kept := make([]*node, 0, len(p.children))
	lanes := make(map[*node][]*node) // first wrapper of a batch -> all wrappers of that batch
	for _, c := range p.children {
		w := t.wrapperOf(c, wrappers)
		if w == nil {
			kept = append(kept, c)
			continue
		}
		batch := lanes[w]
		if batch == nil {
			batch = t.batchOf(w, wrappers)
			for _, member := range batch {
				lanes[member] = batch
			}
		}
		lane := t.laneFor(c, batch)
		c.parent = lane
		lane.children = append(lane.children, c)
	}
	p.children = kept
}

// wrapperOf is the innermost childless wrapper beside c that c belongs to, or nil.
func (t *tree) wrapperOf(c *node, wrappers []*node) *node {
	var best *node
	// Wrappers are in time's order: the innermost is among the last that began before c.
	after, _ := slices.BinarySearchFunc(wrappers, c.StartNs+1, func(w *node, at int64) int { return cmp.Compare(w.StartNs, at) })
	for i := after - 1; i >= max(0, after-maxSiblings); i-- {
		w := wrappers[i]
		if best != nil && w.StartNs < best.StartNs {
			break
		}
		if w == c || !within(w, c) || c.Role != schema.RoleModel && c.Role != schema.RoleChain {
			continue
		}
		if c.Role == schema.RoleChain && len(c.children) == 0 && (c.FallbackWrapper || c.Name == w.Name) {
			continue // a wrapper itself
		}
		// A fallback's candidates have names of their own, unless a run name leaked to them;
		// the attempts of a batch are named like their wrapper.
		if !w.FallbackWrapper && (w.Name != c.Name || c.Role != schema.RoleModel) {
			continue
		}
		if best == nil || w.StartNs > best.StartNs || w.StartNs == best.StartNs && w.EndNs < best.EndNs {
			best = w
		}
	}
	return best
}

// within tells whether c lies in w's own time. Clocks are not given any grain here: what
// a wrapper holds began after it and ended before it by the same clock, and what runs
// next to it, a parser or a router, may take no longer than a clock's grain.
func within(w, c *node) bool {
	return w.StartNs <= c.StartNs && c.EndNs <= w.EndNs && (c.StartNs < w.EndNs || w.StartNs == w.EndNs)
}

// batchOf is the wrappers of w's batch: of its name, open at the same time.
func (t *tree) batchOf(w *node, wrappers []*node) []*node {
	var batch []*node
	for _, other := range wrappers {
		if other == w || other.Name == w.Name && other.StartNs < w.EndNs-t.slack && w.StartNs < other.EndNs-t.slack {
			batch = append(batch, other)
		}
	}
	return batch
}

// laneFor is the wrapper of a batch that attempt c belongs to: an input that has
// failed and waits for its next attempt, the same input if the spans tell; in the
// first round one that has none yet.
func (t *tree) laneFor(c *node, batch []*node) *node {
	var empty, failed, same *node
	for _, w := range batch {
		if !within(w, c) {
			continue
		}
		if len(w.children) == 0 {
			if empty == nil {
				empty = w
			}
			continue
		}
		last := w.children[len(w.children)-1]
		if !last.Failed || last.EndNs > c.StartNs+t.slack {
			continue
		}
		if c.InputHash != 0 && last.InputHash == c.InputHash && same == nil {
			same = w
		}
		if failed == nil || last.EndNs < failed.children[len(failed.children)-1].EndNs {
			failed = w
		}
	}
	return cmp.Or(same, empty, failed, batch[0])
}

// nestViews puts a call that one instrumentation reports into the call of another that
// holds it in time: two views of one request are one call, the innermost.
func (t *tree) nestViews() {
	into := make(map[*node]*node)
	var models []*node
	for _, p := range t.nodes {
		models = models[:0]
		mixed := false
		for _, c := range p.children {
			if c.Role == schema.RoleModel {
				models = append(models, c)
				mixed = mixed || c.Scope != models[0].Scope
			}
		}
		if !mixed {
			continue
		}
		for i, inner := range models {
			var best *node
			// The other view began about when this one did: look at the neighbours only.
			for j := max(0, i-maxSiblings); j < len(models) && j < i+maxSiblings; j++ {
				outer := models[j]
				if _, moved := into[outer]; moved || outer == inner || outer.Scope == inner.Scope || !t.covers(outer.Span, inner.Span) ||
					outer.EndNs-outer.StartNs < inner.EndNs-inner.StartNs {
					continue
				}
				if outer.Model != inner.Model && outer.Model != "" && inner.Model != "" {
					continue
				}
				// Of parallel calls the one that ended alike, and fits best.
				alike := outer.Failed == inner.Failed
				if !alike && inner.StartNs < outer.StartNs {
					continue // it is rather the other that lies in this one
				}
				if best == nil || alike && best.Failed != inner.Failed || alike == (best.Failed == inner.Failed) && outer.EndNs-outer.StartNs < best.EndNs-best.StartNs {
					best = outer
				}
			}
			if best != nil {
				into[inner] = best
			}
		}
	}
	if len(into) > 0 {
		t.move(into)
		t.order(len(t.nodes))
	}
}
