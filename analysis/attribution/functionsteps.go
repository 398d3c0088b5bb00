package attribution

import "github.com/retryledger/retryledger/schema"

// findFunctionSteps lets functions that the application marks as tasks of its
// pipeline (Traceloop's @task) stand for steps, where no engine and no span of the
// application's own names one: beside those they are contents or containers. It tells whether it found any.
func (a *account) findFunctionSteps() bool {
	if len(a.executions) > 0 {
		return false
	}
	for _, n := range a.tree.nodes {
		if !isFunctionStep(n) || below(n, func(p *node) bool { return isFunctionStep(p) && p.Node == n.Node }) {
			continue // a function that calls itself is one execution
		}
		a.add(execution{step: n.Node, node: n, function: true})
	}
	return len(a.executions) > 0
}

func isFunctionStep(n *node) bool { return marksFunction(n.Span) && !n.shadow }

func marksFunction(s *schema.Span) bool {
	return s.Dialect == "traceloop" && s.Role == schema.RoleChain && s.Node != ""
}
