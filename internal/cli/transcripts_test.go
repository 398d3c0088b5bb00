package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/signals"
)

// root is the folder of the module, where the commands of the docs are typed.
const root = "../.."

// transcripts are the fenced blocks of a page that show a command and what it prints.
func transcripts(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	var found []string
	for _, block := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], "$ ") {
			found = append(found, block[1])
		}
	}
	return found
}

// typed runs the commands of a transcript and writes down what a terminal would show.
func (p process) typed(t *testing.T, transcript string) string {
	t.Helper()
	var shown strings.Builder
	last := 0
	for line := range strings.Lines(transcript) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		shown.WriteString(line)
		if command == "echo $?" {
			shown.WriteString(strconv.Itoa(last) + "\n")
			continue
		}
		var args []string
		for _, word := range strings.Fields(strings.TrimPrefix(strings.TrimPrefix(command, "go run ./cmd/"), "retryledger")) {
			names := []string{word}
			if strings.Contains(word, "*") {
				var err error
				names, err = filepath.Glob(filepath.Join(root, word))
				require.NoError(t, err)
			}
			args = append(args, names...)
		}
		out, errs, code := p.run(t, args...)
		shown.WriteString(out + errs)
		last = code
	}
	return shown.String()
}

// What the docs show is what is printed; "…" stands for any lines.
func TestTranscriptsOfTheDocs(t *testing.T) {
	t.Parallel()
	alert := serve(t, http.StatusOK, report.Alerts{EvaluatedAt: ago(0), Rules: 12, Alerts: []report.Alert{{
		Fingerprint: "3d93237dd2258ed7", Rule: "throttling", State: "firing", Group: signals.Labels{Provider: "mockai"}, Labels: map[string]string{"severity": "ticket"},
		StartsAt: ago(90 * time.Second), Numerator: 14, Denominator: 19, TopError: "RateLimitError 429", TopErrorCount: 14,
	}}}, nil)
	for _, c := range []struct {
		page    string
		shown   []int // blocks
		process process
	}{
		{"README.md", []int{0}, process{}},
		{"docs/alerts.md", []int{0}, alert},
		{"docs/breakers.md", []int{0}, alertsServer(t)},
		{"docs/gates.md", []int{0}, alertsServer(t)},
	} {
		blocks := transcripts(t, c.page)
		for _, n := range c.shown {
			require.Greater(t, len(blocks), n, c.page)
			pattern := strings.ReplaceAll(regexp.QuoteMeta(blocks[n]), "…\n", "(?s:.*)")
			shown := c.process.typed(t, blocks[n])
			assert.True(t, regexp.MustCompile("^"+pattern+"$").MatchString(shown), "%s shows\n%s\nand it is\n%s", c.page, blocks[n], shown)
		}
	}
}
