package dialect

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Failure told in the output (docs/accounting.md): a step may report its failure in
// the state it returns while its span ends OK. The output is looked at and not kept.

// OutputTest is a test on the top level of a step's own output: it failed if one holds.
type OutputTest struct {
	// Key is what is looked at; empty, it is the output as a whole.
	Key string `mapstructure:"key"`
	// Is are texts of which the value must be one. Without them it must be there and not
	// empty: no null, false, zero, nor an empty text, list or object.
	Is []string `mapstructure:"is"`

	list bool // it must be a list, too
}

// OutputTests are the tests on the output of some steps.
type OutputTests struct {
	Service string `mapstructure:"service"` // empty: of every service
	Step    string `mapstructure:"step"`    // empty: every step
	// Tests replace the built-in ones. Empty, no output tells a failure.
	Tests []OutputTest `mapstructure:"tests"`
}

var (
	failureWords = []string{"error", "failed", "failure"}
	builtInTests = []OutputTest{
		{Key: "status", Is: failureWords}, {Key: "state", Is: failureWords}, {Key: "error"}, {Key: "errors", list: true}, {Is: failureWords},
	}
)

// stepOutput is an output as it came, with the input beside it.
type stepOutput struct{ output, input string }

// readOutput notes a step's own output, to be tested when the step is known.
func (r *reading) readOutput(output, input string) {
	r.outputs = append(r.outputs, stepOutput{output, input})
	if m := middlewareText.FindStringSubmatch(output); m != nil {
		r.statedAttempts(m[1])
	}
}

// Retrying middleware turns exhaustion into a message and lets the run go on.
var middlewareText = regexp.MustCompile(`"(?:Model call|Tool '[^'"]{1,200}') failed after (\d{1,6}) attempts? with`)

// testOutputs tests what readOutput noted. A step that hands on the whole state it was
// given does not tell a failure of its own.
func (r *reading) testOutputs(sets []OutputTests) {
	if len(r.outputs) == 0 {
		return
	}
	tests := testsOf(sets, r.row.Service, cmp.Or(r.row.Step, r.row.Node, r.row.Name))
	for _, o := range r.outputs {
		if f := failureInOutput(o.output, tests); f.reason != "" && !handedOn(o.output, o.input, f, tests) {
			r.row.OutputFailed, r.row.OutputReason = true, clip(f.reason, maxText)
		}
	}
}

// testsOf is the tests on the output of a step: those of the first set that fits, else
// the built-in ones.
func testsOf(sets []OutputTests, service, step string) []OutputTest {
	for i := range sets {
		if s := &sets[i]; (s.Service == "" || s.Service == service) && (s.Step == "" || s.Step == step) {
			return s.Tests
		}
	}
	return builtInTests
}

// toldFailure is the test that an output fails.
type toldFailure struct{ key, reason string }

func failureInOutput(output string, tests []OutputTest) toldFailure {
	output = strings.TrimSpace(output)
	if output == "" {
		return toldFailure{}
	}
	switch output[0] {
	case '{':
		return failureInObject(gjson.Parse(output), tests)
	case '[':
		return failureInCommands(gjson.Parse(output), tests)
	case '"':
		output = gjson.Parse(output).String()
	}
	for _, test := range tests {
		if test.Key == "" && slices.Contains(test.Is, output) {
			return toldFailure{"", "output is " + output}
		}
	}
	return toldFailure{}
}

func failureInObject(object gjson.Result, tests []OutputTest) toldFailure {
	if update := object.Get("update"); update.Exists() && (object.Get("goto").Exists() || object.Get("lg_name").String() == "Command") {
		if !update.IsObject() {
			return toldFailure{}
		}
		object = update // a command's own failure is in what it writes
	} else if wrapped := object.Get("output"); wrapped.IsArray() {
		if f := failureInCommands(wrapped, tests); f.reason != "" {
			return f
		}
	}
	for _, test := range tests {
		if test.Key == "" {
			continue
		}
		v := object.Get(gjson.Escape(test.Key))
		switch {
		case len(test.Is) > 0:
			if v.Type == gjson.String && slices.Contains(test.Is, v.String()) {
				return toldFailure{test.Key, test.Key + " is " + v.String()}
			}
		case !v.Exists() || emptyJSON(v):
		case !test.list:
			return toldFailure{test.Key, test.Key + " is set"}
		case v.IsArray():
			return toldFailure{test.Key, test.Key + " is not empty"}
		}
	}
	return toldFailure{}
}

// failureInCommands tests the commands of a list: a node may return several.
func failureInCommands(list gjson.Result, tests []OutputTest) (f toldFailure) {
	list.ForEach(func(_, item gjson.Result) bool {
		if item.IsObject() && item.Get("update").Exists() {
			f = failureInObject(item, tests)
		}
		return f.reason == ""
	})
	return f
}

// handedOn tells whether the output holds all of the input and the same failure as it.
func handedOn(output, input string, f toldFailure, tests []OutputTest) bool {
	in, out := gjson.Parse(strings.TrimSpace(input)), gjson.Parse(strings.TrimSpace(output))
	if !in.IsObject() || !out.IsObject() || failureInObject(in, tests) != f {
		return false
	}
	keys, all := 0, true
	in.ForEach(func(name, _ gjson.Result) bool {
		keys++
		all = out.Get(gjson.Escape(name.String())).Exists()
		return all
	})
	key := gjson.Escape(f.key)
	return all && keys >= 2 && in.Get(key).Raw == out.Get(key).Raw
}

func emptyJSON(v gjson.Result) bool {
	switch strings.TrimSpace(v.Raw) {
	case "null", "false", `""`, "0":
		return true
	}
	if v.IsArray() || v.IsObject() {
		empty := true
		v.ForEach(func(_, _ gjson.Result) bool { empty = false; return false })
		return empty
	}
	return false
}
