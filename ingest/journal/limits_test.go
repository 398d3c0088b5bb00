package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// count reads everything that is there and returns how many spans, and the end.
func count(t testing.TB, j *journal.Journal) (int, journal.Position) {
	t.Helper()
	n, end := 0, journal.Position{}
	for {
		rec, err := j.TryNext()
		if errors.Is(err, journal.ErrEmpty) {
			return n, end
		}
		require.NoError(t, err)
		n += len(rec.Spans)
		end = rec.End
	}
}

// fillUp appends until the journal refuses, and returns what it acknowledged.
func fillUp(t testing.TB, j *journal.Journal) (spans int, refusal error) {
	t.Helper()
	for range 100_000 {
		if err := j.Append(t.Context(), plainSpans(100)); err != nil {
			return spans, err
		}
		spans += 100
	}
	t.Fatal("the journal never refuses")
	return 0, nil
}

func TestAFullJournalRefusesAndKeepsWhatItHas(t *testing.T) {
	opts := options(t.TempDir())
	opts.MaxBytes = 256 << 10
	j, err := journal.Open(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()

	acknowledged, refusal := fillUp(t, j)
	require.ErrorIs(t, refusal, journal.ErrFull)
	require.ErrorContains(t, refusal, "journal::max_size_mib")
	require.Positive(t, acknowledged)
	require.LessOrEqual(t, j.Stats().Bytes, opts.MaxBytes)

	n, end := count(t, j)
	require.Equal(t, acknowledged, n)
	j.Confirm(end)
	require.NoError(t, j.Append(t.Context(), plainSpans(100)), "confirmed segments make room")
	n, _ = count(t, j)
	require.Equal(t, 100, n)
}

func TestMoreThanTheJournalCanEverHold(t *testing.T) {
	opts := options(t.TempDir())
	opts.MaxBytes = 10 << 10
	j, err := journal.Open(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	require.ErrorIs(t, j.Append(t.Context(), plainSpans(2000)), journal.ErrTooLarge)
	require.NoError(t, j.Append(t.Context(), plainSpans(10)))
}

func TestTheDiskKeepsItsFreeSpace(t *testing.T) {
	opts := options(t.TempDir())
	var free atomic.Uint64
	opts.MinFreeBytes = 1 << 20
	opts.Free = func(string) (uint64, error) { return free.Load(), nil }
	j, err := journal.Open(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	free.Store(2 << 20)
	require.NoError(t, j.Append(t.Context(), plainSpans(10)))
	free.Store(1 << 20)
	err = j.Append(t.Context(), plainSpans(10))
	require.ErrorIs(t, err, journal.ErrFull)
	require.ErrorContains(t, err, "journal::min_free_disk_mib")
	free.Store(2 << 20)
	require.NoError(t, j.Append(t.Context(), plainSpans(10)))
	n, _ := count(t, j)
	require.Equal(t, 20, n)
}

func TestDamageIsReportedAndItsSegmentKept(t *testing.T) {
	opts := options(t.TempDir())
	j, err := journal.Open(opts)
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, j.Append(t.Context(), []schema.Span{numbered(0, i)}))
	}
	require.NoError(t, j.Close())
	files := segmentFiles(t, opts.Dir)
	require.Len(t, files, 1)
	extents, err := journal.Extents(files[0])
	require.NoError(t, err)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	raw[extents[2][0]+40] ^= 1
	require.NoError(t, os.WriteFile(files[0], raw, 0o600))

	var damages []journal.Damage
	opts.Damage = func(d journal.Damage) { damages = append(damages, d) }
	j, err = journal.Open(opts)
	require.NoError(t, err)
	n, end := count(t, j)
	require.Equal(t, 4, n)
	require.Len(t, damages, 1)
	require.Equal(t, filepath.Base(files[0]), damages[0].Segment)
	require.Equal(t, extents[2][0], damages[0].Offset)
	require.Equal(t, extents[2][1]-extents[2][0], damages[0].Length)
	j.Confirm(end)
	require.NoError(t, j.Close())
	require.Empty(t, segmentFiles(t, opts.Dir))
	aside, err := os.ReadFile(filepath.Join(opts.Dir, "set-aside", filepath.Base(files[0])))
	require.NoError(t, err)
	require.Equal(t, raw, aside)
}

// Damaged segments are kept within a bound, and what goes for newer ones is told.
func TestSegmentsSetAsideAreBounded(t *testing.T) {
	opts := options(t.TempDir())
	opts.SegmentBytes, opts.SetAsideBytes = 1, 1500 // a segment for each record
	damaged, gone := map[string]bool{}, map[string]int64{}
	opts.GaveUp = func(segment string, bytes int64) { gone[segment] = bytes }
	opts.Damage = func(d journal.Damage) { damaged[d.Segment] = true }
	j, err := journal.Open(opts)
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, j.Append(t.Context(), plainSpans(20)))
	}
	require.NoError(t, j.Close())
	for _, file := range segmentFiles(t, opts.Dir) {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		raw[len(raw)-1] ^= 1
		raw = append(raw, "more"...) // or it would be a torn end
		require.NoError(t, os.WriteFile(file, raw, 0o600))
	}
	j, err = journal.Open(opts)
	require.NoError(t, err)
	n, _ := count(t, j)
	require.Zero(t, n)
	require.NoError(t, j.Close())
	require.Len(t, damaged, 5)
	kept, err := os.ReadDir(filepath.Join(opts.Dir, "set-aside"))
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	total := int64(0)
	for _, e := range kept {
		require.NotContains(t, gone, e.Name())
		info, err := e.Info()
		require.NoError(t, err)
		total += info.Size()
	}
	require.LessOrEqual(t, total, opts.SetAsideBytes)
	require.Len(t, gone, 5-len(kept))
}

func TestRowsOfANewerReleaseAreSetAside(t *testing.T) {
	opts := options(t.TempDir())
	j, err := journal.Open(opts)
	require.NoError(t, err)
	require.NoError(t, j.Append(t.Context(), plainSpans(1)))
	require.NoError(t, j.Close())
	files := segmentFiles(t, opts.Dir)
	require.NoError(t, journal.SetVersion(files[0], 2))
	var damages []journal.Damage
	opts.Damage = func(d journal.Damage) { damages = append(damages, d) }
	j, err = journal.Open(opts)
	require.NoError(t, err)
	n, _ := count(t, j)
	require.Zero(t, n)
	require.Len(t, damages, 1)
	require.ErrorIs(t, damages[0].Reason, journal.ErrNewerFormat)
	require.NoError(t, j.Close())
	require.FileExists(t, filepath.Join(opts.Dir, "set-aside", filepath.Base(files[0])))
}

func TestWaitersLeaveWhenTheyMust(t *testing.T) {
	j, err := journal.Open(options(t.TempDir()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := j.Next(ctx)
		errs <- err
	}()
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.ErrorIs(t, j.Append(ctx, plainSpans(1)), context.Canceled)
	go func() {
		_, err := j.Next(t.Context())
		errs <- err
	}()
	require.NoError(t, j.Close())
	require.ErrorIs(t, <-errs, journal.ErrClosed)
	require.ErrorIs(t, j.Append(t.Context(), plainSpans(1)), journal.ErrClosed)
	require.NoError(t, j.Close(), "closing twice is fine")
}

func TestStats(t *testing.T) {
	opts := options(t.TempDir())
	now := time.Unix(1_700_000_000, 0)
	opts.Now = func() time.Time { return now }
	j, err := journal.Open(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	require.Equal(t, journal.Stats{}, j.Stats())
	require.NoError(t, j.Append(t.Context(), plainSpans(10)))
	s := j.Stats()
	require.Equal(t, now, s.Oldest)
	require.Equal(t, 1, s.Segments)
	require.Positive(t, s.Bytes)
	require.Equal(t, s.Bytes, s.UnconfirmedBytes)
	later := now.Add(time.Minute)
	now = later
	require.NoError(t, j.Append(t.Context(), plainSpans(10)))
	first, err := j.TryNext()
	require.NoError(t, err)
	j.Confirm(first.End)
	second, err := j.TryNext()
	require.NoError(t, err)
	require.Equal(t, later, j.Stats().Oldest)
	j.Confirm(second.End)
	s = j.Stats()
	require.True(t, s.Oldest.IsZero())
	require.Zero(t, s.UnconfirmedBytes)
}

// Many callers, one reader, the race detector.
func TestConcurrentAppendsComeBackInOrder(t *testing.T) {
	opts := options(t.TempDir())
	opts.GroupWindow = time.Millisecond
	j, err := journal.Open(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	const writers, each = 8, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				if err := j.Append(t.Context(), []schema.Span{numbered(w, n)}); err != nil {
					t.Error(err)
					return
				}
				_ = j.Stats()
			}
		})
	}
	next := make([]int, writers)
	for range writers * each {
		rec, err := j.Next(t.Context())
		require.NoError(t, err)
		for _, s := range rec.Spans {
			w, n := numberOf(s)
			require.Equal(t, next[w], n)
			next[w]++
		}
		j.Confirm(rec.End)
	}
	wg.Wait()
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ callers, spans int }{{1, 1000}, {8, 1000}, {8, 10000}, {64, 10}, {64, 100}} {
		b.Run(fmt.Sprintf("callers=%d/spans=%d", c.callers, c.spans), func(b *testing.B) {
			opts := options(b.TempDir())
			opts.MaxBytes, opts.SegmentBytes = 64<<30, 64<<20
			j, err := journal.Open(opts)
			require.NoError(b, err)
			defer func() { _ = j.Close() }()
			spans := plainSpans(c.spans)
			b.ResetTimer()
			var wg sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			for range c.callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := j.Append(context.Background(), spans); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N*c.spans)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
