//go:build linux

package apptest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/porttest"
	"github.com/retryledger/retryledger/internal/replay"
)

var (
	away = flag.Duration("away", 4*time.Second, "how long the engine is away, slow, and without space")
	rate = flag.Int("rate", 300, "spans a second that come meanwhile")
)

// patient is a cluster whose first collector has a journal without a small cap, says how
// it is, and is sent traffic while something is wrong with its engine.
type patient struct {
	t       *testing.T
	r       *runner
	g       *traffic
	n       *node
	send    replay.Sender
	health  string // address
	metrics string // address
}

func newPatient(t *testing.T, engineDisk func(folder string), environment ...string) *patient {
	t.Helper()
	folder := t.TempDir()
	if engineDisk != nil {
		engineDisk(filepath.Join(folder, "engine"))
	}
	c, err := newCluster(t.Context(), folder, porttest.Free(t, 9), newDisk, environment...)
	require.NoError(t, err)
	t.Cleanup(c.close)
	ports := porttest.Free(t, 2)
	p := &patient{t: t, n: c.collectors[0], health: ports[0], metrics: ports[1], r: &runner{c: c, truth: newTruth(), logf: t.Logf, report: Report{Faults: map[Fault]int{}}, took: map[spanKey]string{}}}
	p.g = &traffic{r: rand.New(rand.NewPCG(1, 2)), truth: p.r.truth, seed: 1}
	require.NoError(t, p.n.stop(30*time.Second))
	host, port, _ := strings.Cut(p.metrics, ":")
	more := filepath.Join(folder, "more.yaml")
	require.NoError(t, os.WriteFile(more, fmt.Appendf(nil, `
extensions:
  health_check:
    http: {endpoint: %q, status: {enabled: true, path: /status}}
    component_health: {include_recoverable_errors: true, recovery_duration: 1s}
service:
  extensions: [health_check, retryledger_admission, retryledger_doors, retryledger_store, retryledger_attribution, retryledger_api, retryledger_alerts, retryledger_console]
  telemetry:
    metrics:
      level: normal
      readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]
`, p.health, host, port), 0o600))
	p.n.args = append(p.n.args, "--config", "default:otel-collector.yaml", "--config", more, "--feature-gates=+extension.healthcheck.useComponentStatus",
		"--set=exporters.retryledger.journal.directory="+filepath.Join(folder, "large-journal"), "--set=exporters.retryledger.journal.max_size_mib=4096")
	require.NoError(t, p.n.start(t.Context()))
	p.send, err = replay.NewGRPC(p.n.place.GRPC, false, replay.Access{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.send.Close() })
	t.Cleanup(func() {
		if t.Failed() {
			for _, process := range []*process{c.engine, p.n.process} {
				t.Logf("the %s wrote:\n%s", process.name, process.before+process.out.String())
			}
		}
	})
	return p
}

// sendFor sends at the rate for so long. Each request must be acknowledged at once:
// nobody has to wait for the engine.
func (p *patient) sendFor(d time.Duration) {
	p.t.Helper()
	const slice = 100 * time.Millisecond
	began, sent := time.Now(), 0
	for time.Since(began) < d {
		var spans []sentSpan
		for due := int(time.Since(began).Seconds()*float64(*rate)) + *rate/10 + 1; sent+len(spans) < due; {
			spans = append(spans, p.g.run(time.Now())...)
		}
		if len(spans) > 0 {
			require.NoError(p.t, p.send.Send(p.t.Context(), p.g.request(spans)))
			sent += len(spans)
		}
		time.Sleep(slice)
	}
	p.t.Logf("%d spans in %v", sent, time.Since(began).Round(time.Millisecond))
}

// fetch reads a page of the collector itself.
func fetch(ctx context.Context, url string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// metric is the sum of a metric's series, 0 if there is none.
func (p *patient) metric(name string) float64 {
	p.t.Helper()
	_, page, err := fetch(p.t.Context(), "http://"+p.metrics+"/metrics")
	require.NoError(p.t, err)
	total := 0.0
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			var value float64
			_, err := fmt.Sscanf(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' ')+1:], "%g", &value)
			require.NoError(p.t, err, line)
			total += value
		}
	}
	return total
}

var errHealth = errors.New("the health is another")

// healthy waits until the health says that all is well, or that it is not.
func (p *patient) healthy(well bool) {
	p.t.Helper()
	var last string
	require.Eventually(p.t, func() bool {
		status, body, err := fetch(p.t.Context(), "http://"+p.health+"/status")
		last = fmt.Sprint(status, " ", body, " ", err)
		return err == nil && json.Valid([]byte(body)) && (status == http.StatusOK) == well
	}, time.Minute, 100*time.Millisecond, "%v: %s", errHealth, last)
	p.t.Logf("health: %s", last)
}

// catchesUp waits until the ledger shows all that was sent.
func (p *patient) catchesUp() {
	p.t.Helper()
	began := time.Now()
	deadline := began.Add(settleWithin + 10**away)
	for {
		asked := time.Now()
		found, err := p.r.compare(p.t.Context(), p.n)
		if err == nil && len(found) == 0 {
			break
		}
		require.True(p.t, time.Now().Before(deadline), "still after %v: %v %v", time.Since(began), found, err)
		time.Sleep(200*time.Millisecond + 4*time.Since(asked)) // asking must not keep it from its work
	}
	p.t.Logf("caught up in %v", time.Since(began).Round(time.Millisecond))
	require.Eventually(p.t, func() bool { return p.metric("retryledger_ingest_journal_unconfirmed_size") == 0 }, time.Minute, 200*time.Millisecond)
	p.healthy(true)
	assert.Zero(p.t, p.metric("retryledger_ingest_spans_refused"))
	assert.Zero(p.t, p.metric("retryledger_ingest_dead_letters"))
}

// The engine is gone for a while, then so slow that it stands still most of the time,
// and its disk is full for a while. The collector stays up and takes everything at once,
// says in its health and its metrics that something is wrong, and catches up by itself.
// The long form is ten minutes at 5,000 spans a second:
//
//	go test ./apptest -run TestTheEngineIsAway -v -away 10m -rate 5000 -timeout 3h
func TestTheEngineIsAway(t *testing.T) {
	// A disk of its own, which can be filled; what is sent takes less than a kilobyte a span.
	engineMiB := 256 + int(3*away.Seconds())**rate/1000
	const mostMiB = 1024
	mounted := false
	p := newPatient(t, func(folder string) {
		require.NoError(t, os.MkdirAll(folder, 0o700))
		if engineMiB <= mostMiB && syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", engineMiB)) == nil {
			mounted = true
			t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
		}
	})
	engine := p.r.c.engine
	p.sendFor(time.Second)
	p.catchesUp()

	t.Run("gone", func(t *testing.T) {
		p.t = t
		engine.kill()
		p.sendFor(*away)
		p.healthy(false)
		assert.Positive(t, p.metric("retryledger_ingest_journal_unconfirmed_size"))
		assert.Positive(t, p.metric("retryledger_ingest_journal_oldest_unconfirmed_age"))
		assert.Positive(t, p.metric("retryledger_ingest_insert_retries"))
		require.NoError(t, engine.start(t.Context()))
		p.catchesUp()
	})
	t.Run("slow", func(t *testing.T) {
		p.t = t
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				engine.signal(syscall.SIGSTOP)
				time.Sleep(400 * time.Millisecond)
				engine.signal(syscall.SIGCONT)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		p.sendFor(*away)
		cancel()
		<-ended
		p.catchesUp()
	})
	t.Run("without space", func(t *testing.T) {
		if !mounted {
			t.Skip("this user may not mount a small disk, or it would have to be a large one")
		}
		p.t = t
		d := &disk{folder: filepath.Join(p.r.c.folder, "engine"), mounted: true}
		require.NoError(t, d.fill())
		full, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { // what the engine gives back is taken away again
			defer close(ended)
			for full.Err() == nil {
				assert.NoError(t, d.fill())
				time.Sleep(100 * time.Millisecond)
			}
		}()
		p.sendFor(*away)
		p.healthy(false)
		stop()
		<-ended
		assert.Positive(t, p.metric("retryledger_ingest_journal_unconfirmed_size"))
		require.NoError(t, d.empty())
		p.catchesUp()
	})
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, p.r.c.stop())
}
