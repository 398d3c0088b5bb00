package alerter

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// compareEvery is how often the breakers of other collectors on the store are looked at.
const compareEvery = 5 * time.Second

// breakerKeeper evaluates the breakers, and keeps them in the store for the next start
// and for other collectors.
type breakerKeeper struct {
	set      *breakers.Set
	writer   string
	log      *zap.Logger
	troubles troubles

	waiting  []schema.BreakerTransition  // not in the store yet, the oldest first
	changed  map[string]breakers.Breaker // by provider: those of waiting, after it
	lost     int                         // transitions, since the last look
	compared time.Time
	looking  chan looked // one value when the breakers in the store were read; nil: nobody reads them
}

// looked is what a look at the breakers in the store found.
type looked struct {
	rows []schema.BreakerRow
	err  error
}

// look reads the breakers of all collectors now and then, beside what else a pass reads.
func (k *breakerKeeper) look(ctx context.Context, conn driver.Conn, now time.Time) {
	if k.looking != nil || now.Sub(k.compared) < compareEvery {
		return
	}
	k.compared = now
	looking := make(chan looked, 1)
	k.looking = looking
	go func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		rows, err := schema.Breakers(ctx, conn)
		looking <- looked{rows, err}
	}()
}

// pass evaluates once. Stale signals change nothing but what is shown.
func (k *breakerKeeper) pass(ctx context.Context, conn driver.Conn, reader signals.Reader, upTo, now time.Time) {
	transitions, err := k.set.Evaluate(ctx, reader, upTo, now)
	if err != nil {
		k.troubles.tell(k.log, "The breakers could not be evaluated; they are shown closed and stale if that lasts.", err)
	} else {
		k.troubles.over(k.log, "The breakers are evaluated again.")
	}
	for _, t := range transitions {
		k.log.Info("A breaker changed.", zap.String("provider", t.Provider), zap.String("to", string(t.To)), zap.String("why", t.Why))
	}
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := k.keep(ctx, conn); err != nil && ctx.Err() == nil {
		k.log.Warn("Changes of breakers could not be kept in the store; it is tried again.", zap.Error(err))
	}
	if k.looking == nil {
		return
	}
	found := <-k.looking
	k.looking = nil
	if found.err != nil {
		if ctx.Err() == nil {
			k.log.Warn("The breakers of other collectors could not be looked at.", zap.Error(found.err))
		}
		return
	}
	k.adopt(found.rows)
}

// end waits for what is read.
func (k *breakerKeeper) end() {
	if k.looking != nil {
		<-k.looking
		k.looking = nil
	}
}

// change takes transitions, and the breakers that they lead to in the same order, to be
// written by the next keep.
func (k *breakerKeeper) change(transitions []breakers.Transition, changed []breakers.Breaker) {
	if len(k.waiting) > maxChanges {
		k.waiting, k.lost = latest(k.waiting, maxChanges, k.lost)
		waits := make(map[string]bool, len(k.changed))
		for i := range k.waiting {
			waits[k.waiting[i].Provider] = true
		}
		maps.DeleteFunc(k.changed, func(provider string, _ breakers.Breaker) bool { return !waits[provider] })
	}
	for i, t := range transitions {
		k.waiting = append(k.waiting, schema.BreakerTransition{
			At: t.At, Provider: t.Provider, From: string(t.From), To: string(t.To), Why: t.Why,
			Requests: t.Counts.Requests, ServerErrors: t.Counts.ServerErrors, Throttled: t.Counts.Throttled, Writer: k.writer,
		})
		k.changed[t.Provider] = changed[i]
	}
}

// keep writes the breakers that changed, and how.
func (k *breakerKeeper) keep(ctx context.Context, conn driver.Conn) error {
	if len(k.waiting) == 0 {
		return nil
	}
	states := make([]schema.BreakerRow, 0, len(k.changed))
	for _, b := range k.ofWaiting() {
		text, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("keep the breaker of %s: %w", b.Provider, err)
		}
		states = append(states, schema.BreakerRow{Provider: b.Provider, At: b.Since, Trips: b.Trips, State: string(text)})
	}
	if err := schema.InsertBreakers(ctx, conn, states); err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	if err := schema.InsertBreakerTransitions(ctx, conn, k.waiting); err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	k.waiting = nil
	clear(k.changed)
	return nil
}

// ofWaiting are the breakers that the store may lack, by provider.
func (k *breakerKeeper) ofWaiting() []breakers.Breaker {
	list := make([]breakers.Breaker, 0, len(k.changed))
	for _, provider := range slices.Sorted(maps.Keys(k.changed)) {
		list = append(list, k.changed[provider])
	}
	return list
}

// restore takes up what the store may lack, and adopts the breakers in the store that are
// further on than ours.
func (k *breakerKeeper) restore(ctx context.Context, conn driver.Conn, kept *state) error {
	rows, err := schema.Breakers(ctx, conn)
	if err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	k.waiting = kept.BreakerTransitions
	for _, b := range kept.Breakers {
		k.changed[b.Provider] = b
	}
	k.set.Restore(breakers.Snapshot{Breakers: kept.Breakers})
	k.adopt(rows)
	return nil
}

func (k *breakerKeeper) adopt(rows []schema.BreakerRow) {
	var snapshot breakers.Snapshot
	for i := range rows {
		var b breakers.Breaker
		if err := json.Unmarshal([]byte(rows[i].State), &b); err != nil {
			k.log.Warn("A breaker in the store cannot be read.", zap.String("provider", rows[i].Provider), zap.Error(err))
			continue
		}
		snapshot.Breakers = append(snapshot.Breakers, b)
	}
	k.set.Restore(snapshot)
}
