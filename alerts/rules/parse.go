package rules

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// FileError is a mistake in a file of rules, with its line and what to write instead.
type FileError = strictyaml.MistakeError

// spec is one rule as it is written, or a file's defaults.
type spec struct {
	line                  int
	name                  strictyaml.Value[string]
	signal                strictyaml.Value[signals.Signal]
	threshold             strictyaml.Value[Threshold]
	window, forTime, keep strictyaml.Value[time.Duration]
	groupBy               strictyaml.Value[[]signals.Dimension]
	where                 map[signals.Dimension]strictyaml.Value[Matcher]
	settle                strictyaml.Value[time.Duration]
	minSamples            strictyaml.Value[int64]
	maxGroups             strictyaml.Value[int]
	labels, annotations   map[string]strictyaml.Value[string]
	enabled               strictyaml.Value[bool]
}

// file is a file of rules as it is written.
type file struct {
	name        string
	blank       bool // it has no key
	defaultPack strictyaml.Value[bool]
	defaults    spec
	rules       []spec
}

// parseFile reads a file of rules: its shape and every value on its own.
func parseFile(name string, content []byte) (*file, error) {
	m := strictyaml.NewFile(name)
	root := m.Document(content, MaxFileBytes)
	if err := m.Err(); err != nil {
		return nil, err
	}
	f := &file{name: name, blank: root == nil || len(root.Content) == 0}
	if root == nil {
		return f, nil
	}
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if root.Content[i].Value == "tests" {
				m.Add(root.Content[i].Line, "this is a file of rule tests, not of rules; run it by: retryledger rules test")
				return nil, m.Err()
			}
		}
	}
	m.Fields(root, "a file of rules", map[string]func(*yaml.Node){
		"default_pack": func(n *yaml.Node) { f.defaultPack = m.Bool(n) },
		"defaults":     func(n *yaml.Node) { f.defaults = parseSpec(m, n, "defaults") },
		"rules": func(n *yaml.Node) {
			for _, item := range m.Items(n, "rules") {
				f.rules = append(f.rules, parseSpec(m, item, "a rule"))
			}
		},
	})
	return f, m.Err()
}

func parseSpec(m *strictyaml.File, n *yaml.Node, what string) spec {
	s := spec{line: n.Line}
	known := map[string]func(*yaml.Node){
		"window":          func(n *yaml.Node) { s.window = m.Duration(n, "window", MinWindow, MaxWindow) },
		"min_samples":     func(n *yaml.Node) { s.minSamples = m.Whole(n, "min_samples", 1, MaxMinSamples) },
		"for":             func(n *yaml.Node) { s.forTime = m.Duration(n, "for", 0, MaxFor) },
		"keep_firing_for": func(n *yaml.Node) { s.keep = m.Duration(n, "keep_firing_for", MinKeepFiringFor, MaxKeepFiringFor) },
		"settle":          func(n *yaml.Node) { s.settle = m.Duration(n, "settle", MinSettle, MaxSettle) },
		"max_groups": func(n *yaml.Node) {
			v := m.Whole(n, "max_groups", 1, MaxGroups)
			s.maxGroups = strictyaml.Value[int]{V: int(v.V), Line: v.Line}
		},
		"labels":      func(n *yaml.Node) { s.labels = parseLabels(m, n) },
		"annotations": func(n *yaml.Node) { s.annotations = m.Pairs(n, "annotations") },
	}
	if what != "defaults" {
		known["name"] = func(n *yaml.Node) { s.name = parseName(m, n) }
		known["signal"] = func(n *yaml.Node) { s.signal = parseSignal(m, n) }
		known["threshold"] = func(n *yaml.Node) { s.threshold = parseThreshold(m, n) }
		known["group_by"] = func(n *yaml.Node) { s.groupBy = parseGroupBy(m, n) }
		known["where"] = func(n *yaml.Node) { s.where = parseWhere(m, n) }
		known["enabled"] = func(n *yaml.Node) { s.enabled = m.Bool(n) }
	}
	m.Fields(n, what, known)
	return s
}

func parseName(m *strictyaml.File, n *yaml.Node) strictyaml.Value[string] {
	v := m.Text(n, "name")
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if v.Given() && (v.V == "" || len(v.V) > 100 || strings.TrimFunc(v.V, plain) != "") {
		m.Add(v.Line, "name %q: write at most 100 letters, digits, _ and -", strictyaml.Shown(v.V))
		return strictyaml.Value[string]{}
	}
	return v
}

func parseSignal(m *strictyaml.File, n *yaml.Node) strictyaml.Value[signals.Signal] {
	v := m.Text(n, "signal")
	if !v.Given() {
		return strictyaml.Value[signals.Signal]{}
	}
	s := signals.Signal(v.V)
	if s.Dimensions() == nil && !watchesItself(s) {
		var names []string
		for _, known := range append(signals.All(), EvaluationStalled, IngestStalled) {
			names = append(names, string(known))
		}
		m.Add(v.Line, "there is no signal %q%s; there are %s", strictyaml.Shown(v.V), strictyaml.Meant(v.V, names), strings.Join(names, ", "))
		return strictyaml.Value[signals.Signal]{}
	}
	return strictyaml.Value[signals.Signal]{V: s, Line: v.Line}
}

func parseThreshold(m *strictyaml.File, n *yaml.Node) strictyaml.Value[Threshold] {
	v := m.Text(n, "threshold")
	if !v.Given() {
		return strictyaml.Value[Threshold]{}
	}
	t, err := ParseThreshold(v.V)
	if err != nil {
		m.Add(v.Line, "threshold %v", err)
		return strictyaml.Value[Threshold]{}
	}
	return strictyaml.Value[Threshold]{V: t, Line: v.Line}
}

func parseGroupBy(m *strictyaml.File, n *yaml.Node) strictyaml.Value[[]signals.Dimension] {
	v := strictyaml.Value[[]signals.Dimension]{V: []signals.Dimension{}, Line: n.Line}
	for _, item := range m.Items(n, "group_by") {
		name := m.Text(item, "an entry of group_by")
		d := signals.Dimension(name.V)
		switch {
		case !name.Given():
		case !slices.Contains(signals.Dimensions(), d):
			m.Add(item.Line, "there is no dimension %q; there are %s", strictyaml.Shown(name.V), dimensionNames(signals.Dimensions()))
		case slices.Contains(v.V, d):
			m.Add(item.Line, "group_by names %s twice; remove one", d)
		default:
			v.V = append(v.V, d)
		}
	}
	return v
}

func parseWhere(m *strictyaml.File, n *yaml.Node) map[signals.Dimension]strictyaml.Value[Matcher] {
	where := map[signals.Dimension]strictyaml.Value[Matcher]{}
	known := map[string]func(*yaml.Node){}
	for _, d := range signals.Dimensions() {
		known[string(d)] = func(n *yaml.Node) {
			if matcher, ok := parseMatcher(m, n, string(d)); ok {
				where[d] = strictyaml.Value[Matcher]{V: matcher, Line: n.Line}
			}
		}
	}
	m.Fields(n, "where", known)
	return where
}

func parseMatcher(m *strictyaml.File, n *yaml.Node, what string) (Matcher, bool) {
	if n.Kind == yaml.ScalarNode {
		v := m.Text(n, what)
		return Equals(v.V), v.Given()
	}
	var matcher Matcher
	said := 0
	expression := func(n *yaml.Node) {
		v := m.Text(n, what)
		compiled, err := Regex(v.V)
		if err != nil {
			m.Add(n.Line, "where %s: %v; write an RE2 expression", what, err)
			return
		}
		matcher = compiled
		said++
	}
	plain := func(n *yaml.Node) {
		if v := m.Text(n, what); v.Given() {
			matcher = Equals(v.V)
			said++
		}
	}
	before := m.Mistakes()
	m.Fields(n, "the filter on "+what, map[string]func(*yaml.Node){
		"equals":    plain,
		"not":       func(n *yaml.Node) { plain(n); matcher = matcher.Not() },
		"regex":     expression,
		"not_regex": func(n *yaml.Node) { expression(n); matcher = matcher.Not() },
	})
	if said != 1 && m.Mistakes() == before {
		m.Add(n.Line, "the filter on %s says %d things; write one of equals, not, regex, not_regex", what, said)
	}
	return matcher, said == 1
}

// ownLabels are set by the evaluation; a rule cannot.
func ownLabel(name string) bool {
	return name == alertName || slices.Contains(signals.Dimensions(), signals.Dimension(name)) || strings.HasPrefix(name, "__")
}

func parseLabels(m *strictyaml.File, n *yaml.Node) map[string]strictyaml.Value[string] {
	labels := m.Pairs(n, "labels")
	for name, v := range labels {
		if ownLabel(name) {
			m.Add(v.Line, "the label %q is set by the evaluation; choose another name", name)
			delete(labels, name)
		}
	}
	return labels
}

func dimensionNames(list []signals.Dimension) string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = string(d)
	}
	return strings.Join(names, ", ")
}
