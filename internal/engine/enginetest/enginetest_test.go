//go:build linux || darwin

package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDatabaseIsEmptyAndItsOwn(t *testing.T) {
	a, b := Database(t), Database(t)
	ctx := context.Background()
	require.NotEqual(t, a.Name, b.Name)
	require.Equal(t, a.Name, a.Options.Auth.Database)
	require.NoError(t, a.Conn.Exec(ctx, "CREATE TABLE t (x UInt64) ENGINE = MergeTree ORDER BY x"))
	require.NoError(t, a.Conn.Exec(ctx, "INSERT INTO t SELECT number FROM numbers(1000)"))
	var n uint64
	require.NoError(t, a.Conn.QueryRow(ctx, "SELECT count() FROM t").Scan(&n))
	require.Equal(t, uint64(1000), n)
	require.Error(t, b.Conn.QueryRow(ctx, "SELECT count() FROM t").Scan(&n), "the other database has no such table")
}

func TestDatabaseIsDropped(t *testing.T) {
	var name string
	t.Run("user", func(t *testing.T) { name = Database(t).Name })
	var n uint64
	require.NoError(t, Database(t).Conn.QueryRow(context.Background(), "SELECT count() FROM system.databases WHERE name = ?", name).Scan(&n))
	require.Zero(t, n)
}

func TestStartGivesAnEngineOfItsOwn(t *testing.T) {
	e := Start(t, engine.Options{})
	require.NotEqual(t, Database(t).Options.Addr, e.ClientOptions().Addr)
	require.Equal(t, engine.StateReady, e.Status().State)
}

// What follows runs test processes of their own, with a folder of their own.

// TestClient is what such a process runs: it says which engine it has, and
// goes on until it is told to end by the end of its standard input.
func TestClient(t *testing.T) {
	if os.Getenv(clientEnv) == "" {
		t.Skip("only for the tests of several processes")
	}
	db := Database(t)
	require.NoError(t, db.Conn.Exec(context.Background(), "CREATE TABLE t (x UInt64) ENGINE = MergeTree ORDER BY x"))
	dir, err := folder()
	require.NoError(t, err)
	s, err := readState(dir)
	require.NoError(t, err)
	fmt.Printf("engine %s keeper %d\n", s.Addr, s.Keeper)
	var b [1]byte
	os.Stdin.Read(b[:])
}

const clientEnv = "RETRYLEDGER_ENGINETEST_CLIENT"

type client struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	out   *bytes.Buffer // read after wait
	said  chan [2]string
}

// startClient starts a test process whose shared engine lives in tmp.
func startClient(t *testing.T, tmp string, env ...string) *client {
	t.Helper()
	c := &client{cmd: exec.Command(os.Args[0], "-test.run=^TestClient$", "-test.v"), out: &bytes.Buffer{}, said: make(chan [2]string, 1)}
	c.cmd.Env = append(append(os.Environ(), clientEnv+"=1", "TMPDIR="+tmp, lingerEnv+"=1s"), env...)
	stdin, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	c.stdin = stdin
	c.cmd.Stdout, c.cmd.Stderr = c, c
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	return c
}

// Write collects what the process says and picks out which engine it has.
func (c *client) Write(p []byte) (int, error) {
	c.out.Write(p)
	var addr, keeper string
	for line := range strings.Lines(c.out.String()) {
		if n, _ := fmt.Sscanf(line, "engine %s keeper %s", &addr, &keeper); n == 2 {
			select {
			case c.said <- [2]string{addr, keeper}:
			default:
			}
		}
	}
	return len(p), nil
}

// engine is the address of the engine that the process has, and the keeper's pid.
func (c *client) engine(t *testing.T) (addr string, keeper int) {
	t.Helper()
	select {
	case s := <-c.said:
		_, err := fmt.Sscan(s[1], &keeper)
		require.NoError(t, err)
		return s[0], keeper
	case <-time.After(time.Minute):
		t.Fatal("the test process has no engine within a minute")
		return "", 0
	}
}

func (c *client) wait() error {
	c.stdin.Close()
	return c.cmd.Wait()
}

// gone waits until the process has ended, waited for or not, with all of its
// threads ("l"): until then it has its locks.
func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
		return err != nil || strings.HasPrefix(string(b), "Z") && !strings.Contains(string(b), "l")
	}, 20*time.Second, 50*time.Millisecond, "process %d", pid)
}

func TestManyProcessesAtOnceShareOneEngineThatEndsAfterThem(t *testing.T) {
	Database(t)
	tmp := t.TempDir()
	clients := make([]*client, 6)
	for i := range clients {
		clients[i] = startClient(t, tmp)
	}
	addr, keeper := clients[0].engine(t)
	for _, c := range clients[1:] {
		a, k := c.engine(t)
		require.Equal(t, addr, a)
		require.Equal(t, keeper, k)
	}
	// Half of them end well, half are killed.
	var wg sync.WaitGroup
	for i, c := range clients {
		if i%2 == 0 {
			require.NoError(t, c.cmd.Process.Kill())
		}
		wg.Go(func() {
			if err := c.wait(); i%2 == 1 {
				assert.NoError(t, err, "%s", c.out)
			}
		})
	}
	wg.Wait()
	gone(t, keeper)
	left, err := filepath.Glob(filepath.Join(tmp, "retryledger-enginetest-*", "*"))
	require.NoError(t, err)
	for _, path := range left {
		require.NotContains(t, filepath.Base(path), "run-", "its data is removed")
		require.NotEqual(t, "state", filepath.Base(path))
	}
}

func TestTheNextProcessFindsTheEngineOfTheLast(t *testing.T) {
	Database(t)
	tmp := t.TempDir()
	first := startClient(t, tmp, lingerEnv+"=1m")
	addr, keeper := first.engine(t)
	require.NoError(t, first.wait(), "%s", first.out)
	second := startClient(t, tmp)
	a, k := second.engine(t)
	require.NoError(t, second.wait(), "%s", second.out)
	require.Equal(t, addr, a)
	require.Equal(t, keeper, k)
	require.NoError(t, syscall.Kill(keeper, syscall.SIGTERM))
	gone(t, keeper)
}

func TestAKilledKeeperIsReplaced(t *testing.T) {
	Database(t)
	tmp := t.TempDir()
	first := startClient(t, tmp)
	_, keeper := first.engine(t)
	require.NoError(t, syscall.Kill(keeper, syscall.SIGKILL))
	gone(t, keeper)
	second := startClient(t, tmp) // while the first one still has its lease
	_, k := second.engine(t)
	require.NotEqual(t, keeper, k)
	require.NoError(t, second.wait(), "%s", second.out)
	first.wait()
	gone(t, k)
}

func TestWithoutALibraryTheTestFailsWithTheSentence(t *testing.T) {
	c := startClient(t, t.TempDir(), engine.LibraryEnv+"=/no/such/library")
	require.Error(t, c.wait())
	require.Contains(t, c.out.String(), "--- FAIL: TestClient")
	require.Contains(t, c.out.String(), "unset it")

	bad := filepath.Join(t.TempDir(), "libchdb.so")
	require.NoError(t, os.WriteFile(bad, []byte("not a library"), 0o600))
	c = startClient(t, t.TempDir(), engine.LibraryEnv+"="+bad)
	require.Error(t, c.wait())
	require.Contains(t, c.out.String(), "open the ClickHouse library "+bad)

	c = startClient(t, t.TempDir(), engine.LibraryEnv+"=/no/such/library", NoEngineEnv+"=1")
	require.NoError(t, c.wait())
	require.Contains(t, c.out.String(), "--- SKIP: TestClient")
}

func TestAFolderThatOthersMayWriteIsRefused(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir, err := folder()
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = folder()
	require.ErrorContains(t, err, "is not a folder of this user alone")
}

// BenchmarkDatabase is what a test pays for a database of its own.
func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		tb := &cleanups{TB: b}
		if err := Database(tb).Conn.Ping(context.Background()); err != nil {
			b.Fatal(err)
		}
		tb.run()
	}
}

// cleanups runs them at the end of an iteration, not of the benchmark.
type cleanups struct {
	testing.TB
	fns []func()
}

func (c *cleanups) Cleanup(fn func()) { c.fns = append(c.fns, fn) }
func (c *cleanups) run() {
	for _, fn := range c.fns {
		fn()
	}
}
