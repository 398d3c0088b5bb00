package apps

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
)

// counted is what an application counted in one scenario.
type counted struct {
	Application string                 `json:"application"`
	Scenario    string                 `json:"scenario"`
	Since       float64                `json:"since"` // seconds since the epoch
	Until       float64                `json:"until"`
	Runs        []string               `json:"runs"` // their completion
	Steps       map[string]countedStep `json:"steps"`
	Violations  []violation            `json:"contract_violations"`
}

// slack is how far the clock of spans and the clock of an application are apart at
// most. Scenarios are further apart.
const slack = 10 * time.Millisecond

// holds tells whether a run began in the scenario.
func (c counted) holds(run answer.Run) bool {
	return run.StartedAt.After(instant(c.Since).Add(-slack)) && run.StartedAt.Before(instant(c.Until).Add(slack))
}

func instant(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

type countedStep struct {
	Executions  int            `json:"executions"`
	Retries     map[string]int `json:"retries"`
	Fallbacks   int            `json:"fallbacks"`
	Calls       int            `json:"calls"`
	CallsFailed int            `json:"calls_failed"`
	ToolCalls   int            `json:"tool_calls"`
	Tokens      struct {
		Input  int `json:"input"`
		Output int `json:"output"`
	} `json:"tokens"`
}

type violation struct {
	Node      string `json:"node"`
	Key       string `json:"key"`
	Direction string `json:"direction"`
}

// numbers are named numbers of steps, such as "resolve retries.call". A nil is a number
// that the ledger says cannot be observed.
type numbers map[string]*int

func (n numbers) add(name string, value *int) {
	before, known := n[name]
	switch {
	case value == nil || known && before == nil:
		n[name] = nil
	case known:
		sum := *before + *value
		n[name] = &sum
	default:
		n[name] = value
	}
}

// expected are the numbers that the ledger has to find.
func (c counted) expected() numbers {
	n := numbers{}
	for step, s := range c.Steps {
		for name, value := range map[string]int{
			"executions": s.Executions, "fallbacks": s.Fallbacks, "calls": s.Calls, "calls_failed": s.CallsFailed,
			"tool_calls": s.ToolCalls, "tokens.input": s.Tokens.Input, "tokens.output": s.Tokens.Output,
			"visits": s.Executions - s.Retries["node"] - s.Retries["orchestrator"] - s.Retries["worker"],
		} {
			n.add(step+" "+name, &value)
		}
		for layer, value := range s.Retries {
			n.add(step+" retries."+layer, &value)
		}
		// No application of these sees below its calls.
		n.add(step+" retries.transport", nil)
	}
	for _, completion := range c.Runs {
		n.add("runs "+completion, one())
	}
	for _, v := range c.Violations {
		n.add("violations "+v.Node+" "+v.Direction+"."+v.Key, one())
	}
	return n
}

func one() *int {
	n := 1
	return &n
}

func (n numbers) addStep(step string, executions, visits, fallbacks, calls, failed, tools int, retries attribution.Retries, tokens attribution.Tokens) {
	input, output := int(tokens.Input), int(tokens.Output)
	for name, value := range map[string]*int{
		"executions": &executions, "visits": &visits, "fallbacks": &fallbacks, "calls": &calls, "calls_failed": &failed,
		"tool_calls": &tools, "tokens.input": &input, "tokens.output": &output,
		"retries.transport": retries.Transport, "retries.call": retries.Call, "retries.node": retries.Node,
		"retries.orchestrator": retries.Orchestrator, "retries.worker": retries.Worker,
	} {
		n.add(step+" "+name, value)
	}
}

func (n numbers) addRun(run answer.Run) {
	n.add("runs "+run.Completion, one())
	for i := range run.Steps {
		s := &run.Steps[i]
		n.addStep(s.Step, s.Executions, s.Visits, s.Fallbacks, s.Calls, s.CallsFailed, s.ToolCalls, s.Retries, s.Tokens)
	}
	for _, v := range run.ContractViolations {
		n.add("violations "+v.Node+" "+v.Direction+"."+v.Key, &v.Count)
	}
}

// fromTop are the numbers of a service in the list of the hungriest steps.
func (c collector) fromTop(ctx context.Context, service string) (numbers, error) {
	var top answer.Top
	if err := c.Get(ctx, "/api/v1/top?limit=0&service="+service, &top); err != nil {
		return nil, err
	}
	n := numbers{}
	for i := range top.Steps {
		s := &top.Steps[i]
		n.addStep(s.Step, s.Executions, s.Visits, s.Fallbacks, s.Calls, s.CallsFailed, s.ToolCalls, s.Retries, s.Tokens)
	}
	return n, nil
}

// differences says where numbers that should be the same are not. A number that is not
// there is 0, or nothing to observe.
func differences(got, want numbers) []string {
	var found []string
	for _, name := range union(got, want) {
		if g, w := number(got, name), number(want, name); g != w {
			found = append(found, fmt.Sprintf("%s: %s instead of %s", name, g, w))
		}
	}
	return found
}

// union are the names of the numbers in a, b or both, in order.
func union(a, b numbers) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

func number(n numbers, name string) string {
	value, there := n[name]
	switch {
	case !there && strings.HasSuffix(name, " retries.transport"), there && value == nil:
		return "null"
	case !there:
		return "0"
	default:
		return fmt.Sprint(*value)
	}
}

// perStep leaves out the numbers that top has not.
func perStep(n numbers) numbers {
	steps := maps.Clone(n)
	maps.DeleteFunc(steps, func(name string, _ *int) bool {
		return strings.HasPrefix(name, "runs ") || strings.HasPrefix(name, "violations ")
	})
	return steps
}
