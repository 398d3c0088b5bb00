package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
)

// forgetAfter is how long an alert that ended is still told, for an Alertmanager that does not answer or is restarted.
const forgetAfter = 15 * time.Minute

// external sends alerts to Alertmanagers that run elsewhere. It holds what fires and what was just resolved; each
// Alertmanager has a sender that compares that with what it was told.
type external struct {
	cfg      ExternalConfig
	set      Settings
	registry *prometheus.Registry
	senders  []*sender

	mu     sync.Mutex
	alerts map[model.Fingerprint]*sent

	lifecycle sync.Mutex // held by Start and Shutdown
	phase     atomic.Int32
	stop      chan struct{}
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// sent is an alert and how often it changed in a way that people are told of.
type sent struct {
	alert   wireAlert
	version uint64
	told    map[*sender]told
}

// told is what one Alertmanager knows of an alert.
type told struct {
	version uint64
	at      time.Time
	endsAt  time.Time
}

func newExternal(cfg ExternalConfig, set Settings) (*external, error) {
	e := &external{cfg: cfg, set: set, registry: prometheus.NewRegistry(), alerts: map[model.Fingerprint]*sent{}, stop: make(chan struct{})}
	metrics := newPushMetrics(e.registry)
	for i := range cfg.Alertmanagers {
		s, err := newSender(e, &cfg.Alertmanagers[i], metrics)
		if err != nil {
			return nil, err
		}
		e.senders = append(e.senders, s)
	}
	return e, nil
}

func (e *external) Start(ctx context.Context, host component.Host) error {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if e.phase.Load() != phaseNew {
		return errors.New("alert delivery was started before")
	}
	for _, s := range e.senders {
		if err := s.connect(ctx, host, e.set.Telemetry); err != nil {
			e.phase.Store(phaseEnded)
			return err
		}
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // Shutdown cancels it
	e.cancel = cancel
	for _, s := range e.senders {
		e.running.Go(func() { s.run(sending) })
	}
	e.phase.Store(phaseRunning)
	return nil
}

// Shutdown lets each sender tell once more what it has not told yet.
func (e *external) Shutdown(ctx context.Context) error {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if e.phase.Swap(phaseEnded) != phaseRunning {
		return nil
	}
	close(e.stop)
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	context.AfterFunc(ctx, e.cancel)
	e.running.Wait() // at the latest until ctx ends every request
	if ctx.Err() != nil {
		return fmt.Errorf("shut alert delivery down: %w", ctx.Err())
	}
	return nil
}

func (e *external) Put(_ context.Context, alerts ...Alert) error {
	if e.phase.Load() != phaseRunning {
		return ErrNotRunning
	}
	now := time.Now()
	converted, errs := convert(alerts, now)
	refused, changed := 0, false
	e.mu.Lock()
	for _, a := range converted {
		w := wire(a)
		held := e.alerts[a.Fingerprint()]
		switch {
		case held == nil && now.Sub(w.EndsAt) > forgetAfter:
			continue
		case held == nil && len(e.alerts) >= maxAlerts:
			refused++
			continue
		case held == nil:
			held = &sent{version: 1, told: map[*sender]told{}}
			e.alerts[a.Fingerprint()] = held
			changed = true
		case w.resolved(now) != held.alert.resolved(now) || !w.StartsAt.Equal(held.alert.StartsAt):
			held.version++
			changed = true
		}
		held.alert = w
	}
	e.mu.Unlock()
	if changed {
		for _, s := range e.senders {
			s.wake()
		}
	}
	if refused > 0 {
		errs = errors.Join(errs, fmt.Errorf("%w: %d are held, %d were refused", ErrTooManyAlerts, maxAlerts, refused))
	}
	return errs
}

// outbox is what one Alertmanager is told in one request, as it was when the outbox was filled.
type outbox struct {
	held     []*sent
	versions []uint64
	alerts   []wireAlert
}

// due fills an outbox with what s should be told now and says when to look again.
func (e *external) due(s *sender, now time.Time) (out outbox, next time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next = now.Add(e.cfg.ResendInterval)
	for fingerprint, a := range e.alerts {
		if now.Sub(a.alert.EndsAt) > forgetAfter {
			delete(e.alerts, fingerprint)
			continue
		}
		if known := a.told[s]; known.version == a.version {
			if at := known.refresh(e.cfg.ResendInterval); at.After(now) {
				next = earlier(next, at)
				continue
			}
		}
		if len(out.held) == maxBatch {
			return out, now
		}
		out.held, out.versions, out.alerts = append(out.held, a), append(out.versions, a.version), append(out.alerts, a.alert)
	}
	return out, next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// refresh is when an alert is told again: each interval, and if it fires in time before it expires there.
func (t told) refresh(interval time.Duration) time.Time {
	if left := t.endsAt.Sub(t.at); left > 0 {
		interval = min(interval, left/2)
	}
	return t.at.Add(interval)
}

// know notes that s was told of alerts as they were.
func (e *external) know(s *sender, out outbox, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, a := range out.held {
		a.told[s] = told{version: out.versions[i], at: now, endsAt: out.alerts[i].EndsAt}
	}
}

func (e *external) pending(s *sender) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.alerts {
		if a.told[s].version != a.version {
			n++
		}
	}
	return n
}

// Reload does nothing: what is configured here is the collector's own configuration.
func (e *external) Reload(context.Context) error {
	if e.phase.Load() != phaseRunning {
		return ErrNotRunning
	}
	return nil
}

// Muted is known to the other Alertmanagers alone.
func (e *external) Muted(map[string]string) string { return "" }

// Handler says where the API is instead.
func (e *external) Handler() http.Handler {
	urls := make([]string, len(e.senders))
	for i, s := range e.senders {
		urls[i] = s.url.Redacted()
	}
	message := "alerts are sent to other Alertmanagers, which have the API: " + strings.Join(urls, " ")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusNotFound) })
}

func (e *external) Metrics() prometheus.Gatherer { return e.registry }

func (e *external) Status() Status {
	s := Status{Mode: "external", Ready: e.phase.Load() == phaseRunning}
	for _, sender := range e.senders {
		s.Alertmanagers = append(s.Alertmanagers, sender.status())
	}
	return s
}

func (e *external) logger() *zap.Logger { return e.set.Telemetry.Logger }
