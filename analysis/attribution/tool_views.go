package attribution

import (
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// foldToolViews leaves one of two spans in which two instrumentations report one call
// of a tool: the one that lies in the other's time, beside it or below it.
func (t *tree) foldToolViews() {
	var tools, below []*node
	for _, p := range t.nodes {
		tools, below = tools[:0], below[:0]
		mixed := false
		for _, c := range p.children {
			if c.Role != schema.RoleTool {
				continue
			}
			if p.Role == schema.RoleTool && sameTool(p, c) {
				below = append(below, c)
			}
			tools = append(tools, c)
			mixed = mixed || c.Scope != tools[0].Scope
		}
		if len(below) == 1 { // several are the attempts of one call
			below[0].shadow = true
		}
		if !mixed {
			continue
		}
		// Each view has one other view: of parallel calls the one that fits best.
		taken := make(map[*node]bool)
		for i, inner := range tools {
			var best *node
			for j := max(0, i-maxSiblings); j < len(tools) && j < i+maxSiblings; j++ {
				outer := tools[j]
				if outer == inner || outer.shadow || inner.shadow || taken[outer] || taken[inner] || !sameTool(outer, inner) || !t.covers(outer.Span, inner.Span) ||
					outer.EndNs-outer.StartNs < inner.EndNs-inner.StartNs {
					continue
				}
				if best == nil || outer.EndNs-outer.StartNs < best.EndNs-best.StartNs {
					best = outer
				}
			}
			if best != nil {
				inner.shadow, taken[best] = true, true
			}
		}
	}
}

// sameTool tells whether two spans of two instrumentations name one tool: one adds a
// word to its name ("execute_tool search", "search.tool").
func sameTool(a, b *node) bool {
	if a.Scope == b.Scope || a.base == "" || b.base == "" {
		return false
	}
	return a.base == b.base || addsAWord(a.base, b.base) || addsAWord(b.base, a.base)
}

func addsAWord(long, short string) bool {
	rest, found := strings.CutPrefix(long, short)
	if found && rest != "" {
		return rest[0] == '.' || rest[0] == ' '
	}
	rest, found = strings.CutSuffix(long, short)
	return found && rest != "" && (rest[len(rest)-1] == '.' || rest[len(rest)-1] == ' ')
}
