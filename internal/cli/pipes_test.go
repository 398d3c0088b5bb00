package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/cli"
)

// A named pipe is read like the file that is written into it.
func TestAccountReadsAPipe(t *testing.T) {
	t.Parallel()
	file := files(t, "plain-go/retrygo_step")[0]
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err == nil {
			_, err = w.Write(content)
			_ = w.Close()
		}
		written <- err
	}()
	got := process{}.must(t, "account", "--format", "json", pipe)
	require.NoError(t, <-written)
	assert.Equal(t, process{}.must(t, "account", "--format", "json", file), got)
}

// Who waits for a pipe that nobody writes into can be interrupted, and so can who reads a
// standard input that does not end. What is left of the reading says nothing any more.
func TestAccountOfAPipeIsInterrupted(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	stdin, endless, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, stdin.Close()) }()
	said := map[string]*bytes.Buffer{}
	for _, name := range []string{pipe, "-"} {
		ctx, interrupt := context.WithCancel(t.Context())
		timer := time.AfterFunc(50*time.Millisecond, interrupt)
		out := new(bytes.Buffer)
		said[name] = out
		code := cli.Run(ctx, []string{"account", name}, cli.Environment{
			Stdin: stdin, Stdout: out, Stderr: out, Getenv: func(string) string { return "" }, Now: time.Now, Random: strings.NewReader(""),
		})
		timer.Stop()
		interrupt()
		assert.Equal(t, 130, code, name)
		assert.Equal(t, "retryledger: interrupted\n", out.String(), name)
	}
	// The readers that were left come to their end.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, endless.Close())
	require.Eventually(t, func() bool {
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = w.Close()
		}
		return errors.Is(err, syscall.ENXIO) // nobody reads
	}, time.Minute, time.Millisecond)
	for name, out := range said {
		assert.Equal(t, "retryledger: interrupted\n", out.String(), name)
	}
}
