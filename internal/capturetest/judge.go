package capturetest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// Verdict is what a ledger is worth beside the truth.
type Verdict struct {
	// Wrong says, one sentence each, where the ledger differs from the truth
	// without the spans being to blame.
	Wrong []string
	// Honest is set where a number that the spans cannot show was null or a lower
	// bound, and everything else agreed.
	Honest bool
}

// hidden is what the spans of some captures cannot show, found by looking at them.
// A hidden retry layer must be null or a lower bound above zero; hidden counts may be
// any lower bound. "everything" is a process that was killed. The transport layer is
// hidden in all captures here: their clients make no span per send.
var hidden = []struct {
	cells string // a pattern over "instrumentation/scenario"
	what  []string
	why   string
}{
	{"*/i3_killed", []string{"everything"}, "the process was killed before its last export"},
	{"*/killed", []string{"everything"}, "the process was killed before its last export"},
	{"openllmetry-root/*", unseen("steps"), "no hierarchy and no names of nodes"},
	{"langsmith-traceable/*", unseen("steps"), "the application's spans carry the attributes of other runs"},
	{"py-otel-genai-langchain*/*", unseen("steps"), "calls without nodes"},
	{"py-openlit/*", []string{"call>", "calls", "executions>", "fallbacks>", "tokens", "node>", "orchestrator>", "worker", "steps"}, "no task ids, no wrappers, no spans for async calls, tool nodes and subgraph nodes"},
	{"ai-sdk-7*/*", []string{"call", "calls"}, "one span for all attempts"},
	{"openinference-openai-js/*", []string{"call", "calls", "fallbacks"}, "a call of the client that fails leaves no span"},
	{"openllmetry-openai-js/*", []string{"call", "calls", "fallbacks"}, "a call of the client that fails leaves no span"},
	{"mastra/*", []string{"call", "node", "calls", "executions", "fallbacks"}, "one span for all attempts"},
	{"mastra/a*_agent_*", []string{"steps"}, "no step"},
	{"mastra/e_fallback", []string{"steps"}, "no step"},
	{"plain/[hi]*", []string{"steps"}, "no framework instrumentation: only the application's root and contract spans"},
	{"py-plain/*", []string{"steps"}, "no framework instrumentation: only the application's own root, attempt and contract spans"},
	{"plain-py/*", []string{"calls", "tokens"}, "home-made attribute names for models and tokens"},
	{"plain-go/*", []string{"calls", "tokens"}, "home-made attribute names for models and tokens"},
	{"py-*/l11*", []string{"calls"}, "a cancelled call leaves no span"},
	{"py-*/n17*", []string{"calls"}, "a cancelled call leaves no span"},
	{"py-*/n24_*", []string{"calls"}, "a cancelled call leaves no span"},
	{"py-langfuse/n13_*", []string{"executions", "calls", "node>", "orchestrator>"}, "the default processor drops the application's attempt spans"},
	{"py-mlflow*/f_batch", []string{"call"}, "batch wrappers nest in each other"},
	{"java-resilience4j/retry_events_hidden", []string{"call"}, "the repeats have no spans"},
	{"*/bare*", []string{"steps"}, "no application span names the step"},
	{"*/*_bare*", []string{"steps"}, "no application span names the step"},
	{"pydantic-ai*/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"logfire/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"openai-agents*/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"openai-agents-otel/*", []string{"calls", "tokens"}, "no model spans"},
	{"openinference-crewai/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"openinference-crewai/flow", []string{"steps"}, "no step"},
	{"google-adk/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"strands/*", []string{"call"}, "a re-prompt inside the library may leave no mark"},
	{"*/stream_*", []string{"call", "calls", "tokens>"}, "a broken stream may end well"},
	{"*/stream", []string{"tokens"}, "a stream may state no tokens"},
	{"*/length", []string{"calls", "tokens"}, "a refused answer may have no span"},
	{"*/parse_failure", []string{"call", "calls", "tokens"}, "a refused answer may have no span"},
	{"otel-openai-v2*/responses_*", []string{"call", "calls", "tokens"}, "no span for this call of the client"},
	{"httpx-only/*", []string{"call", "calls", "fallbacks", "tokens"}, "sends only"},
	{"openinference-instructor*/*", []string{"call", "calls", "tokens"}, "repeats inside one span"},
	{"litellm-oi/*", []string{"call", "calls", "tokens"}, "repeats inside one span"},
	{"autogen/*", []string{"call", "calls", "tokens"}, "no model spans"},
	{"smolagents/*", []string{"call"}, "what an agent does about a failed turn has no mark"},
	{"litellm-otel/*", unseen("steps"), "failed requests have no spans"},
	{"logfire-openai/*", []string{"tokens>"}, "a stream that broke states no tokens"},
	{"litellm-otel-reqspan/*", []string{"call", "calls", "fallbacks", "tokens"}, "repeats inside one span"},
	// Of this one nothing is seen at all: no span of the client, so nothing says that a
	// client was there whose repeats are hidden, and zero is what a step without calls shows.
	{"otel-openai-v2/parse_failure", []string{"call>"}, "no span of the client at all"},
}

// unseen is every number, and more.
func unseen(more ...string) []string {
	return append([]string{"transport", "call", "node", "orchestrator", "worker", "calls", "executions", "fallbacks", "tokens"}, more...)
}

// sends are the captures whose clients show, or number, every send.
var sends = []string{
	"grpc-go/*", "otelgrpc-go/*", "aws-sdk-go-v2/*", "anthropic-go/*", "otelhttp-go/*", "openai-go/*", "node-undici/*", "*-http/*", "*-http-new/*", "httpx-only/*", "botocore/*",
}

var hiddenSends = []string{"otelhttp-go/outside", "openai-go/no_http_spans", "httpx-only/transport_retries"}

// dropsOwnSpans are instrumentations whose default processor drops the application's own spans.
var dropsOwnSpans = []string{"py-langfuse-plus-oi", "langfuse", "langsmith-traceable", "py-langfuse"}

// spellings are captures of many spellings of one thing, or with more than one right
// answer: only the identities are judged.
var spellings = []string{
	"*/k2_plain_variants", "plain-py/links", "plain-py/redelivery", "plain-py/swallowed", "plain-go/fanout_bare",
	"py-mlflow/n9_*", "py-mlflow/n12_*", "py-mlflow/n13_*",
	// No application span names the step, or one trace per attempt joined by nothing.
	"pydantic-ai*/nested", "logfire/nested", "httpx-only/fallback", "openai-agents-otel/tool_error",
	"*-go/bare", "aws-sdk-go-v2/bare", "node-undici/bare", "java-resilience4j/bare",
}

// An engine's internals and the hooks of agent middleware are no steps, and the
// truth does not list them.
var internalStep = regexp.MustCompile(`^__|\.(before|after)_(agent|model)$`)

// runOutcomes are the words that the ledger may use for the application's own word.
var runOutcomes = map[string][]string{
	"ok":        {"ok", "handled_error", "interrupted"}, // ok may hide a handled failure
	"error":     {"error", "cancelled"},
	"cancelled": {"cancelled", "error", "killed_or_running"},
	"abandoned": {"cancelled", "error", "ok", "handled_error", "killed_or_running"},
}

var stepOutcomes = []attribution.Outcome{
	attribution.OutcomeFirstTry, attribution.OutcomeAfterRetry, attribution.OutcomeByFallback,
	attribution.OutcomeFailedAfterRetry, attribution.OutcomeFailed, attribution.OutcomeHandled,
	attribution.OutcomeInterrupted, attribution.OutcomeCancelled, attribution.OutcomeUnknown,
}

// Judge compares a ledger of a capture's spans, and of nothing else, with its truth.
func Judge(capture Capture, ledger attribution.Ledger) Verdict {
	verdict := Verdict{Wrong: brokenIdentities(ledger)}
	if matchesAny(spellings, capture.Cell()) {
		return verdict
	}
	judged := judgement{capture: capture, hidden: hiddenIn(capture.Cell()), Verdict: verdict}
	judged.steps(ledger)
	judged.outcome(ledger)
	judged.violations(ledger)
	judged.completion(ledger)
	return judged.Verdict
}

type judgement struct {
	Verdict
	capture Capture
	hidden  map[string]bool
}

func (j *judgement) wrong(format string, args ...any) {
	j.Wrong = append(j.Wrong, fmt.Sprintf(format, args...))
}

// sums are one step's numbers over all runs; nil where some run does not observe it.
type sums map[string]*int

// counts are the compared numbers in the order of the report, and the group that
// excuses each.
var counts = []struct{ name, group string }{
	{"executions", "executions"},
	{"transport", "transport"}, {"call", "call"}, {"node", "node"}, {"orchestrator", "orchestrator"}, {"worker", "worker"},
	{"fallbacks", "fallbacks"}, {"calls", "calls"}, {"calls_failed", "calls"},
	{"tool_calls", "tool_calls"}, {"http_calls", "http_calls"}, {"input", "tokens"}, {"output", "tokens"},
}

func (j *judgement) steps(ledger attribution.Ledger) {
	ours, truth := ledgerSums(ledger), truthSums(j.capture.Truth)
	for name, want := range truth {
		container := j.capture.Truth.Steps[name].Kind == "container"
		if container && *want["executions"] == 0 { // calls outside any step, booked under their wrapper's name
			j.hidden["steps"] = true
			continue
		}
		got, ok := ours[name]
		if !ok {
			if j.hidden["steps"] || j.hidden["everything"] || container {
				j.Honest = true
			} else {
				j.wrong("%s: step missing", name)
			}
			continue
		}
		for _, count := range counts {
			expected, stated := want[count.name]
			if !stated || container && count.name != "executions" {
				continue
			}
			switch found := got[count.name]; {
			case found != nil && *found == *expected:
			case j.excused(count.group, found, *expected):
				j.Honest = true
			case found == nil:
				j.wrong("%s.%s: ledger null, truth %d", name, count.name, *expected)
			default:
				j.wrong("%s.%s: ledger %d, truth %d", name, count.name, *found, *expected)
			}
		}
	}
	for name := range ours {
		if _, ok := truth[name]; !ok && !internalStep.MatchString(name) && !j.hidden["steps"] {
			j.wrong("%s: step not in the truth", name)
		}
	}
	slices.Sort(j.Wrong)
}

// excused tells whether a number that differs from the truth is one that the spans
// cannot show, given as null or as a lower bound.
func (j *judgement) excused(group string, found *int, truth int) bool {
	lower := found == nil || *found <= truth
	switch {
	case j.hidden["everything"]:
		return lower
	case j.hidden[group+">"]:
		return true
	case group == "http_calls": // a send that a client made by itself may have no span of its own
		return lower
	case !j.hidden[group]:
		return group == "transport" && found == nil && truth == 0
	case slices.Contains([]string{"transport", "call", "node", "orchestrator"}, group): // a layer: zero would be an invented number
		return found == nil || *found <= truth && *found > 0
	default:
		return lower
	}
}

// outcome compares the run's outcome where there is exactly one run on both sides. A
// broken stream is ok to an application that takes what it got.
func (j *judgement) outcome(ledger attribution.Ledger) {
	truth := j.capture.Truth.Runs
	if len(truth) != 1 || len(ledger.Runs) != 1 || j.hidden["everything"] || j.hidden["steps"] || j.dropped() ||
		strings.Contains(j.capture.Scenario, "stream") {
		return
	}
	if allowed, known := runOutcomes[truth[0].Outcome]; known && !slices.Contains(allowed, ledger.Runs[0].Outcome) {
		j.wrong("run outcome: ledger %s, truth %s", ledger.Runs[0].Outcome, truth[0].Outcome)
	}
}

// dropped tells whether the application's own spans never left the process.
func (j *judgement) dropped() bool { return slices.Contains(dropsOwnSpans, j.capture.Instrumentation) }

func (j *judgement) violations(ledger attribution.Ledger) {
	found := 0
	for _, violation := range ledger.ContractViolations {
		found += violation.Count
	}
	for _, run := range ledger.Runs {
		for _, violation := range run.ContractViolations {
			found += violation.Count
		}
	}
	if truth := len(j.capture.Truth.ContractViolations); found != truth && (found > 0 || !j.dropped()) {
		j.wrong("contract violations: ledger %d, truth %d", found, truth)
	}
}

func (j *judgement) completion(ledger attribution.Ledger) {
	var said []string
	for _, run := range ledger.Runs {
		said = append(said, run.Completion)
	}
	flags := map[string]bool{} // the last flag of a run wins
	complete := false
	for _, run := range j.capture.Truth.Runs {
		if run.Complete != nil && run.Outcome != "killed" {
			flags[run.Run] = *run.Complete
		}
		complete = complete || run.Complete != nil && *run.Complete
	}
	for _, flag := range flags {
		want := "incomplete"
		if flag {
			want = "complete"
		}
		if !slices.Contains(said, want) && !j.dropped() {
			j.wrong("completion: ledger %v, truth %s", said, want)
		}
	}
	if !complete && slices.Contains(said, "complete") {
		j.wrong("completion: called complete without a flag that says so")
	}
}

// brokenIdentities are the identities of docs/accounting.md that hold whatever the
// spans show.
func brokenIdentities(ledger attribution.Ledger) []string {
	var broken []string
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, run := range ledger.Runs {
		for _, step := range run.Steps {
			layers := []*int{step.Retries.Transport, step.Retries.Call, step.Retries.Node, step.Retries.Orchestrator, step.Retries.Worker}
			if charged := layers[2:]; !slices.Contains(charged, nil) {
				if entries := step.Visits + *charged[0] + *charged[1] + *charged[2]; step.Executions != entries {
					say("%s: %d executions are not %d visits + %d node + %d orchestrator + %d worker",
						step.Step, step.Executions, step.Visits, *charged[0], *charged[1], *charged[2])
				}
			}
			total, seen := 0, false
			for _, layer := range layers {
				if layer != nil {
					total, seen = total+*layer, true
				}
			}
			if seen != (step.RetriesTotal != nil) || seen && *step.RetriesTotal != total {
				say("%s: retries_total is not the sum of its layers, %d", step.Step, total)
			}
			numbers := []float64{
				float64(step.Executions), float64(step.Visits), float64(step.Operations), step.FallbackRate, float64(step.Calls),
				float64(step.CallsFailed), float64(step.ToolCalls), float64(step.HTTPCalls), float64(step.Fallbacks),
				float64(step.Tokens.Input), float64(step.Tokens.Output), float64(step.Tokens.UnknownCalls),
				float64(step.Wasted.Input), float64(step.Wasted.Output), step.Wasted.TimeMs, step.Wasted.WaitMs, float64(total),
			}
			if slices.Min(numbers) < 0 {
				say("%s: a negative number", step.Step)
			}
			if !slices.Contains(stepOutcomes, step.Outcome) {
				say("%s: outcome %q is no outcome of docs/accounting.md", step.Step, step.Outcome)
			}
		}
	}
	return broken
}

func truthSums(truth Truth) map[string]sums {
	steps := map[string]sums{}
	for name, step := range truth.Steps {
		worker, call := 0, step.Retries["client"]
		s := sums{
			"executions": &step.Executions, "fallbacks": &step.Fallbacks, "calls": &step.Calls, "calls_failed": &step.Failed,
			"input": &step.Tokens.Input, "output": &step.Tokens.Output, "worker": &worker, "call": &call,
		}
		for _, layer := range []string{"node", "orchestrator", "transport"} {
			if n, ok := step.Retries[layer]; ok {
				s[layer] = &n
			}
		}
		if step.ToolCalls != nil {
			s["tool_calls"] = step.ToolCalls
		}
		if step.HTTPCalls != nil {
			s["http_calls"] = step.HTTPCalls
		}
		steps[name] = s
	}
	for _, run := range truth.Runs {
		for name, n := range run.Redone {
			*steps[name]["worker"] += n
		}
	}
	return steps
}

func ledgerSums(ledger attribution.Ledger) map[string]sums {
	steps := map[string]sums{}
	for _, run := range ledger.Runs {
		for _, step := range run.Steps {
			input, output := int(step.Tokens.Input), int(step.Tokens.Output)
			add(steps, step.Step, sums{
				"executions": &step.Executions, "fallbacks": &step.Fallbacks, "calls": &step.Calls, "calls_failed": &step.CallsFailed,
				"tool_calls": &step.ToolCalls, "http_calls": &step.HTTPCalls, "input": &input, "output": &output,
				"transport": step.Retries.Transport, "call": step.Retries.Call, "node": step.Retries.Node,
				"orchestrator": step.Retries.Orchestrator, "worker": step.Retries.Worker,
			})
		}
	}
	return steps
}

// add sums what another run says of a step; a number that one run does not observe is
// observed in none.
func add(steps map[string]sums, name string, more sums) {
	have, ok := steps[name]
	if !ok {
		have = sums{}
		steps[name] = have
	}
	for key, n := range more {
		before, seen := have[key]
		switch {
		case n == nil, seen && before == nil:
			have[key] = nil
		case !seen:
			sum := *n
			have[key] = &sum
		default:
			sum := *before + *n
			have[key] = &sum
		}
	}
}

func hiddenIn(cell string) map[string]bool {
	found := map[string]bool{}
	if !matchesAny(sends, cell) || matchesAny(hiddenSends, cell) { // one span may cover many sends
		found["transport"] = true
	}
	for _, entry := range hidden {
		if matchesAny([]string{entry.cells}, cell) {
			for _, what := range entry.what {
				found[what] = true
			}
		}
	}
	return found
}

func matchesAny(patterns []string, cell string) bool {
	for _, pattern := range patterns {
		if matched, err := path.Match(pattern, cell); err == nil && matched {
			return true
		}
	}
	return false
}
