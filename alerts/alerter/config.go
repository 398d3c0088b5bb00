package alerter

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/gates"
	"github.com/retryledger/retryledger/alerts/signals"
)

// Config says where rules come from and where alerts go.
type Config struct {
	// Store is the extension that keeps the ledger.
	Store component.ID `mapstructure:"store"`
	// API is the extension whose address serves alerts, rules and Alertmanager's API.
	API component.ID `mapstructure:"api"`
	// RulesFile lies over the default pack; it is read again when it changes. Empty: the
	// default pack alone.
	RulesFile string `mapstructure:"rules_file"`
	// DashboardURL is the address of a dashboard, for links in alerts, which add what they
	// are about as var-service, var-step and so on. Empty: no links.
	DashboardURL string `mapstructure:"dashboard_url"`
	// Delivery says who is told: by the Alertmanager in this process, or by others.
	Delivery delivery.Config `mapstructure:"delivery"`
	// Breakers say when a provider's breaker opens and closes.
	Breakers breakers.Settings `mapstructure:"breakers"`
	// MaxGateWindow is the longest window that a gate may ask for; the signals of gates
	// are held for so long.
	MaxGateWindow time.Duration `mapstructure:"max_gate_window"`
	// MaxSeries bounds the label sets that are told apart over all signals; further ones
	// are counted under "(other)".
	MaxSeries int `mapstructure:"max_series"`
	// MaxTraces bounds the traces that are remembered within the windows.
	MaxTraces int `mapstructure:"max_traces"`
}

const (
	defaultStore = "retryledger_store"
	defaultAPI   = "retryledger_api"
)

func createDefaultConfig() component.Config { return defaults() }

func defaults() *Config {
	return &Config{
		Store: component.MustNewID(defaultStore), API: component.MustNewID(defaultAPI), Delivery: delivery.NewDefaultConfig(),
		Breakers: breakers.DefaultSettings(), MaxGateWindow: gates.DefaultMaxWindow,
		MaxSeries: 20_000, MaxTraces: 1_000_000,
	}
}

// Validate says what is wrong and how to mend it, in the files that are named too; the
// parts validate themselves.
func (c *Config) Validate() error {
	var errs []error
	if _, err := (&rulesFile{path: c.RulesFile}).load(); err != nil {
		errs = append(errs, err)
	}
	if c.Delivery.ConfigFile != "" {
		if err := delivery.Check(c.Delivery.ConfigFile); err != nil {
			errs = append(errs, err)
		}
	}
	if c.DashboardURL != "" {
		if u, err := url.Parse(c.DashboardURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, errors.New("dashboard_url is no address: write one such as https://grafana.example.com/d/retries"))
		}
	}
	if c.MaxGateWindow < gates.DefaultWindow || c.MaxGateWindow > signals.MaxWindow {
		errs = append(errs, fmt.Errorf("max_gate_window is %s: use a time between %s and %s", c.MaxGateWindow, gates.DefaultWindow, signals.MaxWindow))
	}
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s is %d: use %d or more", name, value, least))
		}
	}
	atLeast("max_series", c.MaxSeries, 100)
	atLeast("max_traces", c.MaxTraces, 1000)
	return errors.Join(errs...)
}
