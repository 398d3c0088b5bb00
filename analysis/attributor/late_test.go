package attributor

import (
	"context"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/schema"
)

// realRunner accounts as the collector does.
func (s *store) realRunner() *Runner {
	return NewRunner(defaultConfig(), func(context.Context) (driver.Conn, error) { return s.conn, nil }, zap.NewNop())
}

// step is an execution of the step "resolve" in trace 1, so long after the base.
func (s *store) step(n int, at time.Duration, change ...func(*schema.Span)) schema.Span {
	return s.span(1, n, append([]func(*schema.Span){func(span *schema.Span) {
		span.Role, span.Name = schema.RoleOther, "resolve"
		span.StartNs = s.base.Add(at).UnixNano()
		span.EndNs = span.StartNs + int64(time.Second)
		span.ReceivedNs = span.EndNs + int64(time.Second)
	}}, change...)...)
}

func failed(s *schema.Span)  { s.Failed, s.ErrorClass = true, "UpstreamError" }
func flagged(s *schema.Span) { s.Complete, s.Step, s.Name = schema.FlagYes, "", "run" }

// theRun is the only run in the ledger, and the steps beside it.
func (s *store) theRun() (schema.RunRow, []schema.StepRow) {
	s.t.Helper()
	rows := s.rows()
	require.Len(s.t, rows, 1)
	require.Len(s.t, rows[0].Runs, 1)
	return rows[0].Runs[0], rows[0].Steps
}

// A function was killed, or its last export lost: the flag of completion does not come.
// The run waits as running and is quarantined after the deadline; a flag that comes late
// after all releases it.
func TestALateFlagReleasesARunFromQuarantine(t *testing.T) {
	s := newStore(t)
	r := s.realRunner()
	s.insert(s.step(2, 0))
	s.pass(r, s.base.Add(time.Minute))
	run, _ := s.theRun()
	assert.Equal(t, "running", run.Completion)
	assert.False(t, run.Quarantined)
	s.pass(r, s.base.Add(20*time.Minute))
	run, steps := s.theRun()
	assert.Equal(t, "orphaned", run.Completion, "the root never arrived, and the run is there")
	assert.True(t, run.Quarantined)
	require.Len(t, steps, 1)
	var all, without uint64 // rates can be asked for with runs in quarantine and without
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(), countIf(NOT quarantined) FROM runs").Scan(&all, &without))
	assert.Equal(t, []uint64{1, 0}, []uint64{all, without})

	s.insert(s.step(1, 0, flagged))
	s.pass(r, s.base.Add(30*time.Minute))
	run, _ = s.theRun()
	assert.Equal(t, "complete", run.Completion)
	assert.False(t, run.Quarantined)
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(), countIf(NOT quarantined) FROM runs").Scan(&all, &without))
	assert.Equal(t, []uint64{1, 1}, []uint64{all, without})
}

// Spans whose parent has not arrived, and may never, are stored and counted as orphans at
// once, and no longer when it comes.
func TestOrphansAreCountedAtOnce(t *testing.T) {
	s := newStore(t)
	r := s.realRunner()
	s.insert(s.step(2, 0), s.step(3, 2*time.Second))
	s.pass(r, s.base.Add(10*time.Second))
	run, _ := s.theRun()
	assert.EqualValues(t, 2, run.OrphanSpans)
	assert.EqualValues(t, 2, run.Spans)
	s.insert(s.step(1, 0, flagged))
	s.pass(r, s.base.Add(20*time.Second))
	run, _ = s.theRun()
	assert.Zero(t, run.OrphanSpans)
	assert.EqualValues(t, 3, run.Spans)
}

// A policy that waits 128 seconds before it tries again outlives what samplers by trace
// wait for. The run stays one run, and its retry a retry, whenever the parts come.
func TestALongBackoffStaysOneRun(t *testing.T) {
	s := newStore(t)
	r := s.realRunner()
	attempt := func(n int32) func(*schema.Span) {
		return func(s *schema.Span) { s.Attempt, s.AttemptEvidence = n, "attribute" }
	}
	s.insert(s.step(2, 0, failed, attempt(1)))
	s.pass(r, s.base.Add(10*time.Second))
	s.insert(s.step(3, 129*time.Second, failed, attempt(2)))
	s.pass(r, s.base.Add(140*time.Second))
	s.insert(s.step(4, 258*time.Second, attempt(3)))
	s.pass(r, s.base.Add(270*time.Second))
	s.insert(s.step(1, 0, flagged, func(s *schema.Span) { s.EndNs += int64(260 * time.Second) }))
	s.pass(r, s.base.Add(280*time.Second))
	run, steps := s.theRun()
	assert.Equal(t, "complete", run.Completion)
	assert.EqualValues(t, 2, run.Retries)
	require.Len(t, steps, 1)
	assert.EqualValues(t, 3, steps[0].Executions)
	require.NotNil(t, steps[0].RetriesNode)
	assert.EqualValues(t, 2, *steps[0].RetriesNode)
}
