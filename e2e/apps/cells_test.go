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
	{"python", "langfuse", "contracts/*", "runs *", other, "Langfuse's processor drops the application's root span, and its flag with it"},
	{"python", "langfuse", "contracts/*", "violations *", lower, "Langfuse's processor drops the application's spans"},
	{"javascript", "langfuse", "contracts/*", "runs *", other, "Langfuse's processor drops the application's root span, and its flag with it"},
	{"javascript", "langfuse", "contracts/*", "violations *", lower, "Langfuse's processor drops the application's spans"},
	{"javascript", "langfuse", "ai-sdk/*", "*", lower, "Langfuse's processor drops the application's spans, which name the steps and the run"},
	{"javascript", "langfuse", "ai-sdk/*", "runs *", other, "Langfuse's processor drops the application's root span: the run looks like one that still runs"},
	{"python", "plain", "resume/crashed", "resolve retries.node", lower, "the killed attempt's own span, which holds its number, never came: its repeat looks like a re-entry"},
	{"python", "plain", "resume/crashed", "resolve retries.orchestrator", other, "the killed attempt's own span, which holds its number, never came: its repeat looks like a re-entry"},
	{"*", "plain", "calls/rejected_answers", "resolve retries.call", lower, "the calls went well, and nothing says that their answers were rejected"},
}

// excuse finds the cell that allows a number to be what it is.
func excuse(p *program, scenario counted, name string, got, want *int) (index int, found bool) {
	for i, c := range cells {
		if matches(c.ecosystem, p.ecosystem) && matches(c.instrumentation, p.instrumentation) &&
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
