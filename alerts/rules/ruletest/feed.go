package ruletest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/schema"
)

// feed is what is known at an instant: a signals.Reader over a test's events.
type feed struct {
	counted map[signals.Signal][]known // by their instants
	parts   []*part
	spans   map[signals.Signal][]signals.Event // of all parts, at the last instant
}

// part is traces that attribution may join, and no others: it is accounted for alone.
type part struct {
	spans    []schema.Span // by the time of receipt
	arrived  int
	rejudge  int64 // when silence alone changes the account, 0 never
	accounts []signals.Event
}

func newFeed(t *test, startNs int64) *feed {
	f := &feed{counted: map[signals.Signal][]known{}}
	for i := range t.counts {
		c := &t.counts[i]
		f.counted[c.signal] = append(f.counted[c.signal], c.events(startNs)...)
	}
	for _, all := range f.counted {
		slices.SortStableFunc(all, func(a, b known) int { return cmp.Compare(a.AtNs, b.AtNs) })
	}
	var spans []schema.Span
	for i := range t.spans {
		spans = append(spans, t.spans[i].rows(startNs)...)
	}
	f.parts = partsOf(spans)
	return f
}

// rows are the spans' rows, each received at the first whole second after its end and
// its delay.
func (s *spanSource) rows(startNs int64) []schema.Span {
	var all []schema.Span
	requests := s.requests
	if s.inline != nil {
		requests = []ptrace.Traces{s.inline.request()}
	}
	for _, request := range requests {
		td := ptrace.NewTraces() // a test may run twice
		request.CopyTo(td)
		eachSpan([]ptrace.Traces{td}, func(span ptrace.Span) {
			span.SetStartTimestamp(span.StartTimestamp() + pcommon.Timestamp(startNs))
			span.SetEndTimestamp(span.EndTimestamp() + pcommon.Timestamp(startNs))
			for _, event := range span.Events().All() {
				event.SetTimestamp(event.Timestamp() + pcommon.Timestamp(startNs))
			}
		})
		rows, _ := dialect.Normalise(td, 0)
		all = append(all, rows...)
	}
	for i := range all {
		const second = int64(time.Second)
		all[i].ReceivedNs = (all[i].EndNs + int64(s.late) + second - 1) / second * second
	}
	return all
}

// partsOf splits spans so that two that may belong to one run are in one part.
func partsOf(spans []schema.Span) []*part {
	of := map[string]string{} // union-find by names
	var find func(string) string
	find = func(name string) string {
		up, ok := of[name]
		if !ok || up == name {
			return name
		}
		root := find(up)
		of[name] = root
		return root
	}
	for i := range spans {
		s := &spans[i]
		trace := "trace " + s.TraceID.String()
		for _, key := range []string{"run " + s.RunID, "thread " + s.ThreadID, "task " + s.TaskKey} {
			if key[len(key)-1] != ' ' {
				of[find(key)] = find(trace)
			}
		}
	}
	parts := map[string]*part{}
	var ordered []*part
	for i := range spans {
		root := find("trace " + spans[i].TraceID.String())
		p := parts[root]
		if p == nil {
			p = &part{}
			parts[root] = p
			ordered = append(ordered, p)
		}
		p.spans = append(p.spans, spans[i])
	}
	for _, p := range ordered {
		slices.SortStableFunc(p.spans, func(a, b schema.Span) int { return cmp.Compare(a.ReceivedNs, b.ReceivedNs) })
	}
	return ordered
}

// advance takes up what is received until an instant.
func (f *feed) advance(nowNs int64) error {
	changed := f.spans == nil
	for _, p := range f.parts {
		n := p.arrived
		for n < len(p.spans) && p.spans[n].ReceivedNs <= nowNs {
			n++
		}
		if n == p.arrived && (p.rejudge == 0 || p.rejudge > nowNs) {
			continue
		}
		p.arrived, changed = n, true
		if err := p.account(nowNs); err != nil {
			return err
		}
	}
	if changed {
		f.spans = map[signals.Signal][]signals.Event{}
		for _, p := range f.parts {
			for _, e := range p.accounts {
				f.spans[e.Signal] = append(f.spans[e.Signal], e)
			}
		}
	}
	return nil
}

// account does what the collector's attribution does with the spans that it has.
func (p *part) account(nowNs int64) error {
	options := attribution.Defaults()
	options.AtNs = nowNs
	spans := p.spans[:p.arrived]
	account := attribution.Account(spans, options)
	var traces []schema.LedgerRow
	at := map[schema.TraceID]int{}
	received := int64(0)
	for i := range spans {
		received = max(received, spans[i].ReceivedNs)
	}
	for i := range spans {
		s := &spans[i]
		j, ok := at[s.TraceID]
		if !ok {
			j = len(traces)
			at[s.TraceID] = j
			traces = append(traces, schema.LedgerRow{
				TraceID: s.TraceID, FirstEndNs: math.MaxInt64, LastEndNs: math.MinInt64, LastReceivedNs: received,
			})
		}
		row := &traces[j]
		row.Spans++
		row.FirstEndNs, row.LastEndNs = min(row.FirstEndNs, s.EndNs), max(row.LastEndNs, s.EndNs)
	}
	rows, err := ledger.Rows(account, traces)
	if err != nil {
		return fmt.Errorf("account for the test's spans: %w", err)
	}
	p.accounts = p.accounts[:0]
	for i := range rows {
		p.accounts = append(p.accounts, signals.Events(&rows[i])...)
	}
	p.rejudge = 0
	for i := range account.Runs {
		if r := &account.Runs[i]; r.Completion == "running" {
			due := r.EndNs + options.OrphanAfterNs + int64(time.Second)
			if due <= nowNs {
				due = nowNs + int64(time.Minute)
			}
			if p.rejudge == 0 || due < p.rejudge {
				p.rejudge = due
			}
		}
	}
	return nil
}

// Window answers from what is known now.
func (f *feed) Window(_ context.Context, q signals.Query) ([]signals.Sample, error) {
	sums := map[signals.Labels]signals.Sample{}
	add := func(e signals.Event) {
		if e.AtNs <= q.ToNs-q.WindowNs || e.AtNs > q.ToNs || e.Unsettled && e.AtNs > q.ToNs-q.Settle() {
			return
		}
		for d, m := range q.Where {
			if !m.Matches(e.Labels.Get(d)) {
				return
			}
		}
		var group signals.Labels
		for _, d := range q.GroupBy {
			group = group.With(d, e.Labels.Get(d))
		}
		sum := sums[group]
		sum.Labels = group
		sum.Numerator += e.Numerator
		sum.Denominator += e.Denominator
		sums[group] = sum
	}
	counted := f.counted[q.Signal]
	first, _ := slices.BinarySearchFunc(counted, q.ToNs-q.WindowNs+1, func(k known, ns int64) int { return cmp.Compare(k.AtNs, ns) })
	for _, k := range counted[first:] {
		if k.AtNs > q.ToNs {
			break
		}
		if k.fromNs <= q.ToNs {
			add(k.Event)
		}
	}
	for _, e := range f.spans[q.Signal] {
		add(e)
	}
	samples := make([]signals.Sample, 0, len(sums))
	for _, s := range sums {
		samples = append(samples, s)
	}
	slices.SortFunc(samples, func(a, b signals.Sample) int { return a.Labels.Compare(b.Labels) })
	return samples, nil
}
