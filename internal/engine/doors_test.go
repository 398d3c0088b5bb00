//go:build linux || darwin

package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/porttest"
)

const (
	accessDenied     = 497
	tooManySessions  = 700
	wrongPassword    = 516
	memoryLimitError = 241
)

func requireCode(t *testing.T, err error, code int32, msg string) {
	t.Helper()
	var ex *clickhouse.Exception
	require.ErrorAs(t, err, &ex, msg)
	require.Equal(t, code, ex.Code, "%s: %v", msg, err)
}

func TestTheDefaultUserIsShut(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	exec(t, open(t, e.ClientOptions()), "CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	for _, name := range []string{"default", ""} {
		conn := open(t, as(e, name, ""))
		for _, q := range []string{
			"SELECT 1",
			"CREATE TABLE default.mine (n UInt64) ENGINE = Memory",
			"SELECT * FROM ledger.rows",
			"SELECT * FROM file('" + file + "', 'LineAsString')",
			"INSERT INTO FUNCTION file('" + file + "', 'LineAsString', 's String') VALUES ('x')",
			"SYSTEM STOP LISTEN TCP",
		} {
			requireCode(t, conn.Exec(context.Background(), q), tooManySessions, q)
		}
	}
	require.Equal(t, 0, e.Crashes())
}

// What the session cap alone would hide: were it ever lifted, default still
// could do nothing. The engine's own session is the only one of that name, so
// its grants are asked of the engine.
func TestTheDefaultUserHasNoGrantsToSpeakOf(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	conn := open(t, e.ClientOptions())
	rows, err := conn.Query(context.Background(), "SHOW GRANTS FOR default")
	require.NoError(t, err)
	defer rows.Close()
	var grants []string
	for rows.Next() {
		var g string
		require.NoError(t, rows.Scan(&g))
		grants = append(grants, g)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"GRANT SYSTEM LISTEN ON *.* TO default"}, grants)
}

func TestOurUserNeedsItsPasswordAndReachesNoFiles(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	ctx := context.Background()
	requireCode(t, open(t, as(e, engine.User, "")).Ping(ctx), wrongPassword, "no password")
	requireCode(t, open(t, as(e, engine.User, "guess")).Ping(ctx), wrongPassword, "a wrong password")
	conn := open(t, e.ClientOptions())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	exec(t, conn, "CREATE DATABASE ledger")
	for _, q := range []string{
		"SELECT * FROM file('" + file + "', 'LineAsString')",
		"INSERT INTO FUNCTION file('" + file + "', 'LineAsString', 's String') VALUES ('x')",
		"CREATE TABLE ledger.f (s String) ENGINE = File(LineAsString, '" + file + "')",
		"CREATE TEMPORARY TABLE f (s String) ENGINE = File(LineAsString, '" + file + "')",
	} {
		requireCode(t, conn.Exec(ctx, q), accessDenied, q)
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "secret\n", string(b))
}

func TestThePasswordIsInItsFileOnly(t *testing.T) {
	dir := t.TempDir()
	e := enginetest.Start(t, engine.Options{DataDir: dir, LogLevel: "trace"})
	exec(t, open(t, e.ClientOptions()), "SELECT 1")
	pw := e.ClientOptions().Auth.Password
	require.Len(t, pw, 26)
	st, err := os.Stat(e.PasswordFile())
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), st.Mode().Perm())

	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", e.Status().PID))
	if err == nil { // where there is a /proc
		require.Contains(t, string(cmdline), engine.HostCommand)
		require.NotContains(t, string(cmdline), pw)
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", e.Status().PID))
		require.NoError(t, err)
		require.NotContains(t, string(environ), pw)
	}
	require.NoError(t, e.Shutdown(context.Background()))
	var seen []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(pw)) {
			seen = append(seen, path)
		}
		return err
	}))
	require.Equal(t, []string{e.PasswordFile()}, seen)

	again := enginetest.Start(t, engine.Options{DataDir: dir})
	require.Equal(t, pw, again.ClientOptions().Auth.Password, "kept over a restart")
}

func TestSecretsOfTheEnvironmentStayWithTheParent(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hidden-from-the-engine")
	e := enginetest.Start(t, engine.Options{})
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", e.Status().PID))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs /proc")
	}
	require.NoError(t, err)
	require.NotContains(t, string(environ), "hidden-from-the-engine")
}

// ClickHouse's command line takes an exception that leaves a connection for
// its own failure and aborts, unless it is interactive.
func TestAStrangerAtTheDoorDoesNotEndTheEngine(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	conn := open(t, e.ClientOptions())
	exec(t, conn, "SELECT 1")
	for range 3 {
		requireCode(t, open(t, as(e, engine.User, "guess")).Ping(context.Background()), wrongPassword, "a wrong password")
		requireCode(t, open(t, as(e, "default", "")).Ping(context.Background()), tooManySessions, "default")
		for _, hello := range []string{"GET / HTTP/1.0\r\n\r\n", strings.Repeat("\xff\xfe\xfd", 30), "\x00\x05hell", ""} {
			c, err := net.Dial("tcp", e.Addr())
			require.NoError(t, err)
			_, _ = io.WriteString(c, hello)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c) // until the engine has closed it
			c.Close()
		}
	}
	exec(t, conn, "SELECT 1")
	require.Equal(t, 0, e.Crashes(), "%v", e.Status().LastErr)
	require.Equal(t, engine.StateReady, e.Status().State)
}

func TestClientsThatVanishDoNotEndTheEngine(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	conn := open(t, e.ClientOptions())
	exec(t, conn, "CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n")
	ctx := context.Background()
	vanish := func(use func(c driver.Conn)) {
		o := e.ClientOptions()
		var raw net.Conn
		o.DialContext = func(ctx context.Context, addr string) (c net.Conn, err error) {
			raw, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
			return raw, err
		}
		c := open(t, o)
		use(c)
		tcp, ok := raw.(*net.TCPConn)
		require.True(t, ok)
		require.NoError(t, tcp.SetLinger(0)) // a reset, not an end
		require.NoError(t, raw.Close())
		c.Close()
	}
	for range 3 {
		vanish(func(c driver.Conn) { require.NoError(t, c.Ping(ctx)) })
		vanish(func(c driver.Conn) {
			rows, err := c.Query(ctx, "SELECT number, repeat('x', 100) FROM numbers(100000000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
			t.Cleanup(func() { rows.Close() })
		})
		vanish(func(c driver.Conn) {
			b, err := c.PrepareBatch(ctx, "INSERT INTO ledger.rows")
			require.NoError(t, err)
			for n := range uint64(100000) {
				require.NoError(t, b.Append(n))
			}
			require.NoError(t, b.Flush())
		})
	}
	eventually(t, 20*time.Second, "the queries of the vanished end", func() error {
		if n := one[uint64](t, conn, "SELECT count() FROM system.processes WHERE user = 'retryledger'"); n != 1 {
			return fmt.Errorf("%d queries", n)
		}
		return nil
	})
	require.Equal(t, 0, e.Crashes(), "%v", e.Status().LastErr)
}

// listening are the addresses that the process listens on.
func listening(t *testing.T, pid int) (addrs []string) {
	t.Helper()
	inodes := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	if len(fds) == 0 {
		t.Skip("needs /proc")
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if s, ok := strings.CutPrefix(to, "socket:["); ok {
			inodes[strings.TrimSuffix(s, "]")] = true
		}
	}
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		for sc := bufio.NewScanner(f); sc.Scan(); {
			w := strings.Fields(sc.Text())
			if len(w) > 9 && w[3] == "0A" && inodes[w[9]] {
				addrs = append(addrs, w[1])
			}
		}
	}
	return addrs
}

// inProc is a loopback port as /proc writes it.
func inProc(t *testing.T, addr string) string {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	require.NoError(t, err)
	return fmt.Sprintf("0100007F:%04X", a.Port)
}

// askHTTP asks over HTTP, as nobody where user is empty.
func askHTTP(t *testing.T, address, user, password, query string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/", strings.NewReader(query))
	require.NoError(t, err)
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestListensOnLoopbackOnlyAndHTTPOnlyWhenAsked(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	require.Equal(t, []string{inProc(t, e.Addr())}, listening(t, e.Status().PID))

	address, err := net.ResolveTCPAddr("tcp", porttest.Free(t, 1)[0])
	require.NoError(t, err)
	h := enginetest.Start(t, engine.Options{HTTPPort: address.Port})
	require.ElementsMatch(t, []string{inProc(t, h.Addr()), inProc(t, address.String())}, listening(t, h.Status().PID))

	get := func(user, password string) (int, string) {
		return askHTTP(t, address.String(), user, password, "SELECT 41 + 1")
	}
	code, body := get(engine.User, h.ClientOptions().Auth.Password)
	require.Equal(t, 200, code, body)
	require.Equal(t, "42\n", body)
	code, body = get("", "")
	require.NotEqual(t, 200, code)
	require.Contains(t, body, "USER_SESSION_LIMIT_EXCEEDED")
}

func TestTheReadOnlyUserReadsOnly(t *testing.T) {
	e := enginetest.Start(t, engine.Options{ReadOnly: &engine.ReadOnlyUser{Name: "grafana", Password: `p<&>"'w`, Databases: []string{"ledger"}}})
	exec(t, open(t, e.ClientOptions()),
		"CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO ledger.rows VALUES (7)",
		"CREATE DATABASE other", "CREATE TABLE other.rows (n UInt64) ENGINE = MergeTree ORDER BY n")
	requireCode(t, open(t, as(e, "grafana", "")).Ping(context.Background()), wrongPassword, "no password")
	conn := open(t, as(e, "grafana", `p<&>"'w`))
	require.Equal(t, uint64(7), one[uint64](t, conn, "SELECT n FROM ledger.rows SETTINGS max_threads = 1"), "Grafana sets settings")
	for _, q := range []string{
		"SELECT * FROM other.rows",
		"INSERT INTO ledger.rows SELECT 8",
		"DROP TABLE ledger.rows",
		"CREATE TABLE ledger.mine (n UInt64) ENGINE = Memory",
		"SELECT * FROM file('/dev/null', 'LineAsString')",
		"SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
		"SELECT * FROM remote('127.0.0.1:1', 'other.rows')",
		"KILL QUERY WHERE 1",
		"SYSTEM STOP MERGES ledger.rows",
		"SYSTEM SHUTDOWN",
	} {
		var ex *clickhouse.Exception
		require.ErrorAs(t, conn.Exec(context.Background(), q), &ex, q)
		require.Contains(t, []int32{accessDenied, 164 /* READONLY */}, ex.Code, "%s: %v", q, ex)
	}
}

// As an expression file() asks for no grant, and nor do settings of formats that name a
// file: what these users may not read they cannot reach by any of these ways.
func TestNoUserReadsFiles(t *testing.T) {
	const text = "a secret of the machine"
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(text+"\n"), 0o644))
	_, port, err := net.SplitHostPort(porttest.Free(t, 1)[0])
	require.NoError(t, err)
	httpPort, err := strconv.Atoi(port)
	require.NoError(t, err)
	e := enginetest.Start(t, engine.Options{HTTPPort: httpPort, ReadOnly: &engine.ReadOnlyUser{Name: "grafana", Password: "p", Databases: []string{"ledger"}}})
	owner := e.ClientOptions()
	exec(t, open(t, owner), "CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO ledger.rows VALUES (7)")
	ask := func(user, password, query string) (int, string) {
		return askHTTP(t, fmt.Sprintf("127.0.0.1:%d", httpPort), user, password, query)
	}
	for user, password := range map[string]string{"grafana": "p", engine.User: owner.Auth.Password} {
		code, body := ask(user, password, "SELECT n FROM ledger.rows")
		require.Equal(t, http.StatusOK, code, body)
		for _, q := range []string{
			"SELECT file('%s')", "SELECT file('%s', '')", "SELECT arrayMap(p -> file(p), ['%s'])", "SELECT arrayMap(file, ['%s'])",
			"SELECT * APPLY(file) FROM (SELECT '%s')", "SELECT count() FROM numbers(length(file('%s')))", "SELECT s FROM view(SELECT file('%s') AS s)",
			"SELECT n FROM ledger.rows LIMIT length(file('%s'))", "SELECT n FROM ledger.rows WHERE n IN (length(file('%s')), 7)",
			"SELECT x FROM values('a String, x String DEFAULT file(''%s'')', '1')",
			"SELECT n FROM ledger.rows SETTINGS additional_table_filters = {'ledger.rows': 'length(file(''%s'')) > 0'}",
			"SELECT n FROM ledger.rows SETTINGS additional_result_filter = 'length(file(''%s'')) > 0'",
			"SELECT * FROM file('%s', 'LineAsString')", "SELECT * FROM merge('ledger', file('%s'))", "SELECT * FROM format(LineAsString, file('%s'))",
		} {
			for _, analyzer := range []string{"1", "0"} {
				with := " SETTINGS allow_experimental_analyzer = "
				if strings.Contains(q, "SETTINGS") {
					with = ", allow_experimental_analyzer = "
				}
				q := fmt.Sprintf(q, secret) + with + analyzer
				code, body := ask(user, password, q)
				require.NotEqual(t, http.StatusOK, code, "%s: %s: %s", user, q, body)
				require.NotContains(t, body, text, q)
			}
		}
		for _, q := range []string{"DROP FUNCTION file", "CREATE OR REPLACE FUNCTION file AS p -> p"} {
			code, body := ask(user, password, q)
			require.NotEqual(t, http.StatusOK, code, "%s: %s: %s", user, q, body)
		}
	}
	for _, setting := range []string{"format_template_row", "format_template_resultset", "format_schema"} {
		code, body := ask("grafana", "p", "SELECT 1 FORMAT Template SETTINGS "+setting+" = '"+secret+"'")
		require.NotEqual(t, http.StatusOK, code, "%s: %s", setting, body)
		require.NotContains(t, body, text, setting)
	}
}

// A reader's question leaves room for what is written, and cannot take more by its settings.
func TestTheReadOnlyUserIsBounded(t *testing.T) {
	e := enginetest.Start(t, engine.Options{MemoryLimit: 1 << 30, ReadOnly: &engine.ReadOnlyUser{Name: "grafana", Password: "p"}})
	conn := open(t, as(e, "grafana", "p"))
	const hungry = "SELECT length(groupArray(number)) FROM system.numbers_mt LIMIT 1 SETTINGS max_bytes_ratio_before_external_group_by = 0"
	requireCode(t, conn.Exec(context.Background(), hungry), memoryLimitError, "a quarter of the engine's memory")
	require.Equal(t, uint64(60), one[uint64](t, conn, "SELECT toUInt64(getSetting('max_execution_time'))"))
	exec(t, conn, "SELECT 1 SETTINGS max_execution_time = 120, max_memory_usage = 1000000")
	for _, setting := range []string{"max_execution_time = 121", "max_execution_time = 0", "max_memory_usage = 0", "max_memory_usage = 300000000",
		"max_memory_usage_for_user = 0", "max_concurrent_queries_for_user = 33", "readonly = 0"} {
		var ex *clickhouse.Exception
		require.ErrorAs(t, conn.Exec(context.Background(), "SELECT 1 SETTINGS "+setting), &ex, setting)
		require.Contains(t, []int32{452 /* SETTING_CONSTRAINT_VIOLATION */, 164 /* READONLY */}, ex.Code, "%s: %v", setting, ex)
	}
}

func TestTheMemoryLimitHolds(t *testing.T) {
	e := enginetest.Start(t, engine.Options{MemoryLimit: 300 << 20})
	conn := open(t, e.ClientOptions())
	err := conn.Exec(context.Background(), "SELECT length(groupArray(number)) FROM numbers(100000000) SETTINGS max_bytes_ratio_before_external_group_by = 0")
	requireCode(t, err, memoryLimitError, "800 MB in 300")
	exec(t, conn, "SELECT 1")
	require.Equal(t, 0, e.Crashes())
}

func TestTimeIsUTCWhereverTheParentLives(t *testing.T) {
	t.Setenv("TZ", "America/New_York")
	e := enginetest.Start(t, engine.Options{LogLevel: "none"})
	require.Equal(t, "UTC", one[string](t, open(t, e.ClientOptions()), "SELECT serverTimezone()"))
}

func TestTwoEnginesAreTwoShards(t *testing.T) {
	second := enginetest.Start(t, engine.Options{})
	dir := t.TempDir()
	first := enginetest.Start(t, engine.Options{DataDir: dir, Listen: porttest.Free(t, 1)[0]})
	shard := func(e *engine.Engine) engine.Shard {
		return engine.Shard{Addr: e.Addr(), User: engine.User, Password: e.ClientOptions().Auth.Password}
	}
	shards := []engine.Shard{shard(first), shard(second)}
	require.NoError(t, first.Shutdown(context.Background()))
	first = enginetest.Start(t, engine.Options{DataDir: dir, Listen: shards[0].Addr, Clusters: map[string][]engine.Shard{"ledger": shards}})
	for _, e := range []*engine.Engine{first, second} {
		exec(t, open(t, e.ClientOptions()), "CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n")
	}
	conn := open(t, first.ClientOptions())
	exec(t, conn, "CREATE TABLE ledger.all AS ledger.rows ENGINE = Distributed(ledger, ledger, rows, n)",
		"INSERT INTO ledger.all SETTINGS distributed_foreground_insert = 1 SELECT number FROM numbers(1000)")
	require.Equal(t, uint64(1000), one[uint64](t, conn, "SELECT count() FROM ledger.all"))
	require.Equal(t, uint64(500), one[uint64](t, open(t, second.ClientOptions()), "SELECT count() FROM ledger.rows"))
}

func TestTheLogIsRotated(t *testing.T) {
	dir := t.TempDir()
	e := enginetest.Start(t, engine.Options{DataDir: dir, LogLevel: "trace", LogFileBytes: 32 << 10, LogFiles: 2})
	conn := open(t, e.ClientOptions())
	logs := func() []string {
		m, err := filepath.Glob(filepath.Join(dir, "log", "engine.log*"))
		require.NoError(t, err)
		return m
	}
	for range 300 {
		exec(t, conn, "SELECT count() FROM system.tables")
	}
	// While logs are packed and dropped there are more, and ClickHouse drops
	// the one that is too many only at the next rotation.
	eventually(t, 10*time.Second, "the current log and two or three", func() error {
		if m := logs(); len(m) < 3 || len(m) > 4 {
			return fmt.Errorf("%v", m)
		}
		return nil
	})
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for want, o := range map[string]engine.Options{
		"data_dir is empty":             {},
		"is not an IP address":          {DataDir: dir, Listen: "localhost:9000"},
		"say so by --unencrypted":       {DataDir: dir, Listen: "0.0.0.0:0"},
		"must be a number from 0":       {DataDir: dir, Listen: "127.0.0.1:native"},
		"http_port":                     {DataDir: dir, HTTPPort: 70000},
		"memory_limit of 1024 bytes":    {DataDir: dir, MemoryLimit: 1024},
		"log_level \"loud\" is unknown": {DataDir: dir, LogLevel: "loud"},
		"has no password":               {DataDir: dir, ReadOnly: &engine.ReadOnlyUser{Name: "grafana"}},
		"other than \"retryledger\"":    {DataDir: dir, ReadOnly: &engine.ReadOnlyUser{Name: "retryledger", Password: "x"}},
		"database \"a b\"":              {DataDir: dir, ReadOnly: &engine.ReadOnlyUser{Name: "g", Password: "x", Databases: []string{"a b"}}},
		"cluster \"a-b\"":               {DataDir: dir, Clusters: map[string][]engine.Shard{"a-b": nil}},
		"shard address \"x\"":           {DataDir: dir, Clusters: map[string][]engine.Shard{"c": {{Addr: "x"}}}},
		"create data_dir":               {DataDir: "/dev/null/x"},
	} {
		_, err := engine.Start(context.Background(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestASharedEngineSaysHowItIsReached(t *testing.T) {
	enginetest.Database(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- engine.RunShared(ctx, engine.Options{DataDir: dir, Listen: "0.0.0.0:0", Unencrypted: true, MemoryLimit: 1 << 30}, w)
		w.Close()
	}()
	said := bufio.NewScanner(r)
	find := func(prefix string) string {
		for said.Scan() {
			if _, s, ok := strings.Cut(said.Text(), prefix); ok {
				return strings.TrimSpace(s)
			}
		}
		t.Fatalf("it ended without saying %q: %v", prefix, <-ended)
		return ""
	}
	addr, user, file := find("listens at "), find("user "), find("password  in ")
	find("let only a trusted network")
	pw, err := os.ReadFile(file)
	require.NoError(t, err)
	conn := open(t, &clickhouse.Options{Addr: []string{addr}, Auth: clickhouse.Auth{Username: user, Password: strings.TrimSpace(string(pw))}})
	exec(t, conn, "SELECT 1")
	conn.Close()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	cancel()
	require.NoError(t, <-ended)
}
