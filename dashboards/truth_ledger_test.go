package dashboards

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

func init() {
	panelTruths[uidLedger] = ledgerTruths
	withoutTruth[uidLedger+": Tables by size"] = "merges change sizes at any time; TestTablesAreAllThere compares what stands still"
}

// measured adds up what collectors measured in the filter's range.
func (k truth) measured(name string) (sum schema.SelfMetric) {
	for _, v := range selfMetrics() {
		if v.Name == name && !v.at.Before(k.filter.Since) && v.at.Before(k.filter.Until) {
			sum.Times, sum.Total, sum.Largest = sum.Times+v.Times, sum.Total+v.Total, max(sum.Largest, v.Largest)
		}
	}
	return sum
}

// latest is the largest of what those collectors said last that wrote within a minute of
// the end.
func (k truth) latest(name string) any {
	found := map[string]timedMetric{}
	for _, v := range selfMetrics() {
		if v.Name == name && !v.at.Before(k.filter.Since) && v.at.Before(k.filter.Until) && !v.at.Before(found[v.Writer].at) {
			found[v.Writer] = v
		}
	}
	var largest any
	most := -1.0
	for _, v := range found {
		if v.at.After(k.filter.Until.Add(-time.Minute)) && v.Largest > most {
			most, largest = v.Largest, v.Largest
		}
	}
	return largest
}

// perPoint adds a row for each interval of a panel that knows no whole hours.
func (k truth) perPoint(row func(point truth, at time.Time, seconds float64)) {
	interval := selection{from: k.filter.Since, to: k.filter.Until}.interval(120)
	for _, f := range k.points(interval) {
		point := k
		point.filter = f
		row(point, f.Since.Truncate(interval), interval.Seconds())
	}
}

var ledgerTruths = map[string]panelTruth{
	"Spans in the range": {[]string{"accepted", "refused", "dead letters", "inserts repeated"}, exactly(func(k truth) (s shown) {
		s.row(k.measured("spans_accepted").Total, k.measured("spans_refused").Total, k.measured("dead_letters").Total, k.measured("insert_retries").Total)
		return s
	})},
	"How far behind at the end": {[]string{"waiting", "oldest waits", "evaluation"}, exactly(func(k truth) (s shown) {
		evaluations := k.measured("evaluation_s")
		s.row(k.latest("journal_waiting_bytes"), k.latest("journal_waiting_s"), evaluations.Total/float64(evaluations.Times))
		return s
	})},
	"In the store, whatever the range": {[]string{"traces", "spans", "unattributed", "failed"}, func(k truth) (s shown) {
		s.row(k.status.Traces, k.status.Spans, float64(k.status.UnattributedSpans)/float64(k.status.Spans), k.status.FailedTraces)
		return s
	}},
	"Spans per second": {[]string{"time", "accepted", "refused", "dead letters"}, exactly(func(k truth) (s shown) {
		k.perPoint(func(point truth, at time.Time, seconds float64) {
			if accepted := point.measured("spans_accepted"); accepted.Times > 0 {
				s.row(at, accepted.Total/seconds, point.measured("spans_refused").Total/seconds, point.measured("dead_letters").Total/seconds)
			}
		})
		return s
	})},
	"Waiting in the journals": {[]string{"time", "waiting"}, exactly(func(k truth) (s shown) {
		k.perPoint(func(point truth, at time.Time, _ float64) {
			if waiting := point.measured("journal_waiting_bytes"); waiting.Times > 0 {
				s.row(at, waiting.Largest)
			}
		})
		return s
	})},
	"Evaluation of alert rules": {[]string{"time", "mean", "longest"}, exactly(func(k truth) (s shown) {
		k.perPoint(func(point truth, at time.Time, _ float64) {
			if e := point.measured("evaluation_s"); e.Times > 0 {
				s.row(at, e.Total/float64(e.Times), e.Largest)
			}
		})
		return s
	})},
	"From receipt to ledger": {[]string{"time", "median", "95 % within", "longest"}, exactly(func(k truth) (s shown) {
		k.perPoint(func(point truth, at time.Time, _ float64) {
			var list []float64
			for written, found := range delays() {
				if !written.Before(point.filter.Since) && written.Before(point.filter.Until) {
					for _, delay := range found {
						list = append(list, delay.Seconds())
					}
				}
			}
			if n := float64(len(list)); n > 0 {
				slices.Sort(list)
				s.row(at, list[int(n*0.5)], list[int(n*0.95)], list[len(list)-1])
			}
		})
		return s
	})},
	"Spans of no run, by instrumentation": {[]string{"instrumentation", "spans", "of no run", "share"}, func(k truth) (s shown) {
		alone := map[schema.TraceID]bool{lonelyTrace: true}
		for i := range k.store.Rows {
			alone[k.store.Rows[i].TraceID] = k.store.Rows[i].State == schema.StateUnattributed
		}
		type id struct {
			trace schema.TraceID
			span  schema.SpanID
		}
		latest := map[id]schema.Span{}
		for _, span := range append(moreSpans(), k.store.Spans...) {
			key := id{span.TraceID, span.SpanID}
			if seen, ok := latest[key]; !ok || span.EndNs > seen.EndNs {
				latest[key] = span
			}
		}
		counts := map[string][2]float64{}
		for _, span := range latest {
			at := time.Unix(0, schema.BoundedEnd(span.EndNs, span.ReceivedNs))
			if at.Before(k.filter.Since) || !at.Before(k.filter.Until) || k.filter.Service != "" && span.Service != k.filter.Service {
				continue
			}
			name := cmp.Or(span.Dialect, "none of those known")
			n := counts[name]
			n[0]++
			if alone[span.TraceID] {
				n[1]++
			}
			counts[name] = n
		}
		order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b][0], counts[a][0]), cmp.Compare(a, b)) })
		for _, name := range order[:min(len(order), 50)] {
			s.row(name, counts[name][0], counts[name][1], counts[name][1]/counts[name][0])
		}
		return s
	}},
	"Layers that instrumentations hide": {[]string{"instrumentation", "steps", "transport", "call", "node", "orchestrator", "worker"}, func(k truth) (s shown) {
		counts := map[string]*[6]float64{}
		for _, run := range k.ledger.Runs {
			at := time.Unix(0, run.EndNs)
			if at.Before(k.filter.Since) || !at.Before(k.filter.Until) || k.filter.Service != "" && run.Service != k.filter.Service {
				continue
			}
			name := cmp.Or(strings.Join(slices.Sorted(slices.Values(run.Dialects)), " + "), "none of those known")
			for _, step := range run.Steps {
				n := counts[name]
				if n == nil {
					n = &[6]float64{}
					counts[name] = n
				}
				n[0]++
				for i, layer := range []*int{step.Retries.Transport, step.Retries.Call, step.Retries.Node, step.Retries.Orchestrator, step.Retries.Worker} {
					if layer == nil {
						n[i+1]++
					}
				}
			}
		}
		order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b][0], counts[a][0]), cmp.Compare(a, b)) })
		for _, name := range order[:min(len(order), 50)] {
			n := counts[name]
			s.row(name, n[0], n[1]/n[0], n[2]/n[0], n[3]/n[0], n[4]/n[0], n[5]/n[0])
		}
		return s
	}},
}

// TestTablesAreAllThere: every table of the schema that has rows is listed, with the rows
// that it has, and says what a row is.
func TestTablesAreAllThere(t *testing.T) {
	t.Parallel()
	store := storetest.Empty(t)
	insertHistory(t, store)
	p := panelOf(t, uidLedger, "Tables by size")
	found, err := asked(t, store.Conn, everything(documents(t)[uidLedger]).expanded(t, p.Targets[0].RawSQL, 0))
	require.NoError(t, err)
	rows := map[string]any{}
	for _, row := range found.rows {
		name, _ := row["name"].(string)
		rows[name] = row["rows"]
		require.NotEmpty(t, row["row"], "what is a row of %s?", name)
		require.NotZero(t, row["size"], name)
	}
	require.EqualValues(t, len(selfMetrics()), rows["self_metrics"])
	for _, c := range contents {
		var n uint64
		require.NoError(t, store.Conn.QueryRow(context.Background(), "SELECT count() FROM "+c[0]).Scan(&n))
		require.Equal(t, n > 0, rows[c[0]] != nil, c[0])
	}
}
