package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func letterWithRow(t require.TestingT, n int) deadletter.Letter {
	row, err := journal.EncodeRows([]schema.Span{{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{byte(n >> 8), byte(n), 1}}})
	require.NoError(t, err)
	return deadletter.Letter{Kind: deadletter.KindRow, Cause: deadletter.CauseStoreRefused, Reason: "refused", Row: row}
}

func lettersIn(t require.TestingT, dir string) (found []deadletter.Letter) {
	require.NoError(t, deadletter.Read(dir, func(l deadletter.Letter) error {
		found = append(found, l)
		return nil
	}))
	return found
}

func sizeOf(t *testing.T, dir string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.EqualValues(t, 0o600, info.Mode().Perm(), e.Name())
		total += info.Size()
	}
	return total
}

// The file is bounded, over restarts and whatever comes at once, and what had to go for
// newer letters is counted.
func TestFilesAreBounded(t *testing.T) {
	const bound = 64 << 10
	dir := t.TempDir()
	written, displaced := 0, 0
	for range 3 {
		f := deadletter.New(dir, bound)
		for range 400 {
			n, err := f.Add(deadletter.Letter{Kind: deadletter.KindSpan, Reason: strings.Repeat("r", 1000)})
			require.NoError(t, err)
			written, displaced = written+1, displaced+n
		}
		require.NoError(t, f.Close())
		require.LessOrEqual(t, sizeOf(t, dir), int64(bound))
	}
	f := deadletter.New(dir, bound)
	many := make([]deadletter.Letter, 5000)
	for i := range many {
		many[i] = deadletter.Letter{Kind: deadletter.KindSpan, Reason: "many at once", Count: 3}
	}
	n, err := f.Add(many...)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	written, displaced = written+3*len(many), displaced+n
	require.LessOrEqual(t, sizeOf(t, dir), int64(bound))
	kept := 0
	for _, l := range lettersIn(t, dir) {
		kept += l.Items()
	}
	assert.Equal(t, written, kept+displaced, "each letter is there or was counted")
	assert.Positive(t, kept)
}

// A line that a crash left torn costs no other.
func TestATornLineIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	f := deadletter.New(dir, 1<<20)
	_, err := f.Add(letterWithRow(t, 1))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	path := filepath.Join(dir, deadletter.Name)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	torn := `{"time":"2026`
	require.NoError(t, os.WriteFile(path, append(raw, torn...), 0o600))
	assert.Len(t, lettersIn(t, dir), 1)
	assert.Empty(t, lettersIn(t, t.TempDir()))

	f = deadletter.New(dir, 1<<20)
	_, err = f.Add(letterWithRow(t, 2))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Len(t, lettersIn(t, dir), 2, "nor the next one")

	rows := 0
	for range 2 { // the second one finds it still there
		_, kept, err := f.Replay(func(spans []schema.Span) error { rows += len(spans); return nil })
		require.NoError(t, err)
		assert.Equal(t, 2, rows)
		assert.Equal(t, 1, kept, "what cannot be read is kept and counted")
	}
	raw, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, torn, strings.TrimSuffix(string(raw), "\n"))
}

// Whatever letters there are, a replay hands over each row once and leaves the others;
// one that fails leaves all.
func TestReplayHandsOverEachRowOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		f := deadletter.New(dir, 1<<20)
		rows, others := rapid.IntRange(0, 2500).Draw(rt, "rows"), rapid.IntRange(0, 5).Draw(rt, "others")
		var all []deadletter.Letter
		for n := range rows {
			all = append(all, letterWithRow(rt, n))
		}
		for range others {
			all = append(all, deadletter.Letter{Kind: deadletter.KindSpan, Reason: "no id"})
		}
		all = append(all, deadletter.Letter{Kind: deadletter.KindRow, Reason: "of a newer release", Row: []byte{2, 1}})
		_, err := f.Add(all...)
		require.NoError(rt, err)

		if rows > 0 {
			full := errors.New("the journal is full")
			after := rapid.IntRange(0, (rows-1)/1000).Draw(rt, "batches before it fails")
			_, _, err = f.Replay(func([]schema.Span) error {
				after--
				if after < 0 {
					return full
				}
				return nil
			})
			require.ErrorIs(rt, err, full)
			require.Len(rt, lettersIn(rt, dir), len(all), "nothing is dropped that was not taken")
		}
		seen := map[schema.SpanID]int{}
		taken, kept, err := f.Replay(func(spans []schema.Span) error {
			for _, s := range spans {
				seen[s.SpanID]++
			}
			return nil
		})
		require.NoError(rt, err)
		require.Equal(rt, rows, taken)
		require.Equal(rt, others+1, kept)
		require.Len(rt, seen, rows)
		require.Len(rt, lettersIn(rt, dir), others+1)
		_, err = f.Add(letterWithRow(rt, 9999))
		require.NoError(rt, err, "and goes on")
		require.Len(rt, lettersIn(rt, dir), others+2)
		require.NoError(rt, f.Close())
	})
}

func TestARequestIsAnsweredOnce(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := deadletter.RequestReplay(ctx, dir, "first")
	require.ErrorIs(t, err, deadletter.ErrNotTaken)
	id, asked := deadletter.Requested(dir)
	require.True(t, asked, "the next collector finds it")
	require.Equal(t, "first", id)

	answers := make(chan error, 1)
	go func() {
		a, err := deadletter.RequestReplay(t.Context(), dir, "second")
		if err == nil && a.Replayed != 3 {
			err = fmt.Errorf("answered %+v", a)
		}
		answers <- err
	}()
	require.Eventually(t, func() bool { id, _ := deadletter.Requested(dir); return id == "second" }, 10*time.Second, time.Millisecond)
	require.NoError(t, deadletter.Respond(dir, deadletter.Answer{ID: "first", Replayed: 1}))
	_, asked = deadletter.Requested(dir)
	require.True(t, asked, "an answer to an earlier request leaves the later one")
	require.NoError(t, deadletter.Respond(dir, deadletter.Answer{ID: "second", Replayed: 3}))
	require.NoError(t, <-answers)
	_, asked = deadletter.Requested(dir)
	require.False(t, asked)
}
