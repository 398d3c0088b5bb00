package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/alertmanager/api"
	"github.com/prometheus/alertmanager/cluster"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/labelset"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"go.opentelemetry.io/collector/component"
)

const (
	gcInterval      = 30 * time.Minute // of resolved alerts
	requestTimeout  = 30 * time.Second
	shutdownTimeout = 10 * time.Second
)

// embedded is an Alertmanager in this process.
type embedded struct {
	cfg      Config
	set      Settings
	logger   *slog.Logger
	external *url.URL
	registry *prometheus.Registry
	recorder eventrecorder.Recorder // its zero value records nothing
	reloaded prometheus.Gauge

	mu       sync.Mutex // held by Start, Reload and Shutdown
	cleanups []cleanup  // last in, first out
	phase    atomic.Int32
	started  time.Time

	// Made once by Start.
	cluster         *peers
	nflog           *nflog.Log
	silences        *silence.Silences
	silencer        *silence.Silencer
	held            *held
	alerts          *mem.Alerts
	api             *api.API
	pipelines       *notify.PipelineBuilder
	dispatchMetrics *dispatch.DispatcherMetrics

	generation  atomic.Pointer[generation] // replaced by Reload
	handler     atomic.Pointer[http.Handler]
	configError atomic.Pointer[string]
}

const (
	phaseNew = iota
	phaseRunning
	phaseEnded
)

type cleanup struct {
	what string
	do   func() error
}

func newEmbedded(cfg *Config, set Settings, external *url.URL) *embedded {
	e := &embedded{
		cfg: *cfg, set: set, external: external,
		logger: bridge(set.Telemetry.Logger), registry: prometheus.NewRegistry(),
	}
	e.reloaded = promauto.With(e.registry).NewGauge(prometheus.GaugeOpts{
		Name: "alertmanager_config_last_reload_successful",
		Help: "Whether the last configuration reload attempt was successful.",
	})
	return e
}

// prepare does all of a reload that can fail.
func (e *embedded) prepare() (*generation, error) {
	conf, err := loadConfig(e.cfg.ConfigFile)
	if err != nil {
		return nil, err
	}
	conns := newConnections()
	p, err := parse(conf, e.external, e.logger, conns)
	if err != nil {
		return nil, fmt.Errorf("alertmanager configuration %s: %w", name(e.cfg.ConfigFile), err)
	}
	return &generation{parsed: p, conns: conns}, nil
}

//nolint:contextcheck // what runs outlives the start
func (e *embedded) Start(context.Context, component.Host) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase.Load() != phaseNew {
		return errors.New("alert delivery was started before")
	}
	if err := e.start(); err != nil {
		e.phase.Store(phaseEnded)
		return errors.Join(err, e.unwind())
	}
	e.phase.Store(phaseRunning)
	return nil
}

func (e *embedded) start() error {
	next, err := e.prepare()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.set.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the folder of silences and notifications: %w", err)
	}
	e.started = time.Now()
	if len(e.cfg.Cluster.Peers) > 0 {
		if e.cluster, err = newPeers(&e.cfg.Cluster, e.logger, e.registry); err != nil {
			return err
		}
		e.onStop("leave the cluster", e.cluster.leave)
	}
	if err := e.loadState(); err != nil {
		return err
	}
	if e.cluster != nil {
		e.cluster.join(e.logger) // once the states to be merged are registered
	}
	e.silencer = silence.NewSilencer(e.silences, e.logger, e.recorder)
	e.held = &held{Silencer: e.silencer}
	e.alerts, err = mem.NewAlerts(context.Background(), gcInterval, 0, e.held, e.logger, e.recorder, e.registry, featurecontrol.NoopFlags{})
	if err != nil {
		return fmt.Errorf("make the store of alerts: %w", err)
	}
	e.onStop("close the store of alerts", func() error { e.alerts.Close(); return nil })
	e.pipelines = notify.NewPipelineBuilder(e.registry, featurecontrol.NoopFlags{}, e.recorder)
	e.dispatchMetrics = dispatch.NewDispatcherMetrics(false, e.registry, featurecontrol.NoopFlags{})
	if err := e.newAPI(); err != nil {
		return err
	}
	e.onStop("stop notifying", func() error { e.generation.Load().stop(); return nil })
	e.use(next)
	e.serve()
	return nil
}

// loadState opens who was told of what, and the silences, and saves both each second and at the end.
func (e *embedded) loadState() error {
	logPath, silencePath := filepath.Join(e.set.DataDir, "nflog"), filepath.Join(e.set.DataDir, "silences")
	logOptions := func(reg prometheus.Registerer) nflog.Options {
		return nflog.Options{SnapshotFile: logPath, Retention: e.cfg.Retention, Logger: e.logger.With("component", "nflog"), Metrics: reg}
	}
	silenceOptions := func(reg prometheus.Registerer) silence.Options {
		return silence.Options{
			SnapshotFile: silencePath, Retention: e.cfg.Retention, Logger: e.logger.With("component", "silences"),
			Metrics: reg, EventRecorder: e.recorder,
			Limits: silence.Limits{
				MaxSilences:         func() int { return maxSilences },
				MaxSilenceSizeBytes: func() int { return maxSilenceBytes },
			},
		}
	}
	for path, load := range map[string]func() error{
		logPath:     func() error { _, err := nflog.New(logOptions(prometheus.NewRegistry())); return err },
		silencePath: func() error { _, err := silence.New(silenceOptions(prometheus.NewRegistry())); return err },
	} {
		cause, err := setAside(path, load)
		if err != nil {
			return err
		}
		if cause != nil {
			e.logger.Error("a damaged file was set aside and begun anew: silences in it are lost, notifications are repeated", "file", path, "err", cause)
		}
	}
	var err error
	if e.nflog, err = nflog.New(logOptions(e.registry)); err != nil {
		return fmt.Errorf("read %s: %w", logPath, err)
	}
	if e.silences, err = silence.New(silenceOptions(e.registry)); err != nil {
		return fmt.Errorf("read %s: %w", silencePath, err)
	}
	notifications, silences := newSaver(logPath, e.nflog, e.logger), newSaver(silencePath, e.silences, e.logger)
	toPeers := func(string, cluster.State) func([]byte) { return func([]byte) {} }
	if e.cluster != nil {
		toPeers = func(key string, state cluster.State) func([]byte) {
			return e.cluster.AddState(key, state, e.registry).Broadcast
		}
	}
	// What is told to the peers is what changed here.
	tell := toPeers("nfl", e.nflog)
	e.nflog.SetBroadcast(func(b []byte) { notifications.mark(); tell(b) })
	tellSilence := toPeers("sil", e.silences)
	e.silences.SetBroadcast(func(b []byte) { silences.mark(); tellSilence(b) })

	stop := make(chan struct{})
	var saving sync.WaitGroup
	saving.Go(func() { notifications.run(stop) })
	saving.Go(func() { silences.run(stop) })
	e.onStop("save silences and notifications", func() error { close(stop); saving.Wait(); return nil })
	return nil
}

// newAPI makes Alertmanager's API v2. It is served once there is a configuration to show.
func (e *embedded) newAPI() error {
	var peer cluster.ClusterPeer // an interface that holds a nil pointer is not nil
	if e.cluster != nil {
		peer = e.cluster
	}
	var err error
	e.api, err = api.New(api.Options{
		Alerts: e.alerts, Silences: e.silences, Peer: peer, Timeout: requestTimeout,
		ConnectMaxRequestBodyBytes: maxRequestBytes, ConnectReadMaxBytes: maxRequestBytes,
		Logger: e.logger.With("component", "api"), Registry: e.registry,
		RequestDuration: promauto.With(e.registry).NewHistogramVec(prometheus.HistogramOpts{
			Name: "alertmanager_http_request_duration_seconds",
			Help: "Histogram of latencies for HTTP requests.", Buckets: prometheus.DefBuckets,
		}, []string{"handler", "method", "code"}),
		GroupFunc: func(ctx context.Context, routes func(*dispatch.Route) bool, alerts dispatch.AlertFilter) (dispatch.AlertGroups, map[model.Fingerprint][]string, error) {
			return e.generation.Load().dispatcher.Groups(ctx, routes, alerts)
		},
	})
	if err != nil {
		return fmt.Errorf("make the Alertmanager API: %w", err)
	}
	e.onStop("shut the Alertmanager API", func() error { e.handler.Store(nil); e.api.Shutdown(); return nil })
	return nil
}

func (e *embedded) serve() {
	prefix := "/" + strings.Trim(e.set.RoutePrefix, "/")
	router := route.New()
	if prefix != "/" {
		router = router.WithPrefix(prefix)
	}
	mux := e.api.Register(router, prefix)
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
		mux.ServeHTTP(w, r)
	})
	e.handler.Store(&handler)
}

// use replaces what runs. Nothing in it can fail.
func (e *embedded) use(next *generation) {
	next.warn(e.logger, e.cfg.Retention)
	e.generation.Load().stop()
	next.run(e)
	e.generation.Store(next)
	e.api.Update(next.conf, func(ctx context.Context, labels labelset.LabelSet) {
		e.generation.Load().inhibitor.Mutes(ctx, labels)
		e.silencer.Mutes(ctx, labels)
	})
	e.reloaded.Set(1)
	e.configError.Store(nil)
}

func (e *embedded) Reload(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase.Load() != phaseRunning {
		return ErrNotRunning
	}
	next, err := e.prepare()
	if err != nil {
		message := err.Error()
		e.configError.Store(&message)
		e.reloaded.Set(0)
		return err
	}
	e.use(next)
	return nil
}

func (e *embedded) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase.Swap(phaseEnded) != phaseRunning {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.unwind() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("shut alert delivery down: %w", ctx.Err())
	}
}

func (e *embedded) onStop(what string, do func() error) {
	e.cleanups = append(e.cleanups, cleanup{what, do})
}

func (e *embedded) unwind() error {
	var errs error
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		if err := e.cleanups[i].do(); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", e.cleanups[i].what, err))
		}
	}
	e.cleanups = nil
	return errs
}

// wait is how long this collector lets those before it in the cluster tell people first.
func (e *embedded) wait() time.Duration {
	if e.cluster == nil {
		return 0
	}
	return e.waitAt(e.cluster.Position())
}

// waitAt is for the collector with so many before it. Each of those may see a breach an evaluation later than this one,
// and only then begins to tell.
func (e *embedded) waitAt(position int) time.Duration {
	return time.Duration(position) * (e.set.EvaluationInterval + e.cfg.Cluster.PeerTimeout)
}

// timeout is how long one notification may take, retries included.
func (e *embedded) timeout(groupInterval time.Duration) time.Duration {
	return max(groupInterval, notify.MinTimeout) + e.wait()
}

func (e *embedded) Put(ctx context.Context, alerts ...Alert) error {
	if e.phase.Load() != phaseRunning {
		return ErrNotRunning
	}
	converted, errs := convert(alerts, time.Now())
	if err := e.alerts.Put(ctx, converted...); err != nil {
		return errors.Join(errs, fmt.Errorf("hold alerts: %w", err))
	}
	if e.held.n.Load() < maxAlerts {
		return errs
	}
	var refused int
	for _, a := range converted {
		if _, err := e.alerts.Get(a.Fingerprint()); err != nil {
			refused++
		}
	}
	if refused > 0 {
		errs = errors.Join(errs, fmt.Errorf("%w: %d are held, %d were refused", ErrTooManyAlerts, maxAlerts, refused))
	}
	return errs
}

func (e *embedded) Muted(labels map[string]string) string {
	if e.phase.Load() != phaseRunning {
		return ""
	}
	ctx, set := context.Background(), labelset.FromModel(labelSet(labels)) // nothing in it waits
	switch {
	case e.silencer.Mutes(ctx, set):
		return Silenced
	case e.generation.Load().inhibitor.Mutes(ctx, set):
		return Inhibited
	}
	return ""
}

func (e *embedded) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := e.handler.Load()
		if h == nil {
			http.Error(w, ErrNotRunning.Error(), http.StatusServiceUnavailable)
			return
		}
		(*h).ServeHTTP(w, r)
	})
}

func (e *embedded) Metrics() prometheus.Gatherer { return e.registry }

func (e *embedded) Status() Status {
	s := Status{Mode: "embedded", Ready: e.phase.Load() == phaseRunning}
	if err := e.configError.Load(); err != nil {
		s.ConfigError = *err
	}
	if s.Ready && e.cluster != nil {
		s.Ready = e.cluster.Ready()
		for _, p := range e.cluster.Peers() {
			s.Peers = append(s.Peers, p.Address())
		}
	}
	return s
}
