//go:build linux || darwin

package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// fakeProcess ends when it is told to, or when the test says so.
type fakeProcess struct {
	once sync.Once
	gone chan struct{}
	why  error
}

func newFake() *fakeProcess                    { return &fakeProcess{gone: make(chan struct{})} }
func (p *fakeProcess) id() int                 { return 1234567 }
func (p *fakeProcess) exited() <-chan struct{} { return p.gone }
func (p *fakeProcess) reason() error           { return p.why }
func (p *fakeProcess) end()                    { p.crash(nil) }
func (p *fakeProcess) kill()                   { p.crash(errors.New("killed")) }
func (p *fakeProcess) crash(err error) {
	p.once.Do(func() { p.why = err; close(p.gone) })
}

// fakePing answers with err, or blocks until its context ends.
type fakePing struct {
	mu     sync.Mutex
	silent bool
}

func (p *fakePing) Ping(ctx context.Context) error {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
func (p *fakePing) Close() error { return nil }

// supervised runs an engine whose starts come from start, in a bubble of
// synctest where waits take no time.
func supervised(t *testing.T, first *fakeProcess, ping *fakePing, start func(context.Context) (process, error)) *Engine {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	require.NoError(t, err)
	e := &Engine{
		opts: Options{StartTimeout: time.Minute}, log: zap.NewNop(), lock: &dirLock{f}, ping: ping,
		done: make(chan struct{}), start: start, random: func() float64 { return 0 },
	}
	e.setState(StateReady, nil)
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.run(ctx, first)
	return e
}

func TestRestartsWaitTwiceAsLongEachTimeUntilTheEngineHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		var starts []time.Duration
		began := time.Now()
		var current *fakeProcess
		first := newFake()
		e := supervised(t, first, &fakePing{}, func(context.Context) (process, error) {
			starts = append(starts, time.Since(began))
			if len(starts) < 10 {
				return nil, boom
			}
			current = newFake()
			return current, nil
		})
		first.crash(boom)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{
			200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond, 3 * time.Second, 6200 * time.Millisecond,
			12600 * time.Millisecond, 25400 * time.Millisecond, 51 * time.Second, 81 * time.Second, 111 * time.Second,
		}, starts, "200 ms doubled, at most 30 s apart (the eighth wait is 25.6 s)")
		require.Equal(t, 10, e.Crashes())
		require.ErrorIs(t, e.Status().LastErr, boom)

		// It has held for more than a minute: the next crash is a first one.
		began, starts = time.Now(), starts[:9]
		current.crash(boom)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 200*time.Millisecond, starts[9])
		require.NoError(t, e.Shutdown(context.Background()))
		require.Equal(t, StateStopped, e.Status().State)
	})
}

func TestBackoffIsCutByChance(t *testing.T) {
	b := newBackoff(func() float64 { return 0.5 })
	require.Equal(t, 150*time.Millisecond, b.next())
	require.Equal(t, 300*time.Millisecond, b.next())
	b.reset()
	require.Equal(t, 150*time.Millisecond, b.next())
}

func TestAHungEngineIsKilledAndStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, ping := newFake(), &fakePing{silent: true}
		var startedAt time.Duration
		began := time.Now()
		e := supervised(t, first, ping, func(context.Context) (process, error) {
			startedAt = time.Since(began)
			ping.mu.Lock()
			ping.silent = false
			ping.mu.Unlock()
			return newFake(), nil
		})
		time.Sleep(50 * time.Second)
		require.Equal(t, 0, e.Crashes(), "a busy engine may be slow")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, e.Crashes())
		require.Greater(t, startedAt, time.Minute)
		require.ErrorContains(t, e.Status().LastErr, "no answer to 6 pings")
		require.ErrorContains(t, first.why, "killed")
		require.NoError(t, e.Shutdown(context.Background()))
	})
}

func TestShutdownWhileARestartIsDueOrUnderWay(t *testing.T) {
	for name, wait := range map[string]time.Duration{"due": 100 * time.Millisecond, "under way": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := newFake()
				e := supervised(t, first, &fakePing{}, func(ctx context.Context) (process, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				first.crash(errors.New("boom"))
				time.Sleep(wait)
				began := time.Now()
				require.NoError(t, e.Shutdown(context.Background()))
				require.Zero(t, time.Since(began))
				require.Equal(t, 1, e.Crashes(), "our own end of a start is no crash")
				require.Equal(t, StateStopped, e.Status().State)
			})
		})
	}
}

func TestShutdownKillsWhatDoesNotEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
		require.NoError(t, err)
		e := &Engine{opts: Options{}, log: zap.NewNop(), lock: &dirLock{f}, ping: &fakePing{}, done: make(chan struct{}), random: func() float64 { return 0 }}
		p := &stubborn{newFake()}
		e.setProcess(p)
		run, stop := context.WithCancel(context.Background())
		e.stop = stop
		go e.run(run, p)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, e.Shutdown(ctx), context.DeadlineExceeded)
		require.ErrorContains(t, p.why, "killed")
	})
}

// stubborn ends only when it is killed.
type stubborn struct{ *fakeProcess }

func (p *stubborn) end() { <-p.gone }
