package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
)

func TestReadyMessageSaysWhereToSendAndWhatToAsk(t *testing.T) {
	d := start(t, newPlace(t))
	for _, want := range []string{
		"http://" + d.GRPC,
		"http://" + d.HTTP,
		"http://" + d.Langfuse + "  Langfuse's SDKs",
		d.Data,
		"retryledger demo --server http://" + d.API + " --endpoint http://" + d.HTTP,
		"retryledger top --server http://" + d.API,
		"Ctrl-C",
	} {
		assert.Contains(t, d.Output(), want)
	}
	_, after, _ := strings.Cut(d.Output(), collectortest.ReadyText)
	assert.LessOrEqual(t, strings.Count(after, "\n"), 10, "the message is short:\n%s", d.Output())
	assert.NotContains(t, d.Output(), "error", "nothing else is said")
	d.Stop()
}

// The first answer needs no application.
func TestDemo(t *testing.T) {
	d := start(t, newPlace(t))
	out := d.Retryledger(t, "demo", "--endpoint", "http://"+d.HTTP)
	assert.NotEmpty(t, out)
	assert.Contains(t, d.Retryledger(t, "top"), "retries")
	runs := d.Retryledger(t, "runs", "--over-budget")
	assert.Contains(t, runs, "demo-seven-of-three")
	assert.NotContains(t, runs, "demo-client-retries")
}

func TestSecondCollectorOnTheSameDataIsToldWhoHasIt(t *testing.T) {
	first := start(t, newPlace(t))
	second := newPlace(t)
	second.Data = first.Data
	d := launch(t, second)
	assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
	assert.Contains(t, d.Output(), first.Data)
	assertOneSentence(t, d)

	first.Stop()
	third := start(t, second)
	third.Stop()
}

func TestTakenPort(t *testing.T) {
	for _, c := range []struct {
		name    string
		address func(collectortest.Place) string
		setting string
	}{
		{"gRPC", func(p collectortest.Place) string { return p.GRPC }, "receivers.otlp.protocols.grpc.endpoint"},
		{"HTTP", func(p collectortest.Place) string { return p.HTTP }, "receivers.otlp.protocols.http.endpoint"},
		{"Langfuse", func(p collectortest.Place) string { return p.Langfuse }, "receivers.otlp/langfuse.protocols.http.endpoint"},
		{"API", func(p collectortest.Place) string { return p.API }, "extensions.retryledger_api.endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			l, err := net.Listen("tcp", c.address(p))
			require.NoError(t, err)
			d := launch(t, p)
			assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
			assert.Contains(t, d.Output(), "Port "+c.address(p)+" is taken")
			assert.Contains(t, d.Output(), "--set="+c.setting+"=")
			assertOneSentence(t, d)
			assert.NotContains(t, d.Output(), collectortest.ReadyText)

			// It left nothing behind that would keep the next one from starting.
			require.NoError(t, l.Close())
			start(t, p).Stop()
		})
	}
}

func TestNoWayToGetTheEngine(t *testing.T) {
	p := newPlace(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing fetched yet
	t.Setenv("HOME", t.TempDir())
	t.Setenv("RETRYLEDGER_CLICKHOUSE_LIB", "")
	t.Setenv("PATH", t.TempDir()) // no npm
	d := launch(t, p)
	assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
	assert.Contains(t, d.Output(), "npm")
	assert.Contains(t, d.Output(), "RETRYLEDGER_CLICKHOUSE_LIB")
	assertOneSentence(t, d)
}

func TestDataFolderThatCannotBe(t *testing.T) {
	p := newPlace(t)
	p.Data = filepath.Join(os.DevNull, "data")
	d := launch(t, p)
	assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
	assert.Contains(t, d.Output(), "data_dir")
	assertOneSentence(t, d)
}

// assertOneSentence: a failed start ends with a sentence, and shows no stack.
func assertOneSentence(t *testing.T, d daemon) {
	t.Helper()
	out := d.Output()
	assert.NotContains(t, out, "goroutine ")
	assert.NotContains(t, out, "panic")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	assert.LessOrEqual(t, len(lines), 2, "one line says it all, after at most one of progress")
	assert.Regexp(t, "^(Error|Port)", lines[len(lines)-1])
}

// A collector that is interrupted while it starts ends at once.
func TestInterruptDuringTheStart(t *testing.T) {
	p := newPlace(t)
	d := launch(t, p)
	time.Sleep(100 * time.Millisecond)
	d.InterruptGroup()
	assert.Contains(t, []int{0, 130}, d.ExitCode(collectortest.StopWithin))
	start(t, p).Stop()
}
