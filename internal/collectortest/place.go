package collectortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/porttest"
)

// Place is where a collector keeps its data and listens, over its restarts.
type Place struct {
	Data                      string
	GRPC, HTTP, Langfuse, API string // host:port
}

// NewPlace is an empty folder, and addresses that nothing listens on.
func NewPlace(t *testing.T) Place {
	t.Helper()
	ports := porttest.Free(t, 4)
	return Place{Data: t.TempDir(), GRPC: ports[0], HTTP: ports[1], Langfuse: ports[2], API: ports[3]}
}

// Settings are the arguments that make a collector listen there.
func (p Place) Settings() []string {
	return []string{
		"--set=receivers.otlp.protocols.grpc.endpoint=" + p.GRPC,
		"--set=receivers.otlp.protocols.http.endpoint=" + p.HTTP,
		"--set=receivers.otlp/langfuse.protocols.http.endpoint=" + p.Langfuse,
		"--set=extensions.retryledger_api.endpoint=" + p.API,
	}
}

// ErrNotYet is an answer of the API that may become another: nobody answers, or not
// with 200.
var ErrNotYet = errors.New("not yet")

// Get asks the API and decodes the answer into out.
func (p Place) Get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.API+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: ask %s: %w", ErrNotYet, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%w: ask %s: %w", ErrNotYet, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answered %s: %s", ErrNotYet, path, response.Status, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	return nil
}

// Retryledger runs the command line and returns what it wrote to standard output.
func (p Place) Retryledger(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "retryledger"), args...)
	cmd.Env = append(os.Environ(), "RETRYLEDGER_SERVER=http://"+p.API)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "retryledger %s\n%s", strings.Join(args, " "), errs.String())
	return string(out)
}
