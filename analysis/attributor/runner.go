package attributor

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

const (
	// overlap is how long after its time an insert may become visible. Everything
	// that young is looked at again in every pass.
	overlap = 30 * time.Second
	// tokensKept is how far back from a trace's newest insert its row names the
	// inserts that were read. More than overlap, so that a pass after a restart
	// need not do again what is done.
	tokensKept = 10 * time.Minute
	maxTokens  = 2048
	// slice bounds what one pass takes on when attribution is far behind.
	slice = time.Minute
	// progressEvery is how far the watermark moves before it is written down.
	progressEvery = 10 * time.Second

	// tellEvery is how often it is written down, while spans come, what the ledger has
	// reached: lag is judged by it.
	tellEvery = 2 * time.Second
	// overdueBatch is how many silent runs one pass judges again.
	overdueBatch = 500
)

// A run that grows is not read from the start for every batch of its spans, or
// its cost would grow with the square of its size. Cost is counted in spans,
// about 8 µs each: a run rests restGrowing times its cost while spans keep
// coming, and restQuiet times when none has come for an interval.
const (
	costPerSpan = 8 * time.Microsecond
	restGrowing = 10
	restQuiet   = 1.5
	cheap       = 50 * time.Millisecond // not worth a rest
)

// Result is what one pass did.
type Result struct {
	Traces   int // traces whose rows were written
	Runs     int // runs that were accounted for
	Deferred int // traces left for later, for their run grows
	Frozen   int // traces whose spans are partly gone, so that the ledger is kept as it is
	Failed   int // traces whose attribution failed
	TooLarge int // traces with more spans than a run may have
	// Conflicts are rows that say other things of a span than another row of its id,
	// again each time their run is accounted for.
	Conflicts int
	// Broken says how many runs broke an identity of the ledger, nil if none did.
	Broken map[attribution.Identity]int
	// Received is when the last span of each trace came whose row was written because
	// spans of the trace itself came, in nanoseconds of Unix time.
	Received []int64
	Behind   bool // more is waiting: begin the next pass at once
}

// Runner accounts for the runs of one store. What it remembers only saves work:
// a new Runner on the same store goes on where the old one was.
type Runner struct {
	config  *Config
	conn    func(context.Context) (driver.Conn, error)
	account func([]schema.Span, attribution.Options) attribution.Ledger
	log     *zap.Logger

	loaded      bool
	watermarkUs int64 // everything inserted up to it is in the ledger
	recordedUs  int64 // the watermark in the store

	reachedUs, toldUs int64 // what was visible up to then is in the ledger; and what the store says of it

	seen    map[schema.TraceID]seenTrace
	resting map[schema.TraceID]rest
}

// seenTrace is what the ledger is known to hold of a trace.
type seenTrace struct {
	lastUs int64 // of the newest insert
	tokens map[uint64]struct{}
}

// rest is when a trace's run was last accounted for, and at which cost.
type rest struct {
	at   time.Time
	cost time.Duration
}

// NewRunner makes a runner. conn is asked once for each pass.
func NewRunner(config *Config, conn func(context.Context) (driver.Conn, error), log *zap.Logger) *Runner {
	return &Runner{
		config: config, conn: conn, account: attribution.Account, log: log,
		seen: make(map[schema.TraceID]seenTrace), resting: make(map[schema.TraceID]rest),
	}
}

// Pass brings the ledger up to date once: the runs that received spans, and those
// that now count as silent. now is the instant by which running and orphaned runs
// are told apart. An error means that the store did not do its part; the next pass
// tries again. A run that cannot be accounted for is no error: its traces' state
// says so, and the others go on.
func (r *Runner) Pass(ctx context.Context, now time.Time) (result Result, err error) {
	conn, err := r.conn(ctx)
	if err != nil {
		return result, err
	}
	clockUs, err := schema.Clock(ctx, conn)
	if err != nil {
		return result, err
	}
	if !r.loaded {
		if r.watermarkUs, err = schema.Watermark(ctx, conn); err != nil {
			return result, err
		}
		r.recordedUs, r.loaded = r.watermarkUs, true
	}
	settledUs := clockUs - overlap.Microseconds()
	fromUs, untilUs := min(r.watermarkUs, settledUs), int64(math.MaxInt64)
	if fromUs < settledUs-slice.Microseconds() {
		if fromUs, err = r.skipSilence(ctx, conn, fromUs, settledUs); err != nil {
			return result, err
		}
		if end := fromUs + slice.Microseconds(); end < settledUs {
			untilUs, result.Behind = end, true
		}
	}

	dirty, err := r.dirty(ctx, conn, fromUs, untilUs)
	if err != nil {
		return result, err
	}
	var due []schema.TraceID
	doneUs, reachedUs := min(untilUs, settledUs), min(untilUs, clockUs)
	for _, d := range dirty {
		if r.mustRest(d, clockUs, now) {
			result.Deferred++
			doneUs, reachedUs = min(doneUs, d.FirstInsertedUs-1), min(reachedUs, d.FirstInsertedUs-1)
			continue
		}
		due = append(due, d.TraceID)
	}
	overdue, err := schema.OverdueTraces(ctx, conn, now.Unix(), overdueBatch)
	if err != nil {
		return result, err
	}
	came := setOf(due)
	due = append(due, overdue...)
	result.Behind = result.Behind || len(overdue) == overdueBatch

	p := &pass{Runner: r, conn: conn, now: now, came: came, overdue: setOf(overdue), done: make(map[schema.TraceID]struct{}), result: &result}
	for batch := range slices.Chunk(due, r.config.BatchTraces) {
		if err := p.attribute(ctx, batch); err != nil {
			return result, err
		}
	}
	if len(dirty) > 0 || r.toldUs == 0 { // or else nobody waits for it
		r.reachedUs = max(r.reachedUs, reachedUs)
	}
	if r.reachedUs > r.toldUs && (r.toldUs == 0 || clockUs-r.toldUs >= tellEvery.Microseconds()) {
		if err := schema.SetReached(ctx, conn, r.reachedUs); err != nil {
			return result, err
		}
		r.toldUs = r.reachedUs
	}
	r.watermarkUs = max(r.watermarkUs, doneUs)
	r.forget(min(r.watermarkUs, settledUs), now)
	if r.watermarkUs-r.recordedUs >= progressEvery.Microseconds() {
		return result, r.Record(ctx)
	}
	return result, nil
}

// Record writes down how far the ledger has come, so that the next start begins
// there. Pass does it now and then.
func (r *Runner) Record(ctx context.Context) error {
	if !r.loaded || r.watermarkUs <= r.recordedUs {
		return nil
	}
	conn, err := r.conn(ctx)
	if err != nil {
		return err
	}
	if err := schema.SetWatermark(ctx, conn, r.watermarkUs); err != nil {
		return err
	}
	r.recordedUs = r.watermarkUs
	return nil
}

// skipSilence moves the beginning of a pass that is far behind to the next insert.
func (r *Runner) skipSilence(ctx context.Context, conn driver.Conn, fromUs, settledUs int64) (int64, error) {
	nextUs, err := schema.NextInsert(ctx, conn, fromUs)
	if err != nil {
		return 0, err
	}
	if nextUs == 0 || nextUs > settledUs {
		return settledUs, nil
	}
	return nextUs - 1, nil
}

// dirty finds the traces with inserts that the ledger has not seen.
func (r *Runner) dirty(ctx context.Context, conn driver.Conn, fromUs, untilUs int64) ([]schema.DirtyTrace, error) {
	found, err := schema.DirtyTraces(ctx, conn, fromUs, untilUs)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(d schema.DirtyTrace) bool { return r.knows(d) })
	ids := make([]schema.TraceID, len(found))
	for i, d := range found {
		ids[i] = d.TraceID
	}
	// Another attributor, or this one before a restart, may have done them.
	heads, err := schema.LedgerHeads(ctx, conn, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(d schema.DirtyTrace) bool {
		head, ok := heads[d.TraceID]
		if !ok {
			return false
		}
		r.remember(d.TraceID, d.LastInsertedUs, head.InsertTokens)
		return r.knows(d)
	}), nil
}

func (r *Runner) knows(d schema.DirtyTrace) bool {
	known, ok := r.seen[d.TraceID]
	if !ok {
		return false
	}
	for _, token := range d.Tokens {
		if _, ok := known.tokens[token]; !ok {
			return false
		}
	}
	return true
}

func (r *Runner) remember(id schema.TraceID, lastUs int64, tokens []uint64) {
	known, ok := r.seen[id]
	if !ok {
		known.tokens = make(map[uint64]struct{}, len(tokens))
	}
	known.lastUs = max(known.lastUs, lastUs)
	for _, token := range tokens {
		known.tokens[token] = struct{}{}
	}
	r.seen[id] = known
}

func (r *Runner) mustRest(d schema.DirtyTrace, clockUs int64, now time.Time) bool {
	last, ok := r.resting[d.TraceID]
	if !ok {
		return false
	}
	rested := now.Sub(last.at)
	if rested < 0 || rested >= restGrowing*last.cost {
		return false
	}
	quiet := clockUs-d.LastInsertedUs >= r.config.Interval.Microseconds()
	return !quiet || rested < time.Duration(restQuiet*float64(last.cost))
}

// forget drops what no later pass asks for.
func (r *Runner) forget(beforeUs int64, now time.Time) {
	for id, known := range r.seen {
		if known.lastUs <= beforeUs {
			delete(r.seen, id)
		}
	}
	for id, last := range r.resting {
		if rested := now.Sub(last.at); rested < 0 || rested >= restGrowing*last.cost {
			delete(r.resting, id)
		}
	}
}

func setOf(ids []schema.TraceID) map[schema.TraceID]struct{} {
	set := make(map[schema.TraceID]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return set
}
