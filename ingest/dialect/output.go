package dialect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Failure told in the output (docs/accounting.md): a step may report its failure in
// the state it returns while its span ends OK. The output is looked at and not kept.

var failureWords = []string{"error", "failed", "failure"}

// readOutput tests the top level of a step's own output. A step that hands on the
// whole state it was given does not tell a failure of its own.
func (r *reading) readOutput(output, input string) {
	if reason := failureInOutput(output); reason != "" && !handedOn(output, input, reason) {
		r.row.OutputFailed, r.row.OutputReason = true, reason
	}
	if m := middlewareText.FindStringSubmatch(output); m != nil {
		r.statedAttempts(m[1])
	}
}

// Retrying middleware turns exhaustion into a message and lets the run go on.
var middlewareText = regexp.MustCompile(`"(?:Model call|Tool '[^'"]{1,200}') failed after (\d{1,6}) attempts? with`)

// failureInOutput is the test that output fails, or "".
func failureInOutput(output string) string {
	output = strings.TrimSpace(output)
	if output == "" {
		return ""
	}
	switch output[0] {
	case '{':
		return failureInObject(gjson.Parse(output))
	case '[':
		return failureInCommands(gjson.Parse(output))
	case '"':
		output = gjson.Parse(output).String()
	}
	if slices.Contains(failureWords, output) {
		return "output is " + output
	}
	return ""
}

func failureInObject(object gjson.Result) string {
	if update := object.Get("update"); update.Exists() && (object.Get("goto").Exists() || object.Get("lg_name").String() == "Command") {
		if !update.IsObject() {
			return ""
		}
		object = update // a command's own failure is in what it writes
	} else if wrapped := object.Get("output"); wrapped.IsArray() {
		if reason := failureInCommands(wrapped); reason != "" {
			return reason
		}
	}
	for _, key := range []string{"status", "state"} {
		if v := object.Get(key); v.Type == gjson.String && slices.Contains(failureWords, v.String()) {
			return key + " is " + v.String()
		}
	}
	if v := object.Get("error"); v.Exists() && !emptyJSON(v) {
		return "error is set"
	}
	if v := object.Get("errors"); v.IsArray() && !emptyJSON(v) {
		return "errors is not empty"
	}
	return ""
}

// failureInCommands tests the commands of a list: a node may return several.
func failureInCommands(list gjson.Result) string {
	reason := ""
	list.ForEach(func(_, item gjson.Result) bool {
		if item.IsObject() && item.Get("update").Exists() {
			reason = failureInObject(item)
		}
		return reason == ""
	})
	return reason
}

// handedOn tells whether the output holds all of the input and the same failure as it.
func handedOn(output, input, reason string) bool {
	in, out := gjson.Parse(strings.TrimSpace(input)), gjson.Parse(strings.TrimSpace(output))
	if !in.IsObject() || !out.IsObject() || failureInObject(in) != reason {
		return false
	}
	key, _, _ := strings.Cut(reason, " ")
	keys, all := 0, true
	in.ForEach(func(name, _ gjson.Result) bool {
		keys++
		all = out.Get(gjson.Escape(name.String())).Exists()
		return all
	})
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
