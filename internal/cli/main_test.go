package cli_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is the environment of one command in a test.
type process struct {
	stdin     io.Reader
	width     int
	variables map[string]string
}

// run runs a command line and returns what it said and its exit code.
func (p process) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	stdin := p.stdin
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	code = cli.Run(context.Background(), args, cli.Environment{
		Stdin: stdin, Stdout: &out, Stderr: &errs, Width: p.width, Version: "v0.0.0-test",
		Getenv: func(name string) string { return p.variables[name] },
		Now:    func() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) },
		Random: bytes.NewReader(make([]byte, 1024)),
	})
	return out.String(), errs.String(), code
}

// must is run for a command that has to succeed.
func (p process) must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := p.run(t, args...)
	require.Equal(t, cli.ExitOK, code, stderr)
	return stdout
}

// golden compares with testdata/name.golden; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	require.Equal(t, string(want), got)
}

func files(t *testing.T, cells ...string) []string {
	t.Helper()
	var names []string
	for _, cell := range cells {
		names = append(names, capturetest.One(t, cell).Files...)
	}
	return names
}
