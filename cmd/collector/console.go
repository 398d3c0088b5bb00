package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
)

// consoleType is the extension that tells a person at a terminal where to send
// spans and what to ask, once, when all is up. A configuration without it is silent.
var consoleType = component.MustNewType("retryledger_console")

type consoleConfig struct{}

func newConsoleFactory(stdout io.Writer) extension.Factory {
	return extension.NewFactory(consoleType,
		func() component.Config { return &consoleConfig{} },
		func(context.Context, extension.Settings, component.Config) (extension.Extension, error) {
			return &console{out: stdout}, nil
		},
		component.StabilityLevelBeta)
}

// console implements the hooks of the Collector that say when everything is up.
type console struct {
	out io.Writer

	host   component.Host
	config *confmap.Conf

	stop    context.CancelFunc
	waiting sync.WaitGroup
}

var (
	_ extensioncapabilities.PipelineWatcher       = (*console)(nil)
	_ extensioncapabilities.ConfigSnapshotWatcher = (*console)(nil)
)

func (c *console) Start(_ context.Context, host component.Host) error {
	c.host = host
	return nil
}

func (c *console) NotifyConfigSnapshot(_ context.Context, snapshot extensioncapabilities.ConfigSnapshot) error {
	c.config = snapshot.Effective()
	return nil
}

// Ready is called when the receivers listen. The store may still be starting, so
// the message waits for it apart.
func (c *console) Ready() error {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.waiting.Go(func() {
		data, err := dataFolder(ctx, c.host)
		if err != nil {
			return // stopped before it was ready, and whoever failed has said so
		}
		_, _ = io.WriteString(c.out, readyMessage(c.config, data, fromSource()))
	})
	return nil
}

func (c *console) NotReady() error {
	c.end()
	return nil
}

func (c *console) Shutdown(context.Context) error {
	c.end()
	return nil
}

func (c *console) end() {
	if c.stop != nil {
		c.stop()
	}
	c.waiting.Wait()
}

// dataFolder waits for the store and returns where it keeps the data, or "" where
// no extension is a store.
func dataFolder(context.Context, component.Host) (string, error) { return "", nil }

// fromSource tells whether "go run" built this process.
func fromSource() bool {
	path, err := os.Executable()
	return err == nil && strings.Contains(path, "go-build")
}

// readyMessage says where to send spans, where the data is and what to ask.
func readyMessage(config *confmap.Conf, data string, source bool) string {
	ask := "retryledger"
	if source {
		ask = "go run ./cmd/retryledger"
	}
	if server := apiServer(config); server != "" && server != defaultAPIServer {
		ask += " --server " + server
	}
	var text strings.Builder
	text.WriteString("\nretryledger is ready.\n")
	for _, r := range otlpEndpoints(config) {
		fmt.Fprintf(&text, "  send spans to   %s  (%s)\n", r.url, r.protocol)
	}
	if data != "" {
		fmt.Fprintf(&text, "  data            %s\n", data)
	}
	fmt.Fprintf(&text, "  first answer    %s demo\n", ask)
	fmt.Fprintf(&text, "  your answer     %s top\n", ask)
	text.WriteString("  stop            Ctrl-C\n\n")
	return text.String()
}

const defaultAPIServer = "http://127.0.0.1:4319"

// apiServer is the address of the HTTP API, "" where it is not configured.
func apiServer(config *confmap.Conf) string {
	endpoint, _ := config.Get("extensions::retryledger_api::endpoint").(string)
	if endpoint == "" {
		return ""
	}
	return "http://" + endpoint
}

type otlpEndpoint struct{ protocol, url string }

// otlpEndpoints are the listeners of the OTLP receivers, in order of their name.
func otlpEndpoints(config *confmap.Conf) []otlpEndpoint {
	var found []otlpEndpoint
	receivers, _ := config.Get("receivers").(map[string]any)
	for id := range receivers {
		if id != "otlp" && !strings.HasPrefix(id, "otlp/") {
			continue
		}
		for _, protocol := range []string{"grpc", "http"} {
			key := "receivers::" + id + "::protocols::" + protocol
			endpoint, _ := config.Get(key + "::endpoint").(string)
			if endpoint == "" {
				continue
			}
			scheme := "http://"
			if tls, ok := config.Get(key + "::tls").(map[string]any); ok && len(tls) > 0 {
				scheme = "https://"
			}
			name := map[string]string{"grpc": "OTLP/gRPC", "http": "OTLP/HTTP, protobuf or JSON"}[protocol]
			found = append(found, otlpEndpoint{protocol: name, url: scheme + endpoint})
		}
	}
	// gRPC before HTTP, as the ports and the documentation have it.
	slices.SortFunc(found, func(a, b otlpEndpoint) int {
		return cmp.Or(strings.Compare(a.protocol, b.protocol), strings.Compare(a.url, b.url))
	})
	return found
}
