package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// The oracle answers as the words of the documentation do, from raw things that
// happened, with a loop over all of them for every group at every second. It shares no
// code with the rules, the signals or the cache.

// happened is one operation of one service's step, as one delivery of its trace tells it.
type happened struct {
	service, step string
	endMs         int64 // since the start, as its span states it
	outcome       string
	settled       bool
}

// delivery is what the ledger says of a trace from an instant on.
type delivery struct {
	second     int64 // since the start: when it is written
	version    int64
	receivedMs int64
	operations []happened
}

// oracle is one rule of the default pack's kind, on plain variables.
type oracle struct {
	windowS, forS, holdS int64
	settleS              int64
	minimum              int64
	perMille             int64 // the threshold
	state                map[string]string
	since, calm, starts  map[string]int64
}

// numbers counts failed and total of each group at second now, by the deliveries that
// are there.
func (o *oracle) numbers(traces [][]delivery, now int64) (failed, total map[string]int64) {
	failed, total = map[string]int64{}, map[string]int64{}
	for _, deliveries := range traces {
		var best *delivery
		for i := range deliveries {
			if d := &deliveries[i]; d.second <= now && (best == nil || d.version > best.version) {
				best = d
			}
		}
		if best == nil {
			continue
		}
		for _, op := range best.operations {
			at := op.endMs
			if at > best.receivedMs || at < -(start.UnixMilli()-time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()) {
				at = best.receivedMs // a clock that is wrong
			}
			if at <= (now-o.windowS)*1000 || at > now*1000 {
				continue
			}
			group := op.service + "/" + op.step
			switch op.outcome {
			case "failed_after_retry", "failed_without_retry", "handled":
				if op.settled || at+o.settleS*1000 <= now*1000 {
					failed[group]++
					total[group]++
				}
			case "succeeded_first_try", "succeeded_after_retry", "succeeded_by_fallback":
				total[group]++
			}
		}
	}
	return failed, total
}

// second moves every group on and returns what fires, as "group since S".
func (o *oracle) second(traces [][]delivery, now int64) (fires []string) {
	failed, total := o.numbers(traces, now)
	groups := map[string]bool{}
	for g := range total {
		groups[g] = true
	}
	for g := range o.state {
		groups[g] = true
	}
	for g := range groups {
		breach := total[g] >= o.minimum && failed[g]*1000 > o.perMille*total[g]
		if o.state[g] == "" && breach {
			o.state[g], o.since[g] = "pending", now
		}
		if o.state[g] == "pending" {
			if !breach {
				delete(o.state, g)
			} else if now-o.since[g] >= o.forS {
				o.state[g], o.starts[g] = "firing", now
				o.calm[g] = -1
			}
		}
		if o.state[g] == "firing" {
			switch {
			case breach:
				o.calm[g] = -1
			case o.calm[g] < 0:
				o.calm[g] = now
			}
			if o.calm[g] >= 0 && now-o.calm[g] >= o.holdS {
				delete(o.state, g)
			} else {
				fires = append(fires, fmt.Sprintf("%s since %d, %d of %d", g, o.starts[g], failed[g], total[g]))
			}
		}
	}
	slices.Sort(fires)
	return fires
}

// drawnTraces are traces whose operations end around now, with clocks ahead and behind,
// and whose rows come late, twice, in the wrong order, and changed.
func drawnTraces(t *rapid.T, seconds int64) [][]delivery {
	var traces [][]delivery
	for range rapid.IntRange(1, 40).Draw(t, "traces") {
		begin := rapid.Int64Range(0, seconds-1).Draw(t, "begin")
		var deliveries []delivery
		var operations []happened
		for version := range rapid.Int64Range(1, 3).Draw(t, "versions") {
			for range rapid.IntRange(0, 4).Draw(t, "operations") {
				skew := rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 3_600_000, -3_600_000, -30_000, -300_000_000_000}).Draw(t, "skew")
				operations = append(operations, happened{
					service: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "service"), step: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "step"),
					endMs: begin*1000 + rapid.Int64Range(-2000, 1000).Draw(t, "end") + skew,
					outcome: rapid.SampledFrom([]string{
						"succeeded_first_try", "succeeded_by_fallback", "failed_after_retry", "failed_without_retry", "handled", "interrupted", "unknown",
					}).Draw(t, "outcome"),
					settled: rapid.Bool().Draw(t, "settled"),
				})
			}
			if version > 0 && len(operations) > 0 && rapid.Bool().Draw(t, "changed") { // a retry came: it was no failure
				operations = slices.Clone(operations)
				operations[0].outcome, operations[0].settled = "succeeded_after_retry", true
			}
			late := rapid.SampledFrom([]int64{0, 0, 0, 1, 5, 25, 50}).Draw(t, "late")
			d := delivery{second: begin + late + version, version: version, receivedMs: (begin + late + version) * 1000, operations: slices.Clone(operations)}
			deliveries = append(deliveries, d)
			if rapid.IntRange(0, 3).Draw(t, "again") == 0 { // the same row, later
				d.second += rapid.Int64Range(0, 20).Draw(t, "redelivered")
				deliveries = append(deliveries, d)
			}
		}
		traces = append(traces, deliveries)
	}
	return traces
}

// row is a delivery as the ledger has it.
func (d *delivery) row(trace int) *schema.LedgerRow {
	row := &schema.LedgerRow{
		TraceID: schema.TraceID{byte(trace), byte(trace >> 8), 1}, Version: schema.LedgerVersion{InsertedUs: d.version + 1},
		LastReceivedNs: start.UnixNano() + d.receivedMs*1e6,
		Runs:           []schema.RunRow{{RunID: "a", Service: "a"}, {RunID: "b", Service: "b"}},
	}
	for i, op := range d.operations {
		run := uint32(0)
		if op.service == "b" {
			run = 1
		}
		row.Operations = append(row.Operations, schema.OperationRow{
			Run: run, Index: uint32(i), Step: op.step, Grain: "execution", Outcome: op.outcome, Settled: op.settled,
			EndNs: start.UnixNano() + op.endMs*1e6,
		})
	}
	return row
}

// TestOracleAgreesAtEverySecond: rows of the ledger in any order through the cache and
// the rules give at every second what the oracle says.
func TestOracleAgreesAtEverySecond(t *testing.T) {
	t.Parallel()
	fired, agreed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		o := &oracle{
			windowS: rapid.SampledFrom([]int64{1, 5, 30}).Draw(t, "window"), forS: rapid.SampledFrom([]int64{0, 0, 1, 4}).Draw(t, "for"),
			settleS: rapid.SampledFrom([]int64{1, 10, 20}).Draw(t, "settle"),
			holdS:   10, minimum: rapid.Int64Range(1, 5).Draw(t, "minimum"), perMille: rapid.SampledFrom([]int64{0, 20, 250, 500, 999}).Draw(t, "threshold"),
			state: map[string]string{}, since: map[string]int64{}, calm: map[string]int64{}, starts: map[string]int64{},
		}
		set, err := rules.Load("oracle.yaml", fmt.Appendf(nil, `
default_pack: false
rules:
  - {name: r, signal: operation_error_ratio, threshold: %d.%d %%, window: %ds, min_samples: %d, for: %ds, keep_firing_for: 10s, settle: %ds, group_by: [service, step]}
`, o.perMille/10, o.perMille%10, o.windowS, o.minimum, o.forS, o.settleS))
		require.NoError(t, err)
		const seconds = 60
		traces := drawnTraces(t, seconds)
		cache := signals.NewCache(set.Windows(), signals.Limits{})
		evaluator := rules.NewEvaluator(set, cache, rules.Options{})
		for now := range int64(seconds + 30) {
			cache.Advance(second(int(now)).UnixMicro())
			for i, deliveries := range traces {
				for j := range deliveries {
					if deliveries[j].second == now {
						cache.Put(schema.BriefOf(deliveries[j].row(i)))
					}
				}
			}
			out, err := evaluator.Eval(t.Context(), second(int(now)))
			require.NoError(t, err)
			var got []string
			for _, a := range out.Alerts {
				if a.State != rules.StateFiring {
					continue
				}
				var failed, total int64
				for _, s := range out.Samples {
					if s.Labels == a.Group {
						failed, total = s.Numerator, s.Denominator
					}
				}
				got = append(got, fmt.Sprintf("%s/%s since %d, %d of %d", a.Group.Service, a.Group.Step, int64(a.StartsAt.Sub(start).Seconds()), failed, total))
			}
			slices.Sort(got)
			want := o.second(traces, now)
			require.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"), "at second %d", now)
			agreed++
			fired += len(want)
		}
	})
	require.Greater(t, fired, 100, "of %d seconds: the streams are tame, and prove nothing", agreed)
}
