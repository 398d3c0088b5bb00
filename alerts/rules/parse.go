package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/signals"
)

// FileError is a mistake in a file of rules, with what to write instead.
type FileError struct {
	File string
	Line int // from 1
	Text string
}

// Error is written as compilers do, so that editors find the line.
func (e *FileError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }

// maxMistakes bounds how many mistakes of one file are listed.
const maxMistakes = 20

// mistakes collects what is wrong with a file.
type mistakes struct {
	file string
	list []*FileError
}

func (m *mistakes) add(line int, format string, args ...any) {
	if len(m.list) < maxMistakes {
		m.list = append(m.list, &FileError{File: m.file, Line: max(line, 1), Text: fmt.Sprintf(format, args...)})
	}
}

// err is all mistakes in the order of the file.
func (m *mistakes) err() error {
	slices.SortStableFunc(m.list, func(a, b *FileError) int { return cmp.Compare(a.Line, b.Line) })
	all := make([]error, len(m.list))
	for i, mistake := range m.list {
		all[i] = mistake
	}
	return errors.Join(all...)
}

// value is what a file says under one key, and where.
type value[T any] struct {
	v    T
	line int // 0: the file does not say
}

func (v value[T]) given() bool { return v.line > 0 }

// spec is one rule as it is written, or a file's defaults.
type spec struct {
	line                  int
	name                  value[string]
	signal                value[signals.Signal]
	threshold             value[Threshold]
	window, forTime, keep value[time.Duration]
	groupBy               value[[]signals.Dimension]
	where                 map[signals.Dimension]value[Matcher]
	minSamples            value[int64]
	maxGroups             value[int]
	labels, annotations   map[string]value[string]
	enabled               value[bool]
}

// file is a file of rules as it is written.
type file struct {
	name        string
	defaultPack value[bool]
	defaults    spec
	rules       []spec
}

// parseFile reads a file of rules: its shape and every value on its own.
func parseFile(name string, content []byte) (*file, error) {
	m := &mistakes{file: name}
	root := document(m, content)
	if err := m.err(); err != nil {
		return nil, err
	}
	f := &file{name: name}
	if root == nil {
		return f, nil
	}
	fields(m, root, "a file of rules", map[string]func(*yaml.Node){
		"default_pack": func(n *yaml.Node) { f.defaultPack = boolean(m, n) },
		"defaults":     func(n *yaml.Node) { f.defaults = parseSpec(m, n, "defaults") },
		"rules": func(n *yaml.Node) {
			for _, item := range items(m, n, "rules") {
				f.rules = append(f.rules, parseSpec(m, item, "a rule"))
			}
		},
	})
	return f, m.err()
}

// document is the root of the file's only document, nil if it is empty.
func document(m *mistakes, content []byte) *yaml.Node {
	if len(content) > MaxFileBytes {
		m.add(1, "the file has %d bytes; a file of rules has at most %d", len(content), MaxFileBytes)
		return nil
	}
	if !utf8.Valid(content) {
		m.add(1, "the file is not UTF-8 text; save it as UTF-8")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			line, text := yamlMistake(err)
			m.add(line, "this is not YAML: %s", text)
		}
		return nil
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		m.add(more.Line, "a second document begins here (---); write all rules in one")
		return nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	refuseReferences(m, root)
	return root
}

// yamlMistake takes the line out of the parser's own words.
func yamlMistake(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, cause, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			return n, cause
		}
	}
	return 1, text
}

// refuseReferences refuses anchors and aliases: a rule says what it means where it stands.
func refuseReferences(m *mistakes, n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		m.add(n.Line, "anchors and aliases (& and *) are not for rules; write the value out, or put it under defaults")
		return
	}
	for _, child := range n.Content {
		refuseReferences(m, child)
	}
}

// fields hands each key's value to its reader.
func fields(m *mistakes, n *yaml.Node, what string, known map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		m.add(n.Line, "%s is a mapping of keys (%s), not %s", what, strings.Join(sortedKeys(known), ", "), kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		read, ok := known[key.Value]
		switch {
		case !ok:
			m.add(key.Line, "%s has no key %q; it has %s%s", what, shown(key.Value), strings.Join(sortedKeys(known), ", "), meant(key.Value, sortedKeys(known)))
		case seen[key.Value]:
			m.add(key.Line, "%s has the key %q twice; remove one", what, key.Value)
		default:
			seen[key.Value] = true
			read(val)
		}
	}
}

func items(m *mistakes, n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		m.add(n.Line, "%s is a list (a line for each, beginning with -), not %s", what, kindOf(n))
		return nil
	}
	return n.Content
}

func parseSpec(m *mistakes, n *yaml.Node, what string) spec {
	s := spec{line: n.Line}
	known := map[string]func(*yaml.Node){
		"window":          func(n *yaml.Node) { s.window = duration(m, n, "window", MinWindow, MaxWindow) },
		"min_samples":     func(n *yaml.Node) { s.minSamples = whole(m, n, "min_samples", 1, MaxMinSamples) },
		"for":             func(n *yaml.Node) { s.forTime = duration(m, n, "for", 0, MaxFor) },
		"keep_firing_for": func(n *yaml.Node) { s.keep = duration(m, n, "keep_firing_for", MinKeepFiringFor, MaxKeepFiringFor) },
		"max_groups": func(n *yaml.Node) {
			v := whole(m, n, "max_groups", 1, MaxGroups)
			s.maxGroups = value[int]{int(v.v), v.line}
		},
		"labels":      func(n *yaml.Node) { s.labels = parseLabels(m, n) },
		"annotations": func(n *yaml.Node) { s.annotations = pairs(m, n, "annotations") },
	}
	if what != "defaults" {
		known["name"] = func(n *yaml.Node) { s.name = parseName(m, n) }
		known["signal"] = func(n *yaml.Node) { s.signal = parseSignal(m, n) }
		known["threshold"] = func(n *yaml.Node) { s.threshold = parseThreshold(m, n) }
		known["group_by"] = func(n *yaml.Node) { s.groupBy = parseGroupBy(m, n) }
		known["where"] = func(n *yaml.Node) { s.where = parseWhere(m, n) }
		known["enabled"] = func(n *yaml.Node) { s.enabled = boolean(m, n) }
	}
	fields(m, n, what, known)
	return s
}

func parseName(m *mistakes, n *yaml.Node) value[string] {
	v := text(m, n, "name")
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if v.given() && (v.v == "" || len(v.v) > 100 || strings.TrimFunc(v.v, plain) != "") {
		m.add(v.line, "name %q: write at most 100 letters, digits, _ and -", shown(v.v))
		return value[string]{}
	}
	return v
}

func parseSignal(m *mistakes, n *yaml.Node) value[signals.Signal] {
	v := text(m, n, "signal")
	if !v.given() {
		return value[signals.Signal]{}
	}
	s := signals.Signal(v.v)
	if s.Dimensions() == nil && !watchesItself(s) {
		var names []string
		for _, known := range append(signals.All(), EvaluationStalled, IngestStalled) {
			names = append(names, string(known))
		}
		m.add(v.line, "there is no signal %q%s; there are %s", shown(v.v), meant(v.v, names), strings.Join(names, ", "))
		return value[signals.Signal]{}
	}
	return value[signals.Signal]{s, v.line}
}

func parseThreshold(m *mistakes, n *yaml.Node) value[Threshold] {
	v := text(m, n, "threshold")
	if !v.given() {
		return value[Threshold]{}
	}
	t, err := ParseThreshold(v.v)
	if err != nil {
		m.add(v.line, "threshold %v", err)
		return value[Threshold]{}
	}
	return value[Threshold]{t, v.line}
}

func parseGroupBy(m *mistakes, n *yaml.Node) value[[]signals.Dimension] {
	v := value[[]signals.Dimension]{v: []signals.Dimension{}, line: n.Line}
	for _, item := range items(m, n, "group_by") {
		name := text(m, item, "an entry of group_by")
		d := signals.Dimension(name.v)
		switch {
		case !name.given():
		case !slices.Contains(signals.Dimensions(), d):
			m.add(item.Line, "there is no dimension %q; there are %s", shown(name.v), dimensionNames(signals.Dimensions()))
		case slices.Contains(v.v, d):
			m.add(item.Line, "group_by names %s twice; remove one", d)
		default:
			v.v = append(v.v, d)
		}
	}
	return v
}

func parseWhere(m *mistakes, n *yaml.Node) map[signals.Dimension]value[Matcher] {
	where := map[signals.Dimension]value[Matcher]{}
	known := map[string]func(*yaml.Node){}
	for _, d := range signals.Dimensions() {
		known[string(d)] = func(n *yaml.Node) {
			if matcher, ok := parseMatcher(m, n, string(d)); ok {
				where[d] = value[Matcher]{matcher, n.Line}
			}
		}
	}
	fields(m, n, "where", known)
	return where
}

func parseMatcher(m *mistakes, n *yaml.Node, what string) (Matcher, bool) {
	if n.Kind == yaml.ScalarNode {
		v := text(m, n, what)
		return Equals(v.v), v.given()
	}
	var matcher Matcher
	said := 0
	expression := func(n *yaml.Node) {
		v := text(m, n, what)
		compiled, err := Regex(v.v)
		if err != nil {
			m.add(n.Line, "where %s: %v; write an RE2 expression", what, err)
			return
		}
		matcher = compiled
		said++
	}
	plain := func(n *yaml.Node) {
		if v := text(m, n, what); v.given() {
			matcher = Equals(v.v)
			said++
		}
	}
	before := len(m.list)
	fields(m, n, "the filter on "+what, map[string]func(*yaml.Node){
		"equals":    plain,
		"not":       func(n *yaml.Node) { plain(n); matcher = matcher.Not() },
		"regex":     expression,
		"not_regex": func(n *yaml.Node) { expression(n); matcher = matcher.Not() },
	})
	if said != 1 && len(m.list) == before {
		m.add(n.Line, "the filter on %s says %d things; write one of equals, not, regex, not_regex", what, said)
	}
	return matcher, said == 1
}

// ownLabels are set by the evaluation; a rule cannot.
func ownLabel(name string) bool {
	return name == alertName || slices.Contains(signals.Dimensions(), signals.Dimension(name)) || strings.HasPrefix(name, "__")
}

func parseLabels(m *mistakes, n *yaml.Node) map[string]value[string] {
	labels := pairs(m, n, "labels")
	for name, v := range labels {
		if ownLabel(name) {
			m.add(v.line, "the label %q is set by the evaluation; choose another name", name)
			delete(labels, name)
		}
	}
	return labels
}

// pairs reads names (as Prometheus spells label names) with texts.
func pairs(m *mistakes, n *yaml.Node, what string) map[string]value[string] {
	all := map[string]value[string]{}
	if n.Kind != yaml.MappingNode {
		m.add(n.Line, "%s is a mapping of names to texts, not %s", what, kindOf(n))
		return all
	}
	if len(n.Content)/2 > maxPairs {
		m.add(n.Line, "there are %d %s; a rule has at most %d", len(n.Content)/2, what, maxPairs)
		return all
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !labelName(key.Value) {
			m.add(key.Line, "%q is no name for one of the %s: write letters, digits and _, not a digit first, at most 100", shown(key.Value), what)
			continue
		}
		if _, twice := all[key.Value]; twice {
			m.add(key.Line, "%s has the key %q twice; remove one", what, key.Value)
			continue
		}
		if v := text(m, n.Content[i+1], key.Value); v.given() {
			all[key.Value] = v
		}
	}
	return all
}

func labelName(name string) bool {
	if name == "" || len(name) > 100 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// text reads a scalar as it is written, whatever YAML takes it for.
func text(m *mistakes, n *yaml.Node, what string) value[string] {
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		m.add(n.Line, "%s is a text, not %s", what, kindOf(n))
	case len(n.Value) > maxTextBytes:
		m.add(n.Line, "%s has %d bytes; at most %d are allowed", what, len(n.Value), maxTextBytes)
	default:
		return value[string]{n.Value, n.Line}
	}
	return value[string]{}
}

func boolean(m *mistakes, n *yaml.Node) value[bool] {
	if n.Kind == yaml.ScalarNode && (n.Value == "true" || n.Value == "false") {
		return value[bool]{n.Value == "true", n.Line}
	}
	m.add(n.Line, "write true or false here, not %s", kindOf(n))
	return value[bool]{}
}

func whole(m *mistakes, n *yaml.Node, what string, least, most int64) value[int64] {
	number, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number < least || number > most {
		m.add(n.Line, "%s: write a whole number from %d to %d, not %s", what, least, most, kindOf(n))
		return value[int64]{}
	}
	return value[int64]{number, n.Line}
}

func duration(m *mistakes, n *yaml.Node, what string, least, most time.Duration) value[time.Duration] {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		m.add(n.Line, "%s: write a length of time such as 30s, 2m or 1h, not %s", what, kindOf(n))
		return value[time.Duration]{}
	}
	if d%time.Second != 0 || d < least || d > most {
		m.add(n.Line, "%s: write whole seconds from %s to %s, not %s", what, shortDuration(least), shortDuration(most), n.Value)
		return value[time.Duration]{}
	}
	return value[time.Duration]{d, n.Line}
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null" || n.Kind != yaml.ScalarNode:
		return "nothing"
	default:
		return strconv.Quote(shown(n.Value))
	}
}

// shown cuts what a message repeats of the file.
func shown(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func dimensionNames(list []signals.Dimension) string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = string(d)
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
