package delivery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/rules"
)

// TestExamplesInTheDocumentation reads every example of docs/alert-delivery.md as its first line says.
func TestExamplesInTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alert-delivery.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	require.Len(t, blocks, 6)
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		kind, _, _ := strings.Cut(text, "\n")
		switch kind {
		case "# alertmanager.yml":
			path := filepath.Join(t.TempDir(), "alertmanager.yml")
			write(t, path, text)
			require.NoError(t, Check(path))
		case "# alertmanager.yml: inhibit_rules":
			path := filepath.Join(t.TempDir(), "alertmanager.yml")
			write(t, path, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\ninhibit_rules:\n"+text)
			require.NoError(t, Check(path))
		case "# rules.yaml":
			_, err := rules.Load("rules.yaml", []byte(text))
			require.NoError(t, err)
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
