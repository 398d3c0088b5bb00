//go:build linux || darwin

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// strangerEnv makes this test binary a program of another user of the machine: it tries
// what strangerTask says, as JSON, and writes a strangerReport.
const strangerEnv = "RETRYLEDGER_ENGINE_TEST_STRANGER"

type strangerTask struct {
	Native, HTTP string // addresses
	Folder       string // of the engine's data
	PID          int
	Logins       [][2]string // names and passwords
	Queries      []string
}

type strangerReport struct {
	UID     int
	Native  map[string]string // login and query → the error, "" where there was none
	HTTP    map[string]string // the same
	Read    []string          // files of the folder that could be read
	Listed  bool              // the folder could be listed
	Written bool              // a file could be put into it
	Environ bool              // the environment of the engine could be read
	Killed  bool
	Cmdline string
}

func strangerMain(task string) {
	var do strangerTask
	err := json.Unmarshal([]byte(task), &do)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(do.try())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (do strangerTask) try() strangerReport {
	report := strangerReport{UID: os.Getuid(), Native: map[string]string{}, HTTP: map[string]string{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, login := range do.Logins {
		for _, query := range do.Queries {
			key := login[0] + ": " + query
			report.Native[key] = text(native(ctx, do.Native, login, query))
			report.HTTP[key] = text(overHTTP(ctx, do.HTTP, login, query))
		}
	}
	_, err := os.ReadDir(do.Folder)
	report.Listed = err == nil
	for _, name := range []string{"password", "users.xml", "config.xml", "host.json", "lock", "log/engine.log", "log/host.log", "store"} {
		path := filepath.Join(do.Folder, name)
		if f, err := os.Open(path); err == nil {
			_ = f.Close()
			report.Read = append(report.Read, path)
		}
	}
	report.Written = os.WriteFile(filepath.Join(do.Folder, "mine"), nil, 0o600) == nil
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", do.PID))
	report.Environ = err == nil
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", do.PID))
	report.Cmdline = string(cmdline)
	report.Killed = syscall.Kill(do.PID, syscall.SIGKILL) == nil
	return report
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func native(ctx context.Context, addr string, login [2]string, query string) error {
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{addr}, Auth: clickhouse.Auth{Username: login[0], Password: login[1]}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Exec(ctx, query)
}

func overHTTP(ctx context.Context, addr string, login [2]string, query string) error {
	u := url.URL{Scheme: "http", Host: addr, Path: "/", RawQuery: url.Values{"query": {query}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-ClickHouse-User", login[0])
	req.Header.Set("X-ClickHouse-Key", login[1])
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// Another user of the machine reaches the port, as everybody does, and nothing behind it
// without the password in the data folder; and the folder is shut to him.
func TestAnotherUserOfTheMachineGetsNowhere(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if os.Getuid() != 0 || err != nil {
		t.Skip("only root can start a program as another user")
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
	require.NoError(t, err)
	// What is above the data folder lets everybody pass: its own mode is what shuts it.
	place, err := os.MkdirTemp("", "retryledger-stranger-") //nolint:usetesting // what TempDir makes is shut to others
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(place)) })
	require.NoError(t, os.Chmod(place, 0o755))
	_, httpPort, err := net.SplitHostPort(porttest.Free(t, 1)[0])
	require.NoError(t, err)
	port, err := strconv.Atoi(httpPort)
	require.NoError(t, err)
	e := enginetest.Start(t, engine.Options{DataDir: filepath.Join(place, "engine"), HTTPPort: port,
		ReadOnly: &engine.ReadOnlyUser{Name: "grafana", Password: "of-grafana", Databases: []string{"ledger"}}})
	conn := open(t, e.ClientOptions())
	exec(t, conn, "CREATE DATABASE ledger", "CREATE TABLE ledger.rows (n UInt64) ENGINE = MergeTree ORDER BY n", "INSERT INTO ledger.rows VALUES (7)")

	binary := filepath.Join(place, "stranger")
	own, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(own)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, content, 0o755))
	ask := func(logins [][2]string, queries ...string) (report strangerReport) {
		task, err := json.Marshal(strangerTask{Native: e.Addr(), HTTP: net.JoinHostPort("127.0.0.1", httpPort), Folder: e.DataDir(), PID: e.Status().PID,
			Logins: logins, Queries: queries})
		require.NoError(t, err)
		cmd := osexec.CommandContext(t.Context(), binary)
		cmd.Dir = place
		cmd.Env = []string{strangerEnv + "=" + string(task), "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &report))
		require.Equal(t, int(uid), report.UID)
		return report
	}

	// With the password he gets in: it is no failure of the test that keeps him out.
	in := ask([][2]string{{engine.User, e.ClientOptions().Auth.Password}}, "SELECT n FROM ledger.rows")
	require.Equal(t, map[string]string{engine.User + ": SELECT n FROM ledger.rows": ""}, in.Native)
	require.Equal(t, in.Native, in.HTTP)

	out := ask([][2]string{{"default", ""}, {"", ""}, {engine.User, ""}, {engine.User, "guess"}, {"grafana", ""}, {"grafana", "guess"}, {"root", ""}},
		"SELECT 1",
		"SELECT n FROM ledger.rows",
		"SELECT name FROM system.tables",
		"SELECT * FROM file('/etc/passwd', 'LineAsString')",
		"INSERT INTO FUNCTION file('"+filepath.Join(place, "engine", "x")+"', 'LineAsString', 's String') VALUES ('x')",
		"SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
		"CREATE TABLE ledger.mine (n UInt64) ENGINE = Memory",
		"CREATE DATABASE mine",
		"DROP TABLE ledger.rows",
		"SYSTEM STOP LISTEN TCP",
		"SYSTEM SHUTDOWN",
	)
	require.Len(t, out.Native, 7*11-11-11, "logins of one name share a line")
	for _, way := range []map[string]string{out.Native, out.HTTP} {
		for question, failure := range way {
			require.Regexp(t, "(?i)password is incorrect|Authentication failed|USER_SESSION_LIMIT_EXCEEDED|overflown session count|There is no user", failure, question)
		}
	}
	require.False(t, out.Listed)
	require.Empty(t, out.Read)
	require.False(t, out.Written)
	require.False(t, out.Environ)
	require.False(t, out.Killed)
	require.NotContains(t, out.Cmdline, e.ClientOptions().Auth.Password)
	require.NotContains(t, out.Cmdline, "of-grafana")

	require.Equal(t, uint64(7), one[uint64](t, conn, "SELECT n FROM ledger.rows"))
	require.Equal(t, 0, e.Crashes())
	_, err = os.Stat(filepath.Join(place, "engine", "x"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
