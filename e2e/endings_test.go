package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/engine"
)

// smallRun is a run of one step that was tried twice: a root, and a failed and a good
// execution of the step.
func smallRun() (ptrace.Traces, string) {
	var trace pcommon.TraceID
	_, _ = rand.Read(trace[:]) // never fails
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "e2e")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	now := time.Now()
	add := func(id byte, name string, from, to time.Duration) ptrace.Span {
		span := spans.AppendEmpty()
		span.SetTraceID(trace)
		span.SetSpanID(pcommon.SpanID{id})
		span.SetName(name)
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(from)))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(to)))
		return span
	}
	add(1, "pipeline", -100*time.Millisecond, 0).Attributes().PutBool("run.complete", true)
	first := add(2, "resolve", -90*time.Millisecond, -60*time.Millisecond)
	first.Status().SetCode(ptrace.StatusCodeError)
	second := add(3, "resolve", -50*time.Millisecond, -10*time.Millisecond)
	for i, span := range []ptrace.Span{first, second} {
		span.SetParentSpanID(pcommon.SpanID{1})
		span.Attributes().PutStr("step", "resolve")
		span.Attributes().PutInt("retry.attempt", int64(i+1))
	}
	return td, hex.EncodeToString(trace[:])
}

// retries is what the ledger must say about n small runs.
func (d daemon) waitForSmallRuns(t *testing.T, traces []string) {
	t.Helper()
	for _, trace := range traces {
		eventually(t, appearWithin, func() error {
			var run answer.Run
			if err := d.Get(context.Background(), "/api/v1/runs/"+trace, &run); err != nil {
				return err
			}
			if len(run.Steps) != 1 || run.Steps[0].Executions != 2 || run.Steps[0].RetriesTotal == nil || *run.Steps[0].RetriesTotal != 1 {
				return fmt.Errorf("run %s: %s", trace, asJSON(t, run.Steps))
			}
			return nil
		})
	}
}

func TestInterruptKeepsEverything(t *testing.T) {
	p := newPlace(t)
	d := start(t, p)
	requests := rewritten(t, capturetest.One(t, "openinference/c_nested_9"), "kept")
	sender := d.sender(ways[0])
	for _, td := range requests {
		require.NoError(t, sender.Send(t.Context(), td))
	}
	var traces []string
	for range 50 {
		td, trace := smallRun()
		require.NoError(t, sender.Send(t.Context(), td))
		traces = append(traces, trace)
	}
	d.Stop()

	d = start(t, p)
	d.waitForSpans(t, spansOf(requests)+3*len(traces))
	d.waitForSmallRuns(t, traces)
	var top answer.Top
	require.NoError(t, d.Get(t.Context(), "/api/v1/top?service=kept", &top))
	top.Since, top.Until = nil, nil
	assert.Equal(t, asJSON(t, answer.TopOf(accountOf(requests), answer.Filter{Service: "kept"})), asJSON(t, top))
	d.Stop()
}

// stream sends small runs until one is not acknowledged, and remembers those that were.
type stream struct {
	mu           sync.Mutex
	acknowledged []string
	ended        chan struct{}
}

func (d daemon) stream(w way) *stream {
	s := &stream{ended: make(chan struct{})}
	sender := d.sender(w)
	go func() {
		defer close(s.ended)
		for {
			td, trace := smallRun()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := sender.Send(ctx, td)
			cancel()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.acknowledged = append(s.acknowledged, trace)
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *stream) traces() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.acknowledged...)
}

func (s *stream) waitFor(t *testing.T, n int) {
	t.Helper()
	eventually(t, appearWithin, func() error {
		if have := len(s.traces()); have < n {
			return fmt.Errorf("%d of %d acknowledged", have, n)
		}
		return nil
	})
}

func TestKilledMidStreamKeepsWhatWasAcknowledged(t *testing.T) {
	p := newPlace(t)
	var traces []string
	for round := range 3 {
		d := start(t, p)
		var streams []*stream
		for i := range 4 {
			streams = append(streams, d.stream(ways[i%len(ways)]))
		}
		for _, s := range streams {
			s.waitFor(t, 10*(round+1))
		}
		d.Kill()
		for _, s := range streams {
			<-s.ended
			traces = append(traces, s.traces()...)
		}
	}
	d := start(t, p)
	d.waitForSpans(t, 3*len(traces))
	d.waitForSmallRuns(t, traces)
	d.Stop()
}

// enginePID finds the engine among the children of the collector.
func (d daemon) enginePID() int {
	d.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(d.t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(d.PID) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err != nil || !strings.Contains(string(cmdline), engine.HostCommand) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(d.t, err)
		return pid
	}
	return 0
}

func TestKilledEngineIsStartedAgainAndCatchesUp(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc to find the engine")
	}
	d := start(t, newPlace(t))
	s := d.stream(ways[0])
	s.waitFor(t, 5)
	before := d.enginePID()
	require.NotZero(t, before, "the engine is a child of the collector")
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
	atKill := len(s.traces())
	s.waitFor(t, atKill+20) // the collector still takes spans

	eventually(t, appearWithin, func() error {
		if pid := d.enginePID(); pid == 0 || pid == before {
			return fmt.Errorf("engine %d", pid)
		}
		return nil
	})
	traces := s.traces()
	d.waitForSmallRuns(t, traces)
	d.Stop()
	<-s.ended
}

// The engine ends with its collector, however that ends.
func TestEngineEndsWithTheCollector(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc to find the engine")
	}
	for name, end := range map[string]func(daemon){
		"Ctrl-C":  daemon.Stop,
		"kill -9": daemon.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, newPlace(t))
			pid := d.enginePID()
			require.NotZero(t, pid)
			end(d)
			eventually(t, collectortest.StopWithin, func() error {
				if err := syscall.Kill(pid, 0); err == nil {
					return fmt.Errorf("engine %d still runs", pid)
				}
				return nil
			})
		})
	}
}

// A run shows in the ledger within three seconds of its last span. The machine may be
// busy with other tests, so the best of some runs counts.
func TestLedgerShowsARunWithinSeconds(t *testing.T) {
	const within = 3 * time.Second
	d := start(t, newPlace(t))
	sender := d.sender(ways[0])
	best := time.Hour
	for range 5 {
		td, trace := smallRun()
		require.NoError(t, sender.Send(t.Context(), td))
		sent := time.Now()
		d.waitForSmallRuns(t, []string{trace})
		best = min(best, time.Since(sent))
		if best < within {
			return
		}
	}
	t.Errorf("the fastest of five runs took %v to show", best)
}
