package attribution

import (
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Which spans make a run (docs/accounting.md, the section of that name).

// runGroup is the spans of one run, in the order of compareSpans.
type runGroup struct {
	spanList
	traces   []schema.TraceID // by the start of their first span
	runID    string
	joinedBy string
}

// isRun tells a run from a trace that has no step, call, flag or run id.
func (g *runGroup) isRun() bool {
	return slices.ContainsFunc(g.spans, func(s *schema.Span) bool {
		switch s.Role {
		case schema.RoleModel, schema.RoleTool, schema.RoleHTTP, schema.RoleRPC:
			return true
		case schema.RoleOther, schema.RoleChain, schema.RoleAuxiliary:
		}
		return s.RunID != "" || s.Step != "" || s.TaskKey != "" || s.Complete != schema.FlagUnset || s.RunCancelled ||
			s.Attempt > 0 || s.Fallback > 0 || len(s.RetryEvents) > 0 || s.RetryCount > 0 || s.GraphRoot || marksFunction(s)
	})
}

// traceFacts is what decides which run a trace belongs to.
type traceFacts struct {
	spanList
	id          schema.TraceID
	start, end  int64
	service     string // of its first span that names one, with the environment: the scope of a run id
	environment string
	runID       string
	rank        int8
	thread      string
	alone       bool     // a step or a call is its root
	tasks       []string // sorted, without repeats
	view        string   // the scope of the spans of its tasks
	mixed       bool     // spans of several scopes show its tasks
	group       int      // union-find
	joinedBy    string
}

func groupRuns(lists []spanList, opts Options) []*runGroup {
	traces := make([]*traceFacts, len(lists))
	facts := make([]traceFacts, len(lists)) // one allocation for all
	for i, l := range lists {
		facts[i].gather(l)
		facts[i].group = i
		traces[i] = &facts[i]
	}
	if len(traces) > 1 {
		var tasks []string
		for _, t := range traces {
			tasks = t.listTasks(tasks)
		}
		joinByRunID(traces, opts)
		joinByTask(traces)
		joinViews(traces)
		joinByThread(traces, opts)
	}
	groups := make([]*runGroup, len(traces)) // by the anchor
	members := make([][]spanList, len(traces))
	sizes := make([]int32, len(traces)) // in traces
	for i := range traces {
		sizes[find(traces, i)]++
	}
	for i, t := range traces {
		root := find(traces, i)
		if groups[root] == nil {
			groups[root] = &runGroup{joinedBy: "trace", traces: make([]schema.TraceID, 0, sizes[root])}
			members[root] = make([]spanList, 0, sizes[root])
		}
		g := groups[root]
		members[root] = append(members[root], t.spanList)
		g.traces = append(g.traces, t.id)
		if g.runID == "" {
			g.runID = t.runID
		}
		if t.joinedBy != "" {
			g.joinedBy = t.joinedBy
		}
	}
	var out []*runGroup
	for root, g := range groups {
		if g == nil {
			continue
		}
		g.spanList = merge(members[root])
		if g.runID == "" {
			g.runID = g.traces[0].String()
			if len(g.traces) == 1 {
				if parts := splitByGraphRoot(g); len(parts) > 1 {
					out = append(out, parts...)
					continue
				}
			}
		} else if g.joinedBy == "trace" {
			g.joinedBy = "run_id"
		}
		out = append(out, g)
	}
	return out
}

// gather reads what the spans of one trace say of their run.
func (t *traceFacts) gather(list spanList) {
	first := list.spans[0]
	t.spanList, t.id, t.start, t.end = list, first.TraceID, first.StartNs, first.EndNs
	for _, s := range list.spans {
		t.end = max(t.end, s.EndNs)
		if t.service == "" {
			t.service, t.environment = s.Service, s.Environment
		}
		// The best source wins; of two ids of one source the earliest span's.
		if s.RunID != "" && (t.runID == "" || s.RunIDRank < t.rank) {
			t.runID, t.rank = s.RunID, s.RunIDRank
		}
		if t.thread == "" {
			t.thread = s.ThreadID
		}
		t.alone = t.alone || s.StandsAlone()
	}
}

// listTasks notes the tasks of a trace, by which traces are joined, at the end of a
// list that all traces share, and returns it.
func (t *traceFacts) listTasks(list []string) []string {
	from := len(list)
	for _, s := range t.spans {
		if s.TaskKey == "" {
			continue
		}
		t.mixed = t.mixed || t.view != "" && t.view != s.Scope
		t.view = s.Scope
		if len(list) == from || list[len(list)-1] != s.TaskKey {
			list = append(list, s.TaskKey)
		}
	}
	slices.Sort(list[from:])
	list = list[:from+len(slices.Compact(list[from:]))]
	t.tasks = list[from:len(list):len(list)]
	return list
}

func find(traces []*traceFacts, i int) int {
	for traces[i].group != i {
		traces[i].group = traces[traces[i].group].group
		i = traces[i].group
	}
	return i
}

func join(traces []*traceFacts, a, b int, by string) {
	a, b = find(traces, a), find(traces, b)
	if a == b {
		return
	}
	if b < a {
		a, b = b, a
	}
	traces[b].group = a // the earlier trace anchors the run
	traces[b].joinedBy = by
	if traces[a].joinedBy == "" {
		traces[a].joinedBy = by
	}
}

// joinByRunID joins traces of one explicit run id, at most the window apart: rule 1.
func joinByRunID(traces []*traceFacts, opts Options) {
	type scoped struct{ service, environment, id string }
	last := make(map[scoped]int)
	for i, t := range traces {
		if t.runID == "" {
			continue
		}
		key := scoped{t.service, t.environment, t.runID}
		if j, ok := last[key]; ok && t.start-traces[j].end <= opts.JoinWindowNs {
			join(traces, j, i, "run_id")
		}
		last[key] = i
	}
}

// joinByTask joins a trace to the earlier trace of its thread one of whose tasks it
// executes again: rule 2. A task id alone joins nothing: without a thread two runs
// of one input may have equal ones.
func joinByTask(traces []*traceFacts) {
	type scoped struct{ service, environment, thread, task string }
	seen := make(map[scoped]int)
	for i, t := range traces {
		if t.thread == "" {
			continue
		}
		for _, task := range t.tasks {
			key := scoped{t.service, t.environment, t.thread, task}
			if j, ok := seen[key]; ok {
				join(traces, j, i, "task")
			}
			seen[key] = i
		}
	}
}

// joinViews joins traces that show the same tasks at the same time through different
// instrumentations: two views of one run that no span of the application holds.
func joinViews(traces []*traceFacts) {
	type scoped struct{ service, environment, task string }
	seen := make(map[scoped]int)
	for i, t := range traces {
		if t.mixed {
			continue
		}
		for _, task := range t.tasks {
			key := scoped{t.service, t.environment, task}
			j, ok := seen[key]
			if !ok {
				seen[key] = i
			} else if first := traces[j]; first.view != t.view && t.start <= first.end {
				join(traces, j, i, "task")
			}
		}
	}
}

// joinByThread joins traces of one thread whose root is a step or a call, with no
// pipeline around it, while the gap between them stays small: rule 3.
func joinByThread(traces []*traceFacts, opts Options) {
	type scoped struct{ service, environment, thread string }
	last := make(map[scoped]int)
	for i, t := range traces {
		if !t.alone || t.runID != "" {
			continue
		}
		key := scoped{t.service, t.environment, t.thread}
		j, ok := last[key]
		if ok && t.start-traces[j].end <= opts.IdleLimitNs {
			join(traces, j, i, "inferred")
		}
		if !ok || t.end > traces[j].end {
			last[key] = i
		}
	}
}

// splitByGraphRoot makes a run of each graph root of a trace that has several and
// no run id, unless one contains the others or the application's own root says that
// it is the run: rule 4.
func splitByGraphRoot(g *runGroup) []*runGroup {
	isRoot, count := graphRoots(g.spanList)
	if count < 2 {
		return nil
	}
	outermost := outermostChains(g.spanList, isRoot)
	named := namesRun(g.spanList)
	top := make([]bool, len(g.spans))
	var roots []int32 // in time's order
	for i := range g.spans {
		if !isRoot[i] {
			continue
		}
		if parent := g.parents[i]; parent >= 0 && named[parent] {
			return nil // the application says itself what the run is, or which step holds the graphs
		}
		top[outermost[i]] = true
	}
	for i := range top {
		if top[i] {
			roots = append(roots, int32(i))
		}
	}
	if len(roots) < 2 {
		return nil
	}
	part := make([]int, len(g.spans)) // of each root, its place among the runs
	out := make([]*runGroup, len(roots))
	for i, r := range roots {
		s := g.spans[r]
		part[r] = i
		out[i] = &runGroup{traces: g.traces, runID: s.TraceID.String() + "-" + s.SpanID.String(), joinedBy: "trace"}
	}
	of, place := make([]int, len(g.spans)), make([]int32, len(g.spans))
	for i, s := range g.spans {
		root := outermost[i]
		if root < 0 || !top[root] {
			root = rootAt(g.spans, roots, s)
		}
		of[i] = part[root]
		into := out[of[i]]
		place[i] = int32(len(into.spans))
		into.spans = append(into.spans, s)
	}
	for i, parent := range g.parents {
		if parent >= 0 && of[parent] == of[i] {
			parent = place[parent]
		} else {
			parent = -1
		}
		out[of[i]].parents = append(out[of[i]].parents, parent)
	}
	return out
}

// graphRoots finds the roots of graphs in a trace, and how many there are: 0 if two
// roots are of one graph.
func graphRoots(list spanList) (isRoot []bool, count int) {
	isRoot = make([]bool, len(list.spans))
	mark := func(i int32) {
		if !isRoot[i] {
			isRoot[i] = true
			count++
		}
	}
	for i, s := range list.spans {
		if s.GraphRoot && s.TaskKey == "" {
			mark(int32(i))
		}
		if root := graphOf(list, i); root >= 0 {
			mark(root)
		}
	}
	if count < 2 {
		return isRoot, count
	}
	type task struct {
		scope string // its instrumentation
		root  int32
	}
	tasks := make(map[string]task)
	for i, s := range list.spans {
		root := graphOf(list, i)
		if root < 0 {
			continue
		}
		// Two instrumentations show one graph, or a graph goes on from its checkpoint: one run.
		if first, seen := tasks[s.TaskKey]; seen && (first.scope != s.Scope || first.root != root) {
			return nil, 0
		} else if !seen {
			tasks[s.TaskKey] = task{s.Scope, root}
		}
	}
	return isRoot, count
}

// graphOf is the root of the graph that span i is a task of, -1 if it is none.
func graphOf(list spanList, i int) int32 {
	s, parent := list.spans[i], list.parents[i]
	if s.TaskKey == "" || parent < 0 || strings.Contains(s.TaskKey, "|") {
		return -1
	}
	if p := list.spans[parent]; p.TaskKey != "" || p.Role != schema.RoleChain {
		return -1
	}
	return parent
}

// outermostChains finds for every span the outermost span of a framework that it is
// or lies in, -1 if none: a chain contains the graphs below it.
func outermostChains(list spanList, isRoot []bool) []int32 {
	return fromAbove(list, -1, func(at, top int32) int32 {
		if top < 0 && (isRoot[at] || list.spans[at].Role == schema.RoleChain) {
			return at
		}
		return top
	})
}

// namesRun tells for every span whether it or a span above it says what the run is, or
// names a step.
func namesRun(list spanList) []bool {
	return fromAbove(list, false, func(at int32, named bool) bool {
		s := list.spans[at]
		return named || s.Complete != schema.FlagUnset || s.RunCancelled || s.Step != ""
	})
}

// fromAbove computes something of every span from what it is of its parent, top for
// those without one, each once. Where parents lead back to themselves it begins
// somewhere.
func fromAbove[T any](list spanList, top T, of func(at int32, parents T) T) []T {
	const walked, known = 1, 2
	out, state := make([]T, len(list.spans)), make([]int8, len(list.spans))
	var path []int32
	for i := range list.spans {
		path = path[:0]
		value := top
		for at := int32(i); at >= 0 && state[at] != walked; at = list.parents[at] {
			if state[at] == known {
				value = out[at]
				break
			}
			state[at] = walked
			path = append(path, at)
		}
		for _, at := range slices.Backward(path) {
			value = of(at, value)
			out[at], state[at] = value, known
		}
	}
	return out
}

// rootAt is the root that was open when s began, else the last before it, else the first.
func rootAt(spans []*schema.Span, roots []int32, s *schema.Span) int32 {
	i, _ := slices.BinarySearchFunc(roots, s.StartNs, func(r int32, start int64) int {
		if spans[r].StartNs <= start {
			return -1
		}
		return 1
	})
	for j := i - 1; j >= 0 && j >= i-32; j-- {
		if spans[roots[j]].EndNs >= s.StartNs {
			return roots[j]
		}
	}
	return roots[max(i-1, 0)]
}
