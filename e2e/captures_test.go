package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

// rewritten reads a capture as if its application had just run, under this service
// name and with ids that no other capture has.
func rewritten(t *testing.T, capture capturetest.Capture, service string) []ptrace.Traces {
	t.Helper()
	var seed [16]byte
	_, err := rand.Read(seed[:])
	require.NoError(t, err)
	var requests []ptrace.Traces
	for _, file := range capture.Files {
		content, err := os.Open(file)
		require.NoError(t, err)
		_, err = otlpfile.Read(content, otlpfile.DefaultLimit, func(td ptrace.Traces) error {
			requests = append(requests, td)
			return nil
		})
		require.NoError(t, err, file)
		require.NoError(t, content.Close())
	}
	replay.Rewrite(requests, replay.NewIdentities(seed), time.Now(), service)
	return requests
}

// save writes requests as the files that "retryledger account" reads.
func save(t *testing.T, requests []ptrace.Traces) (files []string) {
	t.Helper()
	folder := t.TempDir()
	for i, td := range requests {
		content, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		require.NoError(t, err)
		file := filepath.Join(folder, fmt.Sprintf("%03d.pb", i))
		require.NoError(t, os.WriteFile(file, content, 0o600))
		files = append(files, file)
	}
	return files
}

// spansOf counts the distinct spans of requests.
func spansOf(requests []ptrace.Traces) int {
	type id struct {
		trace [16]byte
		span  [8]byte
	}
	seen := map[id]bool{}
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					seen[id{span.TraceID(), span.SpanID()}] = true
				}
			}
		}
	}
	return len(seen)
}

// accountOf is the ledger of requests, computed in this process.
func accountOf(requests []ptrace.Traces) attribution.Ledger {
	var spans []schema.Span
	last := int64(0)
	for _, td := range requests {
		rows, _ := dialect.Normalise(td, time.Now().UnixNano())
		for i := range rows {
			last = max(last, rows[i].EndNs)
		}
		spans = append(spans, rows...)
	}
	opts := attribution.Defaults()
	opts.AtNs = last
	return attribution.Account(spans, opts)
}

// asJSON is a value as the API writes it, to compare what JSON can tell apart.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	require.NoError(t, err)
	return string(text)
}

// sent is a capture that was sent to a collector.
type sent struct {
	service  string
	requests []ptrace.Traces
	top      answer.Top        // what the collector must say
	runs     []attribution.Run // the same, one by one
}

// Every capture, sent in one of the ways in, gives from the collector the numbers that
// its requests give as files.
func TestCapturesGiveTheNumbersOfTheirFiles(t *testing.T) {
	d := start(t, newPlace(t))
	var all []sent
	send := func(w way, capture capturetest.Capture) {
		t.Helper()
		s := sent{service: capture.Cell() + " over " + w.name}
		if slices.ContainsFunc(all, func(other sent) bool { return other.service == s.service }) {
			return
		}
		s.requests = rewritten(t, capture, s.service)
		sender := d.sender(w)
		for _, td := range s.requests {
			require.NoError(t, sender.Send(t.Context(), td), s.service)
		}
		ledger := answer.Complete(accountOf(s.requests))
		s.runs, s.top = ledger.Runs, answer.TopOf(ledger, answer.Filter{Service: s.service})
		all = append(all, s)
	}
	everyWay := []string{"openinference", "openinference-gzip", "py-openinference", "plain", "py-plain", "plain-py", "plain-go", "java-resilience4j"}
	for i, capture := range capturetest.All(t) {
		if !slices.Contains(everyWay, capture.Instrumentation) {
			send(ways[i%len(ways)], capture) // the ways in know nothing of instrumentations
			continue
		}
		for _, w := range ways {
			send(w, capture)
		}
	}
	total := 0
	var everything attribution.Ledger
	for _, s := range all {
		total += spansOf(s.requests)
		everything.Runs = append(everything.Runs, s.runs...)
	}
	d.waitForSpans(t, total)
	var top answer.Top
	require.NoError(t, d.Get(t.Context(), "/api/v1/top?limit=10000", &top))
	require.Equal(t, asJSON(t, answer.TopOf(everything, answer.Filter{})), asJSON(t, top), "all captures at once")
	for i, s := range all {
		t.Run(s.service, func(t *testing.T) {
			d.requireRuns(t, s)
			// One question each takes its time, and the command line is a process: not for every one.
			if i%40 == 0 {
				d.requireAnswers(t, s)
				d.requireCommandLineAnswers(t, s)
			}
		})
	}
}

func (d daemon) requireRuns(t *testing.T, s sent) {
	t.Helper()
	for _, want := range s.runs {
		var got answer.Run
		require.NoError(t, d.Get(t.Context(), "/api/v1/runs/"+want.TraceIDs[0], &got))
		assert.Equal(t, asJSON(t, want), asJSON(t, got.Run))
	}
}

func (d daemon) requireAnswers(t *testing.T, s sent) {
	t.Helper()
	var top answer.Top
	require.NoError(t, d.Get(t.Context(), "/api/v1/top?"+url.Values{"service": {s.service}, "limit": {"1000"}}.Encode(), &top))
	require.Equal(t, asJSON(t, s.top), asJSON(t, top))
	d.requireRuns(t, s)
}

func (d daemon) requireCommandLineAnswers(t *testing.T, s sent) {
	t.Helper()
	var top answer.Top
	require.NoError(t, json.Unmarshal([]byte(d.Retryledger(t, "top", "--service", s.service, "--limit", "0", "--format", "json")), &top))
	top.Since, top.Until = nil, nil // the last day
	assert.Equal(t, asJSON(t, s.top), asJSON(t, top))

	var ledger attribution.Ledger
	args := append([]string{"account", "--format", "json"}, save(t, s.requests)...)
	require.NoError(t, json.Unmarshal([]byte(d.Retryledger(t, args...)), &ledger))
	assert.Equal(t, asJSON(t, s.runs), asJSON(t, ledger.Runs))
}

// waitForSpans waits until the collector's store holds at least n distinct spans and
// all that it holds are in the ledger.
func (d daemon) waitForSpans(t *testing.T, n int) {
	t.Helper()
	eventually(t, appearWithin, func() error {
		var status answer.Status
		if err := d.Get(context.Background(), "/api/v1/status", &status); err != nil {
			return err
		}
		if status.Spans < int64(n) {
			return fmt.Errorf("%d of %d spans", status.Spans, n)
		}
		if status.LedgerLagMs > 0 {
			return errors.New("attribution is behind")
		}
		return nil
	})
}
