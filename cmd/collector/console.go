package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"

	"github.com/retryledger/retryledger/internal/cli"
	"github.com/retryledger/retryledger/internal/ledgerstore"
)

// storePatience is how long the ready message waits for a store that is not there yet.
const storePatience = 2 * time.Second

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

// Ready is called when the receivers listen. A store on a server may not be reached
// yet, so the message waits for it apart, and not for long: spans are taken anyway.
func (c *console) Ready() error {
	store := storeOf(c.host)
	if store == nil {
		c.print(readyMessage(c.config, nil, fromSource()))
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.waiting.Go(func() {
		patience, done := context.WithTimeout(ctx, storePatience)
		defer done()
		_, err := store.Conn(patience)
		if ctx.Err() != nil {
			return
		}
		lines := []line{{"data", store.DataDir()}}
		switch {
		case err != nil:
			lines = append(lines, line{"ledger", store.Location() + ", not reached yet: spans are kept in the data folder"})
		case !strings.HasPrefix(store.Location(), store.DataDir()):
			lines = append(lines, line{"ledger", store.Location()})
		}
		c.print(readyMessage(c.config, lines, fromSource()))
	})
	return nil
}

func (c *console) print(text string) { _, _ = io.WriteString(c.out, text) }

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

// storeOf finds the ledger's store, nil where the configuration has none.
func storeOf(host component.Host) ledgerstore.Store {
	for _, e := range host.GetExtensions() {
		if store, ok := e.(ledgerstore.Store); ok {
			return store
		}
	}
	return nil
}

// fromSource tells whether "go run" built this process.
func fromSource() bool {
	path, err := os.Executable()
	return err == nil && strings.Contains(path, "go-build")
}

// line is one line of the ready message.
type line struct{ label, text string }

// readyMessage says where to send spans, what the middle lines say, and what to ask.
func readyMessage(config *confmap.Conf, middle []line, source bool) string {
	var lines []line
	endpoints := otlpEndpoints(config)
	for _, e := range endpoints {
		lines = append(lines, line{"send spans to", e.url + "  " + e.protocol})
	}
	lines = append(lines, middle...)
	if server := apiServer(config); server != "" {
		ask := "retryledger"
		if source {
			ask = "go run ./cmd/retryledger"
		}
		where := ""
		if server != cli.DefaultServer {
			where = " --server " + server
		}
		lines = append(lines,
			line{"try it", ask + " demo" + where + demoEndpoint(endpoints, server)},
			line{"ask", ask + " top" + where})
		if runs(config, "retryledger_alerts") != "" {
			lines = append(lines, line{"alerts", ask + " alerts" + where})
		}
	}
	lines = append(lines, line{"stop", "Ctrl-C"})
	var text strings.Builder
	text.WriteString("\nretryledger is ready.\n")
	for _, l := range lines {
		fmt.Fprintf(&text, "  %-15s %s\n", l.label, l.text)
	}
	text.WriteString("\n")
	return text.String()
}

// apiServer is the address of the HTTP API, "" where it is not running.
func apiServer(config *confmap.Conf) string {
	if name := runs(config, "retryledger_api"); name != "" {
		return url(config, "extensions::"+name)
	}
	return ""
}

// runs is the name of the first extension of a type that runs, "" if there is none.
func runs(config *confmap.Conf, kind string) string {
	running, _ := config.Get("service::extensions").([]any)
	for _, id := range running {
		if name := fmt.Sprint(id); name == kind || strings.HasPrefix(name, kind+"/") {
			return name
		}
	}
	return ""
}

// url is where the server with the settings below key listens, "" if nowhere.
func url(config *confmap.Conf, key string) string {
	endpoint, _ := config.Get(key + "::endpoint").(string)
	if endpoint == "" {
		return ""
	}
	if tls, ok := config.Get(key + "::tls").(map[string]any); ok && len(tls) > 0 {
		return "https://" + endpoint
	}
	return "http://" + endpoint
}

// demoEndpoint is the flag that the demo needs where the default does not do.
func demoEndpoint(endpoints []otlpEndpoint, server string) string {
	for _, e := range endpoints {
		if e.protocol != overHTTP { // what is sent elsewhere is not found
			continue
		}
		if e.url == cli.OTLPEndpoint(server) {
			return ""
		}
		return " --endpoint " + e.url
	}
	return ""
}

const (
	overGRPC     = "OTLP/gRPC"
	overHTTP     = "OTLP/HTTP, protobuf or JSON"
	fromLangfuse = "Langfuse's SDKs, as LANGFUSE_BASE_URL"

	// Where the SDKs of OpenTelemetry and of Langfuse send to below their base URL.
	otlpPath     = "/v1/traces"
	langfusePath = "/api/public/otel/v1/traces"
)

type otlpEndpoint struct{ protocol, url string }

// otlpEndpoints are the listeners of the OTLP receivers, in order of their name.
func otlpEndpoints(config *confmap.Conf) []otlpEndpoint {
	var found []otlpEndpoint
	receivers, _ := config.Get("receivers").(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(receivers)) {
		if id != "otlp" && !strings.HasPrefix(id, "otlp/") {
			continue
		}
		for _, protocol := range []string{"grpc", "http"} {
			key := "receivers::" + id + "::protocols::" + protocol
			at := url(config, key)
			if at == "" {
				continue
			}
			name := overGRPC
			if protocol == "http" {
				path := otlpPath
				if configured := config.Get(key + "::traces_url_path"); configured != nil {
					path = fmt.Sprint(configured) // a type of the receiver's own
				}
				switch path {
				case otlpPath:
					name = overHTTP
				case langfusePath:
					name = fromLangfuse
				default:
					name = "OTLP/HTTP, to this very path"
					at += path
				}
			}
			found = append(found, otlpEndpoint{protocol: name, url: at})
		}
	}
	return found
}
