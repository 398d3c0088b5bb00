package cli_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/cli"
)

func TestAccountTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		width int
		cells []string
		flags []string
	}{
		"seven_of_three":         {0, []string{"py-openinference/n13_seven_of_three"}, []string{"--ladder"}},
		"nested_100":             {100, []string{"openinference/c_nested_9"}, []string{"--ladder"}},
		"fallback_60":            {60, []string{"openinference/e4_retry_then_fallback"}, []string{"--ladder"}},
		"narrow_30":              {30, []string{"plain-go/retrygo_step"}, []string{"--ladder"}},
		"incomplete":             {0, []string{"openinference/i2_incomplete"}, nil},
		"contract":               {0, []string{"openinference/h1_contract_with_root"}, nil},
		"many_runs":              {0, []string{"openinference/l8_many_runs"}, nil},
		"step_limit":             {0, []string{"openinference/a_client_retry"}, []string{"--step-limit", "9", "--step-limit", "resolve=1", "--run-limit", "2"}},
		"resumed":                {0, []string{"openinference/j4_resume_after_failure"}, []string{"--ladder"}},
		"killed_long_ago":        {0, []string{"openinference/i3_killed"}, []string{"--at", "2030-01-01T00:00:00Z"}},
		"hidden_in_some_runs_80": {80, []string{"plain-go/backoff_hidden", "java-resilience4j/retry_events_hidden"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"account"}, append(c.flags, files(t, c.cells...)...)...)
			golden(t, "account_"+name, process{width: c.width, variables: map[string]string{"NO_COLOR": "1"}}.must(t, args...))
		})
	}
}

func TestAccountJSON(t *testing.T) {
	t.Parallel()
	golden(t, "account_json", process{}.must(t, append([]string{"account", "--format", "json"}, files(t, "plain-go/retrygo_step")...)...))
	golden(t, "account_json_empty", process{stdin: strings.NewReader("{}")}.must(t, "account", "--format", "json", "-"))
}

// TestJSONHasNoNullLists: null is the word for "not observable", so only layers are
// ever null, over every capture.
func TestJSONHasNoNullLists(t *testing.T) {
	t.Parallel()
	var check func(at string, value any)
	check = func(at string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, member := range v {
				if member == nil {
					require.Contains(t, []string{"transport", "call", "node", "orchestrator", "worker", "retries_total"}, key, at)
				}
				check(at+"."+key, member)
			}
		case []any:
			for _, element := range v {
				check(at+"[]", element)
			}
		}
	}
	for _, capture := range capturetest.All(t) {
		var answer any
		require.NoError(t, json.Unmarshal([]byte(process{}.must(t, append([]string{"account", "--format", "json"}, capture.Files...)...)), &answer))
		check(capture.Cell(), answer)
	}
}

// TestEveryFormatSaysTheSame: the content says what a file is, not its name.
func TestEveryFormatSaysTheSame(t *testing.T) {
	t.Parallel()
	names := files(t, "openinference/c_nested_9")
	want := process{}.must(t, append([]string{"account", "--format", "json"}, names...)...)
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	zip := func(content []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	var lines, pretty []byte
	var zipped []string
	for i, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(content)
		require.NoError(t, err)
		text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		require.NoError(t, err)
		var indented bytes.Buffer
		require.NoError(t, json.Indent(&indented, text, "", "\t"))
		lines = append(append(lines, text...), '\n')
		pretty = append(pretty, indented.Bytes()...)
		zipped = append(zipped, write(string(rune('a'+i))+".json", zip(content)))
	}
	for name, args := range map[string][]string{
		"JSON lines":       {write("lines.pb", lines)},
		"indented JSON":    {write("pretty.txt", pretty)},
		"after a newline":  {write("newline", append([]byte("\n\r\n"), lines...))},
		"gzip of protobuf": zipped,
		"gzip of JSON":     {write("lines.gz", zip(lines))},
		"the same twice":   append(append([]string{}, names...), names...),
		"in other order":   {names[2], names[0], names[1]},
		"files and stdin":  {names[0], "-", names[2]},
	} {
		stdin, err := os.ReadFile(names[1])
		require.NoError(t, err)
		got := process{stdin: bytes.NewReader(stdin)}.must(t, append([]string{"account", "--format", "json"}, args...)...)
		require.Equal(t, want, got, name)
	}
}

func TestAtJudgesSilence(t *testing.T) {
	t.Parallel()
	completion := func(flags ...string) string {
		var ledger attribution.Ledger
		args := append([]string{"account", "--format", "json"}, append(flags, files(t, "openinference/i3_killed")...)...)
		require.NoError(t, json.Unmarshal([]byte(process{}.must(t, args...)), &ledger))
		require.Len(t, ledger.Runs, 1)
		return ledger.Runs[0].Completion
	}
	require.Equal(t, "running", completion())
	require.Equal(t, "orphaned", completion("--at", "2030-01-01T00:00:00Z"))
}

func TestMistakesNameTheRemedy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	good := files(t, "plain-go/retrygo_step")[0]
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no file":           {[]string{"account"}, cli.ExitUsage, []string{"at least one file"}},
		"no such file":      {[]string{"account", filepath.Join(folder, "nope.pb")}, cli.ExitInput, []string{"nope.pb cannot be opened", "no such file"}},
		"a folder":          {[]string{"account", folder}, cli.ExitInput, []string{"is a folder", "/*"}},
		"text":              {[]string{"account", good, write("notes.txt", "hello, world")}, cli.ExitInput, []string{"notes.txt", "not an OTLP", "Collector's file exporter"}},
		"other JSON":        {[]string{"account", write("other.json", `{"resourceMetrics":[]}`)}, cli.ExitInput, []string{"other.json", "without resourceSpans", "leave out all others"}},
		"an array":          {[]string{"account", write("array.json", `[{"resourceSpans":[]}]`)}, cli.ExitInput, []string{"JSON array"}},
		"cut off":           {[]string{"account", write("cut.json", `{"resourceSpans":[{`)}, cli.ExitInput, []string{"cut off"}},
		"too large":         {[]string{"account", "--file-limit", "100", good}, cli.ExitInput, []string{"larger than the limit of 100 bytes", "--file-limit"}},
		"a bad format":      {[]string{"account", "--format", "xml", good}, cli.ExitUsage, []string{"choose table or json"}},
		"a bad instant":     {[]string{"account", "--at", "noon", good}, cli.ExitUsage, []string{"2026-01-31T12:00:00Z"}},
		"a bad limit":       {[]string{"account", "--step-limit", "resolve=x", good}, cli.ExitUsage, []string{"NAME=N"}},
		"a nameless limit":  {[]string{"account", "--step-limit", "=3", good}, cli.ExitUsage, []string{"name the step"}},
		"a negative limit":  {[]string{"account", "--run-limit", "-1", good}, cli.ExitUsage, []string{"not negative"}},
		"no such command":   {[]string{"steps"}, cli.ExitUsage, []string{"unknown command"}},
		"no such flag":      {[]string{"top", "--sinec", "1h"}, cli.ExitUsage, []string{"unknown flag: --sinec"}},
		"a bad window":      {[]string{"top", "--since", "yesterday"}, cli.ExitUsage, []string{"--since", "24h or 7d"}},
		"an empty window":   {[]string{"top", "--since", "1h", "--until", "2h"}, cli.ExitUsage, []string{"is empty"}},
		"a bad server":      {[]string{"top", "--server", "ftp://x"}, cli.ExitUsage, []string{"http://127.0.0.1:4320"}},
		"nobody there":      {[]string{"top", "--server", "127.0.0.1:1"}, cli.ExitUnreachable, []string{"Is the collector running?", "go run ./cmd/collector", "--server"}},
		"nobody receives":   {[]string{"demo", "--endpoint", "127.0.0.1:1"}, cli.ExitUnreachable, []string{"Is the collector running?", "--endpoint"}},
		"no run named":      {[]string{"run"}, cli.ExitUsage, []string{"run wants one"}},
		"too many runs":     {[]string{"run", "a", "b"}, cli.ExitUsage, []string{"run wants one"}},
		"top of something":  {[]string{"top", "resolve"}, cli.ExitUsage, []string{"takes no arguments"}},
		"a bad ladder size": {[]string{"run", "a", "--limit", "-1"}, cli.ExitUsage, []string{"0 for all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := process{}.run(t, c.args...)
			require.Equal(t, c.code, code, stderr)
			require.Empty(t, stdout)
			for _, says := range c.says {
				require.Contains(t, stderr, says)
			}
		})
	}
}

// The demo sends to the host whose API it asks.
func TestDemoSendsWhereTheServerIs(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		cli.DefaultServer: "http://127.0.0.1:4318", "https://ledger.example.com": "https://ledger.example.com:4318",
		"https://me:secret@[2001:db8::1]:4320/below": "https://[2001:db8::1]:4318", "": "", "127.0.0.1:4320": "", ":": "",
	} {
		require.Equal(t, want, cli.OTLPEndpoint(server), server)
	}
	elsewhere := process{variables: map[string]string{"RETRYLEDGER_SERVER": "http://[::1]:4320"}}
	for _, args := range [][]string{{"demo"}, {"demo", "--server", "http://[::1]:9"}} {
		_, stderr, code := elsewhere.run(t, args...)
		require.Equal(t, cli.ExitUnreachable, code)
		require.Contains(t, stderr, "[::1]:4318")
	}
	_, stderr, code := elsewhere.run(t, "demo", "--endpoint", "127.0.0.1:1")
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "127.0.0.1:1")
}

func TestAnEmptyFileIsSaid(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := process{}.run(t, "account", "-")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, stderr, "standard input is empty")
	require.Contains(t, stdout, "no run")
}

func TestWarningsAreSaid(t *testing.T) {
	t.Parallel()
	var spans []string
	for i := range 5 {
		spans = append(spans, fmt.Sprintf(`{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b17%d","name":"search","kind":1,
			"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[{"key":"step","value":{"stringValue":"find"}},
			{"key":"gen_ai.operation.name","value":{"stringValue":"execute_tool"}},{"key":"gen_ai.tool.call.arguments","value":{"stringValue":"{\"q\":1}"}}]}`,
			i, 1_790_000_000_000_000_000+i*1_000_000_000, 1_790_000_000_500_000_000+i*1_000_000_000))
	}
	stdin := strings.NewReader(`{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Join(spans, ",") + `]}]}]}`)
	require.Contains(t, process{stdin: stdin}.must(t, "account", "-"), "warning: step find: tool search ran 5 times with the same arguments\n")
}

func TestASampledSourceIsSaid(t *testing.T) {
	t.Parallel()
	spans := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b170","name":"find","kind":1,
		"traceState":"ot=th:c","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":"1790000000500000000","attributes":[{"key":"step","value":{"stringValue":"find"}}]}]}]}]}`
	require.Contains(t, process{stdin: strings.NewReader(spans)}.must(t, "account", "-"), "sampled: counts are lower bounds (1 run of a sampled source).\n")
	require.Contains(t, process{stdin: strings.NewReader(spans)}.must(t, "account", "--format", "json", "-"), `"sampled: counts are lower bounds"`)
	whole := process{stdin: strings.NewReader(strings.Replace(spans, "th:c", "th:0", 1))}.must(t, "account", "-")
	require.NotContains(t, whole, "sampled")
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	require.Equal(t, "retryledger version v0.0.0-test\n", process{}.must(t, "--version"))
	for _, command := range []string{"", "top", "run", "demo", "account"} {
		help := process{}.must(t, strings.Fields(command+" --help")...)
		require.Contains(t, help, "Exit codes:", command)
	}
}
