package breakers

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// driver asks the example's client whatever a line of standard input says.
const driver = `
import sys
from client import Breakers
with Breakers(sys.argv[1]) as breakers:
    for line in sys.stdin:
        question, provider = line.rstrip("\n").split(" ", 1)
        print(getattr(breakers, question)(provider), flush=True)
`

// python is the example client at work.
type python struct {
	questions *bufio.Writer
	answers   *bufio.Scanner
}

func startPython(t *testing.T, server string) *python {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "python3 is missing: %v", err)
		t.Skip("python3 is missing, so the example client in examples/python/breaker is not tested")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's ends before its cleanup
	cmd := exec.CommandContext(ctx, interpreter, "-c", driver, server)
	cmd.Dir = filepath.Join("..", "..", "examples", "python", "breaker")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		defer cancel()
		assert.NoError(t, in.Close())
		assert.NoError(t, cmd.Wait(), "it ends when it is told to: %s", &errs)
		assert.Empty(t, errs.String())
	})
	return &python{bufio.NewWriter(in), bufio.NewScanner(out)}
}

func (p *python) ask(t *testing.T, question, provider string) string {
	t.Helper()
	_, err := fmt.Fprintln(p.questions, question, provider)
	require.NoError(t, err)
	require.NoError(t, p.questions.Flush())
	require.True(t, p.answers.Scan())
	return p.answers.Text()
}

func (p *python) becomes(t *testing.T, provider, state string) {
	t.Helper()
	require.Eventually(t, func() bool { return p.ask(t, "state", provider) == state }, 20*time.Second, 5*time.Millisecond, "%s is %s", provider, state)
}

// TestTheExampleClientInPython follows the real handler.
func TestTheExampleClientInPython(t *testing.T) {
	const provider = "azure/eu west"
	s := serve(t, nil)
	s.requests.add(provider, 1, 100, 503)
	s.to(t, 1)
	p := startPython(t, s.server.URL)
	p.becomes(t, provider, "open")
	assert.Equal(t, "False", p.ask(t, "allow", provider))
	assert.Equal(t, "True", p.ask(t, "allow", "nobody"))

	s.to(t, 11)
	p.becomes(t, provider, "half_open")
	for probe := range 8 {
		want := "True"
		if probe >= 5 {
			want = "False"
		}
		assert.Equal(t, want, p.ask(t, "allow", provider), "probe %d", probe)
	}
	s.requests.add(provider, 12, 1, 503)
	s.to(t, 12)
	p.becomes(t, provider, "open")

	s.second.Store(100)
	p.becomes(t, provider, "closed") // the data are stale
	s.to(t, 100)
	p.becomes(t, provider, "half_open")
	s.requests.add(provider, 101, 5, 200)
	s.to(t, 101)
	p.becomes(t, provider, "closed")

	s.requests.add(provider, 102, 100, 503)
	s.to(t, 102)
	p.becomes(t, provider, "open")
	s.Close() // the collector stops
	p.becomes(t, provider, "closed")
	assert.Equal(t, "True", p.ask(t, "allow", provider), "without a collector requests go")
}

// TestTheExampleClientWithoutACollector, or with something else in its place.
func TestTheExampleClientWithoutACollector(t *testing.T) {
	p := startPython(t, "http://127.0.0.1:1")
	assert.Equal(t, "True", p.ask(t, "allow", "openai"))
	assert.Equal(t, "closed", p.ask(t, "state", "openai"))

	s := serve(t, func(server *http.Server) {
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "event: state\ndata: {\"breakers\": [{}]}\n\nevent: state\ndata: nonsense\n\n")
		})
	})
	p = startPython(t, s.server.URL)
	for range 20 {
		assert.Equal(t, "True", p.ask(t, "allow", "openai"))
	}
}
