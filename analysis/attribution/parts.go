package attribution

import "github.com/retryledger/retryledger/schema"

// Calls that an instrumentation tells in two spans.

// foldParts makes one of the two spans of a call: LiteLLM's request and the
// provider's raw answer below it, Logfire's request of a stream and the log after it
// that says how the stream went.
func (t *tree) foldParts(all []node) {
	for i := range all {
		n := &all[i]
		switch {
		case n.parent == nil:
		case n.Dialect == "litellm" && n.Name == "raw_gen_ai_request" && n.Role == schema.RoleModel:
			n.shadow = n.parent.Role == schema.RoleModel
		case n.Dialect == "logfire-stream-end":
			if request := t.requestOf(n); request != nil {
				whole := *request.Span
				whole.InputTokens, whole.OutputTokens, whole.EndNs = n.InputTokens, n.OutputTokens, max(n.EndNs, whole.EndNs)
				if n.Failed {
					whole.Failed, whole.ErrorClass, whole.HTTPStatus = true, n.ErrorClass, n.HTTPStatus
				}
				request.standFor(&whole)
			}
		}
	}
}

// requestOf is the last request beside log n, of its model, that has no answer yet.
func (t *tree) requestOf(n *node) *node {
	siblings := n.parent.children
	for i, seen := len(siblings)-1, 0; i >= 0 && seen < maxSiblings; i-- {
		c := siblings[i]
		if c.StartNs > n.StartNs || c == n {
			continue
		}
		seen++
		if c.Role == schema.RoleModel && c.Scope == n.Scope && c.Model == n.Model && !c.Failed && c.InputTokens == schema.Unknown && c.EndNs <= n.StartNs+t.slack {
			return c
		}
	}
	return nil
}
