// Package strictyaml reads YAML that people write by hand: an unknown key, a value of the
// wrong kind or out of bounds is a mistake with its line and what to write instead.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxTextBytes = 4 << 10 // of one text
	maxPairs     = 50      // of names with texts
)

// MistakeError is a mistake in a file, with what to write instead.
type MistakeError struct {
	File string
	Line int // from 1
	Text string
}

// Error is written as compilers do, so that editors find the line.
func (e *MistakeError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }

// maxMistakes bounds how many mistakes of one file are listed.
const maxMistakes = 20

// File reads one file and collects what is wrong with it. A reader that finds a mistake
// notes it and returns nothing; Err tells all of them.
type File struct {
	name string
	list []*MistakeError
}

// NewFile begins to read a file; name is for messages.
func NewFile(name string) *File { return &File{name: name} }

// Mistakes is how many were found until now.
func (f *File) Mistakes() int { return len(f.list) }

// Add notes a mistake and what to write instead.
func (f *File) Add(line int, format string, args ...any) {
	if len(f.list) < maxMistakes {
		f.list = append(f.list, &MistakeError{File: f.name, Line: max(line, 1), Text: fmt.Sprintf(format, args...)})
	}
}

// Err is all mistakes in the order of the file.
func (f *File) Err() error {
	slices.SortStableFunc(f.list, func(a, b *MistakeError) int { return cmp.Compare(a.Line, b.Line) })
	all := make([]error, len(f.list))
	for i, mistake := range f.list {
		all[i] = mistake
	}
	return errors.Join(all...)
}

// Value is what a file says under one key, and where.
type Value[T any] struct {
	V    T
	Line int // 0: the file does not say
}

// Given tells whether the file says it.
func (v Value[T]) Given() bool { return v.Line > 0 }

// Document is the root of the file's only document, nil if it is empty.
func (f *File) Document(content []byte, most int) *yaml.Node {
	if len(content) > most {
		f.Add(1, "the file has %d bytes; at most %d are read", len(content), most)
		return nil
	}
	if !utf8.Valid(content) {
		f.Add(1, "the file is not UTF-8 text; save it as UTF-8")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			line, text := yamlMistake(err)
			f.Add(line, "this is not YAML: %s", text)
		}
		return nil
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		f.Add(more.Line, "a second document begins here (---); write everything in one")
		return nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	f.refuseReferences(root)
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
func (f *File) refuseReferences(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		f.Add(n.Line, "anchors and aliases (& and *) are not read; write the value out")
		return
	}
	for _, child := range n.Content {
		f.refuseReferences(child)
	}
}

// Fields hands each key's value to its reader.
func (f *File) Fields(n *yaml.Node, what string, known map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.Add(n.Line, "%s is a mapping of keys (%s), not %s", what, strings.Join(slices.Sorted(maps.Keys(known)), ", "), KindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		read, ok := known[key.Value]
		switch {
		case !ok:
			f.Add(key.Line, "%s has no key %q; it has %s%s", what, Shown(key.Value), strings.Join(slices.Sorted(maps.Keys(known)), ", "), Meant(key.Value, slices.Sorted(maps.Keys(known))))
		case seen[key.Value]:
			f.Add(key.Line, "%s has the key %q twice; remove one", what, key.Value)
		default:
			seen[key.Value] = true
			read(val)
		}
	}
}

// Items are the entries of a list.
func (f *File) Items(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		f.Add(n.Line, "%s is a list (a line for each, beginning with -), not %s", what, KindOf(n))
		return nil
	}
	return n.Content
}

// Text reads a scalar as it is written, whatever YAML takes it for.
func (f *File) Text(n *yaml.Node, what string) Value[string] {
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		f.Add(n.Line, "%s is a text, not %s", what, KindOf(n))
	case len(n.Value) > maxTextBytes:
		f.Add(n.Line, "%s has %d bytes; at most %d are allowed", what, len(n.Value), maxTextBytes)
	default:
		return Value[string]{n.Value, n.Line}
	}
	return Value[string]{}
}

// Bool reads true or false, and no other word.
func (f *File) Bool(n *yaml.Node) Value[bool] {
	if n.Kind == yaml.ScalarNode && (n.Value == "true" || n.Value == "false") {
		return Value[bool]{n.Value == "true", n.Line}
	}
	f.Add(n.Line, "write true or false here, not %s", KindOf(n))
	return Value[bool]{}
}

// Whole reads a whole number within bounds.
func (f *File) Whole(n *yaml.Node, what string, least, most int64) Value[int64] {
	number, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || number < least || number > most {
		f.Add(n.Line, "%s: write a whole number from %d to %d, not %s", what, least, most, KindOf(n))
		return Value[int64]{}
	}
	return Value[int64]{number, n.Line}
}

// Duration reads whole seconds within bounds.
func (f *File) Duration(n *yaml.Node, what string, least, most time.Duration) Value[time.Duration] {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		f.Add(n.Line, "%s: write a length of time such as 30s, 2m or 1h, not %s", what, KindOf(n))
		return Value[time.Duration]{}
	}
	if d%time.Second != 0 || d < least || d > most {
		f.Add(n.Line, "%s: write whole seconds from %s to %s, not %s", what, Short(least), Short(most), n.Value)
		return Value[time.Duration]{}
	}
	return Value[time.Duration]{d, n.Line}
}

// KindOf names what a node holds, for messages.
func KindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null" || n.Kind != yaml.ScalarNode:
		return "nothing"
	default:
		return strconv.Quote(Shown(n.Value))
	}
}

// Pairs reads names (as Prometheus spells label names) with texts.
func (f *File) Pairs(n *yaml.Node, what string) map[string]Value[string] {
	all := map[string]Value[string]{}
	if n.Kind != yaml.MappingNode {
		f.Add(n.Line, "%s is a mapping of names to texts, not %s", what, KindOf(n))
		return all
	}
	if len(n.Content)/2 > maxPairs {
		f.Add(n.Line, "there are %d %s; at most %d are read", len(n.Content)/2, what, maxPairs)
		return all
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !labelName(key.Value) {
			f.Add(key.Line, "%q is no name for one of the %s: write letters, digits and _, not a digit first, at most 100", Shown(key.Value), what)
			continue
		}
		if _, twice := all[key.Value]; twice {
			f.Add(key.Line, "%s has the key %q twice; remove one", what, key.Value)
			continue
		}
		if v := f.Text(n.Content[i+1], key.Value); v.Given() {
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

// Shown cuts what a message repeats of the file.
func Shown(s string) string {
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

// Meant is the known name that a misspelt one is closest to, as ", did you mean X?".
func Meant(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(name, k, least); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance is the number of single edits between two short names, most if it is not smaller.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], most)
}

// Short writes 2m instead of 2m0s.
func Short(d time.Duration) string {
	text := d.String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	if whole, ok := strings.CutSuffix(text, "h0m"); ok {
		text = whole + "h"
	}
	return text
}
