package attribution

import (
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Call sites that stand in for steps.

// findCallSites lets the name of a call site stand in for the step where no step
// encloses a call: the outermost span of the library that made it. Calls of one site
// under one parent, each after a failed one, are one execution.
func (a *account) findCallSites() {
	type place struct {
		trace  schema.TraceID
		parent schema.SpanID
		name   string
	}
	last := make(map[place]*execution)
	tops := make(map[*node]bool)
	var order []*node
	running := a.mayStillRun()
	for _, n := range a.tree.nodes {
		if n.exec != nil || !n.isCall() || n.shadow {
			continue
		}
		top, above := n, n
		if n.parent != nil {
			places := a.sitesAbove()
			above = places[n.parent.at].root
			if site := places[n.parent.at].site; site != nil {
				top = site
			}
		}
		// The step around a call whose parent has not come yet is not known yet.
		if above.orphan && !above.GraphRoot && running {
			continue
		}
		if !tops[top] {
			tops[top] = true
			order = append(order, top)
		}
	}
	slices.SortFunc(order, compareNodes)
	for _, top := range order {
		name := siteName(top)
		key := place{top.TraceID, top.ParentID, numberless(name)}
		if a.group.joinedBy == "inferred" && top.ParentID.IsZero() { // siblings that are traces of their own
			key.trace = schema.TraceID{}
		}
		e := last[key]
		if e == nil || !failedUnit(e.members[len(e.members)-1]) || top.StartNs < e.end-a.tree.slack {
			e = a.add(execution{step: name, trace: top.TraceID, site: true, start: top.StartNs, end: top.EndNs})
			last[key] = e
		}
		e.join(top)
	}
}

// sitePlace is where a call below a span belongs.
type sitePlace struct {
	site *node // the outermost span of a library that is it or lies above it; nil if none does
	root *node
}

// sitesAbove finds the place of every span, by its position in the tree, once.
func (a *account) sitesAbove() []sitePlace {
	if a.sites != nil {
		return a.sites
	}
	a.sites = make([]sitePlace, len(a.tree.nodes))
	for i, n := range a.tree.nodes { // parents before children
		p := sitePlace{root: n}
		if n.parent != nil {
			p = a.sites[n.parent.at]
		}
		if isHook(n.Name) { // an agent middleware's hook is a call site of its own
			p.site = nil
		}
		if p.site == nil && (n.Role == schema.RoleChain || n.isCall()) {
			p.site = n
		}
		a.sites[i] = p
	}
	return a.sites
}

// siteName is the name that a library gives a call site, else the span's own.
func siteName(top *node) string {
	if top.Node != "" && (top.task == nil || isHook(top.Node)) {
		return top.Node
	}
	return top.Name
}

// mayStillRun tells whether spans of the run may be on their way.
func (a *account) mayStillRun() bool {
	var last int64
	for _, n := range a.tree.nodes {
		last = max(last, n.EndNs)
	}
	return a.opts.AtNs-last <= a.opts.OrphanAfterNs
}

// numberless makes one name of names that differ in a number only.
func numberless(name string) string {
	first := strings.IndexFunc(name, isDigit)
	if first < 0 {
		return name
	}
	out := make([]byte, 0, len(name))
	for i := range len(name) {
		switch {
		case !isDigit(rune(name[i])):
			out = append(out, name[i])
		case i == 0 || !isDigit(rune(name[i-1])):
			out = append(out, '#')
		}
	}
	return strings.TrimSpace(string(out))
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
