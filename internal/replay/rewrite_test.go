package replay_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

func requestsOf(t *testing.T, capture capturetest.Capture) []ptrace.Traces {
	t.Helper()
	var requests []ptrace.Traces
	for _, name := range capture.Files {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = otlpfile.Read(file, 0, func(td ptrace.Traces) error {
			requests = append(requests, td)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	return requests
}

func rowsOf(requests []ptrace.Traces) []schema.Span {
	var spans []schema.Span
	for _, td := range requests {
		rows, _ := dialect.Normalise(td, 0)
		spans = append(spans, rows...)
	}
	return spans
}

// prints tell rows apart by all that they say; NaN, the unknown cost, equals nothing.
func prints(rows []schema.Span) []string {
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[i] = fmt.Sprintf("%s %s %016x", row.TraceID, row.SpanID, row.ContentHash)
	}
	return texts
}

// accounts are the runs of spans as JSON, without ids and sorted: what replaying must
// not change.
func accounts(t *testing.T, spans []schema.Span) []string {
	t.Helper()
	opts := attribution.Defaults()
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
	}
	ledger := attribution.Account(spans, opts)
	said := []string{}
	for _, run := range ledger.Runs {
		run.RunID, run.ThreadID, run.TraceIDs, run.Service = "", "", make([]string, len(run.TraceIDs)), ""
		text, err := json.Marshal(answer.CompleteRun(run))
		require.NoError(t, err)
		said = append(said, string(text))
	}
	slices.Sort(said)
	return said
}

// TestReplayingChangesNoNumber: the account of every capture is the same after it got
// fresh ids and another time, and nothing in it can be taken for the recorded one.
func TestReplayingChangesNoNumber(t *testing.T) {
	t.Parallel()
	for _, capture := range capturetest.All(t) {
		t.Run(capture.Cell(), func(t *testing.T) {
			t.Parallel()
			before := rowsOf(requestsOf(t, capture))
			requests := requestsOf(t, capture)
			lastEnd := time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)
			replay.Rewrite(requests, replay.NewIdentities([16]byte{7}), lastEnd, "")
			after := rowsOf(requests)
			require.Equal(t, accounts(t, before), accounts(t, after))

			last := int64(0)
			for i := range after {
				last = max(last, after[i].EndNs)
				require.Equal(t, before[i].EndNs-before[i].StartNs, after[i].EndNs-after[i].StartNs)
				require.NotEqual(t, before[i].TraceID, after[i].TraceID)
				require.NotEqual(t, before[i].SpanID, after[i].SpanID)
				for _, id := range [][2]string{{before[i].RunID, after[i].RunID}, {before[i].ThreadID, after[i].ThreadID}, {before[i].TaskKey, after[i].TaskKey}} {
					require.Equal(t, id[0] == "", id[1] == "")
					require.True(t, id[0] == "" || id[0] != id[1], "%s stayed", id[0])
				}
			}
			require.Equal(t, lastEnd.UnixNano(), last)
		})
	}
}

// TestSeedsDecideIdentities: one seed gives one copy, two seeds two copies that share
// nothing.
func TestSeedsDecideIdentities(t *testing.T) {
	t.Parallel()
	replayed := func(seed byte) []ptrace.Traces {
		requests := requestsOf(t, capturetest.One(t, "openinference/j4_resume_after_failure"))
		replay.Rewrite(requests, replay.NewIdentities([16]byte{seed}), time.Unix(1_900_000_000, 0), "renamed")
		return requests
	}
	first, second := replayed(1), replayed(1)
	require.Equal(t, prints(rowsOf(first)), prints(rowsOf(second)))
	both := append(rowsOf(replayed(1)), rowsOf(replayed(2))...)
	one := rowsOf(replayed(1))
	require.Len(t, accounts(t, both), 2*len(accounts(t, one)), "the copies are runs of their own")
	require.Equal(t, "renamed", both[0].Service)
	require.Len(t, replay.TraceIDs(append(replayed(1), replayed(2)...)), 2*len(replay.TraceIDs(replayed(1))))
}

func TestOnlyIdentifyingTextChanges(t *testing.T) {
	t.Parallel()
	ids := replay.NewIdentities([16]byte{1})
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetStartTimestamp(5)
	span.SetEndTimestamp(9)
	const task = "resolve:190c4a10-f937-5227-8402-d98024d01820"
	attributes := map[string]any{
		"run.id": "run-7", "thread.id": "t", "session.id": "t", "input.value": `{"thread_id":"t"}`, "llm.model_name": "t", "retry.attempt": int64(2),
		"metadata": `{"langgraph_step":2, "thread_id" : "t","langgraph_checkpoint_ns":"` + task + `","quote\"d":"x","user":"t","n":{"run_id":"run-7"}}`,
	}
	require.NoError(t, span.Attributes().FromRaw(attributes))
	link := span.Links().AppendEmpty()
	link.SetTraceID(pcommon.TraceID{1})
	link.SetSpanID(pcommon.SpanID{2})
	event := span.Events().AppendEmpty()
	event.SetTimestamp(7)
	event.Attributes().PutStr("run.id", "run-7")
	replay.Rewrite([]ptrace.Traces{td}, ids, time.Unix(100, 9), "")

	got := span.Attributes().AsRaw()
	thread, run := ids.Text("t"), ids.Text("run-7")
	require.NotEqual(t, "t", thread)
	require.True(t, strings.HasPrefix(run, "run-7-"), "it can still be recognised")
	require.Equal(t, map[string]any{
		"run.id": run, "thread.id": thread, "session.id": thread, "input.value": `{"thread_id":"t"}`, "llm.model_name": "t", "retry.attempt": int64(2),
		"metadata": `{"langgraph_step":2, "thread_id" : "` + thread + `","langgraph_checkpoint_ns":"` + ids.Text(task) + `","quote\"d":"x","user":"t","n":{"run_id":"` + run + `"}}`,
	}, got)
	require.Regexp(t, `^resolve:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, ids.Text(task))
	require.Equal(t, ids.Trace(pcommon.TraceID{1}), span.Links().At(0).TraceID())
	require.Equal(t, ids.Span(pcommon.SpanID{2}), span.Links().At(0).SpanID())
	require.True(t, span.TraceID().IsEmpty(), "what has no id gets none")
	require.True(t, span.ParentSpanID().IsEmpty())
	require.Equal(t, []int64{100e9 + 5, 100e9 + 9, 100e9 + 7},
		[]int64{int64(span.StartTimestamp()), int64(span.EndTimestamp()), int64(span.Events().At(0).Timestamp())})
	value, _ := span.Events().At(0).Attributes().Get("run.id")
	require.Equal(t, run, value.Str())
}
