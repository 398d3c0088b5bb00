package attributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/schema"
)

// pass is one pass at work.
type pass struct {
	*Runner
	conn    driver.Conn
	now     time.Time
	came    map[schema.TraceID]struct{} // of which spans came
	overdue map[schema.TraceID]struct{}
	done    map[schema.TraceID]struct{} // by an earlier batch of this pass, in whose run they are
	result  *Result
}

// attribute accounts for the runs of the seeds and writes their rows, all in one
// insert. A batch that is too large for memory is cut in halves.
func (p *pass) attribute(ctx context.Context, seeds []schema.TraceID) error {
	seeds = slices.DeleteFunc(slices.Clone(seeds), func(id schema.TraceID) bool { _, done := p.done[id]; return done })
	if len(seeds) == 0 {
		return nil
	}
	groups, err := p.gather(ctx, p.conn, seeds)
	large := errors.Is(err, schema.ErrTooManySpans)
	cut := errors.Is(err, errCut)
	switch {
	case (large || cut) && len(seeds) > 1:
		half := len(seeds) / 2
		if err := p.attribute(ctx, seeds[:half]); err != nil {
			return err
		}
		return p.attribute(ctx, seeds[half:])
	case large:
		return p.refuse(ctx, seeds[0])
	case cut:
		p.log.Warn("A run id or task joins more spans than one run may have. The run is accounted for in parts; "+
			"give every run an id of its own, or raise max_spans_per_run.",
			zap.Stringer("trace_id", seeds[0]), zap.Int("max_spans_per_run", p.config.MaxSpansPerRun))
	case err != nil:
		return err
	}
	var ids []schema.TraceID
	for _, g := range groups {
		for _, t := range g.traces {
			ids = append(ids, t.TraceID)
		}
	}
	heads, err := schema.LedgerHeads(ctx, p.conn, ids)
	if err != nil {
		return err
	}
	var rows []schema.LedgerRow
	var written []group
	for _, g := range groups {
		if frozen(g, heads) {
			p.result.Frozen += len(g.traces)
			p.finish(g)
			continue
		}
		rows = append(rows, p.rowsOf(g, heads)...)
		written = append(written, g)
	}
	for i := range rows {
		rows[i].ReachedNs = heads[rows[i].TraceID].ReachNs
	}
	if err := schema.TouchHours(ctx, p.conn, left(rows, heads)); err != nil {
		return err
	}
	if err := p.write(ctx, rows); err != nil {
		return err
	}
	for _, g := range written {
		p.finish(g)
	}
	return nil
}

// left are the hours of which the rows no longer say anything, where those that they
// replace do.
func left(rows []schema.LedgerRow, heads map[schema.TraceID]schema.LedgerHead) []uint32 {
	var hours []uint32
	for i := range rows {
		head, ok := heads[rows[i].TraceID]
		if !ok {
			continue
		}
		still := rows[i].Hours()
		for _, hour := range head.Hours {
			if !slices.Contains(still, hour) && !slices.Contains(hours, hour) {
				hours = append(hours, hour)
			}
		}
	}
	return hours
}

// refuse notes that a trace has more spans than a run may have. What the ledger
// said while it had fewer stays.
func (p *pass) refuse(ctx context.Context, id schema.TraceID) error {
	s, err := schema.SummaryOfTrace(ctx, p.conn, id)
	if err != nil {
		return err
	}
	before, err := schema.LedgerOfTraces(ctx, p.conn, []schema.TraceID{id})
	if err != nil {
		return err
	}
	row := schema.LedgerRow{TraceID: id, UnattributedSpans: clamp(s.SpanCount)}
	if len(before) == 1 {
		row = before[0]
	}
	row.Version = schema.LedgerVersion{InsertedUs: s.InsertedUs, Spans: clamp(s.SpanCount), JudgedS: clamp(p.now.Unix())}
	row.State, row.Spans, row.RejudgeS = schema.StateTooLarge, clamp(s.SpanCount), 0
	row.LastReceivedNs = s.LastReceivedNs
	row.FirstEndNs, row.LastEndNs = schema.BoundedEnd(s.FirstEndNs, s.LastReceivedNs), schema.BoundedEnd(s.LastEndNs, s.LastReceivedNs)
	row.InsertTokens = latestTokens(&s.TraceSpans)
	if err := p.write(ctx, []schema.LedgerRow{row}); err != nil {
		return err
	}
	p.log.Warn("A trace has more spans than one run may have and is no longer accounted for. Raise max_spans_per_run if it is one run, "+
		"or let the application begin a trace for each run.",
		zap.Stringer("trace_id", id), zap.Int64("spans", s.SpanCount), zap.Int("max_spans_per_run", p.config.MaxSpansPerRun))
	p.result.TooLarge++
	p.finish(group{traces: []*schema.TraceSpans{&s.TraceSpans}, spans: p.config.MaxSpansPerRun})
	return nil
}

// frozen tells whether the ledger knows more of a trace than the spans that are
// left. Their time is over; the account of them all is worth more than one of the
// rest.
func frozen(g group, heads map[schema.TraceID]schema.LedgerHead) bool {
	return slices.ContainsFunc(g.traces, func(t *schema.TraceSpans) bool {
		head, ok := heads[t.TraceID]
		return ok && head.State != schema.StateTooLarge && int64(head.Spans) > int64(len(t.Spans))
	})
}

// finish notes that the ledger holds what was read.
func (p *pass) finish(g group) {
	cost := time.Duration(g.spans) * costPerSpan
	for _, t := range g.traces {
		tokens := make([]uint64, 0, len(t.Inserts))
		for token := range t.Inserts {
			tokens = append(tokens, token)
		}
		p.remember(t.TraceID, t.InsertedUs, tokens)
		p.done[t.TraceID] = struct{}{}
		if cost >= cheap {
			p.resting[t.TraceID] = rest{p.now, cost}
		}
	}
}

// write inserts the rows. If the store refuses the rows themselves, it finds the
// ones to blame and writes their state instead.
func (p *pass) write(ctx context.Context, rows []schema.LedgerRow) error {
	err := schema.InsertLedger(ctx, p.conn, rows)
	if err == nil || schema.IsRetryable(err) {
		if err == nil {
			p.result.Traces += len(rows)
			for i := range rows {
				if _, came := p.came[rows[i].TraceID]; came {
					p.result.Received = append(p.result.Received, rows[i].LastReceivedNs)
				}
			}
		}
		return err
	}
	if len(rows) > 1 {
		half := len(rows) / 2
		if err := p.write(ctx, rows[:half]); err != nil {
			return err
		}
		return p.write(ctx, rows[half:])
	}
	p.log.Error("The store refuses the account of a trace.", zap.Stringer("trace_id", rows[0].TraceID), zap.Error(err))
	p.result.Failed++
	return schema.InsertLedger(ctx, p.conn, []schema.LedgerRow{withoutAccount(rows[0], schema.StateFailed)})
}

// rowsOf accounts for one group. Whatever goes wrong in there stays in there.
func (p *pass) rowsOf(g group, heads map[schema.TraceID]schema.LedgerHead) []schema.LedgerRow {
	bare := p.bareRows(g, heads)
	account, err := p.accountOf(g)
	var rows []schema.LedgerRow
	if err == nil {
		rows, err = ledger.Rows(account, bare)
	}
	if err != nil {
		p.log.Error("Attribution failed on a run. Its traces have the state failed; the others are not concerned. Please report this.",
			zap.Stringer("trace_id", g.traces[0].TraceID), zap.Int("traces", len(g.traces)), zap.Int("spans", g.spans), zap.Error(err))
		p.result.Failed += len(bare)
		for i := range bare {
			bare[i] = withoutAccount(bare[i], schema.StateFailed)
		}
		return bare
	}
	p.result.Runs += len(account.Runs)
	p.check(account.Runs)
	for _, t := range g.traces {
		p.result.Conflicts += t.Conflicts
	}
	p.scheduleJudgement(account.Runs, rows)
	return rows
}

// check counts the runs whose numbers contradict each other. Their ledger is written
// all the same: a number that may be wrong is worth more than none.
func (p *pass) check(runs []attribution.Run) {
	for i := range runs {
		broken := runs[i].BrokenIdentities()
		if len(broken) == 0 {
			continue
		}
		if p.result.Broken == nil {
			p.result.Broken = make(map[attribution.Identity]int)
		}
		counted := make(map[attribution.Identity]bool)
		for _, b := range broken {
			if !counted[b.Identity] {
				counted[b.Identity] = true
				p.result.Broken[b.Identity]++
			}
		}
		p.log.Error("The numbers of a run contradict each other. Its ledger is written all the same. Please report this.",
			zap.String("run_id", runs[i].RunID), zap.Stringer("first", broken[0]), zap.Int("broken", len(broken)))
	}
}

func (p *pass) accountOf(g group) (account attribution.Ledger, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	spans := make([]schema.Span, 0, g.spans)
	for _, t := range g.traces {
		spans = append(spans, t.Spans...)
	}
	return p.account(spans, p.config.options(p.now)), nil
}

// bareRows are the rows of a group before its account.
func (p *pass) bareRows(g group, heads map[schema.TraceID]schema.LedgerHead) []schema.LedgerRow {
	version := schema.LedgerVersion{Spans: clamp(int64(g.spans)), JudgedS: clamp(p.now.Unix())}
	receivedNs := int64(0)
	for _, t := range g.traces {
		version.InsertedUs = max(version.InsertedUs, t.InsertedUs)
		for i := range t.Spans {
			receivedNs = max(receivedNs, t.Spans[i].ReceivedNs)
		}
	}
	for _, t := range g.traces {
		// A run that is judged again for its silence has the spans it had. Its
		// version has to grow all the same, even where another clock judged it.
		if _, overdue := p.overdue[t.TraceID]; overdue {
			if head := heads[t.TraceID].Version; head.InsertedUs == version.InsertedUs && head.Spans == version.Spans {
				version.JudgedS = max(version.JudgedS, head.JudgedS+1)
			}
		}
	}
	rows := make([]schema.LedgerRow, len(g.traces))
	for i, t := range g.traces {
		rows[i] = schema.LedgerRow{
			TraceID: t.TraceID, Version: version, Spans: clamp(int64(len(t.Spans))),
			FirstEndNs: math.MaxInt64, LastEndNs: math.MinInt64, LastReceivedNs: receivedNs,
			InsertTokens: latestTokens(t),
		}
		for j := range t.Spans {
			end := schema.BoundedEnd(t.Spans[j].EndNs, receivedNs)
			rows[i].FirstEndNs, rows[i].LastEndNs = min(rows[i].FirstEndNs, end), max(rows[i].LastEndNs, end)
		}
	}
	return rows
}

// scheduleJudgement notes when silence will turn a running run into an orphaned
// one, in the row of the run's first trace.
func (p *pass) scheduleJudgement(runs []attribution.Run, rows []schema.LedgerRow) {
	const soonest = 60 // seconds until a run that is still running is looked at again
	for i := range runs {
		run := &runs[i]
		if run.Completion != completionRunning {
			continue
		}
		at := (run.EndNs+int64(p.config.OrphanAfter))/int64(time.Second) + 1
		at = max(at, 1)
		if at <= p.now.Unix() {
			at = p.now.Unix() + soonest
		}
		for j := range rows {
			if rows[j].TraceID.String() == run.TraceIDs[0] {
				rows[j].RejudgeS = earliest(rows[j].RejudgeS, clamp(at))
			}
		}
	}
}

const completionRunning = "running" // docs/accounting.md, "Completion of a run"

func earliest(a, b uint32) uint32 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// latestTokens are the inserts that a later pass may ask for, the newest first.
func latestTokens(t *schema.TraceSpans) []uint64 {
	type insert struct {
		token uint64
		us    int64
	}
	var list []insert
	for token, us := range t.Inserts {
		if us >= t.InsertedUs-tokensKept.Microseconds() {
			list = append(list, insert{token, us})
		}
	}
	slices.SortFunc(list, func(a, b insert) int { return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(a.token, b.token)) })
	list = list[:min(len(list), maxTokens)]
	tokens := make([]uint64, len(list))
	for i, in := range list {
		tokens[i] = in.token
	}
	return tokens
}

// withoutAccount is the row of a trace that could not be accounted for.
func withoutAccount(r schema.LedgerRow, state schema.State) schema.LedgerRow {
	r.State = state
	r.UnattributedSpans = r.Spans
	r.RejudgeS = 0
	r.Runs, r.Steps, r.Operations, r.Attempts, r.Violations = nil, nil, nil, nil, nil
	return r
}

func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
