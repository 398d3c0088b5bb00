package demo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/demo"
	"github.com/retryledger/retryledger/internal/replay"
	"github.com/retryledger/retryledger/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTheStoriesAreTrue: what the demo tells about each capture is in its ledger.
func TestTheStoriesAreTrue(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, story := range demo.Stories {
		requests, err := story.Requests(replay.NewIdentities([16]byte{9}), now)
		require.NoError(t, err)
		run, step := account(t, story, requests, now)
		retries := func(layer *int) int {
			require.NotNil(t, layer, story.Name)
			return *layer
		}
		switch story.Name {
		case "seven-of-three":
			require.Equal(t, []int{7, 1, 4, 2}, []int{step.Executions, step.Visits, retries(step.Retries.Node), retries(step.Retries.Orchestrator)})
			require.True(t, step.OverBudget)
			require.Equal(t, "ok", run.Outcome, "nobody would have noticed")
		case "nested-retries":
			require.Equal(t, []int{9, 9, 6, 2}, []int{step.Calls, step.CallsFailed, retries(step.Retries.Call), retries(step.Retries.Node)})
		case "client-retries":
			require.Equal(t, []int{3, 2, 2}, []int{step.Calls, step.CallsFailed, retries(step.Retries.Call)})
		case "retry-then-fallback":
			require.Equal(t, []int{4, 2, 1}, []int{step.Calls, retries(step.Retries.Call), step.Fallbacks})
		case "breaker-fallback":
			require.Equal(t, []int{5, 5}, []int{step.Operations, step.Fallbacks})
		case "two-retry-loops":
			require.Equal(t, []int{4, 2}, []int{retries(step.Retries.Call), retries(step.Retries.Orchestrator)})
		case "contract-violation":
			require.NotEmpty(t, run.ContractViolations)
		case "incomplete":
			require.Equal(t, "incomplete", run.Completion)
			require.NotEmpty(t, run.UnfinishedSteps)
		case "killed":
			require.Equal(t, "running", run.Completion, "until it has been silent for long enough")
			require.Positive(t, run.OrphanSpans)
		default:
			t.Fatalf("say what is true of %s", story.Name)
		}
	}
}

// account is the story's only run, and its step with the most retries.
func account(t *testing.T, story demo.Story, requests []ptrace.Traces, now time.Time) (attribution.Run, attribution.Step) {
	t.Helper()
	var spans []schema.Span
	for _, td := range requests {
		rows, refused := dialect.Normalise(td, now.UnixNano())
		require.Zero(t, refused)
		spans = append(spans, rows...)
	}
	last := int64(0)
	for _, span := range spans {
		require.Equal(t, "demo-"+story.Name, span.Service)
		last = max(last, span.EndNs)
	}
	require.Equal(t, now.UnixNano(), last)
	opts := attribution.Defaults()
	opts.AtNs = last
	ledger := attribution.Account(spans, opts)
	require.Len(t, ledger.Runs, 1, story.Name)
	var most attribution.Step
	for _, step := range ledger.Runs[0].Steps {
		if step.RetriesTotal != nil && (most.RetriesTotal == nil || *step.RetriesTotal > *most.RetriesTotal) {
			most = step
		}
	}
	return ledger.Runs[0], most
}
