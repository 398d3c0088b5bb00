//go:build linux || darwin

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

const table = "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n"

func TestRowsOutliveShutdown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder & <another>")
	e := enginetest.Start(t, engine.Options{DataDir: dir})
	conn := open(t, e.ClientOptions())
	exec(t, conn, "CREATE DATABASE ledger", table,
		"INSERT INTO ledger.rows SELECT number FROM numbers(100000)",
		// Answered before it is written, on a server.
		"INSERT INTO ledger.rows SETTINGS async_insert = 1, wait_for_async_insert = 0, async_insert_busy_timeout_ms = 600000, async_insert_use_adaptive_busy_timeout = 0 VALUES (100000)")
	// A query that would run on does not hold the end up.
	endless := make(chan error, 1)
	go func() { endless <- conn.Exec(context.Background(), "SELECT count() FROM system.numbers") }()
	eventually(t, 5*time.Second, "a running query", func() error {
		if one[uint64](t, conn, "SELECT count() FROM system.processes WHERE query LIKE 'SELECT count() FROM system.numbers%'") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	begin := time.Now()
	require.NoError(t, e.Shutdown(context.Background()))
	took := time.Since(begin)
	t.Logf("shutdown took %s", took)
	require.Less(t, took, 3*time.Second)
	require.Error(t, <-endless)
	require.Equal(t, engine.StateStopped, e.Status().State)
	require.NoError(t, e.Shutdown(context.Background()), "twice is no error")

	e = enginetest.Start(t, engine.Options{DataDir: dir})
	require.Equal(t, uint64(100001), one[uint64](t, open(t, e.ClientOptions()), "SELECT count() FROM ledger.rows"))
}

func TestAKilledEngineComesBackAtTheSameAddress(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
		t.Run(sig.String(), func(t *testing.T) {
			e := enginetest.Start(t, engine.Options{})
			conn := open(t, e.ClientOptions())
			exec(t, conn, "CREATE DATABASE ledger", table, "INSERT INTO ledger.rows SELECT number FROM numbers(100000)")
			addr, was := e.Addr(), e.Status().PID
			require.NoError(t, syscall.Kill(was, sig))
			eventually(t, 15*time.Second, "restart", func() error {
				if s := e.Status(); s.State != engine.StateReady || s.PID == was {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
			require.Equal(t, 1, e.Crashes())
			require.Error(t, e.Status().LastErr)
			t.Log(e.Status().LastErr)
			require.Equal(t, addr, e.Addr())
			// The client that was open all the while goes on.
			eventually(t, 5*time.Second, "reconnect", func() error { return conn.Ping(context.Background()) })
			require.Equal(t, uint64(100000), one[uint64](t, conn, "SELECT count() FROM ledger.rows"))
		})
	}
}

// parentEnv makes this test binary a collector that is about to be killed: it
// starts an engine on the folder, inserts, prints what parentSays holds, and
// goes on until it is killed.
const parentEnv = "RETRYLEDGER_ENGINE_TEST_PARENT"

type parentSays struct {
	Engine int    // pid
	Addr   string // of the engine
}

func parentMain(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	e, err := engine.Start(ctx, engine.Options{DataDir: dir})
	fail(err)
	conn, err := clickhouse.Open(e.ClientOptions())
	fail(err)
	fail(conn.Exec(ctx, "CREATE DATABASE ledger"))
	fail(conn.Exec(ctx, table))
	fail(conn.Exec(ctx, "INSERT INTO ledger.rows SELECT number FROM numbers(100000)"))
	fail(json.NewEncoder(os.Stdout).Encode(parentSays{Engine: e.Status().PID, Addr: e.Addr()}))
	select {}
}

// startParent returns a running collector with an engine on dir.
func startParent(t *testing.T, dir string) (*osexec.Cmd, parentSays) {
	t.Helper()
	enginetest.Database(t) // fetches the library, or says why it cannot be had
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var says parentSays
	require.NoError(t, json.NewDecoder(out).Decode(&says))
	return cmd, says
}

// gone says whether a process has ended, waited for or not.
func gone(pid int) bool {
	b, err := osexec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(string(b), "Z")
}

func TestTheEngineDiesWithItsParentAndKeepsTheRows(t *testing.T) {
	dir := t.TempDir()
	parent, says := startParent(t, dir)
	begin := time.Now()
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed

	// At once, as a service manager would: the old engine may still run.
	e := enginetest.Start(t, engine.Options{DataDir: dir})
	require.True(t, gone(says.Engine), "two engines on one folder")
	t.Logf("the next engine was ready %s after the kill", time.Since(begin))
	require.Equal(t, uint64(100000), one[uint64](t, open(t, e.ClientOptions()), "SELECT count() FROM ledger.rows"))
}

func TestAFolderInUseNamesItsHolder(t *testing.T) {
	dir := t.TempDir()
	parent, says := startParent(t, dir)
	_, err := engine.Start(context.Background(), engine.Options{DataDir: dir})
	var locked *engine.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, parent.Process.Pid, locked.PID)
	require.Equal(t, says.Addr, locked.Addr)
	for _, s := range []string{strconv.Itoa(parent.Process.Pid), dir, says.Addr, "choose another data_dir", "engine subcommand"} {
		require.ErrorContains(t, err, s)
	}
}

func TestATakenPortIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	enginetest.Database(t)
	_, err = engine.Start(context.Background(), engine.Options{DataDir: t.TempDir(), Listen: l.Addr().String()})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "set listen to another address")

	port := portOf(t, l)
	dir := t.TempDir()
	_, err = engine.Start(context.Background(), engine.Options{DataDir: dir, HTTPPort: port})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "set http_port to another")
	l.Close()
	enginetest.Start(t, engine.Options{DataDir: dir, HTTPPort: port}) // the failed start left no lock
}

func TestAnAddressTakenAtARestartIsSaidAndWaitedFor(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	require.NoError(t, syscall.Kill(e.Status().PID, syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(e.Status().PID, syscall.SIGKILL))
	var l net.Listener
	eventually(t, 5*time.Second, "take the address", func() (err error) {
		if e.Crashes() > 50 {
			return errors.New("too late")
		}
		l, err = net.Listen("tcp", e.Addr())
		return err
	})
	eventually(t, 10*time.Second, "say so", func() error {
		if s := e.Status(); !errors.Is(s.LastErr, syscall.EADDRINUSE) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	l.Close()
	eventually(t, 10*time.Second, "restart", func() error {
		if s := e.Status(); s.State != engine.StateReady {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	exec(t, open(t, e.ClientOptions()), "SELECT 1")
}

func TestAHostDoesNotStartEngines(t *testing.T) {
	t.Setenv(engine.HostEnv, "1")
	_, err := engine.Start(context.Background(), engine.Options{DataDir: t.TempDir()})
	require.ErrorContains(t, err, "HostMain")
}

func TestAnUnusableLibraryIsSaid(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libchdb.so")
	require.NoError(t, os.WriteFile(lib, []byte("not a library"), 0o600))
	_, err := engine.Start(context.Background(), engine.Options{DataDir: t.TempDir(), Library: lib})
	require.ErrorContains(t, err, "open the ClickHouse library "+lib)
}

func TestAnEndedContextEndsTheStart(t *testing.T) {
	enginetest.Database(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := engine.Start(ctx, engine.Options{DataDir: dir})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	enginetest.Start(t, engine.Options{DataDir: dir}) // no process and no lock are left
}

// portOf is the port that a listener on this machine has.
func portOf(t *testing.T, l net.Listener) int {
	t.Helper()
	addr, ok := l.Addr().(*net.TCPAddr)
	require.True(t, ok)
	return addr.Port
}
