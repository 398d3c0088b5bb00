package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/ledgerstore"
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

	journal *journal.Journal
	dead    *deadLetterFile
	writer  *writer

	stopVitals context.CancelFunc
	measuring  sync.WaitGroup
}

func newExporter(set exporter.Settings, cfg *Config) (*ledgerExporter, error) {
	t, err := newTelemetry(set.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("create the metrics of %s: %w", set.ID, err)
	}
	return &ledgerExporter{
		cfg: cfg, id: set.ID, logger: set.Logger, telemetry: t,
		now: time.Now, random: rand.Uint64, normalise: dialect.Normalise,
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
	e.dead = newDeadLetterFile(dir, e.cfg.DeadLetters.MaxSizeMiB*mib)
	e.journal, err = journal.Open(journal.Options{
		Dir:           dir,
		MaxBytes:      e.cfg.Journal.MaxSizeMiB * mib,
		SegmentBytes:  e.cfg.Journal.SegmentSizeMiB * mib,
		MinFreeBytes:  uint64(e.cfg.Journal.MinFreeDiskMiB) * mib,
		GroupWindow:   e.cfg.Journal.GroupWindow,
		SetAsideBytes: e.cfg.DeadLetters.MaxSizeMiB * mib,
		Damage:        e.damaged,
		Now:           e.now,
	})
	if err != nil {
		return err
	}
	if err := e.telemetry.observe(e.journal, e.now); err != nil {
		return errors.Join(err, e.journal.Close())
	}
	e.writer = newWriter(e.cfg.Writer, e.journal, e.inserter, e.dead, e.telemetry, e.logger, e.now)
	e.writer.report = statusReporter(host)
	e.writer.start() //nolint:contextcheck // the writer outlives the start
	vitals, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopVitals = stop
	e.measuring.Go(func() { e.telemetry.vitals.Run(vitals, s.Conn, e.logger) })
	return nil
}

// consume acknowledges td when its rows are in the journal.
func (e *ledgerExporter) consume(ctx context.Context, td ptrace.Traces) error {
	n := normaliseContained(e.normalise, td, e.now().UnixNano())
	if n.panics > 0 {
		e.logger.Error("A dialect failed; the spans are in the dead letters, the rest of the request is kept",
			zap.Int("spans", n.panics), zap.ByteString("stack", n.stack))
	}
	err := e.journal.Append(ctx, n.spans)
	if errors.Is(err, journal.ErrRowTooLarge) {
		n.dropTooLarge()
		err = e.journal.Append(ctx, n.spans)
	}
	if err != nil {
		e.telemetry.refused.Add(context.WithoutCancel(ctx), int64(td.SpanCount()))
		e.telemetry.vitals.Add(schema.VitalSpansRefused, float64(td.SpanCount()))
		if errors.Is(err, journal.ErrTooLarge) {
			return consumererror.NewPermanent(fmt.Errorf("journal the spans: %w", err))
		}
		// Anything else may pass: receivers answer 503 or UNAVAILABLE, and the
		// sender keeps the spans and tries again.
		return fmt.Errorf("journal the spans: %w", err)
	}
	e.telemetry.accepted.Add(context.WithoutCancel(ctx), int64(len(n.spans)))
	e.telemetry.vitals.Add(schema.VitalSpansAccepted, float64(len(n.spans)))
	e.bury(ctx, n.dead) // only now, or a sender that tries again would bury them again
	return nil
}

// dropTooLarge moves the rows that no journal can hold to the dead letters.
func (out *normalised) dropTooLarge() {
	kept := out.spans[:0]
	for i := range out.spans {
		s := &out.spans[i]
		if err := journal.CheckRow(s); err != nil {
			out.dead = append(out.dead, deadLetter{Kind: kindSpan, Reason: err.Error(),
				TraceID: s.TraceID.String(), SpanID: s.SpanID.String(), Service: bounded(s.Service, schema.MaxName)})
			continue
		}
		kept = append(kept, *s)
	}
	out.spans = kept
}

func bounded(text string, n int) string {
	if len(text) > n {
		return text[:n]
	}
	return text
}

// bury counts and keeps dead letters of spans. Not being able to keep them is
// no reason to refuse what can be kept.
func (e *ledgerExporter) bury(ctx context.Context, letters []deadLetter) {
	if len(letters) == 0 {
		return
	}
	spans := 0
	for i := range letters {
		letters[i].Time = e.now().UTC()
		spans += max(1, letters[i].Count)
	}
	e.telemetry.addDeadLetters(context.WithoutCancel(ctx), kindSpan, spans)
	e.logger.Warn("Some spans cannot be kept", zap.Int("spans", spans),
		zap.String("first_reason", letters[0].Reason), zap.String("file", e.dead.path))
	if err := e.dead.add(letters...); err != nil {
		e.logger.Error("The dead letters could not be written", zap.Error(err))
	}
}

// damaged is told of damage in the journal.
func (e *ledgerExporter) damaged(d journal.Damage) {
	e.telemetry.addDeadLetters(context.Background(), kindJournal, 1)
	e.logger.Error("A part of the journal is damaged and was passed over; its segment will be kept in the folder set-aside",
		zap.String("segment", d.Segment), zap.Int64("offset", d.Offset), zap.Int64("bytes", d.Length), zap.Error(d.Reason))
	err := e.dead.add(deadLetter{Time: e.now().UTC(), Kind: kindJournal, Reason: d.Reason.Error(),
		Segment: d.Segment, Offset: d.Offset, Length: d.Length})
	if err != nil {
		e.logger.Error("The dead letters could not be written", zap.Error(err))
	}
}

// shutdown inserts what is left, for a bounded time, and closes the journal.
func (e *ledgerExporter) shutdown(ctx context.Context) error {
	if e.journal == nil {
		return nil // never started
	}
	e.stopVitals()
	e.measuring.Wait()
	e.writer.stop(ctx)
	return errors.Join(e.telemetry.stop(), e.journal.Close(), e.dead.close())
}
