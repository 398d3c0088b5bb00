package attribution

import (
	"cmp"
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// callAttempt is one attempt below the level of steps: a model call, a tool's run,
// a send, or an application's own attempt that is none of these.
type callAttempt struct {
	node    *node // nil for one that has no span of its own
	exec    *execution
	grain   Grain
	op      *operation
	charge  string // a Layer, ChargeFallback, or "" for a first try
	ordinal int
	start   int64
	end     int64

	evidence   Evidence
	from       string // the candidate before it, for a fallback
	reason     string
	waitNs     int64 // since the end of the attempt it repeats
	errorClass string
	httpStatus int
	counted    bool
	failed     bool
	unit       *node // the outermost span of this attempt: itself, or the chain that was repeated
	wasted     bool
	wastedNs   int64
	index      int
	following  *callAttempt // of its operation
}

// operation is something wanted done once: its attempts in order.
type operation struct {
	exec     *execution
	grain    Grain
	first    *callAttempt // of its attempts, each of which knows the following: lists are joined at no cost
	last     *callAttempt
	count    int        // of its attempts
	merged   *operation // where its attempts went
	limit    int
	index    int    // in Run.Operations
	provider string // of the first attempt that states one, once the row is written
	written  bool   // it has its row
	summed   bool   // its step has counted it

	countedIn *execution // whose attempts of it tries counts
	tries     [2]int     // in the layers transport and call
}

// resolve is the operation that has o's attempts now.
func (o *operation) resolve() *operation {
	if o.merged == nil {
		return o
	}
	return o.resolveMerged()
}

// resolveMerged shortens the way for whoever asks next: nested repeats merge once per level.
func (o *operation) resolveMerged() *operation {
	last := o
	for last.merged != nil {
		last = last.merged
	}
	for o.merged != nil {
		o, o.merged = o.merged, last
	}
	return last
}

// attempts are the attempts of o, in order.
func (o *operation) attempts(yield func(*callAttempt) bool) {
	for c := o.first; c != nil; c = c.following {
		if !yield(c) {
			return
		}
	}
}

// sort puts the attempts in time's order, those of one instant as they are.
func (o *operation) sort() {
	sorted := true
	for c := o.first; sorted && c.following != nil; c = c.following {
		sorted = c.start <= c.following.start
	}
	if sorted {
		return
	}
	all := slices.AppendSeq(make([]*callAttempt, 0, o.count), o.attempts)
	slices.SortStableFunc(all, func(x, y *callAttempt) int { return cmp.Compare(x.start, y.start) })
	o.first, o.last, o.count = nil, nil, 0
	for _, c := range all {
		c.following = nil
		o.add(c)
	}
}

func (o *operation) add(c *callAttempt) {
	if o.last == nil {
		o.first = c
	} else {
		o.last.following = c
	}
	o.last = c
	o.count++
}

// absorb moves other's attempts to o: they were attempts of one thing.
func (o *operation) absorb(other *operation) {
	if other = other.resolve(); other == o {
		return
	}
	if other.first != nil {
		if o.last == nil {
			o.first = other.first
		} else {
			o.last.following = other.first
		}
		o.last = other.last
		o.count += other.count
	}
	if other.grain == GrainCall {
		o.grain = GrainCall // what a chain wraps says what it is
	}
	o.limit = max(o.limit, other.limit)
	other.first, other.last, other.count, other.merged = nil, nil, 0, o
}

// findCalls finds the attempts below steps, and which of them repeat or replace others.
func (a *account) findCalls() {
	work := 0
	for _, n := range a.tree.nodes {
		if grainOf(n) != "" {
			work++
		}
	}
	a.calls = make([]*callAttempt, 0, work)
	for i := len(a.tree.nodes) - 1; i >= 0; i-- { // children before parents
		n := a.tree.nodes[i]
		n.modelled = n.Role == schema.RoleModel && !n.shadow
		for _, c := range n.children {
			n.modelled = n.modelled || c.modelled && !c.isExecution()
			n.holds = n.holds || c.holds || c.isExecution()
			n.sending = n.sending || c.isSend() || c.sending && !c.isExecution()
		}
		n.broken = broke(n)
		a.relate(n.children, n)
		a.leaf(n)
		a.lead(n)
	}
	for _, e := range a.executions {
		a.relateRootless(e)
	}
}

// relateRootless relates the spans of an execution that have no common parent in the
// tree: siblings by the parent they name.
func (a *account) relateRootless(e *execution) {
	if len(e.members) == 1 {
		if e.members[0].parent == nil {
			a.relate(e.members, nil)
		}
		return
	}
	var byParent map[schema.SpanID][]*node
	var order []schema.SpanID
	for _, m := range e.members {
		if m.parent == nil {
			if byParent == nil {
				byParent = make(map[schema.SpanID][]*node)
			}
			if _, ok := byParent[m.ParentID]; !ok {
				order = append(order, m.ParentID)
			}
			byParent[m.ParentID] = append(byParent[m.ParentID], m)
		}
	}
	for _, id := range order {
		siblings := byParent[id]
		slices.SortFunc(siblings, compareNodes)
		a.relate(siblings, nil)
	}
}

// grainOf is what n is an attempt of, "" if it is none by itself.
func grainOf(n *node) Grain {
	switch n.Role {
	case schema.RoleModel:
		return GrainCall
	case schema.RoleTool:
		return GrainTool
	case schema.RoleHTTP, schema.RoleRPC:
		return GrainHTTP
	case schema.RoleOther, schema.RoleChain, schema.RoleAuxiliary:
	}
	return ""
}

// leaf makes n an attempt where it is a call by itself: of nested spans of one
// request only the innermost is.
func (a *account) leaf(n *node) {
	grain := grainOf(n)
	if grain == "" || n.exec == nil || n.attempt != nil || n.shadow {
		return
	}
	if grain == GrainHTTP && n.sending {
		return
	}
	if grain == GrainCall {
		candidates := a.failedCandidates(n)
		for _, c := range n.children {
			if c.modelled && !slices.Contains(candidates, c) {
				return
			}
		}
		if len(candidates) > 0 {
			if n.Failed {
				return // the last candidate has a span of its own
			}
			// A request that went on to another candidate shows the failed ones below itself.
			won := a.attemptOf(n, grain)
			won.counted = true
			last := candidates[len(candidates)-1]
			row := a.rowOf(last)
			won.charge, won.evidence, won.from, won.reason = ChargeFallback, EvidenceStructure, last.Model, last.ErrorClass
			last.unitLost = true
			row.op.resolve().absorb(won.op)
			won.op = row.op.resolve()
			return
		}
	}
	a.attemptOf(n, grain).counted = true
}

// failedCandidates are the candidates of a fallback that a request shows below itself.
func (a *account) failedCandidates(n *node) []*node {
	var out []*node
	for _, c := range n.children {
		if c.Role == schema.RoleModel && c.Fallback >= 0 && c.Failed && c.attempt != nil && c.exec == n.exec {
			out = append(out, c)
		}
	}
	return out
}

// callCell is an attempt with the operation that it begins.
type callCell struct {
	attempt callAttempt
	op      operation
}

// attemptOf makes a row of n, with an operation of its own until a repeat is found.
func (a *account) attemptOf(n *node, grain Grain) *callAttempt {
	if n.attempt != nil {
		return n.attempt
	}
	cell := a.newCalls.next()
	c := &cell.attempt
	*c = callAttempt{
		node: n, exec: n.exec, grain: grain, start: n.StartNs, end: n.EndNs, ordinal: 1, unit: n,
		errorClass: n.ErrorClass, httpStatus: int(n.HTTPStatus), failed: n.Failed, evidence: EvidenceStructure,
	}
	c.op = &cell.op
	*c.op = operation{exec: n.exec, grain: grain, first: c, last: c, count: 1, limit: int(n.AttemptLimit)}
	if n.AttemptEvidence != "" {
		c.ordinal, c.evidence = max(1, int(n.stated)), Evidence(n.AttemptEvidence)
	}
	n.attempt = c
	a.calls = append(a.calls, c)
	return c
}

// lead finds the first call at or below n, and the model asked last.
func (a *account) lead(n *node) {
	if n.attempt != nil && n.attempt.grain != GrainHTTP {
		n.lead = n.attempt
	}
	if n.Role == schema.RoleModel {
		n.lastModel = a.tree.facts.models.requested(n.Span)
	}
	for _, c := range n.children {
		if c.isExecution() {
			continue
		}
		if c.lead != nil && n.lead == nil && c.lead.exec == n.exec { // or else it states another step
			n.lead = c.lead
		}
		if c.lastModel != "" && n.Role != schema.RoleModel {
			n.lastModel = c.lastModel
		}
	}
}

// rowOf is the attempt that stands for unit u: its first call, or u itself.
func (a *account) rowOf(u *node) *callAttempt {
	switch {
	case u.isSend() && u.attempt != nil:
		return u.attempt
	case u.lead != nil:
		return u.lead
	case u.isSend():
		return a.attemptOf(u, GrainHTTP)
	}
	c := a.attemptOf(u, GrainWork)
	u.lead = c
	return c
}

// maxGap bounds the attempts that a stated number may bring to life: a larger
// number is no count of attempts.
const maxGap = 100

// fillGap adds the attempts before u whose spans never came, known by u's number.
func (a *account) fillGap(u *node, layer Layer, missing int) {
	if missing <= 0 || missing > maxGap || a.invent(missing) < missing {
		return
	}
	evidence := Evidence(u.AttemptEvidence)
	for range missing {
		a.spanless(u.exec, layer, u.StartNs, evidence, "", 0, a.rowOf(u).op)
	}
}

// spanless adds an attempt that has no span of its own.
func (a *account) spanless(e *execution, layer Layer, instant int64, evidence Evidence, class string, status int, op *operation) *callAttempt {
	c := &callAttempt{
		exec: e, grain: GrainWork, charge: string(layer), start: instant, end: instant, evidence: evidence,
		errorClass: class, httpStatus: status, op: op,
	}
	if op == nil {
		c.op = &operation{exec: e, grain: GrainWork}
	}
	c.op = c.op.resolve()
	c.op.add(c)
	c.ordinal = c.op.count
	a.calls = append(a.calls, c)
	return c
}
