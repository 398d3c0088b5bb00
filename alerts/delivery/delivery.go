// Package delivery hands firing and resolved alerts to people: through Alertmanager's packages in this process, with
// their grouping, silences, inhibition, mute times, templates and receivers, or by pushing to Alertmanagers that run
// elsewhere. It is the only package that knows Alertmanager, whose Go API changes with each of its versions.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/component"
)

// Lease is how long an alert without an end stays firing after it was last put.
const Lease = 5 * time.Minute

// Bounds on what is held in memory.
const (
	maxAlerts       = 50_000
	maxSilences     = 10_000
	maxSilenceBytes = 64 << 10
	maxRequestBytes = 8 << 20
)

var (
	// ErrNotRunning is returned by a Deliverer that was not started or is shut down.
	ErrNotRunning = errors.New("alert delivery is not running")
	// ErrInvalidAlert is returned for alerts that will never be taken; the others of the same call are taken.
	ErrInvalidAlert = errors.New("invalid alert")
	// ErrTooManyAlerts is returned for alerts beyond what is held in memory (50,000); they may be put again later.
	ErrTooManyAlerts = errors.New("too many alerts at once")
)

// Why nobody is told of an alert.
const (
	Silenced  = "silenced"
	Inhibited = "inhibited"
)

// Alert is one alert. Its labels are its identity: the same labels put again are the same alert, refreshed.
type Alert struct {
	// Labels say what fires and where. Empty values are the same as absent ones; at least one must be left.
	Labels map[string]string
	// Annotations are for people. A change of annotations alone notifies nobody.
	Annotations map[string]string
	// StartsAt is when it began to fire. It must be the same each time the alert is put.
	StartsAt time.Time
	// EndsAt is zero for an alert that fires, and not before StartsAt for one that is resolved or will be at that time.
	EndsAt time.Time
	// GeneratorURL leads to what made the alert.
	GeneratorURL string
}

// Deliverer delivers alerts. The caller's part of the contract:
//
//   - An alert that fires is put again well within each Lease (once per evaluation is fine: what did not change
//     notifies nobody). One that is not put again resolves by itself when its Lease or its EndsAt passes, and
//     people are told that it is resolved. So a caller whose evaluation stalls keeps putting what fires.
//   - An alert that is resolved is put with its EndsAt, and for a while again, as often as one that fires: a restart in
//     between may lose it, and of two puts within a moment Alertmanager may handle the earlier one last. People are told
//     within the route's group_interval.
//   - After a restart the caller puts what fires again: alerts are not kept on disk. Who was told of what is, so
//     nobody is told twice, except of what was sent in the last second before the process was killed.
//   - Several collectors that evaluate the same rules on one store put the same alerts, with the same labels and the
//     same StartsAt.
//
// All methods may be called at any time and concurrently. Time is the clock's here, since Alertmanager reads it.
type Deliverer interface {
	// Start begins delivery. It returns at once; Shutdown ends it, at the latest when its context does.
	component.Component
	// Put takes alerts over. It returns once they are held in memory, before anybody was told. Errors are
	// ErrNotRunning, ErrInvalidAlert or ErrTooManyAlerts, by errors.Is.
	Put(ctx context.Context, alerts ...Alert) error
	// Reload reads the configuration file again. Everything that can fail is done before what runs is touched, so
	// after an error delivery goes on as before.
	Reload(ctx context.Context) error
	// Handler serves Alertmanager's API v2 below Settings.RoutePrefix. It answers 503 until delivery runs.
	Handler() http.Handler
	// Muted tells why nobody is told of an alert that fires, Silenced or Inhibited; "" where people are told, or
	// where other Alertmanagers decide. Mute times belong to routes and are not looked at.
	Muted(labels map[string]string) string
	// Status tells how delivery is.
	Status() Status
	// Metrics are Alertmanager's own metrics, or those of the push, in a registry of their own.
	Metrics() prometheus.Gatherer
}

// Status tells how delivery is.
type Status struct {
	// Mode is "embedded" or "external".
	Mode string `json:"mode"`
	// Ready is whether alerts go out: running, and settled in the cluster if there is one.
	Ready bool `json:"ready"`
	// ConfigError is why the last reload failed; what was loaded before is still in use.
	ConfigError string `json:"config_error,omitempty"`
	// Peers are the gossip addresses of all collectors in the cluster, this one included.
	Peers []string `json:"peers,omitempty"`
	// Alertmanagers are the external ones.
	Alertmanagers []AlertmanagerStatus `json:"alertmanagers,omitempty"`
}

// AlertmanagerStatus is one external Alertmanager.
type AlertmanagerStatus struct {
	// URL is where it is, without credentials.
	URL string `json:"url"`
	// LastSuccess is when it last took alerts.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// LastError is why the last attempt failed, empty once one succeeded.
	LastError string `json:"last_error,omitempty"`
	// Pending counts alerts it was not told of yet.
	Pending int `json:"pending"`
}

// Settings are what the process gives, as against what the user configures.
type Settings struct {
	// DataDir holds silences and who was told of what. It is made if absent, and belongs to one Deliverer at a time.
	DataDir string
	// RoutePrefix is the path below which Handler serves, such as "/alertmanager"; empty for none.
	RoutePrefix string
	// ExternalURL is where people reach Handler, without RoutePrefix, used where Config.ExternalURL is empty.
	ExternalURL string
	// EvaluationInterval is the time between two evaluations of the caller. Of two callers on one store, one may see a
	// breach by so much later than the other: what it needs became visible between their reads.
	EvaluationInterval time.Duration
	// Telemetry has the logger.
	Telemetry component.TelemetrySettings
}

// New makes a Deliverer of a valid configuration. It reads the Alertmanager configuration file, so that a mistake in it
// is told before anything runs, but starts nothing.
func New(cfg *Config, set Settings) (Deliverer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if set.Telemetry.Logger == nil {
		return nil, errors.New("alert delivery needs a logger")
	}
	if len(cfg.External.Alertmanagers) > 0 {
		return newExternal(cfg.External, set)
	}
	if set.DataDir == "" {
		return nil, errors.New("alert delivery needs a data folder")
	}
	external, err := externalURL(cfg.ExternalURL, set)
	if err != nil {
		return nil, err
	}
	e := newEmbedded(cfg, set, external)
	if _, err := e.prepare(); err != nil {
		return nil, err
	}
	return e, nil
}

// Check reads an Alertmanager configuration file as Start and Reload do, and says what is wrong with it.
func Check(path string) error {
	conf, err := loadConfig(path)
	if err != nil {
		return err
	}
	_, err = parse(conf, mustURL("http://localhost"), discard(), newConnections())
	if err != nil {
		return fmt.Errorf("alertmanager configuration %s: %w", name(path), err)
	}
	return nil
}
