package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger"
	"github.com/retryledger/retryledger/internal/release"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// collector runs the command line in this process.
func collector(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTheEmbeddedConfigurationIsTheFile(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("..", "..", "otel-collector.yaml"))
	require.NoError(t, err)
	assert.Equal(t, string(file), retryledger.DefaultConfiguration)
}

// A configuration in testdata says in its first line what the collector must say
// about it: "# valid", or "# error: " and a part of the message.
func TestValidate(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(text), "\n")
			code, _, stderr := collector(t, "validate", "--config", file)
			if first == "# valid" {
				assert.Equal(t, exitOK, code, stderr)
				return
			}
			want, ok := strings.CutPrefix(first, "# error: ")
			require.True(t, ok, "%s does not say in its first line what it expects", file)
			assert.Equal(t, exitFailed, code)
			assert.Contains(t, stderr, want)
			assert.NotContains(t, stderr, "goroutine ")
		})
	}
}

func TestValidateWithoutConfig(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"the default is valid", nil, exitOK, ""},
		{"one value changed", []string{"--set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:14317"}, exitOK, ""},
		{"the default named", []string{"--config=" + defaultURI}, exitOK, ""},
		{"a file on top of the default", []string{"--config=" + defaultURI, "--config=testdata/on-top/debug.yaml"}, exitOK, ""},
		{"an unknown setting", []string{"--set=receivers.otlp.nonsense=1"}, exitFailed, "nonsense"},
		{"a default that does not exist", []string{"--config=default:other.yaml"}, exitFailed, `the only configuration of this kind is "` + defaultURI},
		{"a file that does not exist", []string{"--config=nofile.yaml"}, exitFailed, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := collector(t, append([]string{"validate"}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Contains(t, stderr, c.says)
		})
	}
}

// The golden file lists types only: versions change with every update.
func TestComponents(t *testing.T) {
	code, stdout, stderr := collector(t, "components")
	require.Equal(t, exitOK, code, stderr)

	type named []struct{ Name, Module, Scheme string }
	var listed struct {
		Receivers, Processors, Exporters, Extensions, Providers named
	}
	require.NoError(t, yaml.Unmarshal([]byte(stdout), &listed))
	var got strings.Builder
	for _, kind := range []struct {
		name string
		list named
	}{
		{"receivers", listed.Receivers},
		{"processors", listed.Processors},
		{"exporters", listed.Exporters},
		{"extensions", listed.Extensions},
		{"providers", listed.Providers},
	} {
		got.WriteString(kind.name + "\n")
		for _, c := range kind.list {
			got.WriteString("  " + c.Name + c.Scheme + "\n")
			assert.NotEmpty(t, c.Module, "%s %s%s names no module", kind.name, c.Name, c.Scheme)
		}
	}
	golden := filepath.Join("testdata", "components.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String())
}

func TestVersion(t *testing.T) {
	code, stdout, _ := collector(t, "--version")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, "collector version "+release.Version()+"\n", stdout)
}

func TestUnknownCommand(t *testing.T) {
	code, _, stderr := collector(t, "bogus")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, `"collector --help" lists the commands.`)
}

func TestEngineCommandNamesWhatItNeeds(t *testing.T) {
	code, _, stderr := collector(t, "engine")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "--data-dir=")

	code, _, stderr = collector(t, "engine", "--data-dir", t.TempDir(), "--memory-limit", "much")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "such as 2GiB")
}
