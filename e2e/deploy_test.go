package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// composeService is what the test looks at of a service of deploy/compose.yaml.
type composeService struct {
	Image      string
	Build      any
	Command    []string
	Entrypoint []string
	Ports      []string
	Volumes    []string
	DependsOn  map[string]any `yaml:"depends_on"`
}

const deployFolder = "../deploy"

// What compose.yaml says fits its files and itself. (No containers run here.)
func TestComposeFileHoldsTogether(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deployFolder, "compose.yaml"))
	require.NoError(t, err)
	var compose struct {
		Services map[string]composeService
		Volumes  map[string]any
	}
	require.NoError(t, yaml.Unmarshal(content, &compose))
	require.Len(t, compose.Services, 5)
	for name, s := range compose.Services {
		for _, port := range s.Ports {
			assert.Truef(t, strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s beyond this machine", name, port)
		}
		if s.Build == nil {
			assert.Regexpf(t, `^[a-z./-]+:\d+\.\d+(\.\d+)?$`, s.Image, "%s: an image without a version is another one tomorrow", name)
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if file, ok := strings.CutPrefix(from, "./"); ok {
				assert.FileExistsf(t, filepath.Join(deployFolder, file), "%s mounts it", name)
			} else {
				assert.Containsf(t, compose.Volumes, from, "%s mounts it", name)
			}
		}
		for other := range s.DependsOn {
			assert.Contains(t, compose.Services, other)
		}
	}
	assert.Contains(t, compose.Services["collector"].Volumes, "./collector.yaml:"+compose.Services["collector"].Command[3]+":ro")
	// The commands of its programs are such that they take.
	p := newPlace(t)
	for _, name := range []string{"demo", "dashboards"} {
		words := compose.Services[name].Entrypoint
		require.Equal(t, "/usr/local/bin/retryledger", words[0])
		help := p.Retryledger(t, append(subcommand(words[1:]), "--help")...)
		for _, word := range words {
			if strings.HasPrefix(word, "--") {
				assert.Contains(t, help, word, name)
			}
		}
	}
}

// subcommand are the words before the first flag, but for arguments.
func subcommand(words []string) []string {
	for i, word := range words {
		if strings.HasPrefix(word, "-") {
			return words[:i]
		}
	}
	return words
}

// The configuration of the collector in compose.yaml works with a server, and the demo
// that is sent there arrives.
func TestComposeConfigurationWithAServer(t *testing.T) {
	address := porttest.Free(t, 1)[0]
	folder := t.TempDir()
	server := collectortest.LaunchCommand(t, collectortest.Place{Data: folder}, "engine", "--data-dir", folder, "--listen", address)
	server.WaitFor("listens at " + address)
	password, err := os.ReadFile(filepath.Join(folder, "password"))
	require.NoError(t, err)
	t.Setenv("RETRYLEDGER_CLICKHOUSE", address)
	t.Setenv("RETRYLEDGER_CLICKHOUSE_PASSWORD", strings.TrimSpace(string(password)))
	d := start(t, newPlace(t), "--config", "default:otel-collector.yaml", "--config", filepath.Join(deployFolder, "collector.yaml"))
	out := d.Retryledger(t, "demo", "--endpoint", "http://"+d.HTTP, "--wait", "2m")
	assert.Contains(t, out, "demo-seven-of-three")
	d.Stop()
	server.Stop()
}
