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
)

func TestReadyMessageSaysWhereToSendAndWhatToAsk(t *testing.T) {
	d := start(t, newPlace(t))
	for _, want := range []string{
		"http://" + d.grpc,
		"http://" + d.http,
		d.data,
		"retryledger demo --server http://" + d.api + " --endpoint http://" + d.http,
		"retryledger top --server http://" + d.api,
		"Ctrl-C",
	} {
		assert.Contains(t, d.out.String(), want)
	}
	_, after, _ := strings.Cut(d.out.String(), readyText)
	assert.LessOrEqual(t, strings.Count(after, "\n"), 10, "the message is short:\n%s", d.out.String())
	assert.NotContains(t, d.out.String(), "error", "nothing else is said")
	d.stop()
}

// The first answer needs no application.
func TestDemo(t *testing.T) {
	d := start(t, newPlace(t))
	out := d.retryledger(t, "demo", "--endpoint", "http://"+d.http)
	assert.NotEmpty(t, out)
	assert.Contains(t, d.retryledger(t, "top"), "retries")
	runs := d.retryledger(t, "runs", "--over-budget")
	assert.Contains(t, runs, "demo-seven-of-three")
	assert.NotContains(t, runs, "demo-client-retries")
}

func TestSecondCollectorOnTheSameDataIsToldWhoHasIt(t *testing.T) {
	first := start(t, newPlace(t))
	second := newPlace(t)
	second.data = first.data
	d := launch(t, second)
	assert.Equal(t, 1, d.exitCode(startWithin))
	assert.Contains(t, d.out.String(), first.data)
	assertOneSentence(t, d)

	first.stop()
	third := start(t, second)
	third.stop()
}

func TestTakenPort(t *testing.T) {
	for _, c := range []struct {
		name    string
		address func(place) string
		setting string
	}{
		{"gRPC", func(p place) string { return p.grpc }, "receivers.otlp.protocols.grpc.endpoint"},
		{"HTTP", func(p place) string { return p.http }, "receivers.otlp.protocols.http.endpoint"},
		{"API", func(p place) string { return p.api }, "extensions.retryledger_api.endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			l, err := net.Listen("tcp", c.address(p))
			require.NoError(t, err)
			d := launch(t, p)
			assert.Equal(t, 1, d.exitCode(startWithin))
			assert.Contains(t, d.out.String(), "Port "+c.address(p)+" is taken")
			assert.Contains(t, d.out.String(), "--set="+c.setting+"=")
			assertOneSentence(t, d)
			assert.NotContains(t, d.out.String(), readyText)

			// It left nothing behind that would keep the next one from starting.
			require.NoError(t, l.Close())
			start(t, p).stop()
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
	assert.Equal(t, 1, d.exitCode(startWithin))
	assert.Contains(t, d.out.String(), "npm")
	assert.Contains(t, d.out.String(), "RETRYLEDGER_CLICKHOUSE_LIB")
	assertOneSentence(t, d)
}

func TestDataFolderThatCannotBe(t *testing.T) {
	p := newPlace(t)
	p.data = filepath.Join(os.DevNull, "data")
	d := launch(t, p)
	assert.Equal(t, 1, d.exitCode(startWithin))
	assert.Contains(t, d.out.String(), "data_dir")
	assertOneSentence(t, d)
}

// assertOneSentence: a failed start ends with a sentence, and shows no stack.
func assertOneSentence(t *testing.T, d *daemon) {
	t.Helper()
	out := d.out.String()
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
	d.interruptGroup()
	assert.Contains(t, []int{0, 130}, d.exitCode(stopWithin))
	start(t, p).stop()
}
