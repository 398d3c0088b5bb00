package delivery

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/internal/porttest"
)

// childVariable makes the test binary a process that delivers alerts.
const childVariable = "RETRYLEDGER_TEST_DELIVERY"

type childSettings struct {
	ConfigFile string
	DataDir    string
	Bind       string
	Peers      []string
	// 0: the default, and none
	PeerTimeout, EvaluationInterval time.Duration
	Log                             string
}

// runChild delivers until its standard input ends. It prints its address.
func runChild(encoded string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var s childSettings
	fail(json.Unmarshal([]byte(encoded), &s))
	cfg := NewDefaultConfig()
	cfg.ConfigFile, cfg.Cluster.Peers = s.ConfigFile, s.Peers
	if s.Bind != "" {
		cfg.Cluster.BindAddress = s.Bind
	}
	if s.PeerTimeout > 0 {
		cfg.Cluster.PeerTimeout = s.PeerTimeout
	}
	telemetry := componenttest.NewNopTelemetrySettings()
	if s.Log != "" {
		logs := zap.NewDevelopmentConfig()
		logs.OutputPaths = []string{s.Log}
		var err error
		telemetry.Logger, err = logs.Build()
		fail(err)
	}
	d, err := New(&cfg, Settings{DataDir: s.DataDir, RoutePrefix: prefix, EvaluationInterval: s.EvaluationInterval, Telemetry: telemetry})
	fail(err)
	fail(d.Start(context.Background(), componenttest.NewNopHost()))
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", d.Handler())
	mux.HandleFunc("/put", func(w http.ResponseWriter, r *http.Request) {
		var alerts []Alert
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := d.Put(r.Context(), alerts...); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(d.Status()) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	fail(server.Close())
	fail(d.Shutdown(context.Background()))
}

// child is a process that delivers alerts.
type child struct {
	url string
	cmd *exec.Cmd
}

func startChild(tb testing.TB, s *childSettings) *child {
	tb.Helper()
	encoded, err := json.Marshal(s)
	require.NoError(tb, err)
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(encoded))
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	require.NoError(tb, err)
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, c.cmd.Start())
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = c.cmd.Wait()
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(tb, err, "the process ended")
	c.url = "http://" + strings.TrimSpace(address)
	return c
}

// kill ends it as kill -9 does.
func (c *child) kill(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
}

func (c *child) put(tb testing.TB, alerts ...Alert) {
	tb.Helper()
	body, err := json.Marshal(alerts)
	require.NoError(tb, err)
	request(tb, http.MethodPost, c.url+"/put", string(body), http.StatusOK)
}

func (c *child) status(tb testing.TB) (s Status) {
	tb.Helper()
	require.NoError(tb, json.Unmarshal([]byte(request(tb, http.MethodGet, c.url+"/status", "", http.StatusOK)), &s))
	return s
}

// startAlertmanager runs a real Alertmanager, and returns its URL.
func startAlertmanager(tb testing.TB, binary string, s *childSettings) string {
	tb.Helper()
	listen := porttest.Free(tb, 1)[0]
	cmd := exec.Command(binary, "--config.file="+s.ConfigFile, "--storage.path="+s.DataDir,
		"--web.listen-address="+listen, "--cluster.listen-address=")
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(tb, func() bool {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	return "http://" + listen
}
