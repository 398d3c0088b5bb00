package schema

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// kept is a copy of a brief that holds on.
func kept(b *Brief) Brief {
	c := *b
	c.Runs, c.Operations = append([]BriefRun(nil), b.Runs...), append([]BriefOperation(nil), b.Operations...)
	c.Attempts, c.Violations = append([]BriefAttempt(nil), b.Attempts...), append([]BriefViolation(nil), b.Violations...)
	return c
}

// briefly is what the brief of a row says, in plain code.
func briefly(full *LedgerRow) Brief {
	brief := Brief{TraceID: full.TraceID, Version: full.Version}
	second := func(ns int64) int64 {
		ns = BoundedEnd(ns, full.LastReceivedNs)
		return time.Unix(0, ns+secondNs-1).Unix() * secondNs
	}
	word := unique.Make[string]
	for _, r := range full.Runs {
		brief.Runs = append(brief.Runs, BriefRun{
			Service: word(r.Service), Environment: word(r.Environment), Version: word(r.Version), Completion: word(r.Completion),
			Anchor: r.Anchor, Exhausted: r.Exhausted, EndNs: second(r.EndNs),
		})
	}
	for _, o := range full.Operations {
		brief.Operations = append(brief.Operations, BriefOperation{
			Run: o.Run, Step: word(o.Step), Grain: word(o.Grain), Outcome: word(o.Outcome), Provider: word(o.Provider), FellBack: o.Fallbacks > 0,
			CountsInStep: o.CountsInStep, Settled: o.Settled, EndNs: second(o.EndNs),
		})
	}
	for _, a := range full.Attempts {
		b := BriefAttempt{
			Run: a.Run, Step: word(a.Step), Grain: word(a.Grain), Ending: word(a.Ending), Charge: word(a.Charge), Provider: word(a.Provider), ErrorClass: word(a.ErrorClass),
			HTTPStatus: min(max(a.HTTPStatus, 0), 65535), Counted: a.Counted, Wasted: a.Wasted, Request: a.Request, Midway: a.Midway, Violated: a.Violated, EndNs: second(a.EndNs),
		}
		if a.Hidden {
			b.Charge = word("")
		}
		for _, n := range []*int64{a.InputTokens, a.OutputTokens} {
			if n != nil {
				b.Tokens += max(*n, 0)
			}
		}
		brief.Attempts = append(brief.Attempts, b)
	}
	for _, v := range full.Violations {
		brief.Violations = append(brief.Violations, BriefViolation{Run: v.Run, Node: word(v.Node), Count: v.Count, TimeNs: second(v.TimeNs)})
	}
	return brief
}

// rounded is a brief with its ends in whole seconds, as the store keeps them.
func rounded(b *Brief) Brief {
	for i := range b.Runs {
		b.Runs[i].EndNs = up(b.Runs[i].EndNs)
	}
	for i := range b.Operations {
		b.Operations[i].EndNs = up(b.Operations[i].EndNs)
	}
	for i := range b.Attempts {
		b.Attempts[i].EndNs = up(b.Attempts[i].EndNs)
	}
	for i := range b.Violations {
		b.Violations[i].TimeNs = up(b.Violations[i].TimeNs)
	}
	return *b
}

func up(ns int64) int64 { return (ns + secondNs - 1) / secondNs * secondNs }

// drawnRow is any row, of an end after 2020.
func drawnRow(t *rapid.T, trace byte) LedgerRow {
	word := func(label string) string {
		return rapid.SampledFrom([]string{"", "resolve", "execution", "a\x00b", "mit Leerzeichen", "日本", string(make([]byte, 200))}).Draw(t, label)
	}
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	run := func() uint32 { return rapid.Uint32Range(0, 70_000).Draw(t, "run") }
	count := func() int64 { return rapid.Int64Range(-2, 1<<40).Draw(t, "count") }
	tokens := func() *int64 {
		if yes("unknown") {
			return nil
		}
		n := count()
		return &n
	}
	row := LedgerRow{TraceID: TraceID{trace}, Version: LedgerVersion{InsertedUs: 7, Spans: 5, JudgedS: 3}, LastReceivedNs: noon + rapid.Int64Range(0, 10*secondNs).Draw(t, "received")}
	ns := func() int64 {
		if yes("unreal") {
			return rapid.SampledFrom([]int64{0, -5, firstNs - 1, row.LastReceivedNs + 1, 1 << 62}).Draw(t, "end")
		}
		return rapid.SampledFrom([]int64{noon, firstNs, row.LastReceivedNs}).Draw(t, "whole") - rapid.Int64Range(0, 1).Draw(t, "less")*rapid.Int64Range(0, 3*secondNs).Draw(t, "by")
	}
	for range rapid.IntRange(0, 3).Draw(t, "runs") {
		row.Runs = append(row.Runs, RunRow{
			RunID: word("id"), Service: word("service"), Environment: word("environment"), Version: word("version"), Completion: word("completion"),
			Anchor: yes("anchor"), Exhausted: yes("exhausted"), EndNs: ns(), Retries: count(),
		})
	}
	for range rapid.IntRange(0, 5).Draw(t, "operations") {
		row.Operations = append(row.Operations, OperationRow{
			Run: run(), Step: word("step"), Grain: word("grain"), Outcome: word("outcome"), Provider: word("provider"), Fallbacks: count(), Retries: count(),
			CountsInStep: yes("counts"), Settled: yes("settled"), EndNs: ns(),
		})
	}
	for range rapid.IntRange(0, 5).Draw(t, "attempts") {
		row.Attempts = append(row.Attempts, AttemptRow{
			Run: run(), Step: word("step"), Grain: word("grain"), Ending: word("ending"), Charge: word("charge"), Provider: word("provider"), ErrorClass: word("class"),
			HTTPStatus: rapid.Int64Range(-1, 70_000).Draw(t, "status"), Counted: yes("counted"), Wasted: yes("wasted"), Request: yes("request"), Midway: yes("midway"),
			Violated: yes("violated"), Hidden: yes("hidden"), EndNs: ns(), InputTokens: tokens(), OutputTokens: tokens(), Name: word("name"), Model: word("model"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "violations") {
		row.Violations = append(row.Violations, ViolationRow{Run: int64(run()) - 1, Node: word("node"), Key: word("key"), Count: count(), TimeNs: ns()})
	}
	return row
}

// What the store makes of a row is what a brief row is to hold, whatever the row.
func TestBriefRowsHoldWhatTheySay(t *testing.T) {
	db := migrated(t)
	var seen []uint64
	rapid.Check(t, func(rt *rapid.T) {
		var rows []LedgerRow
		var want, got []Brief
		for i := range rapid.IntRange(1, 5).Draw(rt, "rows") {
			rows = append(rows, drawnRow(rt, byte(i)))
			want = append(want, briefly(&rows[i]))
			require.Equal(rt, want[i], rounded(BriefOf(&rows[i])))
		}
		require.NoError(rt, InsertLedger(t.Context(), db.Conn, rows))
		var written Write
		require.NoError(rt, LedgerWrites(t.Context(), db.Conn, 0, seen, func(b *Brief, w Write) error {
			got, written = append(got, kept(b)), w
			return nil
		}))
		seen = append(seen, written.ID)
		require.Equal(rt, want, got)
	})
}

// A read leaves out the writes that it is told to, and those until an instant.
func TestLedgerWrites(t *testing.T) {
	db := migrated(t)
	for trace := range 4 {
		rows := []LedgerRow{ledgerRow(2*trace, noon, 1), ledgerRow(2*trace+1, noon, 1)}
		require.NoError(t, InsertLedger(t.Context(), db.Conn, rows))
	}
	rows := make(map[Write]int)
	var writes []Write
	require.NoError(t, LedgerWrites(t.Context(), db.Conn, 0, nil, func(_ *Brief, w Write) error {
		rows[w]++
		if rows[w] == 1 {
			writes = append(writes, w)
		}
		return nil
	}))
	require.Len(t, writes, 4, "each insert is a write of its own")
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Compare(a.At, b.At) })
	for _, w := range writes {
		assert.Equal(t, 2, rows[w])
		assert.InDelta(t, time.Now().UnixMicro(), w.At, 6e8)
	}
	count := func(afterUs int64, seen ...uint64) (n int) {
		require.NoError(t, LedgerWrites(t.Context(), db.Conn, afterUs, seen, func(*Brief, Write) error { n++; return nil }))
		return n
	}
	assert.Equal(t, 6, count(0, writes[2].ID, 12345))
	assert.Equal(t, 0, count(0, writes[0].ID, writes[1].ID, writes[2].ID, writes[3].ID))
	assert.Equal(t, 4, count(writes[1].At))
	assert.Equal(t, 6, count(writes[1].At-1))
	require.ErrorIs(t, LedgerWrites(t.Context(), db.Conn, 0, nil, func(*Brief, Write) error { return assert.AnError }), assert.AnError)
}

// The current rows of a time, and of what was written since.
func TestLedgerSinceAndBetween(t *testing.T) {
	db := migrated(t)
	row := func(trace byte, spans uint32, firstNs, lastNs int64) LedgerRow {
		return LedgerRow{TraceID: TraceID{trace}, Version: LedgerVersion{InsertedUs: 1, Spans: spans}, FirstEndNs: firstNs, LastEndNs: lastNs, LastReceivedNs: lastNs}
	}
	const hour = 3600 * secondNs
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{row(1, 2, noon, noon), row(2, 2, noon-hour, noon+hour), row(3, 2, noon+2*hour, noon+2*hour)}))
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{row(1, 1, noon, noon), row(3, 3, noon+2*hour, noon+3*hour)}))
	now, err := Clock(t.Context(), db.Conn)
	require.NoError(t, err)
	found := func(err error, rows *[]string) []string {
		require.NoError(t, err)
		slices.Sort(*rows)
		return *rows
	}
	since := func(at time.Time) []string {
		var rows []string
		return found(LedgerSince(t.Context(), db.Conn, at, func(r *Brief) error {
			rows = append(rows, fmt.Sprint(r.TraceID[0], " by ", r.Version.Spans))
			return nil
		}), &rows)
	}
	later := time.UnixMicro(now).Add(time.Hour)
	require.NoError(t, db.Conn.Exec(t.Context(), "ALTER TABLE ledger UPDATE written_at = '2020-01-01' WHERE true SETTINGS mutations_sync = 1"))
	assert.Empty(t, since(later))
	assert.Equal(t, []string{"3 by 3"}, since(time.Unix(0, noon+hour)))
	assert.Equal(t, []string{"1 by 2", "2 by 2", "3 by 3"}, since(time.Unix(0, noon-1)))
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{row(4, 1, 0, 0)}))
	assert.Equal(t, []string{"4 by 1"}, since(time.UnixMicro(now-1)), "for it was written since")
	between := func(fromNs, toNs int64) []string {
		var rows []string
		return found(LedgerBetween(t.Context(), db.Conn, time.Unix(0, fromNs), time.Unix(0, toNs), func(r *Brief) error {
			rows = append(rows, fmt.Sprint(r.TraceID[0], " by ", r.Version.Spans))
			return nil
		}), &rows)
	}
	assert.Equal(t, []string{"1 by 2", "2 by 2"}, between(noon-1, noon))
	assert.Equal(t, []string{"2 by 2", "3 by 3"}, between(noon, noon+hour))
	require.ErrorIs(t, LedgerSince(t.Context(), db.Conn, time.Time{}, func(*Brief) error { return assert.AnError }), assert.AnError)
	require.ErrorIs(t, LedgerBetween(t.Context(), db.Conn, time.Time{}, time.Unix(0, noon), func(*Brief) error { return assert.AnError }), assert.AnError)
}

// A brief that is cut short, longer than it says or of another layout is refused.
func TestBrokenBriefs(t *testing.T) {
	db := migrated(t)
	full := ledgerRow(1, noon, 3)
	full.Operations = []OperationRow{{Step: "resolve", Grain: "execution"}}
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{full}))
	var text string
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT brief FROM ledger").Scan(&text))
	var r briefReader
	require.NoError(t, r.UnmarshalBinary([]byte(text)))
	require.Len(t, r.brief.Attempts, 3)
	for n := range len(text) {
		require.Error(t, r.UnmarshalBinary([]byte(text)[:n]), n)
	}
	require.ErrorIs(t, r.UnmarshalBinary([]byte(text+"\x00")), errBrief)
	require.ErrorContains(t, r.UnmarshalBinary([]byte("\x02"+text[1:])), "layout 2")
	rapid.Check(t, func(t *rapid.T) {
		broken := []byte(text)
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			broken[rapid.IntRange(1, len(broken)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		_ = r.UnmarshalBinary(broken) // whatever it says, it takes no more memory than the brief has bytes
		require.LessOrEqual(t, len(r.brief.Attempts)+len(r.brief.Operations)+len(r.brief.Runs)+len(r.brief.Violations), 4*len(broken))
	})
	require.NoError(t, r.UnmarshalBinary([]byte(text)))
	require.Len(t, r.brief.Attempts, 3)
}
