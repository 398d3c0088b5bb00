package attribution

import (
	"cmp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Which spans make a run (docs/accounting.md, the section of that name).

// runGroup is the spans of one run, in the order of compareSpans.
type runGroup struct {
	spans    []*schema.Span
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
	id          schema.TraceID
	spans       []*schema.Span
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

func groupRuns(spans []*schema.Span, opts Options) []*runGroup {
	traces := tracesOf(spans)
	joinByRunID(traces, opts)
	joinByTask(traces)
	joinViews(traces)
	joinByThread(traces, opts)
	groups := make(map[int]*runGroup)
	var order []int
	for i, t := range traces {
		root := find(traces, i)
		g, ok := groups[root]
		if !ok {
			g = &runGroup{joinedBy: "trace"}
			groups[root] = g
			order = append(order, root)
		}
		g.spans = append(g.spans, t.spans...)
		g.traces = append(g.traces, t.id)
		if g.runID == "" {
			g.runID = t.runID
		}
		if t.joinedBy != "" {
			g.joinedBy = t.joinedBy
		}
	}
	var out []*runGroup
	for _, root := range order {
		g := groups[root]
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
		if len(g.traces) > 1 { // those of one trace are in order
			sortSpans(g.spans)
		}
		out = append(out, g)
	}
	return out
}

// tracesOf splits spans (in order) by trace, ordered by the start of their first span.
func tracesOf(spans []*schema.Span) []*traceFacts {
	byID := make(map[schema.TraceID]*traceFacts)
	var traces []*traceFacts
	for _, s := range spans {
		t, ok := byID[s.TraceID]
		if !ok {
			t = &traceFacts{id: s.TraceID, start: s.StartNs, end: s.EndNs, group: len(traces)}
			byID[s.TraceID] = t
			traces = append(traces, t)
		}
		t.spans = append(t.spans, s)
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
		if s.TaskKey != "" {
			t.mixed = t.mixed || t.view != "" && t.view != s.Scope
			t.view = s.Scope
		}
		if s.TaskKey != "" && (len(t.tasks) == 0 || t.tasks[len(t.tasks)-1] != s.TaskKey) {
			t.tasks = append(t.tasks, s.TaskKey)
		}
	}
	for _, t := range traces {
		slices.Sort(t.tasks)
		t.tasks = slices.Compact(t.tasks)
	}
	return traces
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
	chains := make(map[schema.SpanID]*schema.Span) // what may be a graph's root
	for _, s := range g.spans {
		if s.TaskKey == "" && s.Role == schema.RoleChain {
			chains[s.SpanID] = s
		}
	}
	isRoot := make(map[*schema.Span]bool)
	scopeOf := make(map[string]string) // a task's instrumentation
	rootOf := make(map[string]*schema.Span)
	for _, s := range g.spans {
		if s.GraphRoot && s.TaskKey == "" {
			isRoot[s] = true
		}
		if s.TaskKey == "" || strings.Contains(s.TaskKey, "|") {
			continue
		}
		if parent, ok := chains[s.ParentID]; ok {
			isRoot[parent] = true
			if scope, seen := scopeOf[s.TaskKey]; seen && scope != s.Scope {
				return nil // two instrumentations show one graph
			}
			scopeOf[s.TaskKey] = s.Scope
			if first, seen := rootOf[s.TaskKey]; seen && first != parent {
				return nil // a graph that goes on from its checkpoint is the same run
			}
			rootOf[s.TaskKey] = parent
		}
	}
	if len(isRoot) < 2 {
		return nil
	}
	byID := make(map[schema.SpanID]*schema.Span, len(g.spans))
	for _, s := range g.spans {
		byID[s.SpanID] = s
	}
	outermost := outermostChains(g.spans, byID, isRoot)
	var roots []*schema.Span
	for _, s := range g.spans {
		if !isRoot[s] {
			continue
		}
		for at, n := byID[s.ParentID], 0; at != nil && n <= len(g.spans); at, n = byID[at.ParentID], n+1 {
			if at.Complete != schema.FlagUnset || at.RunCancelled || at.Step != "" {
				return nil // the application says itself what the run is, or which step holds the graphs
			}
		}
		if top := outermost[s]; !slices.Contains(roots, top) {
			roots = append(roots, top)
		}
	}
	if len(roots) < 2 {
		return nil
	}
	slices.SortFunc(roots, compareSpans)
	parts := make(map[*schema.Span]*runGroup, len(roots))
	out := make([]*runGroup, 0, len(roots))
	for _, r := range roots {
		part := &runGroup{traces: g.traces, runID: r.TraceID.String() + "-" + r.SpanID.String(), joinedBy: "trace"}
		parts[r] = part
		out = append(out, part)
	}
	for _, s := range g.spans {
		root := outermost[s]
		if parts[root] == nil {
			root = rootAt(roots, s)
		}
		parts[root].spans = append(parts[root].spans, s)
	}
	return out
}

// outermostChains finds for every span the outermost span of a framework that it is
// or lies in: a chain contains the graphs below it.
func outermostChains(spans []*schema.Span, byID map[schema.SpanID]*schema.Span, isRoot map[*schema.Span]bool) map[*schema.Span]*schema.Span {
	outermost := make(map[*schema.Span]*schema.Span, len(spans))
	for _, s := range spans {
		var path []*schema.Span
		var top *schema.Span
		for at := s; at != nil && len(path) <= len(spans); at = byID[at.ParentID] {
			if known, ok := outermost[at]; ok {
				top = known
				break
			}
			path = append(path, at)
		}
		for i := len(path) - 1; i >= 0; i-- { // from above
			if top == nil && (isRoot[path[i]] || path[i].Role == schema.RoleChain) {
				top = path[i]
			}
			outermost[path[i]] = top
		}
	}
	return outermost
}

// rootAt is the root that was open when s began, else the last before it, else the first.
func rootAt(roots []*schema.Span, s *schema.Span) *schema.Span {
	i, _ := slices.BinarySearchFunc(roots, s.StartNs, func(r *schema.Span, start int64) int {
		if r.StartNs <= start {
			return -1
		}
		return cmp.Compare(r.StartNs, start)
	})
	for j := i - 1; j >= 0 && j >= i-32; j-- {
		if roots[j].EndNs >= s.StartNs {
			return roots[j]
		}
	}
	return roots[max(i-1, 0)]
}
