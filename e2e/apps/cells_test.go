package apps

import (
	"path"
	"strings"
)

// A cell is what the spans of some scenarios under some instrumentation cannot show.
// There the ledger must say null, or a lower bound.
type cell struct {
	ecosystem       string
	instrumentation string // as path.Match has it
	scenario        string // application/scenario, as path.Match has it
	numbers         string // as path.Match has it
	rule            rule
	why             string
	lossy           bool // only where every second span of a call is lost
}

// rule is what an answer may be where it cannot be the truth.
type rule int

const (
	// lower: null, or not more than what was counted.
	lower rule = iota
	// other: what is said instead is right by the definitions, given these spans.
	other
)

// cells is the whole list; a cell that no scenario needs fails the test.
var cells = []cell{
	{"python", "langfuse", "contracts/*", "runs *", other, "Langfuse's processor drops the application's root span, and its flag with it", false},
	{"python", "langfuse", "contracts/*", "violations *", lower, "Langfuse's processor drops the application's spans", false},
	{"javascript", "langfuse", "contracts/*", "runs *", other, "Langfuse's processor drops the application's root span, and its flag with it", false},
	{"javascript", "langfuse", "contracts/*", "violations *", lower, "Langfuse's processor drops the application's spans", false},
	{"javascript", "langfuse", "ai-sdk/*", "*", lower, "Langfuse's processor drops the application's spans, which name the steps and the run", false},
	{"javascript", "langfuse", "ai-sdk/*", "runs *", other, "Langfuse's processor drops the application's root span: the run looks like one that still runs", false},
	{"*", "plain", "resume/[ck]*ed", "resolve retries.node", lower, "the killed attempt's own span, which holds its number, never came: its repeat looks like a re-entry", false},
	{"*", "plain", "resume/[ck]*ed", "resolve retries.orchestrator", other, "the killed attempt's own span, which holds its number, never came: its repeat looks like a re-entry", false},
	{"*", "plain", "calls/rejected_answers", "resolve retries.call", lower, "the calls went well, and nothing says that their answers were rejected", false},
	{"python", "openinference", "calls/*ed_call", "resolve calls", lower, "a call that was cancelled has no end, and no span", false},
	{"python", "lang*", "calls/*ed_call", "resolve calls", lower, "a call that was cancelled has no end, and no span", false},
	{"python", "*", "calls/cancelled_call", "resolve retries.call", lower, "a call that was cancelled did not fail, so the next one repeats nothing", false},

	{"*", "plain", "calls/fallback", "resolve retries.call", other, "what was dropped is the fallback's call: the next question, on the first model, looks like a repeat", true},
	{"*", "*", "calls/*", "resolve calls", lower, "spans of calls were dropped", true},
	{"*", "*", "calls/*", "resolve calls_failed", lower, "spans of calls were dropped", true},
	{"*", "*", "calls/*", "resolve retries.call", lower, "spans of calls were dropped", true},
	{"*", "*", "calls/*", "resolve fallbacks", lower, "spans of calls were dropped", true},
	{"*", "*", "calls/*", "resolve tokens.*", lower, "spans of calls were dropped", true},
}

// excuse finds the cell that allows a number to be what it is.
func excuse(p *program, scenario counted, name string, got, want *int) (index int, found bool) {
	for i, c := range cells {
		if c.lossy == p.lossy && matches(c.ecosystem, p.ecosystem) && matches(c.instrumentation, p.instrumentation) &&
			matches(c.scenario, scenario.Application+"/"+scenario.Scenario) && matches(c.numbers, name) &&
			(c.rule == other || got == nil || want != nil && *got <= *want) {
			return i, true
		}
	}
	return 0, false
}

// matches compares as path.Match does, but a star stands for slashes too.
func matches(pattern, name string) bool {
	plain := strings.NewReplacer("/", "\x00")
	matched, err := path.Match(plain.Replace(pattern), plain.Replace(name))
	return err == nil && matched
}
