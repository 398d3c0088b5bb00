package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/ledgerstore"
	"github.com/retryledger/retryledger/internal/seldom"
	"github.com/retryledger/retryledger/schema"
)

// inserter puts rows into the store.
type inserter interface {
	InsertSpans(ctx context.Context, spans []schema.Span) error
}

// storeInserter inserts into a store. random names its inserts.
type storeInserter struct {
	store  ledgerstore.Store
	random func() uint64
}

func (s storeInserter) InsertSpans(ctx context.Context, spans []schema.Span) error {
	conn, err := s.store.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the store: %w", err)
	}
	return schema.InsertSpans(ctx, conn, s.random, spans)
}

// ledgerExporter is the component: normalise, journal, acknowledge.
type ledgerExporter struct {
	cfg       *Config
	id        component.ID
	logger    *zap.Logger
	telemetry *telemetry

	// Replaced in tests.
	now       func() time.Time
	random    func() uint64
	normalise normaliseFunc
	inserter  inserter // nil: the store's

	dir     string // of the journal
	journal *journal.Journal
	dead    *deadletter.File
	writer  *writer
	told    seldom.Lines
	names   *nameBound

	stopBackground context.CancelFunc
	background     sync.WaitGroup
}

func newExporter(set exporter.Settings, cfg *Config) (*ledgerExporter, error) {
	t, err := newTelemetry(set.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("create the metrics of %s: %w", set.ID, err)
	}
	return &ledgerExporter{
		cfg: cfg, id: set.ID, logger: set.Logger, telemetry: t,
		names: newNameBound(cfg.MaxStepNames), now: time.Now, random: rand.Uint64, normalise: dialect.Reader{Outputs: cfg.OutputTests}.Normalise,
	}, nil
}

// start opens the journal and sets the writer to work. It does not wait for
// the store: spans are taken while it starts.
func (e *ledgerExporter) start(ctx context.Context, host component.Host) error {
	s, err := ledgerstore.From(host, e.cfg.Store)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if e.inserter == nil {
		e.inserter = storeInserter{s, e.random}
	}
	dir := e.cfg.Journal.Directory
	if dir == "" {
		name := "journal"
		if e.id.Name() != "" { // two exporters cannot share one
			name += "-" + filepath.Base(filepath.Clean("/"+e.id.Name()))
		}
		dir = filepath.Join(s.DataDir(), name)
	}
	const mib = 1 << 20
	e.dir = dir
	e.dead = deadletter.New(dir, e.cfg.DeadLetters.MaxSizeMiB*mib)
	e.journal, err = journal.Open(journal.Options{
		Dir:           dir,
		MaxBytes:      e.cfg.Journal.MaxSizeMiB * mib,
		SegmentBytes:  e.cfg.Journal.SegmentSizeMiB * mib,
		MinFreeBytes:  uint64(e.cfg.Journal.MinFreeDiskMiB) * mib,
		GroupWindow:   e.cfg.Journal.GroupWindow,
		SetAsideBytes: e.cfg.DeadLetters.MaxSizeMiB * mib,
		Damage:        e.damaged,
		GaveUp:        e.gaveUp,
		Now:           e.now,
	})
	if err != nil {
		return err
	}
	if err := e.telemetry.observe(e.journal, e.now); err != nil {
		return errors.Join(err, e.journal.Close())
	}
	e.writer = newWriter(e.cfg.Writer, e.journal, e.inserter, e.addLetters, e.telemetry, e.logger, e.now)
	e.writer.report = statusReporter(host)
	e.writer.start() //nolint:contextcheck // the writer outlives the start
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopBackground = stop
	e.background.Go(func() { e.telemetry.kept.Run(background, s.Conn, e.logger) })
	e.background.Go(func() { e.answerReplays(background) })
	return nil
}

// consume acknowledges td when all its rows are in the journal. Otherwise its sender is
// told to try again, always: what of it is in the journal already counts once.
func (e *ledgerExporter) consume(ctx context.Context, td ptrace.Traces) error {
	receivedNs := e.now().UnixNano()
	accepted, mended := 0, 0
	var dead []deadletter.Letter
	for part := range parts(td, maxPart) {
		n := normaliseContained(e.normalise, part, receivedNs)
		if n.panics > 0 {
			e.logger.Error("A dialect failed; the spans are in the dead letters, the rest of the request is kept",
				zap.Int("spans", n.panics), zap.ByteString("stack", n.stack))
		}
		e.boundNames(ctx, n.spans, receivedNs)
		err := e.keep(ctx, &n)
		if accepted > 0 && errors.Is(err, journal.ErrFull) {
			err = e.keepInTime(ctx, &n)
		}
		if err != nil {
			e.refuse(ctx, td.SpanCount(), err)
			// Receivers answer 503 or UNAVAILABLE, and the sender keeps the spans.
			return fmt.Errorf("journal the spans: %w", err)
		}
		accepted += len(n.spans)
		mended += mendedIn(n.spans)
		dead = append(dead, n.dead...)
	}
	e.telemetry.accepted.Add(context.WithoutCancel(ctx), int64(accepted))
	e.telemetry.kept.Add(schema.MetricSpansAccepted, float64(accepted))
	if mended > 0 {
		e.telemetry.mended.Add(context.WithoutCancel(ctx), int64(mended))
	}
	e.bury(ctx, dead) // only now, or a sender that tries again would bury them again
	return nil
}

// boundNames keeps the names of steps and spans to a number.
func (e *ledgerExporter) boundNames(ctx context.Context, rows []schema.Span, receivedNs int64) {
	bounded, service := e.names.bound(rows, receivedNs)
	if bounded == 0 {
		return
	}
	e.telemetry.bounded.Add(context.WithoutCancel(ctx), int64(bounded))
	if before, due := e.told.Due("names", bounded, e.now()); due {
		e.logger.Warn("A service has more names of steps or spans than max_step_names; further ones are kept as "+otherName+
			". A name should say a place in the pipeline: put what varies into an attribute",
			zap.String("service", service), zap.Int("spans", bounded), zap.Int("spans_since_last_said", before))
	}
}

// waitForRoom is how long a request that is partly in the journal waits for the writer.
const waitForRoom = 10 * time.Second

// keepInTime keeps n when the writer has made room for it: a request that is larger than
// what the journal has free would otherwise begin anew each time it is sent.
func (e *ledgerExporter) keepInTime(ctx context.Context, n *normalised) error {
	const look = 50 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	deadline := time.NewTimer(waitForRoom)
	defer deadline.Stop()
	for {
		select {
		case <-ticker.C:
		case <-deadline.C:
			return e.keep(ctx, n)
		case <-ctx.Done():
			return fmt.Errorf("wait for room in the journal: %w", ctx.Err())
		}
		if err := e.keep(ctx, n); !errors.Is(err, journal.ErrFull) {
			return err
		}
	}
}

// keep appends rows to the journal. What no journal of this size can hold goes to the
// dead letters: its sender could try for ever.
func (e *ledgerExporter) keep(ctx context.Context, n *normalised) error {
	err := e.journal.Append(ctx, n.spans)
	if errors.Is(err, journal.ErrRowTooLarge) {
		n.dropTooLarge()
		err = e.journal.Append(ctx, n.spans)
	}
	if !errors.Is(err, journal.ErrTooLarge) {
		return err
	}
	if len(n.spans) == 1 {
		n.tooLarge(&n.spans[0], err)
		n.spans = nil
		return nil
	}
	middle := len(n.spans) / 2
	halves := [2]normalised{{spans: slices.Clone(n.spans[:middle])}, {spans: slices.Clone(n.spans[middle:])}}
	for i := range halves {
		if err := e.keep(ctx, &halves[i]); err != nil {
			return err
		}
	}
	n.spans = slices.Concat(halves[0].spans, halves[1].spans)
	n.dead = slices.Concat(n.dead, halves[0].dead, halves[1].dead)
	return nil
}

// refuse counts and tells what was not acknowledged.
func (e *ledgerExporter) refuse(ctx context.Context, spans int, err error) {
	reason := refusalReason(err)
	e.telemetry.refused.Add(context.WithoutCancel(ctx), int64(spans), metric.WithAttributes(attribute.String("reason", reason)))
	e.telemetry.kept.Add(schema.MetricSpansRefused, float64(spans))
	if before, due := e.told.Due("refused "+reason, spans, e.now()); due {
		e.logger.Warn("Spans are refused; their senders are told to try again. Nothing that was acknowledged is touched",
			zap.String("reason", reason), zap.Int("spans", spans), zap.Int("spans_since_last_said", before), zap.Error(err))
	}
}

// refusalReason is why the journal did not take rows, in a word that can be counted by.
func refusalReason(err error) string {
	switch {
	case errors.Is(err, journal.ErrDiskLow):
		return "disk_low"
	case errors.Is(err, journal.ErrFull):
		return "journal_full"
	case errors.Is(err, syscall.ENOSPC):
		return "disk_full"
	case errors.Is(err, journal.ErrClosed):
		return "shutting_down"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "sender_left"
	default:
		return "disk_error"
	}
}

// bury counts and keeps dead letters of spans. Not being able to keep them is
// no reason to refuse what can be kept.
func (e *ledgerExporter) bury(ctx context.Context, letters []deadletter.Letter) {
	for i := range letters {
		letters[i].Time = e.now().UTC()
		l := &letters[i]
		e.telemetry.addDeadLetters(context.WithoutCancel(ctx), l.Kind, l.Cause, l.Items())
		if before, due := e.told.Due("dead "+string(l.Cause), l.Items(), e.now()); due {
			e.logger.Warn("Spans cannot be kept and are in the dead letters; the rest of their request is kept",
				zap.String("reason", l.Reason), zap.String("service", l.Service), zap.Int("spans", l.Items()),
				zap.Int("spans_since_last_said", before), zap.String("file", e.dead.Path()))
		}
	}
	if err := e.addLetters(letters...); err != nil { //nolint:contextcheck // counting has no request
		lost := 0
		for i := range letters {
			lost += letters[i].Items()
		}
		e.telemetry.addLostLetters(lost, "unwritten") //nolint:contextcheck // counting has no request
		e.logger.Error("The dead letters could not be written; nothing but the count is left of these spans", zap.Int("spans", lost), zap.Error(err))
	}
}

// addLetters writes letters, and tells when older ones had to go for them.
func (e *ledgerExporter) addLetters(letters ...deadletter.Letter) error {
	displaced, err := e.dead.Add(letters...)
	if displaced > 0 {
		e.telemetry.addLostLetters(displaced, "displaced")
		e.logger.Warn("The oldest dead letters were given up for newer ones; dead_letters::max_size_mib says how much is kept",
			zap.Int("items", displaced), zap.String("file", e.dead.Path()))
	}
	return err
}

// damaged is told of damage in the journal.
func (e *ledgerExporter) damaged(d journal.Damage) {
	e.telemetry.addDeadLetters(context.Background(), deadletter.KindJournal, deadletter.CauseDamage, 1)
	e.logger.Error("A part of the journal is damaged and was passed over; its segment will be kept in the folder set-aside",
		zap.String("segment", d.Segment), zap.Int64("offset", d.Offset), zap.Int64("bytes", d.Length), zap.Error(d.Reason))
	err := e.addLetters(deadletter.Letter{Time: e.now().UTC(), Kind: deadletter.KindJournal, Cause: deadletter.CauseDamage, Reason: d.Reason.Error(),
		Segment: d.Segment, Offset: d.Offset, Length: d.Length})
	if err != nil {
		e.telemetry.addLostLetters(1, "unwritten")
		e.logger.Error("The dead letters could not be written", zap.Error(err))
	}
}

// gaveUp is told of a damaged segment that is kept no longer.
func (e *ledgerExporter) gaveUp(segment string, bytes int64) {
	e.telemetry.addLostLetters(1, "set_aside")
	e.logger.Warn("A damaged segment of the journal was removed for newer ones; dead_letters::max_size_mib says how much is kept",
		zap.String("segment", segment), zap.Int64("bytes", bytes))
}

// lookForReplay is the time between two looks for a request to replay dead letters.
const lookForReplay = time.Second

// answerReplays replays dead letters when an operator asks for it, until ctx ends.
func (e *ledgerExporter) answerReplays(ctx context.Context) {
	ticker := time.NewTicker(lookForReplay)
	defer ticker.Stop()
	for {
		if id, asked := deadletter.Requested(e.dir); asked {
			e.replay(ctx, id)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e *ledgerExporter) replay(ctx context.Context, id string) {
	taken, kept, err := e.dead.Replay(func(rows []schema.Span) error { return e.journal.Append(ctx, rows) })
	a := deadletter.Answer{ID: id, Time: e.now().UTC(), Replayed: taken, Kept: kept}
	if err != nil {
		if ctx.Err() != nil {
			return // the next start takes the request up again
		}
		a.Error = err.Error()
	}
	e.telemetry.replayed.Add(context.WithoutCancel(ctx), int64(taken))
	said := []zap.Field{zap.Int("rows", taken), zap.Int("lines_kept", kept), zap.Error(err)}
	switch {
	case err != nil:
		e.logger.Warn("Dead letters could not all be replayed; ask again when the cause is gone", said...)
	case taken == 0:
		e.logger.Info("A replay of dead letters was asked for, and there was nothing to replay", said...)
	default:
		e.logger.Warn("Dead letters were replayed because of a request", said...)
	}
	if err := deadletter.Respond(e.dir, a); err != nil {
		e.logger.Error("A replay of dead letters could not be answered", zap.Error(err))
	}
}

// shutdown inserts what is left, for a bounded time, and closes the journal.
func (e *ledgerExporter) shutdown(ctx context.Context) error {
	if e.journal == nil {
		return nil // never started
	}
	e.stopBackground()
	e.background.Wait()
	e.writer.stop(ctx)
	return errors.Join(e.telemetry.stop(), e.journal.Close(), e.dead.Close())
}
