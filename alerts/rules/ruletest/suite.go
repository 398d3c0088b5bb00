// Package ruletest tests files of alert rules: counts or spans over time in, the alerts
// that have to fire at instants out. It reads no clock and asks no store: spans go
// through the same dialects, attribution and signals as in the collector.
package ruletest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// Bounds of a file of tests.
const (
	maxFileBytes = 4 << 20
	maxLength    = 24 * time.Hour // the last instant of a test
	maxSpans     = 20_000         // of one test
	maxSeconds   = 2_000_000      // of all counts of a file
)

// Open opens a file that a file of tests names; the name is as it is written there.
type Open func(name string) (io.ReadCloser, error)

// Suite is one file of tests.
type Suite struct {
	rules *rules.Set
	tests []test
}

// test is one course of events and what has to come of it. Times are since its start.
type test struct {
	name   string
	line   int
	counts []counts
	spans  []spanSource
	pauses []pause
	lags   []pause
	expect []expectation
}

// pause is a time, both ends in it, in which nothing is evaluated, or the ledger is behind.
type pause struct{ from, to time.Duration }

func (p pause) holds(at time.Duration) bool { return at >= p.from && at <= p.to }

// expectation is what has to be true at one instant.
type expectation struct {
	at     time.Duration
	line   int
	rule   string // "" every rule
	alerts []expectedAlert
	said   bool // there is a list of alerts, maybe an empty one
	fired  strictyaml.Value[int64]
}

// expectedAlert is one alert of an expectation.
type expectedAlert struct {
	line          int
	rule          string
	state         rules.State
	labels        map[string]string // all but alertname
	annotations   map[string]string // those that matter
	failed, total strictyaml.Value[int64]
}

// Load reads a file of tests and the rules it is for. The error lists the mistakes.
func Load(name string, content []byte, open Open) (*Suite, error) {
	f := strictyaml.NewFile(name)
	root := f.Document(content, maxFileBytes)
	if err := f.Err(); err != nil {
		return nil, err
	}
	if root == nil {
		f.Add(1, "the file is empty; write at least one test under tests")
		return nil, f.Err()
	}
	if root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(root.Content); i += 2 {
			key, value := root.Content[i], root.Content[i+1]
			if key.Value == "default_pack" || key.Value == "defaults" || key.Value == "rules" && value.Kind == yaml.SequenceNode {
				f.Add(key.Line, "this is a file of rules, not of rule tests; check it by: retryledger rules check. A file of tests names it: rules: rules.yaml")
				return nil, f.Err()
			}
		}
	}
	suite := &Suite{rules: rules.Default()}
	var ruleErr error
	seconds := 0
	f.Fields(root, "a file of rule tests", map[string]func(*yaml.Node){
		"rules": func(n *yaml.Node) {
			if v := f.Text(n, "rules"); v.Given() {
				suite.rules, ruleErr = loadRules(v.V, open)
				if ruleErr != nil {
					ruleErr = fmt.Errorf("%s:%d: %w", name, v.Line, ruleErr)
				}
			}
		},
		"tests": func(n *yaml.Node) {
			for _, item := range f.Items(n, "tests") {
				suite.tests = append(suite.tests, parseTest(f, item, open, &seconds))
			}
		},
	})
	if ruleErr != nil {
		return nil, ruleErr
	}
	suite.check(f)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return suite, nil
}

func loadRules(name string, open Open) (*rules.Set, error) {
	file, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("the rules cannot be opened: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, rules.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the rules %s cannot be read: %w", name, err)
	}
	set, err := rules.Load(name, content)
	if err != nil {
		return nil, fmt.Errorf("the rules do not load:\n%w", err)
	}
	return set, nil
}

// check checks what needs the rules.
func (s *Suite) check(f *strictyaml.File) {
	if len(s.tests) == 0 && f.Mistakes() == 0 {
		f.Add(1, "there is no test; write at least one under tests")
	}
	var names []string
	for _, r := range s.rules.Rules() {
		names = append(names, r.Name)
	}
	known := func(line int, name string) {
		if name != "" && !slices.Contains(names, name) {
			f.Add(line, "there is no rule %q%s; there are %s", strictyaml.Shown(name), strictyaml.Meant(name, names), strings.Join(names, ", "))
		}
	}
	for i := range s.tests {
		t := &s.tests[i]
		if len(t.expect) == 0 && f.Mistakes() == 0 {
			f.Add(t.line, "the test expects nothing; write at least one instant under expect")
		}
		for j := range t.expect {
			e := &t.expect[j]
			known(e.line, e.rule)
			if e.fired.Given() && e.rule == "" {
				f.Add(e.fired.Line, "fired counts the alerts of one rule; name it with rule")
			}
			for k := range e.alerts {
				a := &e.alerts[k]
				known(a.line, a.rule)
				switch {
				case a.rule == "" && e.rule == "":
					f.Add(a.line, "the alert names no rule, nor does the expectation; write rule")
				case a.rule == "":
					a.rule = e.rule
				case e.rule != "" && a.rule != e.rule:
					f.Add(a.line, "the alert is of %s, but the expectation is about %s", a.rule, e.rule)
				}
			}
		}
	}
}

// parseTest reads one test; seconds is how many all counts of the file have until now.
func parseTest(f *strictyaml.File, n *yaml.Node, open Open, seconds *int) test {
	t := test{line: n.Line}
	spans := int64(0)
	f.Fields(n, "a test", map[string]func(*yaml.Node){
		"name": func(n *yaml.Node) { t.name = f.Text(n, "name").V },
		"counts": func(n *yaml.Node) {
			for _, item := range f.Items(n, "counts") {
				c := parseCounts(f, item)
				if *seconds += len(c.failed) + len(c.total); *seconds > maxSeconds {
					f.Add(item.Line, "the counts of this file are too many; all together they have at most %d numbers", maxSeconds)
					return
				}
				t.counts = append(t.counts, c)
			}
		},
		"spans": func(n *yaml.Node) {
			for _, item := range f.Items(n, "spans") {
				source := parseSpans(f, item, open)
				if spans += source.count(); spans > maxSpans {
					f.Add(item.Line, "there are more than %d spans; write fewer, or split the test", maxSpans)
					return
				}
				t.spans = append(t.spans, source)
			}
		},
		"pauses": func(n *yaml.Node) { t.pauses = parsePauses(f, n, "pauses") },
		"lags":   func(n *yaml.Node) { t.lags = parsePauses(f, n, "lags") },
		"expect": func(n *yaml.Node) {
			for _, item := range f.Items(n, "expect") {
				t.expect = append(t.expect, parseExpectation(f, item))
			}
		},
	})
	return t
}

func parsePauses(f *strictyaml.File, n *yaml.Node, what string) (all []pause) {
	for _, item := range f.Items(n, what) {
		p, before := pause{from: -1, to: -1}, f.Mistakes()
		f.Fields(item, "one of the "+what, map[string]func(*yaml.Node){
			"from": func(n *yaml.Node) { p.from = f.Duration(n, "from", 0, maxLength).V },
			"to":   func(n *yaml.Node) { p.to = f.Duration(n, "to", 0, maxLength).V },
		})
		if f.Mistakes() == before && (p.from < 0 || p.to < p.from) {
			f.Add(item.Line, "one of the %s lasts from one time to a later one: write {from: 1m, to: 2m}", what)
		}
		all = append(all, p)
	}
	return all
}

func parseExpectation(f *strictyaml.File, n *yaml.Node) expectation {
	e := expectation{line: n.Line}
	at := false
	f.Fields(n, "an expectation", map[string]func(*yaml.Node){
		"at":   func(n *yaml.Node) { e.at, at = f.Duration(n, "at", 0, maxLength).V, true },
		"rule": func(n *yaml.Node) { e.rule = f.Text(n, "rule").V },
		"fired": func(n *yaml.Node) {
			e.fired = f.Whole(n, "fired", 0, 1_000_000)
		},
		"alerts": func(n *yaml.Node) {
			e.said = true
			for _, item := range f.Items(n, "alerts") {
				e.alerts = append(e.alerts, parseAlert(f, item))
			}
		},
	})
	switch {
	case !at:
		f.Add(n.Line, "the expectation has no at; say at which time since the start, such as at: 2m")
	case !e.said && !e.fired.Given():
		f.Add(n.Line, "the expectation expects nothing; write alerts (an empty list [] for none) or fired")
	}
	return e
}

func parseAlert(f *strictyaml.File, n *yaml.Node) expectedAlert {
	a := expectedAlert{line: n.Line, state: rules.StateFiring}
	texts := func(what string, into *map[string]string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			*into = map[string]string{}
			for name, v := range f.Pairs(n, what) {
				(*into)[name] = v.V
			}
		}
	}
	f.Fields(n, "an alert", map[string]func(*yaml.Node){
		"rule":        func(n *yaml.Node) { a.rule = f.Text(n, "rule").V },
		"labels":      texts("labels", &a.labels),
		"annotations": texts("annotations", &a.annotations),
		"failed":      func(n *yaml.Node) { a.failed = f.Whole(n, "failed", 0, rules.MaxMinSamples) },
		"total":       func(n *yaml.Node) { a.total = f.Whole(n, "total", 0, rules.MaxMinSamples) },
		"state": func(n *yaml.Node) {
			switch v := f.Text(n, "state"); rules.State(v.V) {
			case rules.StateFiring, rules.StatePending, rules.StateResolved:
				a.state = rules.State(v.V)
			default:
				f.Add(n.Line, "state: write firing, pending or resolved, not %s", strictyaml.KindOf(n))
			}
		},
	})
	return a
}

// parseDimensions reads the labels that counts carry.
func parseDimensions(f *strictyaml.File, n *yaml.Node, signal signals.Signal) signals.Labels {
	var labels signals.Labels
	has := signal.Dimensions()
	given := f.Pairs(n, "labels")
	for _, name := range slices.Sorted(maps.Keys(given)) {
		v, d := given[name], signals.Dimension(name)
		if !slices.Contains(has, d) {
			f.Add(v.Line, "%s has no %s; it has %s", signal, strictyaml.Shown(name), dimensionNames(has))
			continue
		}
		labels = labels.With(d, v.V)
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

// labelText writes labels as Prometheus does.
func labelText(labels map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name != "alertname" {
			parts = append(parts, fmt.Sprintf("%s=%q", name, labels[name]))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
