package delivery

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	amconfig "github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/matcher/compat"
	"go.opentelemetry.io/collector/config/confighttp"
)

// MinGroupInterval is the shortest group_interval that is accepted. Shorter ones make a storm of notifications of a
// group that changes with each evaluation.
const MinGroupInterval = 5 * time.Second

//go:embed default.yml
var defaultConfig string

// Config is what the user configures.
type Config struct {
	// ConfigFile is a file in Alertmanager's configuration format. Empty: every alert is kept and shown, nobody is told.
	ConfigFile string `mapstructure:"config_file"`
	// ExternalURL is where people reach the Alertmanager API, used in links in notifications. Empty: the address of
	// this collector's API.
	ExternalURL string `mapstructure:"external_url"`
	// Retention is how long expired silences, and who was told of what, are kept. A repeat_interval longer than this
	// has no effect.
	Retention time.Duration `mapstructure:"retention"`
	// Cluster joins several collectors, so that they tell people once.
	Cluster ClusterConfig `mapstructure:"cluster"`
	// External sends to Alertmanagers that run elsewhere, instead of the one in this process.
	External ExternalConfig `mapstructure:"external"`
}

// ClusterConfig joins the Alertmanagers of several collectors on one store.
type ClusterConfig struct {
	// Peers are the gossip addresses (host:port) of all collectors or of the others; a host name may stand for
	// several. Empty: no cluster.
	Peers []string `mapstructure:"peers"`
	// BindAddress (host:port, TCP and UDP) is where to listen for peers.
	BindAddress string `mapstructure:"bind_address"`
	// AdvertiseAddress (host:port) is where the peers reach this collector, if that differs from BindAddress.
	AdvertiseAddress string `mapstructure:"advertise_address"`
	// PeerTimeout is how long the n-th collector waits for each one before it to tell people, beside the second between
	// two evaluations. A receiver that takes longer than this to answer may be told twice.
	PeerTimeout time.Duration `mapstructure:"peer_timeout"`
	// TLSConfigFile is a file in the format of Alertmanager's --cluster.tls-config. Without it gossip is neither
	// encrypted nor authenticated.
	TLSConfigFile string `mapstructure:"tls_config_file"`
}

// ExternalConfig sends to Alertmanagers that run elsewhere.
type ExternalConfig struct {
	// Alertmanagers are sent every alert each. The endpoint is the base URL, without /api/v2.
	Alertmanagers []confighttp.ClientConfig `mapstructure:"alertmanagers"`
	// ResendInterval is how often an alert that fires is sent again, so that it does not expire there.
	ResendInterval time.Duration `mapstructure:"resend_interval"`
}

// NewDefaultConfig returns the configuration where the user says nothing: an Alertmanager in this process, alone,
// that tells nobody.
func NewDefaultConfig() Config {
	return Config{
		Retention: 120 * time.Hour,
		Cluster:   ClusterConfig{BindAddress: "127.0.0.1:9094", PeerTimeout: time.Second},
		External:  ExternalConfig{ResendInterval: time.Minute},
	}
}

// Validate says what is wrong with the configuration. It does not read the Alertmanager configuration file: New does.
func (c *Config) Validate() error {
	if c.ExternalURL != "" {
		if _, err := parseURL(c.ExternalURL); err != nil {
			return fmt.Errorf("external_url: %w", err)
		}
	}
	if c.Retention < time.Hour {
		return fmt.Errorf("retention: %s is too short: what is forgotten is told again; give 1h or more", c.Retention)
	}
	if err := c.External.validate(); err != nil {
		return fmt.Errorf("external: %w", err)
	}
	if len(c.External.Alertmanagers) > 0 && c.ConfigFile != "" {
		return errors.New("config_file: it configures the Alertmanager in this process, and external.alertmanagers are used instead of that one; remove either")
	}
	if len(c.External.Alertmanagers) > 0 && len(c.Cluster.Peers) > 0 {
		return errors.New("cluster: it joins Alertmanagers in collectors, and external.alertmanagers are used instead of those; remove either")
	}
	if err := c.Cluster.validate(); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

func (c *ClusterConfig) validate() error {
	if len(c.Peers) == 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(c.BindAddress)
	if err != nil {
		return fmt.Errorf("bind_address: %q is not host:port", c.BindAddress)
	}
	if c.AdvertiseAddress != "" {
		if _, _, err := net.SplitHostPort(c.AdvertiseAddress); err != nil {
			return fmt.Errorf("advertise_address: %q is not host:port", c.AdvertiseAddress)
		}
	}
	for _, p := range c.Peers {
		peer, _, err := net.SplitHostPort(p)
		if err != nil {
			return fmt.Errorf("peers: %q is not host:port", p)
		}
		if isLoopback(host) && !isLoopback(peer) {
			return fmt.Errorf("bind_address: %s listens to this machine only, so %s cannot answer; give an address that it reaches", c.BindAddress, p)
		}
	}
	if c.PeerTimeout < 100*time.Millisecond || c.PeerTimeout > time.Minute {
		return fmt.Errorf("peer_timeout: %s is not between 100ms and 1m", c.PeerTimeout)
	}
	return nil
}

func (c *ExternalConfig) validate() error {
	if len(c.Alertmanagers) == 0 {
		return nil
	}
	for i := range c.Alertmanagers {
		u, err := parseURL(c.Alertmanagers[i].Endpoint)
		if err != nil {
			return fmt.Errorf("alertmanagers: endpoint: %w", err)
		}
		if u.User != nil {
			return fmt.Errorf("alertmanagers: endpoint: %s has a password in it; use auth with the basicauth extension", u.Redacted())
		}
		if strings.Contains(u.Path, "/api/v") {
			return fmt.Errorf("alertmanagers: endpoint: %s names the API; give the address without it", u.Redacted())
		}
		if err := c.Alertmanagers[i].Validate(); err != nil {
			return fmt.Errorf("alertmanagers: %s: %w", u.Redacted(), err)
		}
	}
	if c.ResendInterval < time.Second || c.ResendInterval > Lease/2 {
		return fmt.Errorf("resend_interval: %s is not between 1s and %s, half of how long an alert lasts", c.ResendInterval, Lease/2)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("not a URL; give one as https://alertmanager.example.com") // err would quote it, passwords included
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL; give one as https://alertmanager.example.com", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err) // a constant of this package
	}
	return u
}

// externalURL is never nil: templates dereference it.
func externalURL(configured string, set Settings) (*url.URL, error) {
	if configured != "" {
		return parseURL(configured)
	}
	base := set.ExternalURL
	if base == "" {
		base = "http://localhost"
	}
	u, err := parseURL(base)
	if err != nil {
		return nil, fmt.Errorf("address of the API: %w", err)
	}
	return u.JoinPath(set.RoutePrefix), nil
}

// initMatchers sets how matchers are read, which is global to Alertmanager's packages: UTF-8, or else the older syntax.
var initMatchers = sync.OnceFunc(func() { compat.InitFromFlags(discard(), featurecontrol.NoopFlags{}) })

func name(path string) string {
	if path == "" {
		return "(default)"
	}
	return path
}

// loadConfig reads an Alertmanager configuration file, the default one if path is empty, and refuses what cannot be
// honoured here.
func loadConfig(path string) (*amconfig.Config, error) {
	initMatchers()
	var (
		conf *amconfig.Config
		err  error
	)
	if path == "" {
		conf, err = amconfig.Load(defaultConfig)
	} else {
		conf, err = amconfig.LoadFile(path)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("alertmanager configuration %s does not exist; mend config_file, or remove it to keep alerts without telling anybody", path)
	case err != nil:
		return nil, fmt.Errorf("alertmanager configuration %s: %w", name(path), err)
	}
	if conf.TracingConfig.Endpoint != "" {
		err = errors.New("tracing: it is the collector that is traced; remove it here")
	}
	if r := conf.EventRecorder; len(r.FileOutputs)+len(r.WebhookOutputs)+len(r.KafkaOutputs)+len(r.StdoutOutputs) > 0 {
		err = errors.Join(err, errors.New("event_recorder: transitions of alerts are kept in the store; remove it here"))
	}
	err = errors.Join(err, checkRoute(conf.Route))
	if err != nil {
		return nil, fmt.Errorf("alertmanager configuration %s: %w", name(path), err)
	}
	return conf, nil
}

func checkRoute(r *amconfig.Route) error {
	var err error
	if r.GroupInterval != nil && time.Duration(*r.GroupInterval) < MinGroupInterval {
		where := "a route"
		if r.Receiver != "" {
			where = fmt.Sprintf("a route to %q", r.Receiver)
		}
		err = fmt.Errorf("group_interval: %s of %s lets a group that keeps changing tell people as often; give %s or more (group_wait may be 0s: it is what delays the first notification)",
			r.GroupInterval, where, MinGroupInterval)
	}
	for _, child := range r.Routes {
		err = errors.Join(err, checkRoute(child))
	}
	return err
}
