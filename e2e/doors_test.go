package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/replay"
)

// authority signs certificates that are files of a folder.
type authority struct {
	t      *testing.T
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{t: t, folder: t.TempDir()}
	a.cert, a.key = a.sign(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.pem and NAME.key; without an authority it signs itself.
func (a authority) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	by, byKey := template, key
	if a.cert != nil {
		by, byKey = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func (a authority) file(name string) string { return filepath.Join(a.folder, name) }

// server and client sign a certificate for 127.0.0.1, and one to show.
func (a authority) server() {
	a.sign("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

func (a authority) client() tls.Certificate {
	a.sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.LoadX509KeyPair(a.file("client.pem"), a.file("client.key"))
	require.NoError(a.t, err)
	return pair
}

// trusted are settings of TLS for who trusts the authority and shows certificates.
func (a authority) trusted(shown ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: shown, MinVersion: tls.VersionTLS12}
}

// everywhere makes a collector of this place listen on all addresses of the machine.
func everywhere(p collectortest.Place) []string {
	all := func(address string) string { return strings.Replace(address, "127.0.0.1:", "0.0.0.0:", 1) }
	p.GRPC, p.HTTP, p.Langfuse, p.API = all(p.GRPC), all(p.HTTP), all(p.Langfuse), all(p.API)
	return p.Settings()
}

// writeConfig writes a file to lay over the default configuration, and returns the
// arguments for it.
func writeConfig(t *testing.T, text string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"--config=default:otel-collector.yaml", "--config=" + file}
}

// asked runs the command line and returns what it said and its exit code.
func asked(t *testing.T, variables []string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), collectortest.Program("retryledger"), args...)
	cmd.Env = append(os.Environ(), variables...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// send sends a small run in both protocols and returns what came of it.
func send(t *testing.T, p collectortest.Place, access replay.Access) (traces []string, errs [2]error) {
	t.Helper()
	for i, open := range []func() (replay.Sender, error){
		func() (replay.Sender, error) { return replay.NewGRPC(p.GRPC, true, access) },
		func() (replay.Sender, error) { return replay.NewHTTP("https://"+p.HTTP, replay.Protobuf, true, access) },
	} {
		sender, err := open()
		require.NoError(t, err)
		var td ptrace.Traces
		var trace string
		td, trace = smallRun()
		errs[i] = sender.Send(t.Context(), td)
		traces = append(traces, trace)
		require.NoError(t, sender.Close())
	}
	return traces, errs
}

// waitForRuns asks by the command line until it knows the traces.
func waitForRuns(t *testing.T, traces []string, variables []string, args ...string) {
	t.Helper()
	for _, trace := range traces {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			said, code := asked(t, variables, append([]string{"run", trace}, args...)...)
			assert.Equal(c, 0, code, said)
		}, appearWithin, 200*time.Millisecond)
	}
}

func TestOpenDoorsAreRefused(t *testing.T) {
	p := newPlace(t)
	d := daemon{collectortest.Launch(t, p, everywhere(p)...), t}
	assert.Equal(t, 1, d.ExitCode(collectortest.StartWithin))
	assert.Contains(t, d.Output(), "other machines can reach extensions.retryledger_api.endpoint=0.0.0.0:")
	assert.Contains(t, d.Output(), "--set=extensions.retryledger_doors.unprotected=[retryledger_api, otlp, otlp/langfuse]")
	assertOneSentence(t, d)

	engine := collectortest.LaunchCommand(t, collectortest.Place{Data: p.Data}, "engine", "--data-dir", p.Data, "--listen", "0.0.0.0:0")
	assert.Equal(t, 1, engine.ExitCode(collectortest.StartWithin))
	assert.Contains(t, engine.Output(), "--unencrypted")

	// What the sentence says is enough.
	named := daemon{collectortest.Start(t, p, append(everywhere(p), "--set=extensions.retryledger_doors.unprotected=[retryledger_api, otlp, otlp/langfuse]")...), t}
	assert.Contains(t, named.Output(), "as configured")
	named.Stop()
}

func TestBearerTokens(t *testing.T) {
	const token = "e2e-bearer-0123456789"
	ca := newAuthority(t, "ca")
	ca.server()
	p := newPlace(t)
	protected := fmt.Sprintf("tls: {cert_file: %s, key_file: %s}, auth: {authenticator: bearertokenauth}", ca.file("server.pem"), ca.file("server.key"))
	t.Setenv("E2E_TOKEN", token)
	args := append(writeConfig(t, `
extensions:
  bearertokenauth: {token: "${env:E2E_TOKEN}"}
  retryledger_api: {`+protected+`}
receivers:
  otlp: {protocols: {grpc: {`+protected+`}, http: {`+protected+`}}}
  otlp/langfuse: {protocols: {http: {`+protected+`}}}
service:
  extensions: [bearertokenauth, retryledger_admission, retryledger_store, retryledger_attribution, retryledger_api, retryledger_alerts, retryledger_doors, retryledger_console]
`), everywhere(p)...)
	d := daemon{collectortest.LaunchCommand(t, p, args...), t}
	d.WaitFor(collectortest.ReadyText)

	for name, refused := range map[string]replay.Access{
		"no token":      {TLS: ca.trusted()},
		"a wrong token": {TLS: ca.trusted(), Authorization: "Bearer e2e-bearer-9876543210"},
		"not a bearer":  {TLS: ca.trusted(), Authorization: token},
	} {
		_, errs := send(t, p, refused)
		for _, err := range errs {
			require.Error(t, err, name)
			assert.Regexp(t, "(?i)unauthenticated|401", err.Error(), name)
		}
	}
	traces, errs := send(t, p, replay.Access{TLS: ca.trusted(), Authorization: "Bearer " + token})
	require.Equal(t, [2]error{}, errs)

	// The API and all that is served at its address.
	client := &http.Client{Transport: replay.Access{TLS: ca.trusted()}.Transport()}
	t.Cleanup(client.CloseIdleConnections)
	for _, path := range []string{"/", "/api/v1/status", "/api/v1/top", "/api/v1/alerts", "/api/v1/breakers", "/api/v1/breakers/stream", "/api/v1/gates/canary", "/alertmanager/api/v2/silences"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.API+path, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusUnauthorized, response.StatusCode, path)
	}

	server := "RETRYLEDGER_SERVER=https://" + p.API
	said, code := asked(t, []string{server}, "top")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "--ca-file")
	said, code = asked(t, []string{server, "RETRYLEDGER_CA_FILE=" + ca.file("ca.pem")}, "top")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "RETRYLEDGER_TOKEN")
	said, code = asked(t, []string{"RETRYLEDGER_SERVER=http://" + p.API}, "top")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "https://")

	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	waitForRuns(t, traces, []string{"RETRYLEDGER_TOKEN=" + token}, "--server", "https://"+p.API, "--ca-file", ca.file("ca.pem"))
	waitForRuns(t, traces, []string{server, "RETRYLEDGER_CA_FILE=" + ca.file("ca.pem"), "RETRYLEDGER_TOKEN_FILE=" + file})
	said, code = asked(t, []string{server, "RETRYLEDGER_CA_FILE=" + ca.file("ca.pem")}, "demo", "--token-file", file, "--endpoint", "https://"+p.HTTP, "--wait", "2m")
	assert.Equal(t, 0, code, said)

	d.Stop()
	assert.NotContains(t, d.Output(), token)
	assertNowhere(t, p.Data, token)
}

func TestMutualTLS(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "ca")
	ca.server()
	known, unknown := ca.client(), stranger.client()
	p := newPlace(t)
	protected := fmt.Sprintf("tls: {cert_file: %s, key_file: %s, client_ca_file: %s}", ca.file("server.pem"), ca.file("server.key"), ca.file("ca.pem"))
	args := append(writeConfig(t, `
extensions:
  retryledger_api: {`+protected+`}
receivers:
  otlp: {protocols: {grpc: {`+protected+`}, http: {`+protected+`}}}
  otlp/langfuse: {protocols: {http: {`+protected+`}}}
`), everywhere(p)...)
	d := daemon{collectortest.LaunchCommand(t, p, args...), t}
	d.WaitFor(collectortest.ReadyText)

	for name, refused := range map[string]replay.Access{
		"no certificate":         {TLS: ca.trusted()},
		"a stranger's":           {TLS: ca.trusted(unknown)},
		"a token instead of one": {TLS: ca.trusted(), Authorization: "Bearer x"},
	} {
		_, errs := send(t, p, refused)
		for _, err := range errs {
			require.Error(t, err, name)
		}
	}
	traces, errs := send(t, p, replay.Access{TLS: ca.trusted(known)})
	require.Equal(t, [2]error{}, errs)

	server := []string{"RETRYLEDGER_SERVER=https://" + p.API, "RETRYLEDGER_CA_FILE=" + ca.file("ca.pem")}
	said, code := asked(t, server, "top")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "--cert-file")
	said, code = asked(t, server, "top", "--cert-file", stranger.file("client.pem"), "--key-file", stranger.file("client.key"))
	assert.Equal(t, 3, code, said)
	said, code = asked(t, server, "top", "--cert-file", ca.file("client.pem"))
	assert.Equal(t, 2, code)
	assert.Contains(t, said, "--key-file")
	waitForRuns(t, traces, server, "--cert-file", ca.file("client.pem"), "--key-file", ca.file("client.key"))
	waitForRuns(t, traces, append(server, "RETRYLEDGER_CERT_FILE="+ca.file("client.pem"), "RETRYLEDGER_KEY_FILE="+ca.file("client.key")))
	d.Stop()
}

// assertNowhere looks for texts in every file below a folder, as they are.
func assertNowhere(t *testing.T, folder string, texts ...string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range texts {
			assert.False(t, bytes.Contains(content, []byte(text)), "%q is in %s", text, path)
		}
		return err
	}))
}
