package attribution

import (
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
}

// operation is something wanted done once: its attempts in order.
type operation struct {
	exec     *execution
	grain    Grain
	attempts []*callAttempt
	merged   *operation // where its attempts went
	limit    int
}

func (o *operation) resolve() *operation {
	for o.merged != nil {
		o = o.merged
	}
	return o
}

// absorb moves other's attempts to o: they were attempts of one thing.
func (o *operation) absorb(other *operation) {
	if other = other.resolve(); other == o {
		return
	}
	o.attempts = append(o.attempts, other.attempts...)
	if other.grain == GrainCall {
		o.grain = GrainCall // what a chain wraps says what it is
	}
	o.limit = max(o.limit, other.limit)
	other.attempts, other.merged = nil, o
}

// findCalls finds the attempts below steps, and which of them repeat or replace others.
func (a *account) findCalls() {
	for i := len(a.tree.nodes) - 1; i >= 0; i-- { // children before parents
		n := a.tree.nodes[i]
		n.modelled = n.Role == schema.RoleModel
		for _, c := range n.children {
			n.modelled = n.modelled || c.modelled && !c.isExecution()
			n.holds = n.holds || c.holds || c.isExecution()
			n.sending = n.sending || c.isSend() || c.sending && !c.isExecution()
		}
		a.relate(n.children, n)
		a.leaf(n)
		a.lead(n)
	}
	for _, e := range a.executions {
		// Spans without a common parent in the tree: siblings by the parent they name.
		byParent := make(map[schema.SpanID][]*node)
		var order []schema.SpanID
		for _, m := range e.members {
			if m.parent == nil {
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
		if c.Role == schema.RoleModel && c.Fallback >= 0 && c.Failed && c.attempt != nil {
			out = append(out, c)
		}
	}
	return out
}

// attemptOf makes a row of n, with an operation of its own until a repeat is found.
func (a *account) attemptOf(n *node, grain Grain) *callAttempt {
	if n.attempt != nil {
		return n.attempt
	}
	c := &callAttempt{
		node: n, exec: n.exec, grain: grain, start: n.StartNs, end: n.EndNs, ordinal: 1, unit: n,
		errorClass: n.ErrorClass, httpStatus: int(n.HTTPStatus), failed: n.Failed, evidence: EvidenceStructure,
	}
	c.op = &operation{exec: n.exec, grain: grain, attempts: []*callAttempt{c}, limit: int(n.AttemptLimit)}
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
	if n.Role == schema.RoleModel && n.Model != "" {
		n.lastModel = n.Model
	}
	for _, c := range n.children {
		if c.isExecution() {
			continue
		}
		if c.lead != nil && n.lead == nil {
			n.lead = c.lead
		}
		if c.lastModel != "" && n.Role != schema.RoleModel {
			n.lastModel = c.lastModel
		}
	}
}

// isUnit tells whether a span may be an attempt of something below a step.
func isUnit(n *node) bool {
	if n.holds && !n.isSend() && n.stated == 0 {
		return false // the repeat of a graph or of a group of steps is charged to the steps inside
	}
	return n.exec != nil && !n.shadow && !n.isExecution() && n.Role != schema.RoleAuxiliary && !n.Hidden && !n.ContractSpan && !n.Heartbeat
}

// sequence is a run of attempts at one thing among siblings.
type sequence struct {
	last    *node
	ordinal int
	failing bool     // its last attempt failed
	tried   []string // the models asked in this round: going back to one begins another
}

// tries notes the models that unit u asks.
func (s *sequence) tries(u *node, newRound bool) {
	if newRound {
		s.tried = s.tried[:0]
	}
	for _, m := range []string{u.firstModel(), u.lastModel} {
		if m != "" && !slices.Contains(s.tried, m) {
			s.tried = append(s.tried, m)
		}
	}
}

func begin(u *node, ordinal int) *sequence {
	s := &sequence{last: u, ordinal: ordinal}
	s.tries(u, true)
	return s
}

// relate finds repeats and fallbacks among the spans below one parent (nil where
// they name a parent that never came), in time's order.
func (a *account) relate(siblings []*node, parent *node) {
	if len(siblings) == 0 {
		return
	}
	wrapper := parent != nil && parent.FallbackWrapper && !wrapsItsOwnKind(parent)
	var open sequences
	var units []*node
	var inferred []*callAttempt
	for _, u := range siblings {
		if wrapper && u.stated == parent.Attempt {
			u.stated = 0 // candidates inherit the tag of their wrapper
		}
		if !isUnit(u) {
			continue
		}
		seq, charge, evidence := a.predecessor(u, &open, units, wrapper)
		units = append(units, u)
		explicit := int(u.stated)
		switch {
		case seq != nil:
			p := seq.last
			seq.last = u
			seq.tries(u, charge != ChargeFallback)
			open.ended(seq)
			if charge == ChargeFallback {
				seq.ordinal = max(1, explicit)
			} else {
				a.fillGap(u, layerOf(u), explicit-seq.ordinal-1)
				seq.ordinal = max(seq.ordinal+1, explicit)
			}
			if row := a.repeat(u, p, charge, evidence, seq.ordinal); row.evidence == EvidenceInferred {
				inferred = append(inferred, row)
			}
		case explicit >= 2 || u.Fallback >= 1 && grainOf(u) != GrainHTTP:
			// The attempt before it never came, or a breaker refused to make it.
			c := a.rowOf(u)
			if c.charge == "" {
				c.charge, c.evidence = ChargeFallback, EvidenceAttribute
				if u.Fallback < 1 {
					c.charge, c.evidence = string(layerOf(u)), Evidence(u.AttemptEvidence)
					a.fillGap(u, layerOf(u), explicit-2)
				}
				c.from, c.reason, c.ordinal = u.FallbackFrom, u.FallbackReason, max(1, explicit)
				c.unit = u
			}
			open.begin(begin(u, max(1, explicit)))
		default:
			if explicit == 1 && u.lead == nil && u.attempt == nil {
				a.attemptOf(u, GrainWork)
			}
			open.begin(begin(u, max(1, explicit)))
		}
	}
	// A wrapper that holds nothing but the attempts of one thing is itself the evidence.
	if open.count == 1 && parent != nil && parent.Role == schema.RoleChain && !parent.isExecution() && !parent.GraphRoot {
		for _, row := range inferred {
			row.evidence = EvidenceStructure
		}
	}
}

// sequences are those that the next sibling may continue. Only a failed attempt is
// repeated, unless the repeat states its number.
type sequences struct {
	count  int
	last   *sequence
	failed []*sequence            // whose last attempt failed, by its time
	named  map[string][]*sequence // all, by the name of their attempts
}

func (o *sequences) begin(s *sequence) {
	o.count++
	o.last = s
	o.ended(s)
}

// ended notes how the last attempt of a sequence ended.
func (o *sequences) ended(s *sequence) {
	if o.named == nil {
		o.named = make(map[string][]*sequence)
	}
	if list := o.named[s.last.base]; len(list) == 0 || list[len(list)-1] != s {
		o.named[s.last.base] = append(list, s) // a fallback has a name of its own
	}
	s.failing = false
	if failedUnit(s.last) {
		s.failing = true
		o.failed = append(o.failed, s)
	}
}

// maxSiblings bounds how many sequences are looked at for one sibling, and how many
// siblings for one sequence, so that the cost of many siblings stays linear.
const maxSiblings = 128

// candidates visits the sequences that u may continue, the latest first.
func (o *sequences) candidates(u *node, visit func(*sequence)) {
	list := o.failed
	if u.stated >= 2 {
		list = o.named[u.base]
	}
	for i, seen := len(list)-1, 0; i >= 0 && seen < maxSiblings; i-- {
		if u.stated < 2 && !list[i].failing {
			continue
		}
		seen++
		visit(list[i])
	}
	if u.stated < 2 && len(o.failed) > 2*maxSiblings { // forget what can no longer be continued
		o.failed = slices.DeleteFunc(o.failed, func(s *sequence) bool { return !s.failing })
		if len(o.failed) > maxSiblings {
			o.failed = slices.Delete(o.failed, 0, len(o.failed)-maxSiblings)
		}
	}
}

// wrapsItsOwnKind: a retry around fallbacks is named after what it wraps.
func wrapsItsOwnKind(parent *node) bool {
	return slices.ContainsFunc(parent.children, func(c *node) bool { return c.FallbackWrapper })
}

// layerOf is the layer that repeated u, by what u is unless it says so itself.
func layerOf(u *node) Layer {
	if l := Layer(u.RetryLayer); l == LayerTransport || l == LayerCall {
		return l // the layers of steps name no repeat below a step
	}
	if u.isSend() {
		return LayerTransport
	}
	return LayerCall
}

// failedUnit tells whether u did not do what was wanted.
func failedUnit(u *node) bool { return u.Failed || u.StepFailed == schema.FlagYes }

// predecessor finds the sequence that u continues, and how it is charged.
func (a *account) predecessor(u *node, open *sequences, units []*node, wrapper bool) (*sequence, string, Evidence) {
	evidence := EvidenceInferred
	if u.AttemptEvidence != "" && u.stated >= 2 {
		evidence = Evidence(u.AttemptEvidence)
	}
	if wrapper && open.last != nil { // the candidates of a fallback, in order
		return open.last, ChargeFallback, EvidenceStructure
	}
	var best *sequence
	bestCharge := ""
	bestScore := -1
	open.candidates(u, func(seq *sequence) {
		p := seq.last
		if p.exec != u.exec || p.EndNs > u.StartNs+a.tree.slack || p.StartNs > u.StartNs {
			return // of another step, or they overlap: no repeat
		}
		charge := a.repeats(u, p, seq, units)
		if charge == "" {
			return
		}
		score := 0
		if u.InputHash != 0 && u.InputHash == p.InputHash {
			score += 2
		}
		if u.ItemHash != 0 && u.ItemHash == p.ItemHash {
			score += 4
		}
		if int(u.stated) == seq.ordinal+1 {
			score++
		}
		// Of equals the one that waits longest; a numbered one follows the latest.
		if score > bestScore || score == bestScore && u.stated < 2 {
			best, bestCharge, bestScore = seq, charge, score
		}
	})
	if best == nil {
		return nil, "", ""
	}
	if u.Fallback >= 1 {
		evidence = EvidenceAttribute
	}
	return best, bestCharge, evidence
}

// repeats tells how u is charged if it continues the sequence that p ends, "" if it does not.
func (a *account) repeats(u, p *node, seq *sequence, units []*node) string {
	sameName := u.Role == p.Role && u.base == p.base
	switch {
	case u.Fallback >= 1 && u.stated < 2:
		switch {
		case !failedUnit(p) || u.isSend() && !p.isSend():
			return ""
		case sameName && u.Fallback == p.Fallback:
			return string(layerOf(u)) // the same candidate again is no switch
		}
		return ChargeFallback
	case u.stated >= 2: // an explicit number counts even where the attempt before looks fine
		if sameName && int(u.stated) > seq.ordinal {
			return string(layerOf(u))
		}
		return ""
	case u.stated == 1 || u.Fallback == 0 && u.FallbackFrom == "" && u.stated == 0 && p.Fallback >= 1:
		return "" // a first try, and says so
	case !failedUnit(p):
		return ""
	}
	if a.interrupted(p, u, units) {
		return ""
	}
	if u.InputHash != 0 && p.InputHash != 0 && u.InputHash != p.InputHash && (u.Role == schema.RoleTool || u.isSend() || p.usedUp) {
		return "" // the same tool, client or policy for something else
	}
	if u.Role == schema.RoleOther && u.ItemHash != 0 && p.ItemHash != 0 && u.ItemHash != p.ItemHash {
		return "" // another item
	}
	model := u.firstModel()
	switched := model != "" && p.lastModel != "" && !slices.Contains(seq.tried, model)
	switch {
	case sameName && switched, u.modelled && p.modelled && switched:
		return ChargeFallback
	case sameName, u.modelled && p.modelled && model != p.lastModel && slices.Contains(seq.tried, model):
		return string(layerOf(u)) // the same again, or the round of candidates from its beginning
	}
	return ""
}

// firstModel is the model that unit u asks first.
func (n *node) firstModel() string {
	if n.lead != nil && n.lead.node != nil && n.lead.grain == GrainCall {
		return n.lead.node.Model
	}
	return n.lastModel
}

// interrupted tells whether another call began between p and u: repeats are
// adjacent among their parent's model and tool calls.
func (a *account) interrupted(p, u *node, units []*node) bool {
	for i, seen := len(units)-1, 0; i >= 0; i, seen = i-1, seen+1 {
		q := units[i]
		if seen > maxSiblings {
			return true // so far back is not adjacent
		}
		if q == p || q.StartNs < p.EndNs-a.tree.slack {
			if q.StartNs < p.StartNs {
				return false // units are in time's order
			}
			continue
		}
		if q.lead != nil && (q.Role != u.Role || q.base != u.base) {
			return true
		}
	}
	return false
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

// repeat charges u as the next attempt of what p was an attempt of.
func (a *account) repeat(u, p *node, charge string, evidence Evidence, ordinal int) *callAttempt {
	row, before := a.rowOf(u), a.rowOf(p)
	if before.unit == before.node {
		before.unit = p
	}
	row.unit = u
	if row.charge == "" {
		row.charge, row.evidence, row.ordinal = charge, evidence, ordinal
		if charge == ChargeFallback {
			row.from, row.reason = orText(u.FallbackFrom, p.lastModel), orText(u.FallbackReason, p.ErrorClass)
		}
	}
	row.waitNs = max(0, u.StartNs-p.EndNs)
	u.again, p.continued = p, true
	if u.parent != nil && charge != ChargeFallback {
		u.parent.usedUp = true // a policy that made more than one attempt
	}
	if failedUnit(p) || charge != ChargeFallback {
		p.unitLost = true
	}
	before.op.resolve().absorb(row.op)
	row.op = before.op.resolve()
	row.op.limit = max(row.op.limit, int(u.AttemptLimit), int(p.AttemptLimit))
	return row
}

func orText(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

// maxGap bounds the attempts that a stated number may bring to life: a larger
// number is no count of attempts.
const maxGap = 100

// fillGap adds the attempts before u whose spans never came, known by u's number.
func (a *account) fillGap(u *node, layer Layer, missing int) {
	if missing <= 0 || missing > maxGap {
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
	c.op.attempts = append(c.op.attempts, c)
	c.ordinal = len(c.op.attempts)
	a.calls = append(a.calls, c)
	return c
}
