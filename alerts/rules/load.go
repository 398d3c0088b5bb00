package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
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
	m := strictyaml.NewFile(name)
	set := &Set{blank: f.blank}
	written := uniqueNames(m, f)
	if !f.defaultPack.Given() || f.defaultPack.V {
		pack := defaultSpecs()
		for i := range pack.rules {
			r := pack.rules[i].over(pack.defaults)
			if change, ok := written[r.name.V]; ok {
				r = change.over(r.at(change.line))
				delete(written, r.name.V)
			}
			set.add(m, r.overDefaults(f.defaults), true)
		}
	}
	for i := range f.rules {
		if r, ok := written[f.rules[i].name.V]; ok && r.name.Line == f.rules[i].name.Line {
			set.add(m, f.rules[i].overDefaults(f.defaults), false)
		}
	}
	if n := len(set.rules) + len(set.disabled); n > MaxRules {
		m.Add(1, "there are %d rules; at most %d are evaluated: drop some, or write one with group_by instead of many with where", n, MaxRules)
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	return set, nil
}

// uniqueNames are the file's rules by name.
func uniqueNames(m *strictyaml.File, f *file) map[string]spec {
	written := make(map[string]spec, len(f.rules))
	for i := range f.rules {
		r := f.rules[i]
		if !r.name.Given() {
			m.Add(r.line, "this rule has no name; give it one that no other rule has")
			continue
		}
		if first, twice := written[r.name.V]; twice {
			m.Add(r.name.Line, "the rule %s is there twice, first on line %d; rename or remove one", r.name.V, first.name.Line)
			continue
		}
		written[r.name.V] = r
	}
	return written
}

// over is s, and where s does not say, below.
func (s spec) over(below spec) spec {
	s.name = or(s.name, below.name)
	s.signal = or(s.signal, below.signal)
	s.threshold = or(s.threshold, below.threshold)
	s.window, s.forTime, s.keep = or(s.window, below.window), or(s.forTime, below.forTime), or(s.keep, below.keep)
	s.settle = or(s.settle, below.settle)
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
		&s.name.Line, &s.signal.Line, &s.threshold.Line, &s.window.Line, &s.forTime.Line, &s.keep.Line, &s.groupBy.Line,
		&s.minSamples.Line, &s.settle.Line, &s.maxGroups.Line, &s.enabled.Line,
	} {
		if *l > 0 {
			*l = line
		}
	}
	s.where, s.labels, s.annotations = onLine(s.where, line), onLine(s.labels, line), onLine(s.annotations, line)
	return s
}

func onLine[K comparable, T any](m map[K]strictyaml.Value[T], line int) map[K]strictyaml.Value[T] {
	if m == nil {
		return nil
	}
	moved := make(map[K]strictyaml.Value[T], len(m))
	for k, v := range m {
		moved[k] = strictyaml.Value[T]{V: v.V, Line: line}
	}
	return moved
}

// overDefaults is s over its file's defaults, of which a rule on a stall takes only what
// it may have.
func (s spec) overDefaults(defaults spec) spec {
	if watchesItself(s.signal.V) {
		defaults.forTime, defaults.settle = strictyaml.Value[time.Duration]{}, strictyaml.Value[time.Duration]{}
	}
	return s.over(defaults)
}

func or[T any](a, b strictyaml.Value[T]) strictyaml.Value[T] {
	if a.Given() {
		return a
	}
	return b
}

func merged(above, below map[string]strictyaml.Value[string]) map[string]strictyaml.Value[string] {
	all := make(map[string]strictyaml.Value[string], len(above)+len(below))
	maps.Copy(all, below)
	maps.Copy(all, above)
	return all
}

// add checks a rule as a whole and takes it up.
func (s *Set) add(m *strictyaml.File, written spec, fromPack bool) {
	r := written.compile(m)
	if r == nil {
		return
	}
	r.DefaultPack = fromPack
	if written.enabled.Given() && !written.enabled.V {
		s.disabled = append(s.disabled, r.Name)
	} else {
		s.rules = append(s.rules, r)
	}
}

// compile is the rule that s describes, nil if it describes none. A rule from the
// default pack has the file's lines only where the file changed it.
func (s spec) compile(m *strictyaml.File) *Rule {
	name := s.name.V
	if !s.signal.Given() {
		var names []string
		for _, r := range defaultSpecs().rules {
			names = append(names, r.name.V)
		}
		m.Add(s.line, "the rule %s has no signal, and the default pack has no rule of this name%s; say which signal it watches", name, strictyaml.Meant(name, names))
		return nil
	}
	r := &Rule{
		Name: name, Signal: s.signal.V, Threshold: s.threshold.V, Window: s.window.V, GroupBy: s.groupBy.V,
		MinSamples: s.minSamples.V, For: s.forTime.V, KeepFiringFor: s.keep.V, MaxGroups: s.maxGroups.V,
		Labels: texts(s.labels),
	}
	before := m.Mistakes()
	if !s.window.Given() {
		m.Add(s.line, "the rule %s has no window; say how far back it looks, such as window: 2m", name)
	}
	if watchesItself(r.Signal) {
		s.refuseOfStall(m)
	} else {
		s.checkSignal(m)
	}
	if !s.minSamples.Given() {
		r.MinSamples = 1
		if r.Threshold > 0 {
			r.MinSamples = (1_000_000 + int64(r.Threshold) - 1) / int64(r.Threshold)
		}
	}
	if !s.keep.Given() {
		r.KeepFiringFor = max(r.Window, time.Minute)
	}
	r.Settle = s.settle.V
	if !s.settle.Given() {
		r.Settle = time.Duration(signals.SettleNs)
	}
	if !s.maxGroups.Given() {
		r.MaxGroups = defaultMaxGroups
	}
	if len(s.where) > 0 {
		r.Where = make(map[signals.Dimension]Matcher, len(s.where))
		for d, v := range s.where {
			r.Where[d] = v.V
		}
	}
	if m.Mistakes() > before {
		return nil
	}
	r.finish()
	s.compileAnnotations(m, r)
	return r
}

// checkSignal checks what a signal's rule needs and may have.
func (s spec) checkSignal(m *strictyaml.File) {
	if !s.threshold.Given() {
		m.Add(s.line, "the rule %s has no threshold; say above which share it fires, such as threshold: 2 %%", s.name.V)
	}
	has := s.signal.V.Dimensions()
	for _, d := range s.groupBy.V {
		if !slices.Contains(has, d) {
			m.Add(s.groupBy.Line, "%s cannot be grouped by %s; it has %s", s.signal.V, d, dimensionNames(has))
		}
	}
	for _, d := range signals.Dimensions() {
		if v, ok := s.where[d]; ok && !slices.Contains(has, d) {
			m.Add(v.Line, "%s cannot be filtered by %s; it has %s", s.signal.V, d, dimensionNames(has))
		}
	}
}

// refuseOfStall refuses what has no meaning for the signals of the evaluation itself.
func (s spec) refuseOfStall(m *strictyaml.File) {
	refuse := func(line int, given bool, key string) {
		if given {
			m.Add(line, "%s has no %s: it fires when it lasts longer than window; remove the key", s.signal.V, key)
		}
	}
	refuse(s.threshold.Line, s.threshold.Given(), "threshold")
	refuse(s.groupBy.Line, s.groupBy.Given() && len(s.groupBy.V) > 0, "group_by")
	refuse(s.line, len(s.where) > 0, "where")
	refuse(s.settle.Line, s.settle.Given(), "settle")
	refuse(s.forTime.Line, s.forTime.V > 0, "for")
}

func (s spec) compileAnnotations(m *strictyaml.File, r *Rule) {
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
			m.Add(s.annotations[name].Line, "the annotation %s of %s: %s", name, r.Name, templateMistake(err))
			continue
		}
		r.templates[name] = compiled
	}
}

func texts(m map[string]strictyaml.Value[string]) map[string]string {
	all := make(map[string]string, len(m))
	for k, v := range m {
		if v.V != "" { // an empty text takes away what the layer below says
			all[k] = v.V
		}
	}
	return all
}
