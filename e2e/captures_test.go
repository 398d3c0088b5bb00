package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
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
	requests := make([]ptrace.Traces, len(capture.Files))
	for i, file := range capture.Files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		request := ptraceotlp.NewExportRequest()
		require.NoError(t, request.UnmarshalProto(content), file)
		requests[i] = request.Traces()
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

// Every capture, sent in one of the ways in, gives from the collector the numbers that
// "account" gives from the same requests as files.
func TestCapturesGiveTheNumbersOfTheirFiles(t *testing.T) {
	d := start(t, newPlace(t))
	captures := capturetest.All(t)

	type sent struct {
		service  string
		requests []ptrace.Traces
		runs     []attribution.Run // by the command line, from files
		top      answer.Top        // by the same arithmetic, in this process
	}
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
		var ledger attribution.Ledger
		args := append([]string{"account", "--format", "json"}, save(t, s.requests)...)
		require.NoError(t, json.Unmarshal([]byte(d.retryledger(t, args...)), &ledger))
		s.runs = ledger.Runs
		s.top = answer.TopOf(accountOf(s.requests), answer.Filter{Service: s.service})
		all = append(all, s)
	}
	for i, capture := range captures {
		send(ways[i%len(ways)], capture)
	}
	// One that has it all in every way.
	for _, w := range ways {
		send(w, capturetest.One(t, "openinference/c_nested_9"))
	}

	total := 0
	for _, s := range all {
		total += spansOf(s.requests)
	}
	d.waitForSpans(t, total)
	for _, s := range all {
		t.Run(s.service, func(t *testing.T) {
			var top answer.Top
			want := asJSON(t, s.top)
			eventually(t, 5*time.Second, func() error {
				if err := json.Unmarshal([]byte(d.retryledger(t, "top", "--service", s.service, "--format", "json")), &top); err != nil {
					return err
				}
				top.Since, top.Until = nil, nil
				if asJSON(t, top) != want {
					return fmt.Errorf("top says\n%s\nand account\n%s", asJSON(t, top), want)
				}
				return nil
			})
			for _, want := range s.runs {
				var got answer.Run
				require.NoError(t, d.get(t.Context(), "/api/v1/runs/"+want.TraceIDs[0], &got))
				assert.Equal(t, asJSON(t, want), asJSON(t, got.Run))
			}
		})
	}
}

// waitForSpans waits until the collector's store holds at least n distinct spans and
// all that it holds are in the ledger.
func (p place) waitForSpans(t *testing.T, n int) {
	t.Helper()
	eventually(t, appearWithin, func() error {
		var status answer.Status
		if err := p.get(context.Background(), "/api/v1/status", &status); err != nil {
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
