package schema

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// briefly is a row with all that a brief one holds.
func briefly(trace byte, ns int64) LedgerRow {
	tokens := int64(155)
	return LedgerRow{
		TraceID: TraceID{trace}, Version: LedgerVersion{InsertedUs: 7, Spans: 5, JudgedS: 3}, LastReceivedNs: ns,
		Runs: []RunRow{
			{Service: "shop\x00eu", Environment: "prod", Version: "1.2", Completion: "unflagged", Anchor: true, EndNs: ns - 1},
			{Completion: "complete", Exhausted: true},
		},
		Operations: []OperationRow{
			{Run: 1, Step: "resolve", Grain: "call", Outcome: "unknown", Fallbacks: 1, Provider: "acme", EndNs: ns - 2, CountsInStep: true},
			{Step: "rank", Grain: "execution", Outcome: "succeeded_first_try", Settled: true},
		},
		Attempts: []AttemptRow{
			{Run: 1, Grain: "work", Step: "resolve", Charge: "fallback", Ending: "unknown", HTTPStatus: 529, Provider: "acme", EndNs: ns - 3, Counted: true, Request: true, Violated: true},
			{Grain: "call", Charge: "transport", Ending: "succeeded", ErrorClass: "RateLimitError", InputTokens: &tokens, Wasted: true, Midway: true, Step: "rank"},
			{},
		},
		Violations: []ViolationRow{{Run: -1, Node: "rank", Count: 2, TimeNs: ns - 4}, {Run: 1, Node: "resolve", Count: 1}},
	}
}

// What a brief row leaves out is out, and everything else is as it was written.
func TestBriefRowsHoldWhatTheySay(t *testing.T) {
	db := migrated(t)
	want := briefly(1, noon)
	full := briefly(1, noon)
	input, output, none := int64(120), int64(35), int64(-1)
	full.State, full.Spans, full.LastEndNs = StateAttributed, 3, noon
	full.Attempts[1].InputTokens, full.Attempts[1].OutputTokens = &input, &output
	full.Attempts[2].OutputTokens = &none
	full.Attempts[0].ErrorClass = "OverloadedError" // there is a status
	full.Attempts[1].Name, full.Operations[0].Retries, full.Operations[0].Fallbacks = "ChatOpenAI", 3, 4
	full.Runs[0].RunID, full.Steps = "run", []StepRow{{Step: "rank"}}
	full.Violations[0].Key = "deduplicated"
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{full, {TraceID: TraceID{2}, LastReceivedNs: noon}}))
	rows := make(map[TraceID]LedgerRow)
	var writes []Write
	require.NoError(t, LedgerWrites(t.Context(), db.Conn, 0, nil, func(row *LedgerRow, w Write) error {
		rows[row.TraceID] = *row
		writes = append(writes, w)
		return nil
	}))
	assert.Equal(t, want, rows[want.TraceID])
	assert.Equal(t, LedgerRow{TraceID: TraceID{2}, LastReceivedNs: noon, Runs: []RunRow{}, Operations: []OperationRow{}, Attempts: []AttemptRow{}, Violations: []ViolationRow{}}, rows[TraceID{2}])
	require.Len(t, writes, 2)
	assert.InDelta(t, time.Now().UnixMicro(), writes[0].At, 6e8)

	t.Log(writes)
	again := func(afterUs int64, seen ...int64) (n int) {
		require.NoError(t, LedgerWrites(t.Context(), db.Conn, afterUs, seen, func(*LedgerRow, Write) error { n++; return nil }))
		return n
	}
	assert.Equal(t, 1, again(0, writes[0].ID, 12345))
	assert.Equal(t, 0, again(0, writes[0].ID, writes[1].ID))
	assert.Equal(t, 0, again(writes[0].At), "both were one write")
	assert.Equal(t, 2, again(writes[0].At-1))

	var since []LedgerRow
	require.NoError(t, LedgerSince(t.Context(), db.Conn, time.Unix(0, noon-1), func(row *LedgerRow) error {
		if row.TraceID == want.TraceID {
			since = append(since, *row)
		}
		return nil
	}))
	assert.Equal(t, []LedgerRow{want}, since)
	require.ErrorIs(t, LedgerSince(t.Context(), db.Conn, time.Time{}, func(*LedgerRow) error { return assert.AnError }), assert.AnError)
}
