//go:build linux || darwin

package engine

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// orphaned is a data folder whose holder has died and whose engine has not:
// the lock is held through another open file.
func orphaned(t *testing.T) (layout, *os.File) {
	t.Helper()
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	d := layoutOf(t.TempDir())
	b, err := json.Marshal(holder{PID: dead.Process.Pid, Host: "elsewhere", Addr: "127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(d.lock, b, 0o600))
	f, err := os.Open(d.lock)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, lockFile(f))
	return d, f
}

func TestAnOrphanedEngineIsWaitedFor(t *testing.T) {
	d, f := orphaned(t)
	free := time.AfterFunc(200*time.Millisecond, func() { f.Close() })
	defer free.Stop()
	began := time.Now()
	l, err := lockDir(context.Background(), d, 20*time.Second)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	require.NoError(t, l.release())
}

func TestAnOrphanedEngineIsNotWaitedForForever(t *testing.T) {
	d, _ := orphaned(t)
	_, err := lockDir(context.Background(), d, 100*time.Millisecond)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Greater(t, locked.Waited, 100*time.Millisecond)
	require.ErrorContains(t, err, "which is not there any more, but its engine still ran after")

	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
	defer cancel()
	_, err = lockDir(ctx, d, time.Hour)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, &locked)
}

func TestALiveHolderIsNotWaitedFor(t *testing.T) {
	d := layoutOf(t.TempDir())
	l, err := lockDir(context.Background(), d, time.Hour)
	require.NoError(t, err)
	require.NoError(t, l.record("127.0.0.1:7"))
	_, err = lockDir(context.Background(), d, time.Hour)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)
	require.Equal(t, "127.0.0.1:7", locked.Addr)
	require.NoError(t, l.release())
	l, err = lockDir(context.Background(), d, time.Hour)
	require.NoError(t, err)
	require.NoError(t, l.release())
}

func TestAnEndedProcessThatNobodyWaitedForIsNotAlive(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, alive(cmd.Process.Pid))
	in.Close()
	require.Eventually(t, func() bool { return !alive(cmd.Process.Pid) }, 5*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Wait())
	require.False(t, alive(0))
}

// The address is free when the supervisor looks and taken when the engine
// comes: the engine then waits at its prompt, and only its words tell.
func TestAPortTakenAtTheLastMomentIsSaid(t *testing.T) {
	if os.Getenv("RETRYLEDGER_TEST_NO_ENGINE") == "1" {
		t.Skip("needs ClickHouse")
	}
	opts, err := Options{DataDir: t.TempDir()}.withDefaults()
	require.NoError(t, err)
	opts.Library, err = Library(context.Background(), "", nil, nil)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	e := &Engine{opts: opts, layout: layoutOf(opts.DataDir), addr: l.Addr().String(), pw: "x"}
	for _, dir := range []string{e.layout.store, e.layout.logDir} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	e.lock, err = lockDir(context.Background(), e.layout, 0)
	require.NoError(t, err)
	defer func() { _ = e.lock.release() }()
	require.NoError(t, e.writeConfig())
	c, err := launch(e.layout, e.lock.file)
	require.NoError(t, err)
	defer c.end()
	require.Eventually(t, func() bool { return strings.Contains(c.complaint(), "Address already in use") }, 30*time.Second, 20*time.Millisecond)
}

// rerunWith runs the calling test alone in a process of its own.
func rerunWith(t *testing.T, env string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}
