package ingest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// refusing is an inserter that refuses as it is told and else remembers. The
// real store has no way to be made to refuse one row.
type refusing struct {
	mu      sync.Mutex
	refuse  func(call int, rows []schema.Span) error
	calls   int
	rows    map[schema.SpanID]int
	arrived chan struct{} // capacity 1
}

func newRefusing(refuse func(int, []schema.Span) error) *refusing {
	return &refusing{refuse: refuse, rows: map[schema.SpanID]int{}, arrived: make(chan struct{}, 1)}
}

func (r *refusing) InsertSpans(_ context.Context, rows []schema.Span) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if err := r.refuse(r.calls, rows); err != nil {
		return err
	}
	for _, s := range rows {
		r.rows[s.SpanID]++
	}
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	return nil
}

func (r *refusing) has(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows[spanID(n)] > 0
}

func spanID(n int) schema.SpanID { return schema.SpanID{1, byte(n >> 16), byte(n >> 8), byte(n)} }

func rows(from, to int) []schema.Span {
	var out []schema.Span
	for n := from; n < to; n++ {
		out = append(out, schema.Span{TraceID: schema.TraceID{1}, SpanID: spanID(n), Service: "service-a"})
	}
	return out
}

var errPermanent = &schema.PermanentError{Err: errors.New("value out of range")}

// refuseBad refuses what holds one of some rows.
func refuseBad(bad func(int) bool) func(int, []schema.Span) error {
	return func(_ int, rows []schema.Span) error {
		for _, s := range rows {
			if bad(int(s.SpanID[1])<<16 | int(s.SpanID[2])<<8 | int(s.SpanID[3])) {
				return errPermanent
			}
		}
		return nil
	}
}

type rig struct {
	*writer
	dir  string
	dead *deadletter.File
}

func newRig(t require.TestingT, dir string, in inserter, change func(*WriterConfig)) *rig {
	j, err := journal.Open(journal.Options{Dir: dir, MaxBytes: 64 << 20, SegmentBytes: 1 << 20})
	require.NoError(t, err)
	tel, err := newTelemetry(componenttest.NewNopTelemetrySettings().MeterProvider)
	require.NoError(t, err)
	cfg := defaultConfig().Writer
	cfg.FlushInterval, cfg.RetryInitialInterval, cfg.RetryMaxInterval = time.Millisecond, time.Millisecond, 2*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	dead := deadletter.New(dir, 1<<20)
	bury := func(letters ...deadletter.Letter) error {
		_, err := dead.Add(letters...)
		return err
	}
	return &rig{newWriter(cfg, j, in, bury, tel, zap.NewNop(), time.Now), dir, dead}
}

func (r *rig) close(t require.TestingT) {
	r.stop(context.Background())
	require.NoError(t, r.journal.Close())
	require.NoError(t, r.dead.Close())
}

func readDeadLetters(t require.TestingT, dir string) []deadletter.Letter {
	var out []deadletter.Letter
	require.NoError(t, deadletter.Read(dir, func(l deadletter.Letter) error {
		out = append(out, l)
		return nil
	}))
	return out
}

func TestOneBadRowCostsNoOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 300).Draw(rt, "rows")
		bad := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, min(6, n-1), rapid.ID[int]).Draw(rt, "bad")
		dir := t.TempDir()
		in := newRefusing(refuseBad(func(n int) bool { return slices.Contains(bad, n) }))
		w := newRig(rt, dir, in, nil)
		require.NoError(rt, w.journal.Append(context.Background(), rows(0, n)))
		w.start()
		w.close(rt)
		for i := range n {
			require.Equal(rt, !slices.Contains(bad, i), in.has(i), "row %d", i)
		}
		letters := readDeadLetters(rt, dir)
		require.Len(rt, letters, len(bad))
		for _, l := range letters {
			row, err := journal.DecodeRows(l.Row)
			require.NoError(rt, err)
			require.Len(rt, row, 1)
			require.Equal(rt, row[0].SpanID.String(), l.SpanID)
			require.Equal(rt, "value out of range", l.Reason)
		}
		require.Zero(rt, w.journal.Stats().UnconfirmedBytes)
	})
}

// A store that calls everything a bad row is ill itself: nothing may drain
// into the dead letters.
func TestAStoreThatRefusesEverythingEmptiesNothing(t *testing.T) {
	dir := t.TempDir()
	ill := make(chan struct{})
	in := newRefusing(func(call int, _ []schema.Span) error {
		select {
		case <-ill:
			return nil
		default:
		}
		if call == 30 {
			close(ill)
		}
		return errPermanent
	})
	w := newRig(t, dir, in, nil)
	var states []bool
	w.report = func(err error) { states = append(states, err == nil) }
	require.NoError(t, w.journal.Append(t.Context(), rows(0, 100)))
	w.start()
	<-in.arrived
	w.close(t)
	for i := range 100 {
		require.True(t, in.has(i))
	}
	assert.Empty(t, readDeadLetters(t, dir))
	assert.Equal(t, []bool{false, true}, states)
}

// A single bad row has no mates to prove that the store is well; it waits, and
// does not hold up those that come later.
func TestALoneBadRowIsJudgedWhenOthersCome(t *testing.T) {
	dir := t.TempDir()
	in := newRefusing(refuseBad(func(n int) bool { return n == 0 }))
	w := newRig(t, dir, in, nil)
	require.NoError(t, w.journal.Append(t.Context(), rows(0, 1)))
	w.start()
	require.NoError(t, w.journal.Append(t.Context(), rows(1, 2)))
	<-in.arrived
	w.close(t)
	require.True(t, in.has(1))
	require.Len(t, readDeadLetters(t, dir), 1)
	require.Zero(t, w.journal.Stats().UnconfirmedBytes)
}

func TestAPanicOfTheInsertIsABadRow(t *testing.T) {
	dir := t.TempDir()
	in := newRefusing(func(_ int, rows []schema.Span) error {
		for _, s := range rows {
			if s.SpanID == spanID(3) {
				panic("boom")
			}
		}
		return nil
	})
	w := newRig(t, dir, in, nil)
	require.NoError(t, w.journal.Append(t.Context(), rows(0, 10)))
	w.start()
	w.close(t)
	letters := readDeadLetters(t, dir)
	require.Len(t, letters, 1)
	require.Equal(t, spanID(3).String(), letters[0].SpanID)
}

// Retries never end, their waits grow up to the bound, and a shutdown cuts
// them short and keeps the rows.
func TestRetriesNeverEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		in := newRefusing(func(int, []schema.Span) error {
			at = append(at, time.Now())
			return errors.New("connection refused")
		})
		w := newRig(t, dir, in, func(c *WriterConfig) {
			c.RetryInitialInterval, c.RetryMaxInterval = time.Second, 10*time.Second
		})
		require.NoError(t, w.journal.Append(t.Context(), rows(0, 5)))
		w.start()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		began := time.Now()
		w.close(t)
		require.LessOrEqual(t, time.Since(began), w.cfg.ShutdownTimeout)
		require.Greater(t, len(at), 24*60*60/15-10)
		for i := 1; i < len(at); i++ {
			require.LessOrEqual(t, at[i].Sub(at[i-1]), 15*time.Second, "10 s and half of it as jitter")
		}
	})
	again := newRefusing(func(int, []schema.Span) error { return nil })
	w := newRig(t, dir, again, nil)
	w.start()
	w.close(t)
	for i := range 5 {
		require.True(t, again.has(i), "the next start inserts what is left")
	}
}

// An insert that lasts is told while it does, and that all is well again when it is through.
func TestASlowStoreIsTold(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var lasts atomic.Int64
		in := newRefusing(func(int, []schema.Span) error {
			time.Sleep(time.Duration(lasts.Load()))
			return nil
		})
		w := newRig(t, dir, in, nil)
		var mu sync.Mutex
		var told []error
		w.report = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}
		w.start()
		for _, d := range []time.Duration{time.Second, 50 * time.Second, time.Second} {
			lasts.Store(int64(d))
			require.NoError(t, w.journal.Append(t.Context(), rows(int(d/time.Second), int(d/time.Second)+1)))
			time.Sleep(slowInsert + time.Second)
			synctest.Wait()
			mu.Lock()
			if d > slowInsert {
				require.Len(t, told, 1)
				require.ErrorIs(t, told[0], errSlow)
			}
			mu.Unlock()
			time.Sleep(time.Minute)
		}
		w.close(t)
		require.Len(t, told, 2)
		require.NoError(t, told[1])
	})
}

func TestRowsThatComeTogetherGoTogether(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		in := newRefusing(func(_ int, rows []schema.Span) error {
			sizes = append(sizes, len(rows))
			return nil
		})
		inserts := func() []int {
			in.mu.Lock()
			defer in.mu.Unlock()
			return slices.Clone(sizes)
		}
		w := newRig(t, dir, in, func(c *WriterConfig) { c.BatchRows, c.FlushInterval = 100, 200*time.Millisecond })
		w.start()
		for i := range 10 {
			require.NoError(t, w.journal.Append(t.Context(), rows(i, i+1)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{10}, inserts(), "one flush interval")
		for i := range 25 {
			require.NoError(t, w.journal.Append(t.Context(), rows(i*10, i*10+10)))
		}
		synctest.Wait()
		require.Equal(t, []int{10, 100, 100}, inserts(), "a full batch does not wait")
		w.close(t)
		require.Equal(t, []int{10, 100, 100, 50}, inserts())
	})
}
