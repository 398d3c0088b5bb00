package attribution

// maxOpenSteps bounds how many steps that run beside each other are looked at for one
// span; with so many, nothing tells where it belongs.
const maxOpenSteps = 64

// adoptOrphans gives the spans of a library whose parent never came to the step of the
// application that was open all their time: some libraries never end the span of a run
// that failed (smolagents). Where steps ran beside each other nothing tells which.
func (t *tree) adoptOrphans(all []node) {
	if t.orphans == 0 {
		return
	}
	into := make(map[*node]*node)
	var open []*node // steps that have not ended, in time's order
	for i := range all {
		n := &all[i]
		if n.twin != nil {
			continue
		}
		if n.orphan && n.parent == nil && n.Dialect != "plain" && n.task == nil && n.Step == "" && !n.GraphRoot && !n.Heartbeat && !n.ContractSpan {
			kept := open[:0]
			for _, s := range open {
				if s.EndNs+t.slack >= n.StartNs {
					kept = append(kept, s)
				}
			}
			open = kept
			if step := t.onlyStepAround(n, open); step != nil {
				into[n] = step
			}
		}
		if statesExecution(n) {
			open = append(open, n)
		}
	}
	if len(into) > 0 {
		t.move(into)
	}
}

// onlyStepAround is the innermost of the open steps that hold n in time, nil where
// there is none or where they do not lie in each other.
func (t *tree) onlyStepAround(n *node, open []*node) *node {
	if len(open) > maxOpenSteps {
		return nil
	}
	var around []*node
	for _, s := range open {
		if s.TraceID == n.TraceID && t.covers(s.Span, n.Span) {
			around = append(around, s)
		}
	}
	if len(around) == 0 {
		return nil
	}
	inner := around[len(around)-1]
	above := make(map[*node]bool)
	for p, depth := inner, 0; p != nil && depth < maxSiblings; p, depth = p.parent, depth+1 {
		if p == n {
			return nil // it lies around the step
		}
		above[p] = true
		if depth == maxSiblings-1 && p.parent != nil {
			return nil
		}
	}
	for _, s := range around {
		if !above[s] {
			return nil
		}
	}
	return inner
}
