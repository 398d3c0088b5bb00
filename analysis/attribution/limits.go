package attribution

import "math"

// findLimits notes for every execution how many attempts each layer allows, as far as
// spans state it: a step's own span for the layer that repeats the step, a span below
// it for a layer inside.
func (a *account) findLimits() {
	for _, n := range a.tree.nodes {
		if n.AttemptLimit <= 0 || n.exec == nil || n.shadow {
			continue
		}
		e := n.exec
		if !n.isExecution() && !statesExecution(n) {
			e.allow(layerOf(n), int(n.AttemptLimit))
			continue
		}
		layer := LayerNode
		if l := Layer(n.RetryLayer); stepLayer(l) {
			layer = l
		}
		e.allow(layer, int(n.AttemptLimit))
		if e.view { // the application's own spans inside are the step's executions
			for _, in := range e.inner {
				if in.step == e.step {
					in.allow(layer, int(n.AttemptLimit))
				}
			}
		}
	}
}

// allow notes a stated limit. Of several of one layer the largest counts: a wrapper
// and its attempts may all repeat it.
func (e *execution) allow(l Layer, attempts int) {
	if e.limits == nil {
		e.limits = make(map[Layer]int)
	}
	e.limits[l] = max(e.limits[l], attempts)
}

// worstCase is the product of the largest limit of each layer, 0 where none is stated.
func worstCase(executions []*execution) int {
	largest := make(map[Layer]int)
	for _, e := range executions {
		for l, n := range e.limits {
			largest[l] = max(largest[l], n)
		}
	}
	if len(largest) == 0 {
		return 0
	}
	product := 1
	for _, n := range largest {
		if product > math.MaxInt32/n {
			return math.MaxInt32 // no count of attempts
		}
		product *= n
	}
	return product
}
