package ingest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// probeRows is how many single rows of a refused batch are tried before the
// whole of it is bisected: when the store takes none of them the fault is the
// store's, whatever it calls it.
const probeRows = 8

// writer carries rows from the journal to the store, in order, by batches. It
// confirms a batch when every row of it is in the store or a dead letter.
type writer struct {
	cfg       WriterConfig
	journal   *journal.Journal
	inserter  inserter
	bury      func(...deadletter.Letter) error
	telemetry *telemetry
	logger    *zap.Logger
	now       func() time.Time
	report    func(error) // of the store's state; nil when it is well

	mu       sync.Mutex
	unwell   bool   // what was reported last
	inserts  uint64 // that were begun
	underWay uint64 // the one of them that is under way, 0 if none is

	// The writer's own life, which no call's context bounds.
	soft, hard         context.Context //nolint:containedctx // ended: drain, and stop at once
	softStop, hardStop context.CancelFunc
	done               chan struct{}
}

func newWriter(cfg WriterConfig, j *journal.Journal, in inserter, bury func(...deadletter.Letter) error, t *telemetry, logger *zap.Logger, now func() time.Time) *writer {
	w := &writer{cfg: cfg, journal: j, inserter: in, bury: bury, telemetry: t, logger: logger, now: now,
		report: func(error) {}, done: make(chan struct{})}
	w.soft, w.softStop = context.WithCancel(context.Background())
	w.hard, w.hardStop = context.WithCancel(context.Background())
	return w
}

// statusReporter tells the Collector's health checks about the store.
func statusReporter(host component.Host) func(error) {
	return func(err error) {
		if err == nil {
			componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
			return
		}
		componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	}
}

// slowInsert is how long an insert may last until the store is said to be unwell.
const slowInsert = 10 * time.Second

// begin notes that an insert is under way, and has it told if it lasts. The caller calls
// the function that it returns when the insert has ended.
func (w *writer) begin(rows int) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inserts++
	number := w.inserts
	w.underWay = number
	timer := time.AfterFunc(slowInsert, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.underWay == number {
			w.tellLocked(fmt.Errorf("%w: one of %d rows lasts longer than %s", errSlow, rows, slowInsert))
			w.logger.Warn("The store is slow; nothing is lost, the journal holds what waits", zap.Int("rows", rows), zap.Duration("longer_than", slowInsert))
		}
	})
	return func() {
		timer.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.underWay = 0
	}
}

var errSlow = errors.New("inserts are slow")

// tell reports the store's state when it changes.
func (w *writer) tell(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tellLocked(err)
}

func (w *writer) tellLocked(err error) {
	if w.unwell != (err != nil) {
		w.unwell = err != nil
		w.report(err)
	}
}

func (w *writer) start() {
	go func() {
		defer close(w.done)
		w.run()
	}()
}

// stop inserts what the journal holds until it is empty, the shutdown timeout
// passes or ctx ends. The rest stays in the journal.
func (w *writer) stop(ctx context.Context) {
	w.softStop()
	timer := time.NewTimer(w.cfg.ShutdownTimeout)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	w.hardStop()
	<-w.done
	if left := w.journal.Stats().UnconfirmedBytes; left > 0 {
		w.logger.Info("Some spans are not yet in the store; the journal keeps them for the next start", zap.Int64("bytes", left))
	}
}

// batch is what the next insert holds.
type batch struct {
	rows []schema.Span
	end  journal.Position
}

func (b *batch) add(rec journal.Record) {
	b.rows = append(b.rows, rec.Spans...)
	b.end = rec.End
}

func (w *writer) run() {
	var b batch
	for w.hard.Err() == nil {
		b.rows = b.rows[:0]
		if !w.collect(&b) {
			return
		}
		if !w.settle(&b) {
			return
		}
		w.journal.Confirm(b.end)
		if cap(b.rows) > 4*w.cfg.BatchRows {
			b.rows = nil
		}
	}
}

// collect fills b. It waits for the first row, and then for the flush interval
// or a full batch. It returns false when there is nothing more to do.
func (w *writer) collect(b *batch) bool {
	for len(b.rows) == 0 {
		rec, err := w.next(w.soft)
		switch {
		case err == nil:
			b.add(rec)
		case w.hard.Err() != nil || errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrEmpty):
			return false
		case errors.Is(err, context.Canceled): // drain: take what is there
		default:
			w.logger.Error("The journal cannot be read; trying again", zap.Error(err))
			if !w.sleep(w.cfg.RetryMaxInterval) {
				return false
			}
		}
	}
	flush, cancel := context.WithTimeout(w.soft, w.cfg.FlushInterval)
	defer cancel()
	for len(b.rows) < w.cfg.BatchRows {
		rec, err := w.next(flush)
		if err != nil {
			break // the flush is due, or the next collect meets the error again
		}
		b.add(rec)
	}
	return true
}

// next is the journal's next record; after ctx ended, only if it is there already.
func (w *writer) next(ctx context.Context) (journal.Record, error) {
	if ctx.Err() != nil {
		return w.journal.TryNext()
	}
	return w.journal.Next(ctx)
}

// settle gets every row of b into the store or the dead letters, however long
// it takes. It returns false when the writer must stop first.
func (w *writer) settle(b *batch) bool {
	wait := w.newBackoff()
	for {
		refused, err := w.insert(b.rows, true)
		if err == nil {
			err = w.buryRows(refused)
		}
		if err == nil {
			w.tell(nil)
			return true
		}
		if w.hard.Err() != nil {
			return false
		}
		w.tell(err)
		pause := wait.NextBackOff()
		w.logger.Error("The store takes no row; nothing is lost, the journal holds them",
			zap.Int("rows", len(b.rows)), zap.Duration("next_attempt_in", pause), zap.Error(err))
		if !w.sleep(pause) {
			return false
		}
		// Rows behind a batch of bad ones must not wait for it, and among them
		// the bad ones show.
		for len(b.rows) < w.cfg.BatchRows {
			rec, err := w.journal.TryNext()
			if err != nil {
				break
			}
			b.add(rec)
		}
	}
}

// refusal is a row that the store refuses for good.
type refusal struct {
	row    schema.Span
	reason error
}

var errEveryRow = errors.New("the store refuses every row")

// insert puts rows into the store, trying retryable errors again for ever. A
// permanent error bisects rows until the refused ones stand alone. It fails
// when the writer must stop, and with errEveryRow when whole is set and the
// store seems to refuse all that it is offered.
func (w *writer) insert(rows []schema.Span, whole bool) ([]refusal, error) {
	err := w.attempt(rows)
	if err == nil {
		return nil, nil
	}
	if w.hard.Err() != nil {
		return nil, err
	}
	if len(rows) == 1 {
		if whole {
			return nil, fmt.Errorf("%w: %w", errEveryRow, err)
		}
		return []refusal{{rows[0], err}}, nil
	}
	if whole {
		if err := w.probe(rows); err != nil {
			return nil, err
		}
	}
	middle := len(rows) / 2
	left, err := w.insert(rows[:middle], false)
	if err != nil {
		return nil, err
	}
	right, err := w.insert(rows[middle:], false)
	if err != nil {
		return nil, err
	}
	refused := slices.Concat(left, right)
	if whole && len(refused) == len(rows) {
		return nil, fmt.Errorf("%w: %w", errEveryRow, refused[0].reason)
	}
	return refused, nil
}

// probe offers the store some rows of a refused batch one by one, and fails
// unless it takes one. That one is inserted again later, which is harmless.
func (w *writer) probe(rows []schema.Span) error {
	n := min(probeRows, len(rows))
	var last error
	for i := range n {
		at := i * (len(rows) - 1) / max(1, n-1)
		if last = w.attempt(rows[at : at+1]); last == nil || w.hard.Err() != nil {
			return last
		}
	}
	return fmt.Errorf("%w: %w", errEveryRow, last)
}

// attempt inserts rows, again and again while the error is retryable. Its
// error is a permanent one, or the writer must stop.
func (w *writer) attempt(rows []schema.Span) error {
	wait := w.newBackoff()
	for failures := 1; ; failures++ {
		err := w.once(rows)
		if err == nil {
			w.telemetry.inserted.Add(context.Background(), int64(len(rows)))
			w.telemetry.kept.Add(schema.MetricRowsInserted, float64(len(rows)))
			if failures > 1 {
				w.tell(nil)
			}
			return nil
		}
		if !schema.IsRetryable(err) || w.hard.Err() != nil {
			return err
		}
		w.telemetry.retries.Add(context.Background(), 1)
		w.telemetry.kept.Add(schema.MetricInsertRetries, 1)
		w.tell(err)
		pause := wait.NextBackOff()
		w.logger.Warn("An insert failed and is tried again", zap.Int("rows", len(rows)),
			zap.Int("failures", failures), zap.Duration("next_attempt_in", pause), zap.Error(err))
		if !w.sleep(pause) {
			return err
		}
	}
}

// once is one insert. A panic on the way counts as a refusal of the rows: one
// row that the code stumbles over must not take the collector down.
func (w *writer) once(rows []schema.Span) (err error) {
	ctx, cancel := context.WithTimeout(w.hard, w.cfg.InsertTimeout)
	defer cancel()
	end := w.begin(len(rows))
	began := time.Now()
	defer func() {
		end()
		if v := recover(); v != nil {
			w.logger.Error("An insert panicked", zap.String("reason", reasonOf(v)), zap.ByteString("stack", debug.Stack()))
			err = &schema.PermanentError{Err: errors.New(reasonOf(v))}
		}
		seconds := time.Since(began).Seconds()
		w.telemetry.kept.Add(schema.MetricInsertTime, seconds)
		w.telemetry.insertTime.Record(context.Background(), seconds,
			metric.WithAttributes(attribute.Bool("success", err == nil)))
	}()
	return w.inserter.InsertSpans(ctx, rows)
}

// buryRows writes refused rows to the dead letters. If that fails they are not
// confirmed, for the journal has the only copy.
func (w *writer) buryRows(refused []refusal) error {
	if len(refused) == 0 {
		return nil
	}
	letters := make([]deadletter.Letter, len(refused))
	for i, r := range refused {
		row, err := journal.EncodeRows([]schema.Span{r.row})
		if err != nil {
			return fmt.Errorf("encode a row that the store refuses: %w", err)
		}
		letters[i] = deadletter.Letter{Time: w.now().UTC(), Kind: deadletter.KindRow, Cause: deadletter.CauseStoreRefused, Reason: r.reason.Error(),
			TraceID: r.row.TraceID.String(), SpanID: r.row.SpanID.String(), Service: r.row.Service, Row: row}
	}
	if err := w.bury(letters...); err != nil {
		return err
	}
	w.telemetry.addDeadLetters(context.Background(), deadletter.KindRow, deadletter.CauseStoreRefused, len(refused))
	w.logger.Error("The store refuses some rows for good; they are in the dead letters, the rest of the batch is stored",
		zap.Int("rows", len(refused)), zap.Error(refused[0].reason))
	return nil
}

func (w *writer) newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = w.cfg.RetryInitialInterval, w.cfg.RetryMaxInterval
	b.Multiplier = 2
	return b
}

// sleep waits for d, and returns false if the writer must stop meanwhile.
func (w *writer) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.hard.Done():
		return false
	}
}
