package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/otelcol"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryledger/retryledger"
	"github.com/retryledger/retryledger/internal/release"
)

// defaultURI names the embedded configuration. It can be given beside a file
// that changes parts of it: --config default:otel-collector.yaml --config mine.yaml.
const defaultURI = "default:otel-collector.yaml"

// newCommand is the Collector's own command line, which reads the embedded
// configuration where no --config is given. config receives the configuration
// that the collector runs with.
func newCommand(config *effectiveConfig, stdout io.Writer) *cobra.Command {
	cmd := otelcol.NewCommand(settings(config, stdout))
	cmd.Short = "Keeps a ledger of retries from the OpenTelemetry spans it receives"
	cmd.Long = cmd.Short + `.

Without --config it runs its default configuration, which "print-config" shows.
Single values are changed with --set, for example
--set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:14317; several with a file
on top of the default: --config ` + defaultURI + ` --config mine.yaml.`
	cmd.Args = cobra.NoArgs
	cmd.SilenceErrors = true
	cmd.AddCommand(newEngineCommand())
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// The Collector takes --set alone for a whole configuration, so the
		// default cannot be left to ResolverSettings.URIs.
		flag := cmd.Flags().Lookup("config")
		if flag == nil || flag.Changed {
			return nil
		}
		return flag.Value.Set(defaultURI)
	}
	return cmd
}

func settings(config *effectiveConfig, stdout io.Writer) otelcol.CollectorSettings {
	built := builtModules()
	const providers = "go.opentelemetry.io/collector/confmap/provider/"
	return otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{
			Command:     "collector",
			Description: "retryledger collector",
			Version:     release.Version(),
		},
		Factories: func() (otelcol.Factories, error) { return factories(built, stdout) },
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				ProviderFactories: []confmap.ProviderFactory{
					fileprovider.NewFactory(),
					envprovider.NewFactory(),
					yamlprovider.NewFactory(),
					confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return defaultProvider{} }),
				},
				ConverterFactories: []confmap.ConverterFactory{
					confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return config }),
					confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return checkDoors{} }),
				},
				DefaultScheme: "env",
			},
		},
		ProviderModules: map[string]string{
			"file":    built.describe(providers + "fileprovider"),
			"env":     built.describe(providers + "envprovider"),
			"yaml":    built.describe(providers + "yamlprovider"),
			"default": built.describe(ownPath),
		},
		LoggingOptions: []zap.Option{zap.WrapCore(func(core zapcore.Core) zapcore.Core { return withoutStartFailures{core} })},
		// untilInterrupted turns signals into the end of the context, also
		// while the collector is still starting, when it would not listen.
		DisableGracefulShutdown: true,
	}
}

// defaultProvider serves the embedded configuration as "default:otel-collector.yaml".
type defaultProvider struct{}

func (defaultProvider) Scheme() string { return "default" }

func (defaultProvider) Shutdown(context.Context) error { return nil }

func (defaultProvider) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	if uri != defaultURI {
		return nil, fmt.Errorf("%q: the only configuration of this kind is %q", uri, defaultURI)
	}
	return confmap.NewRetrievedFromYAML([]byte(retryledger.DefaultConfiguration))
}

// effectiveConfig remembers the configuration that was last resolved, to name
// settings in messages. The zero value holds none.
type effectiveConfig struct {
	mu   sync.Mutex
	conf map[string]any
}

// Convert implements confmap.Converter and changes nothing of the configuration.
func (c *effectiveConfig) Convert(_ context.Context, conf *confmap.Conf) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conf = conf.ToStringMap()
	return limitMemory(conf)
}

// settingsOfPort returns the settings (in the spelling of --set) whose value is
// an address with this port, sorted, with their values.
func (c *effectiveConfig) settingsOfPort(port string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]string{}
	var walk func(path []string, value any)
	walk = func(path []string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, child := range value {
				walk(append(path[:len(path):len(path)], key), child)
			}
		case string:
			if strings.HasSuffix(value, ":"+port) {
				found[strings.Join(path, ".")] = value
			}
		}
	}
	// Exporters name the ports of others.
	for _, section := range []string{"receivers", "extensions", "service"} {
		walk([]string{section}, c.conf[section])
	}
	return found
}
