package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

// Whatever other machines can reach must encrypt, and ask who it is that comes in. The
// configuration as a whole is checked, before anything listens and whatever runs.

// doorsType is the extension whose settings name the exceptions.
var doorsType = component.MustNewType("retryledger_doors")

// doorsConfig are its settings.
type doorsConfig struct {
	// Unprotected are the components that may be reached from other machines without
	// encryption or without authentication, as receivers and extensions are named;
	// "telemetry" stands for the collector's own metrics.
	Unprotected []string `mapstructure:"unprotected"`
}

func newDoorsFactory() extension.Factory {
	return extension.NewFactory(doorsType,
		func() component.Config { return &doorsConfig{} },
		func(_ context.Context, set extension.Settings, config component.Config) (extension.Extension, error) {
			return &doors{config.(*doorsConfig), set.Logger}, nil //nolint:forcetypeassert,errcheck // it is the one made above
		},
		component.StabilityLevelBeta)
}

// doors says at each start what is not protected: the check itself is checkDoors.
type doors struct {
	config *doorsConfig
	log    *zap.Logger
}

func (d *doors) Start(context.Context, component.Host) error {
	if len(d.config.Unprotected) > 0 {
		d.log.Warn("What other machines may reach without encryption or authentication, as configured. Let only a trusted network reach it.",
			zap.Strings("unprotected", d.config.Unprotected))
	}
	return nil
}

func (d *doors) Shutdown(context.Context) error { return nil }

// listener is an address that the configuration makes the collector listen on.
type listener struct {
	component string // as `unprotected` names it
	setting   string // of the address, in the spelling of --set
	address   string
	encrypted bool
	asks      bool // who it is
}

// open tells whether other machines get in without being asked, or in clear.
func (l listener) open() bool { return !onThisMachine(l.address) && (!l.encrypted || !l.asks) }

func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// openDoorsError is why a configuration is refused.
type openDoorsError struct{ open []listener }

func (e *openDoorsError) Error() string {
	settings, components := make([]string, len(e.open)), []string{}
	encrypted, asks := true, true
	for i, l := range e.open {
		address := l.address
		if address == "" {
			address = `""`
		}
		settings[i] = l.setting + "=" + address
		encrypted, asks = encrypted && l.encrypted, asks && l.asks
		if !slices.Contains(components, l.component) {
			components = append(components, l.component)
		}
	}
	lack, remedy := "encryption and authentication", "set tls and auth there"
	switch {
	case encrypted:
		lack, remedy = "authentication", "set auth there, or tls::client_ca_file"
	case asks:
		lack, remedy = "encryption", "set tls there"
	}
	return fmt.Sprintf("other machines can reach %s without %s: %s (see docs/security.md), listen on 127.0.0.1, "+
		"or, where only a trusted network reaches it, say so by --set=extensions.%s.unprotected=[%s]",
		strings.Join(settings, " and "), lack, remedy, doorsType, strings.Join(components, ", "))
}

// checkDoors is a confmap.Converter that changes nothing, and refuses a configuration
// with open doors that it does not name.
type checkDoors struct{}

// Convert implements confmap.Converter.
func (checkDoors) Convert(_ context.Context, conf *confmap.Conf) error {
	all := listeners(conf.ToStringMap())
	allowed := unprotected(conf.ToStringMap())
	for _, name := range allowed {
		if !slices.ContainsFunc(all, func(l listener) bool { return l.component == name }) {
			known := map[string]bool{}
			for _, l := range all {
				known[l.component] = true
			}
			return fmt.Errorf("extensions.%s.unprotected names %q, and nothing of that name listens; what does: %s",
				doorsType, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	var open []listener
	for _, l := range all {
		if l.open() && !slices.Contains(allowed, l.component) {
			open = append(open, l)
		}
	}
	if len(open) > 0 {
		return &openDoorsError{open}
	}
	return nil
}

func unprotected(conf map[string]any) (names []string) {
	for id, settings := range section(conf, "extensions") {
		if kindOf(id) != doorsType.String() {
			continue
		}
		for _, name := range listIn(settings, "unprotected") {
			names = append(names, idOf(name))
		}
	}
	return names
}

// listeners are those of the receivers and extensions that run, and of the collector's
// own metrics, sorted by their settings. Where no address is set it is on this machine by
// default; one that is set and empty, as a variable of the environment may be, is all
// interfaces.
func listeners(conf map[string]any) []listener {
	var found []listener
	add := func(component, setting string, settings map[string]any) {
		if text(settings, "transport") == "unix" {
			return
		}
		tls, encrypted := enabledIn(settings, "tls")
		auth, _ := enabledIn(settings, "auth")
		found = append(found, listener{
			component: component, setting: setting + ".endpoint", address: addressIn(settings, "endpoint"), encrypted: encrypted,
			asks: text(auth, "authenticator") != "" || text(tls, "client_ca_file") != "",
		})
	}
	received := map[string]bool{}
	for _, pipeline := range section(mapIn(conf, "service"), "pipelines") {
		for _, id := range listIn(pipeline, "receivers") {
			received[idOf(id)] = true
		}
	}
	for key, settings := range section(conf, "receivers") {
		if id := idOf(key); received[id] && kindOf(key) == "otlp" {
			for protocol, of := range section(settings, "protocols") {
				if isOn(of) {
					add(id, "receivers."+id+".protocols."+protocol, of)
				}
			}
		}
	}
	running := map[string]bool{}
	for _, id := range listIn(mapIn(conf, "service"), "extensions") {
		running[idOf(id)] = true
	}
	for key, settings := range section(conf, "extensions") {
		id := idOf(key)
		if !running[id] {
			continue
		}
		switch kindOf(key) {
		case "retryledger_api":
			add(id, "extensions."+id, settings)
		case "health_check":
			add(id, "extensions."+id, settings)
			for _, protocol := range []string{"http", "grpc"} { // with the feature gate extension.healthcheck.useComponentStatus
				if _, set := settings[protocol]; set {
					add(id, "extensions."+id+"."+protocol, mapIn(settings, protocol))
				}
			}
		case "retryledger_alerts":
			if l, ok := gossip(id, mapIn(mapIn(settings, "delivery"), "cluster")); ok {
				found = append(found, l)
			}
		}
	}
	found = append(found, ownMetrics(conf)...)
	slices.SortFunc(found, func(a, b listener) int { return strings.Compare(a.setting, b.setting) })
	return found
}

// gossip is where collectors that tell people once listen for each other.
func gossip(id string, cluster map[string]any) (listener, bool) {
	if len(listIn(cluster, "peers")) == 0 {
		return listener{}, false
	}
	l := listener{component: id, setting: "extensions." + id + ".delivery.cluster.bind_address", address: addressIn(cluster, "bind_address")}
	if file := text(cluster, "tls_config_file"); file != "" {
		l.encrypted = true
		var tls struct {
			Server struct {
				ClientAuthType string `yaml:"client_auth_type"`
			} `yaml:"tls_server_config"`
		}
		if content, err := os.ReadFile(file); err == nil && yaml.Unmarshal(content, &tls) == nil { // else the extension says what is wrong
			l.asks = tls.Server.ClientAuthType == "RequireAndVerifyClientCert"
		}
	}
	return l, true
}

// ownMetrics are where the collector's own metrics are served, which has neither TLS nor
// authentication.
func ownMetrics(conf map[string]any) []listener {
	found := []listener{}
	readers, _ := mapIn(mapIn(mapIn(conf, "service"), "telemetry"), "metrics")["readers"].([]any)
	for i, reader := range readers {
		r, _ := reader.(map[string]any)
		prometheus := mapIn(mapIn(mapIn(r, "pull"), "exporter"), "prometheus")
		if _, set := prometheus["host"]; set { // without one the collector does not start
			found = append(found, listener{
				component: "telemetry", setting: fmt.Sprintf("service.telemetry.metrics.readers[%d].pull.exporter.prometheus.host", i),
				address: addressIn(prometheus, "host"),
			})
		}
	}
	return found
}

// addressIn is the address that a component is given, on this machine where it is given
// none. What is no text is an empty variable of the environment, or nothing to rely on.
func addressIn(conf map[string]any, key string) string {
	if _, set := conf[key]; !set {
		return "localhost:0"
	}
	return text(conf, key)
}

// enabledIn is a section that the Collector heeds: `enabled: false` turns it off.
func enabledIn(conf map[string]any, key string) (found map[string]any, on bool) {
	found, on = conf[key].(map[string]any)
	if !on || !isOn(found) {
		return nil, false
	}
	return found, true
}

func isOn(section map[string]any) bool {
	enabled, set := section["enabled"]
	return !set || enabled == true
}

func section(conf map[string]any, key string) map[string]map[string]any {
	found := map[string]map[string]any{}
	for id, settings := range mapIn(conf, key) {
		of, _ := settings.(map[string]any) // nil: all by default
		found[id] = of
	}
	return found
}

func mapIn(conf map[string]any, key string) map[string]any {
	found, _ := conf[key].(map[string]any)
	return found
}

// listIn reads a list, or the one value that the Collector takes for a list.
func listIn(conf map[string]any, key string) (texts []string) {
	switch value := conf[key].(type) {
	case []any:
		for _, item := range value {
			texts = append(texts, fmt.Sprint(item))
		}
	case string:
		texts = append(texts, value)
	}
	return texts
}

func text(conf map[string]any, key string) string {
	value, _ := conf[key].(string)
	return value
}

// idOf spells an id as all others: "otlp / x" is "otlp/x".
func idOf(key string) string {
	kind, name, named := strings.Cut(key, "/")
	if !named {
		return strings.TrimSpace(kind)
	}
	return strings.TrimSpace(kind) + "/" + strings.TrimSpace(name)
}

func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return strings.TrimSpace(kind)
}
