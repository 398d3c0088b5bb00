package cli_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/cli"
)

const ruleTests = "../../alerts/rules/ruletest/testdata/"

func TestRulesCheck(t *testing.T) {
	t.Parallel()
	golden(t, "rules_check", process{variables: map[string]string{"NO_COLOR": "1"}}.must(t, "rules", "check", ruleTests+"own_rules.yaml"))
	golden(t, "rules_check_80", process{width: 80, variables: map[string]string{"NO_COLOR": "1"}}.must(t, "rules", "check", ruleTests+"own_rules.yaml"))
	out := process{stdin: strings.NewReader("rules: []\n")}.must(t, "rules", "check", "-")
	require.Contains(t, out, "standard input: 11 rules\n")
	require.Equal(t, out, process{stdin: strings.NewReader(process{}.must(t, "rules", "default"))}.must(t, "rules", "check", "-"),
		"the default pack over itself is itself")

	for _, blank := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		stdout, stderr, code := process{stdin: strings.NewReader(blank)}.run(t, "rules", "check", "-")
		require.Equal(t, cli.ExitUsage, code, blank)
		require.Empty(t, stdout, blank)
		require.Contains(t, stderr, "standard input is empty", blank)
	}
	_, stderr, code := process{stdin: strings.NewReader("rules:\n  - {name: step_errors, threshold: 2}\n")}.run(t, "rules", "check", "-")
	require.Equal(t, cli.ExitUsage, code)
	require.Equal(t, "retryledger: standard input:2: threshold \"2\" has no unit: write a percentage such as 2 %\n", stderr)
	for _, args := range [][]string{{"check"}, {"check", "nowhere.yaml"}, {"test"}, {"test", "nowhere.yaml"}, {"test", "."}, {"default", "x"}, {"x"}} {
		_, stderr, code := process{}.run(t, append([]string{"rules"}, args...)...)
		require.Equal(t, cli.ExitUsage, code, args)
		require.NotEmpty(t, stderr)
	}
}

// What would keep the reader waiting for ever is refused; standard input is waited for
// until the command is told to end.
func TestRulesOfWhatNeverEnds(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	tests := filepath.Join(t.TempDir(), "tests.yaml")
	require.NoError(t, os.WriteFile(tests, []byte("rules: "+pipe+"\ntests:\n  - expect: [{at: 1s, rule: step_errors, alerts: []}]\n"), 0o600))
	for _, args := range [][]string{{"check", pipe}, {"check", "/dev/zero"}, {"test", pipe}, {"test", tests}} {
		_, stderr, code := process{}.run(t, append([]string{"rules"}, args...)...)
		require.Equal(t, cli.ExitUsage, code, args)
		require.Contains(t, stderr, "it is no regular file but", args)
		require.Contains(t, stderr, `or "-" for standard input`)
	}

	never, writer := io.Pipe()
	defer func() { require.NoError(t, writer.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 130, cli.Run(ctx, []string{"rules", "check", "-"}, cli.Environment{
		Stdin: never, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" },
	}))
}

func TestRulesTest(t *testing.T) {
	t.Parallel()
	out := process{}.must(t, "rules", "test", ruleTests+"default_pack.yaml", ruleTests+"spans.yaml")
	require.True(t, strings.HasSuffix(out, "17 tests passed, 0 failed\n"), out)

	name := filepath.Join(t.TempDir(), "t.yaml")
	require.NoError(t, os.WriteFile(name, []byte(`
tests:
  - name: it fails
    counts:
      - {signal: operation_error_ratio, labels: {service: a, step: "s\e[2J"}, failed: 0x60 1x60, total: 10x120}
    expect:
      - {at: 90s, rule: step_errors, alerts: []}
`), 0o600))
	out, stderr, code := process{}.run(t, "rules", "test", name)
	require.Equal(t, cli.ExitNoAnswer, code)
	assert.Equal(t, "retryledger: 1 test failed\n", stderr)
	assert.Equal(t, `FAILED `+name+`:3 it fails
  line 7, at 1m30s:
      step_errors: firing {service="a", severity="page", step="s\x1b[2J"}, which was not expected
      saw step_errors {service="a", step="s\x1b[2J"}: 31 of 910 (3.407 %), firing
0 tests passed, 1 failed
`, out)
	_, stderr, code = process{stdin: strings.NewReader("tests: []")}.run(t, "rules", "test", "-")
	require.Equal(t, cli.ExitUsage, code)
	assert.Equal(t, "retryledger: standard input:1: there is no test; write at least one under tests\n", stderr)
}
