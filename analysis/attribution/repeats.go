package attribution

import (
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// Repeats and fallbacks among the spans below one parent.

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
	first   [2]string
}

// maxTried bounds the models that one round of candidates is known by.
const maxTried = 32

// tries notes the models that unit u asks.
func (s *sequence) tries(u *node, newRound bool) {
	if newRound {
		s.tried = s.tried[:0]
	}
	for _, m := range [...]string{u.firstModel(), u.lastModel} {
		if m != "" && len(s.tried) < maxTried && !slices.Contains(s.tried, m) {
			s.tried = append(s.tried, m)
		}
	}
}

func (a *account) sequence(u *node, ordinal int) *sequence {
	s := a.newSequences.next()
	s.last, s.ordinal, s.tried = u, ordinal, s.first[:0]
	s.tries(u, true)
	return s
}

// relate finds repeats and fallbacks among the spans below one parent (nil where
// they name a parent that never came), in time's order.
func (a *account) relate(siblings []*node, parent *node) {
	if len(siblings) == 0 {
		return
	}
	if u := siblings[0]; len(siblings) == 1 && u.stated == 0 && u.Fallback < 1 {
		return // nothing to be a repeat of, and it says nothing
	}
	wrapper := parent != nil && parent.FallbackWrapper && !wrapsItsOwnKind(parent)
	open := sequences{numbered: slices.ContainsFunc(siblings, func(u *node) bool { return u.stated >= 2 })}
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
			open.begin(a.sequence(u, max(1, explicit)))
		default:
			if explicit == 1 && u.lead == nil && u.attempt == nil {
				a.attemptOf(u, GrainWork)
			}
			open.begin(a.sequence(u, max(1, explicit)))
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
	named  map[string][]*sequence // all, by the name of their attempts; made when it is asked for

	numbered bool    // somebody asks for names
	all      []named // in the order their attempts ended
}

// named is a sequence under the name of one of its attempts.
type named struct {
	sequence *sequence
	base     string
}

func (o *sequences) begin(s *sequence) {
	o.count++
	o.last = s
	o.ended(s)
}

// ended notes how the last attempt of a sequence ended.
func (o *sequences) ended(s *sequence) {
	if o.numbered {
		o.all = append(o.all, named{s, s.last.base}) // a fallback has a name of its own
	}
	s.failing = false
	if invitesAnother(s.last) {
		s.failing = true
		o.failed = append(o.failed, s)
	}
}

// ofName are the sequences that had attempts of a name.
func (o *sequences) ofName(base string) []*sequence {
	if o.named == nil {
		o.named = make(map[string][]*sequence)
	}
	for _, n := range o.all {
		if list := o.named[n.base]; len(list) == 0 || list[len(list)-1] != n.sequence {
			o.named[n.base] = append(list, n.sequence)
		}
	}
	o.all = o.all[:0]
	return o.named[base]
}

// maxSiblings bounds how many sequences are looked at for one sibling, and how many
// siblings for one sequence, so that the cost of many siblings stays linear.
const maxSiblings = 128

// candidates visits the sequences that u may continue, the latest first.
func (o *sequences) candidates(u *node, visit func(*sequence)) {
	list := o.failed
	if u.stated >= 2 {
		list = o.ofName(u.base)
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

// invitesAnother tells whether what follows u may repeat it: u failed, or it is a send
// that was given up (by a timeout of its own, if it is sent again).
func invitesAnother(u *node) bool {
	return failedUnit(u) || u.isSend() && u.Flow == schema.FlowCancelled
}

// failedUnit tells whether u did not do what was wanted.
func failedUnit(u *node) bool { return u.Failed || u.StepFailed == schema.FlagYes || u.broken }

// broke tells whether n ended well although what it ran last failed: the agents
// library of OpenAI marks the call and the agent that failed, not what is around them.
func broke(n *node) bool {
	if n.Dialect != "openai-agents" || n.Role != schema.RoleChain || n.Failed {
		return false
	}
	var last *node
	for _, c := range n.children {
		if !c.isExecution() && (last == nil || c.EndNs >= last.EndNs) {
			last = c
		}
	}
	return last != nil && last.Role != schema.RoleTool && failedUnit(last)
}

// sameUnit tells whether u and p are the same thing by name, or by what another
// instrumentation saw of it: one of two views may be missing where a call broke.
func sameUnit(u, p *node) bool {
	if u.Role != p.Role {
		return false
	}
	if u.base == p.base {
		return true
	}
	views := func(outer, other *node) bool {
		return slices.ContainsFunc(outer.children, func(c *node) bool {
			return c.Role == schema.RoleModel && c.base == other.base && c.Scope == other.Scope && c.Scope != outer.Scope
		})
	}
	return u.Role == schema.RoleModel && u.Scope != p.Scope && (views(u, p) || views(p, u))
}

// predecessor finds the sequence that u continues, and how it is charged.
func (a *account) predecessor(u *node, open *sequences, units []*node, wrapper bool) (*sequence, string, Evidence) {
	evidence := EvidenceInferred
	if u.AttemptEvidence != "" && u.stated >= 2 {
		evidence = Evidence(u.AttemptEvidence)
	}
	if wrapper && open.last != nil && open.last.last.exec == u.exec && follows(u, open.last.last) { // the candidates of a fallback, in order
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

// follows tells whether u can be the next candidate of a fallback after p: p failed, or
// both asked a model, for some instrumentations hide that a call failed.
func follows(u, p *node) bool { return failedUnit(p) || u.modelled && p.modelled }

// repeats tells how u is charged if it continues the sequence that p ends, "" if it does not.
func (a *account) repeats(u, p *node, seq *sequence, units []*node) string {
	sameName := sameUnit(u, p)
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
	case !invitesAnother(p):
		return ""
	}
	if a.interrupted(p, u, units) || u.Role == schema.RoleTool && (u.Dialect == "openai-agents" || u.Dialect == "autogen") {
		return "" // an agent's next wish for a tool is the model's, even where no span shows the model
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
		return n.lead.node.lastModel
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

// repeat charges u as the next attempt of what p was an attempt of.
func (a *account) repeat(u, p *node, charge string, evidence Evidence, ordinal int) *callAttempt {
	row, before := a.rowOf(u), a.rowOf(p)
	if op := row.op.resolve(); row.charge != "" && op != before.op.resolve() {
		// Of several attempts in u it is their first try that repeats p.
		for c := range op.attempts {
			if c.charge == "" {
				row = c
				break
			}
		}
	}
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
	p.continued = true
	if compareNodes(p, u) < 0 { // or else, where clocks are off, repeats lead back to themselves
		u.again = p
	}
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
