package rules

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// Load reads a file of rules and lays it over the default pack: a rule of a name that
// the pack has changes that rule in the keys it states, any other is added. name is
// the file's, for messages. The error lists the mistakes, each a *FileError.
func Load(name string, content []byte) (*Set, error) {
	f, err := parseFile(name, content)
	if err != nil {
		return nil, err
	}
	m := &mistakes{file: name}
	set := &Set{}
	written := uniqueNames(m, f)
	if !f.defaultPack.given() || f.defaultPack.v {
		pack := defaultSpecs()
		for i := range pack.rules {
			r := pack.rules[i].over(pack.defaults)
			if change, ok := written[r.name.v]; ok {
				r = change.over(r.at(change.line))
				delete(written, r.name.v)
			}
			set.add(m, r.over(f.defaults), true)
		}
	}
	for i := range f.rules {
		if r, ok := written[f.rules[i].name.v]; ok && r.name.line == f.rules[i].name.line {
			set.add(m, f.rules[i].over(f.defaults), false)
		}
	}
	if n := len(set.rules) + len(set.disabled); n > MaxRules {
		m.add(1, "there are %d rules; at most %d are evaluated: drop some, or write one with group_by instead of many with where", n, MaxRules)
	}
	if err := m.err(); err != nil {
		return nil, err
	}
	return set, nil
}

// uniqueNames are the file's rules by name.
func uniqueNames(m *mistakes, f *file) map[string]spec {
	written := make(map[string]spec, len(f.rules))
	for i := range f.rules {
		r := f.rules[i]
		if !r.name.given() {
			m.add(r.line, "this rule has no name; give it one that no other rule has")
			continue
		}
		if first, twice := written[r.name.v]; twice {
			m.add(r.name.line, "the rule %s is there twice, first on line %d; rename or remove one", r.name.v, first.name.line)
			continue
		}
		written[r.name.v] = r
	}
	return written
}

// over is s, and where s does not say, below.
func (s spec) over(below spec) spec {
	s.name = or(s.name, below.name)
	s.signal = or(s.signal, below.signal)
	s.threshold = or(s.threshold, below.threshold)
	s.window, s.forTime, s.keep = or(s.window, below.window), or(s.forTime, below.forTime), or(s.keep, below.keep)
	s.groupBy = or(s.groupBy, below.groupBy)
	s.minSamples, s.maxGroups = or(s.minSamples, below.minSamples), or(s.maxGroups, below.maxGroups)
	s.enabled = or(s.enabled, below.enabled)
	if s.where == nil {
		s.where = below.where
	}
	s.labels, s.annotations = merged(s.labels, below.labels), merged(s.annotations, below.annotations)
	return s
}

// at is s with every value standing on one line: where the file changes a rule of the
// pack, mistakes in what the change leaves are the change's.
func (s spec) at(line int) spec {
	s.line = line
	for _, l := range []*int{
		&s.name.line, &s.signal.line, &s.threshold.line, &s.window.line, &s.forTime.line, &s.keep.line, &s.groupBy.line,
		&s.minSamples.line, &s.maxGroups.line, &s.enabled.line,
	} {
		if *l > 0 {
			*l = line
		}
	}
	s.where, s.labels, s.annotations = onLine(s.where, line), onLine(s.labels, line), onLine(s.annotations, line)
	return s
}

func onLine[K comparable, T any](m map[K]value[T], line int) map[K]value[T] {
	if m == nil {
		return nil
	}
	moved := make(map[K]value[T], len(m))
	for k, v := range m {
		moved[k] = value[T]{v.v, line}
	}
	return moved
}

func or[T any](a, b value[T]) value[T] {
	if a.given() {
		return a
	}
	return b
}

func merged(above, below map[string]value[string]) map[string]value[string] {
	all := make(map[string]value[string], len(above)+len(below))
	maps.Copy(all, below)
	maps.Copy(all, above)
	return all
}

// add checks a rule as a whole and takes it up.
func (s *Set) add(m *mistakes, written spec, fromPack bool) {
	r := written.compile(m)
	if r == nil {
		return
	}
	r.DefaultPack = fromPack
	if written.enabled.given() && !written.enabled.v {
		s.disabled = append(s.disabled, r.Name)
	} else {
		s.rules = append(s.rules, r)
	}
}

// compile is the rule that s describes, nil if it describes none. A rule from the
// default pack has the file's lines only where the file changed it.
func (s spec) compile(m *mistakes) *Rule {
	name := s.name.v
	if !s.signal.given() {
		hint := ""
		var names []string
		for _, r := range defaultSpecs().rules {
			names = append(names, r.name.v)
		}
		if near := meant(name, names); near != "" {
			hint = near
		}
		m.add(s.line, "the rule %s has no signal, and the default pack has no rule of this name%s; say which signal it watches", name, hint)
		return nil
	}
	r := &Rule{
		Name: name, Signal: s.signal.v, Threshold: s.threshold.v, Window: s.window.v, GroupBy: s.groupBy.v,
		MinSamples: s.minSamples.v, For: s.forTime.v, KeepFiringFor: s.keep.v, MaxGroups: s.maxGroups.v,
		Labels: texts(s.labels),
	}
	before := len(m.list)
	if !s.window.given() {
		m.add(s.line, "the rule %s has no window; say how far back it looks, such as window: 2m", name)
	}
	if watchesItself(r.Signal) {
		s.refuseOfStall(m)
	} else {
		s.checkSignal(m)
	}
	if !s.minSamples.given() {
		r.MinSamples = 1
		if r.Threshold > 0 {
			r.MinSamples = (1_000_000 + int64(r.Threshold) - 1) / int64(r.Threshold)
		}
	}
	if !s.keep.given() {
		r.KeepFiringFor = max(r.Window, time.Minute)
	}
	if !s.maxGroups.given() {
		r.MaxGroups = defaultMaxGroups
	}
	if len(s.where) > 0 {
		r.Where = make(map[signals.Dimension]Matcher, len(s.where))
		for d, v := range s.where {
			r.Where[d] = v.v
		}
	}
	if len(m.list) > before {
		return nil
	}
	r.finish()
	s.compileAnnotations(m, r)
	return r
}

// checkSignal checks what a signal's rule needs and may have.
func (s spec) checkSignal(m *mistakes) {
	if !s.threshold.given() {
		m.add(s.line, "the rule %s has no threshold; say above which share it fires, such as threshold: 2 %%", s.name.v)
	}
	has := s.signal.v.Dimensions()
	for _, d := range s.groupBy.v {
		if !slices.Contains(has, d) {
			m.add(s.groupBy.line, "%s cannot be grouped by %s; it has %s", s.signal.v, d, dimensionNames(has))
		}
	}
	for _, d := range signals.Dimensions() {
		if v, ok := s.where[d]; ok && !slices.Contains(has, d) {
			m.add(v.line, "%s cannot be filtered by %s; it has %s", s.signal.v, d, dimensionNames(has))
		}
	}
}

// refuseOfStall refuses what has no meaning for the signals of the evaluation itself.
func (s spec) refuseOfStall(m *mistakes) {
	refuse := func(line int, given bool, key string) {
		if given {
			m.add(line, "%s has no %s: it fires when it lasts longer than window; remove the key", s.signal.v, key)
		}
	}
	refuse(s.threshold.line, s.threshold.given(), "threshold")
	refuse(s.groupBy.line, s.groupBy.given() && len(s.groupBy.v) > 0, "group_by")
	refuse(s.line, len(s.where) > 0, "where")
	refuse(s.forTime.line, s.forTime.v > 0, "for")
}

func (s spec) compileAnnotations(m *mistakes, r *Rule) {
	r.Annotations = texts(s.annotations)
	if len(r.Annotations) == 0 {
		r.Annotations = maps.Clone(builtInAnnotations)
	}
	r.templates = make(map[string]*annotation, len(r.Annotations))
	facts := sampleFacts(r)
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		compiled, err := newAnnotation(r.Annotations[name])
		if err == nil {
			_, err = compiled.render(facts)
		}
		if err != nil {
			m.add(s.annotations[name].line, "the annotation %s of %s: %s", name, r.Name, strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		r.templates[name] = compiled
	}
}

func texts(m map[string]value[string]) map[string]string {
	all := make(map[string]string, len(m))
	for k, v := range m {
		if v.v != "" { // an empty text takes away what the layer below says
			all[k] = v.v
		}
	}
	return all
}
