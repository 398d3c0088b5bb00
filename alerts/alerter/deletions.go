package alerter

import (
	"context"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// deletionsEvery is how often the alerter looks whether runs were deleted for good.
const deletionsEvery = 5 * time.Second

// deletions follow what is deleted for good from the store that the alerter watches: what
// it remembers of it has to go too.
type deletions struct {
	lookedAt time.Time // by the store's clock
	looked   bool      // mark is known
	mark     uint64    // of schema.Deletions
	gone     []rules.Key
	refill   bool // gone is forgotten when the windows are filled without them
}

// followDeletions forgets alerts whose history is deleted, and lets the windows be filled
// anew. A service that is deleted is told of no more, not as resolved either. A store that
// does not say what it deleted is followed as far as the windows and holds go.
func (w *watch) followDeletions(ctx context.Context, conn driver.Conn, instant time.Time) {
	d := &w.deletions
	if d.refill && w.live.prepared() {
		w.forget(d.gone)
		d.gone, d.refill = nil, false
	}
	if sinceLook := instant.Sub(d.lookedAt); sinceLook >= 0 && sinceLook < deletionsEvery {
		return
	}
	d.lookedAt = instant
	found, err := schema.LastDeletions(ctx, conn)
	if err != nil {
		w.log.Debug("Whether runs were deleted is not known.", zap.Error(err))
		return
	}
	if found.Mark == d.mark {
		d.looked = true
		return
	}
	gone, err := w.withoutHistory(ctx, conn)
	if err != nil {
		w.log.Debug("Which alerts are deleted is not known; it is looked again.", zap.Error(err))
		return
	}
	first := !d.looked
	d.looked, d.mark = true, found.Mark
	if first { // the windows were filled just now; the state may be of before the deletion
		w.forget(gone)
		return
	}
	d.gone, d.refill = append(d.gone, gone...), true
	w.live.refill()
	w.explainer.askAgain()
}

// withoutHistory are the alerts of services of which the store has no change, and none waits.
func (w *watch) withoutHistory(ctx context.Context, conn driver.Conn) ([]rules.Key, error) {
	snapshot := w.evaluator.Snapshot()
	keys := map[uint64]rules.Key{}
	var fingerprints []uint64
	for i := range snapshot.Alerts {
		a := &snapshot.Alerts[i]
		key := rules.Key{Rule: a.Rule, Group: a.Group}
		waits := slices.ContainsFunc(w.archive.transitions, func(t schema.AlertTransition) bool {
			return t.Rule == key.Rule && signals.Labels(t.Group) == key.Group
		})
		if a.Group.Service != "" && !waits {
			f := fingerprint(a.Labels)
			keys[f] = key
			fingerprints = append(fingerprints, f)
		}
	}
	known, err := schema.KnownAlerts(ctx, conn, fingerprints)
	if err != nil {
		return nil, err //nolint:wrapcheck // schema says what was attempted
	}
	var gone []rules.Key
	for _, f := range fingerprints {
		if !slices.Contains(known, f) {
			gone = append(gone, keys[f])
		}
	}
	return gone, nil
}

// withoutDeleted leaves out the changes of a state file that were deleted from the store:
// those of before the last deletion of a service, of an alert that the store knows nothing
// of. All others that the store lacks are to be written.
func (w *watch) withoutDeleted(ctx context.Context, conn driver.Conn, transitions []schema.AlertTransition) ([]schema.AlertTransition, error) {
	var fingerprints []uint64
	for i := range transitions {
		if transitions[i].Group.Service != "" {
			fingerprints = append(fingerprints, transitions[i].Fingerprint)
		}
	}
	if len(fingerprints) == 0 {
		return transitions, nil
	}
	found, err := schema.LastDeletions(ctx, conn)
	if err != nil {
		w.log.Debug("Whether services were deleted is not known.", zap.Error(err))
		return transitions, nil
	}
	known, err := schema.KnownAlerts(ctx, conn, fingerprints)
	if err != nil {
		return nil, err //nolint:wrapcheck // schema says what was attempted
	}
	return slices.DeleteFunc(transitions, func(t schema.AlertTransition) bool {
		return t.Group.Service != "" && t.At.Before(found.OfAlerts) && !slices.Contains(known, t.Fingerprint)
	}), nil
}

func (w *watch) forget(gone []rules.Key) {
	if len(gone) == 0 {
		return
	}
	w.evaluator.Forget(gone)
	_ = w.keepState()
	w.log.Info("Alerts whose history was deleted are forgotten.", zap.Int("alerts", len(gone)))
}
