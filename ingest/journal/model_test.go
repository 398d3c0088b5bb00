package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// model is what a journal must do: hand out what was acknowledged and not
// confirmed, in order, whatever happened in between.
type model struct {
	dirs    string
	dir     string
	journal *journal.Journal
	damages int

	next      int   // number of the next span
	kept      []int // acknowledged, not confirmed, and not damaged
	confirmed int   // every span below was confirmed: it may come again or not
	unread    int   // the least span that this opening has not handed out
	pending   []delivered
}

type delivered struct {
	last int
	end  journal.Position
}

func (m *model) options() journal.Options {
	return journal.Options{
		Dir: m.dir, MaxBytes: 1 << 30, SegmentBytes: 2 << 10, SetAsideBytes: 64 << 10,
		Damage: func(journal.Damage) { m.damages++ },
	}
}

func (m *model) open(t *rapid.T) {
	j, err := journal.Open(m.options())
	require.NoError(t, err)
	m.journal, m.pending, m.unread = j, nil, 0
}

// append acknowledges up to 30 spans more.
func (m *model) append(t *rapid.T) {
	var spans []schema.Span
	for range rapid.IntRange(1, 30).Draw(t, "spans") {
		spans = append(spans, numbered(0, m.next))
		m.kept = append(m.kept, m.next)
		m.next++
	}
	require.NoError(t, m.journal.Append(context.Background(), spans))
}

// read takes a few records and checks that nothing was left out.
func (m *model) read(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "records") {
		rec, err := m.journal.TryNext()
		if errors.Is(err, journal.ErrEmpty) {
			m.complete(t, m.next)
			return
		}
		require.NoError(t, err)
		for _, s := range rec.Spans {
			_, n := numberOf(s)
			require.GreaterOrEqual(t, n, m.unread, "in order")
			m.complete(t, n)
			m.unread = n + 1
		}
		m.pending = append(m.pending, delivered{m.unread, rec.End})
	}
}

// complete fails if a span below n should have been handed out by now.
func (m *model) complete(t *rapid.T, n int) {
	for _, k := range m.kept {
		if k >= m.unread && k < n {
			t.Fatalf("span %d was acknowledged and is skipped", k)
		}
	}
	m.unread = max(m.unread, n)
}

func (m *model) confirm(t *rapid.T) {
	if len(m.pending) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.pending)-1).Draw(t, "confirmed")
	d := m.pending[i]
	m.pending = m.pending[i+1:]
	m.journal.Confirm(d.end)
	m.confirmed = max(m.confirmed, d.last)
	m.kept = slices.DeleteFunc(m.kept, func(n int) bool { return n < m.confirmed })
}

// restart closes and opens.
func (m *model) restart(t *rapid.T) {
	require.NoError(t, m.journal.Close())
	m.open(t)
}

// crash continues with the files as they lie there, after something hit them.
func (m *model) crash(t *rapid.T) {
	old := m.dir
	m.dir = filepath.Join(m.dirs, "crash", time.Now().Format("150405.000000000"))
	require.NoError(t, os.CopyFS(m.dir, os.DirFS(old)))
	require.NoError(t, m.journal.Close())
	require.NoError(t, os.RemoveAll(old))
	require.NoError(t, os.Remove(filepath.Join(m.dir, "LOCK")))
	if rapid.Bool().Draw(t, "position lost") {
		_ = os.Remove(filepath.Join(m.dir, "confirmed.json"))
	}
	if files := segmentFiles(t, m.dir); len(files) > 0 {
		m.hit(t, files)
	}
	m.open(t)
}

// hit harms one segment file and takes the spans whose bytes are gone out of
// the model.
func (m *model) hit(t *rapid.T, files []string) {
	i := rapid.IntRange(0, len(files)-1).Draw(t, "file")
	kind := rapid.SampledFrom([]string{"nothing", "torn", "zeros", "cut", "flip", "delete", "insert"}).Draw(t, "damage")
	if kind == "torn" || kind == "zeros" || kind == "cut" {
		i = len(files) - 1
	}
	raw, err := os.ReadFile(files[i])
	require.NoError(t, err)
	if len(raw) == 0 {
		return
	}
	at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
	lost := [2]int{at, at} // the bytes that changed
	var out []byte
	switch kind {
	case "nothing":
		return
	case "torn": // a record that was being written
		first, err := journal.Extents(files[i])
		require.NoError(t, err)
		if len(first) == 0 {
			return
		}
		record := raw[first[0][0]:first[0][1]]
		out = slices.Concat(raw, record[:at%len(record)])
		lost = [2]int{len(raw), len(raw)}
	case "zeros":
		out = slices.Concat(raw, make([]byte, at))
		lost = [2]int{len(raw), len(raw)}
	case "cut":
		out, lost[1] = raw[:at], len(raw)
	case "flip":
		n := min(rapid.IntRange(1, 200).Draw(t, "length"), len(raw)-at)
		out = slices.Clone(raw)
		for k := at; k < at+n; k++ {
			out[k] ^= 0x5a
		}
		lost[1] = at + n
	case "delete":
		n := min(rapid.IntRange(1, 27).Draw(t, "length"), len(raw)-at)
		out = slices.Delete(slices.Clone(raw), at, at+n)
		lost[1] = at + n
	case "insert":
		out = slices.Insert(slices.Clone(raw), at, rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "bytes")...)
	}
	extents, err := journal.Extents(files[i])
	require.NoError(t, err)
	for _, e := range extents {
		from, to := int(e[0]), int(e[1])
		if lost[0] < to && lost[1] > from || lost[0] == lost[1] && lost[0] > from && lost[0] < to {
			spans, err := journal.DecodeRows(raw[from+28 : to])
			require.NoError(t, err)
			for _, s := range spans {
				_, n := numberOf(s)
				m.kept = slices.DeleteFunc(m.kept, func(k int) bool { return k == n })
			}
		}
	}
	require.NoError(t, os.WriteFile(files[i], out, 0o600))
}

func TestWhatWasAcknowledgedComesBackInOrder(t *testing.T) {
	parent := t
	rapid.Check(t, func(t *rapid.T) {
		dirs := parent.TempDir()
		m := &model{dirs: dirs, dir: filepath.Join(dirs, "first")}
		m.open(t)
		defer func() { _ = m.journal.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"append2": m.append,
			"read":    m.read,
			"read2":   m.read,
			"confirm": m.confirm,
			"restart": m.restart,
			"crash":   m.crash,
		})
		var last journal.Position
		if len(m.pending) > 0 {
			last = m.pending[len(m.pending)-1].end
		}
		for {
			rec, err := m.journal.TryNext()
			if errors.Is(err, journal.ErrEmpty) {
				break
			}
			require.NoError(t, err)
			for _, s := range rec.Spans {
				_, n := numberOf(s)
				m.complete(t, n)
				m.unread = n + 1
			}
			last = rec.End
		}
		m.complete(t, m.next)
		m.journal.Confirm(last)
		require.NoError(t, m.journal.Close())
		require.Empty(t, segmentFiles(t, m.dir), "nothing stays when everything is confirmed")
	})
}
