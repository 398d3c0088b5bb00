package delivery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// TestExamplesInTheDocumentation reads every example of docs/alert-delivery.md as its first line says.
func TestExamplesInTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alert-delivery.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	require.Len(t, blocks, 4)
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		kind, _, _ := strings.Cut(text, "\n")
		switch kind {
		case "# alertmanager.yml":
			path := filepath.Join(t.TempDir(), "alertmanager.yml")
			write(t, path, text)
			require.NoError(t, Check(path))
		case "# collector: delivery":
			var raw map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(text), &raw))
			cfg := NewDefaultConfig()
			require.NoError(t, confmap.NewFromStringMap(raw).Unmarshal(&cfg), text)
			require.NoError(t, cfg.Validate(), text)
		default:
			t.Fatalf("an example begins with %q", kind)
		}
	}
}
