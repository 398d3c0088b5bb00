package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// steady always answers the same: the rules' own cost.
type steady []signals.Sample

func (s steady) Window(context.Context, signals.Query) ([]signals.Sample, error) { return s, nil }

// twoHundred are 200 rules by service and step that ask 200 different questions.
func twoHundred(b *testing.B) *rules.Set {
	b.Helper()
	var file strings.Builder
	file.WriteString("default_pack: false\nrules:\n")
	for i := range 200 {
		fmt.Fprintf(&file, "  - {name: r%d, signal: %s, threshold: 2 %%, window: %ds, group_by: [service, step], annotations: {summary: '{{ .Service }}'}}\n",
			i, []signals.Signal{signals.OperationErrorRatio, signals.FallbackRatio, signals.RetryRatio}[i%3], 30+i)
	}
	return load(b, file.String())
}

// BenchmarkEval is one evaluation of 200 rules on n groups each, of which a tenth fires;
// the questions are answered at once.
func BenchmarkEval(b *testing.B) {
	for _, groups := range []int{10, 50, 500} {
		b.Run(fmt.Sprintf("rules=200/groups=%d", groups), func(b *testing.B) {
			var samples steady
			for g := range groups {
				failed := int64(1)
				if g%10 == 0 {
					failed = 9
				}
				samples = append(samples, signals.Sample{Labels: signals.Labels{Service: "checkout", Step: fmt.Sprintf("step%04d", g)}, Numerator: failed, Denominator: 100})
			}
			e := rules.NewEvaluator(twoHundred(b), samples, rules.Options{})
			now := 0
			b.ReportAllocs()
			for b.Loop() {
				now++
				out, err := e.Eval(b.Context(), second(now))
				require.NoError(b, err)
				if len(out.Samples) != 200*groups || len(out.Alerts) != 200*groups/10 {
					b.Fatal(len(out.Samples), len(out.Alerts))
				}
			}
		})
	}
}

// BenchmarkEvalOverCache is the default pack, and 200 rules, over a cache with ten minutes
// of a thousand runs a second: 20 services, 60 steps in all, four providers.
func BenchmarkEvalOverCache(b *testing.B) {
	for name, set := range map[string]*rules.Set{"default": rules.Default(), "200": twoHundred(b)} {
		b.Run(name, func(b *testing.B) {
			const seconds, perSecond = 600, 1000
			cache := signals.NewCache(set.Windows(), signals.Limits{})
			for s := range seconds {
				cache.Advance(second(s).UnixMicro())
				for i := range perSecond {
					cache.Put(schema.BriefOf(fullRow(s, i)))
				}
			}
			e := rules.NewEvaluator(set, cache, rules.Options{})
			now := seconds - 1
			b.ResetTimer()
			for b.Loop() {
				now++
				cache.Advance(second(now).UnixMicro())
				out, err := e.Eval(b.Context(), second(now))
				require.NoError(b, err)
				b.ReportMetric(float64(len(out.Samples)), "samples")
			}
		})
	}
}

// fullRow is one run of one trace: three steps, three calls.
func fullRow(s, i int) *schema.LedgerRow {
	end := second(s).UnixNano() - int64(i)*1000
	row := &schema.LedgerRow{
		TraceID: schema.TraceID{byte(s), byte(s >> 8), byte(i), byte(i >> 8)}, Version: schema.LedgerVersion{InsertedUs: 1}, LastReceivedNs: second(s).UnixNano(),
		Runs: []schema.RunRow{{Anchor: true, Service: fmt.Sprintf("service%02d", i%20), Version: "v1", Environment: "prod", Completion: "complete", EndNs: end}},
	}
	for step := range 3 {
		name := fmt.Sprintf("step%d", step)
		outcome := "succeeded_first_try"
		if i%50 == 0 {
			outcome = "failed_after_retry"
		}
		row.Operations = append(row.Operations, schema.OperationRow{Index: uint32(step), Step: name, Grain: "execution", Outcome: outcome, Settled: true, EndNs: end, CountsInStep: true})
		row.Attempts = append(row.Attempts, schema.AttemptRow{
			Index: uint32(step), Step: name, Grain: "call", Counted: true, Request: true, Ending: "succeeded", Provider: fmt.Sprintf("provider%d", i%4), EndNs: end,
		})
	}
	return row
}
