package cli_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/cli"
)

func TestWhereATokenComesFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("  of-the-file\n"), 0o600))
	for name, test := range map[string]struct {
		variables map[string]string
		args      []string
		want      string
	}{
		"nobody asks":           {nil, nil, ""},
		"environment":           {map[string]string{"RETRYLEDGER_TOKEN": "t0ken"}, nil, "Bearer t0ken"},
		"a file":                {nil, []string{"--token-file", file}, "Bearer of-the-file"},
		"a file by environment": {map[string]string{"RETRYLEDGER_TOKEN_FILE": file}, nil, "Bearer of-the-file"},
		"a flag beats the environment": {map[string]string{"RETRYLEDGER_TOKEN": "t0ken"}, []string{"--token-file", file},
			"Bearer of-the-file"},
		"a token beats a file of the environment": {map[string]string{"RETRYLEDGER_TOKEN": "t0ken", "RETRYLEDGER_TOKEN_FILE": "nofile"}, nil, "Bearer t0ken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked http.Request
			p := serve(t, http.StatusOK, hostile(), &asked)
			for variable, value := range test.variables {
				p.variables[variable] = value
			}
			p.must(t, append([]string{"top"}, test.args...)...)
			require.Equal(t, test.want, asked.Header.Get("Authorization"))
		})
	}
}

func TestMistakesAboutTokensAndCertificatesNameTheRemedy(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for want, test := range map[string]struct {
		variables map[string]string
		args      []string
	}{
		"--token-file: read the token":                     {nil, []string{"--token-file", "nofile"}},
		"RETRYLEDGER_TOKEN_FILE: read the token":           {map[string]string{"RETRYLEDGER_TOKEN_FILE": "nofile"}, nil},
		"empty is empty":                                   {nil, []string{"--token-file", empty}},
		"a token is one line":                              {map[string]string{"RETRYLEDGER_TOKEN": "a\nb"}, nil},
		"--ca-file: read the certificate":                  {nil, []string{"--ca-file", "nofile"}},
		"empty holds no certificate in PEM":                {map[string]string{"RETRYLEDGER_CA_FILE": empty}, nil},
		"give --key-file too":                              {nil, []string{"--cert-file", empty}},
		"give --cert-file too":                             {map[string]string{"RETRYLEDGER_KEY_FILE": empty}, nil},
		"--cert-file and RETRYLEDGER_KEY_FILE: ":           {map[string]string{"RETRYLEDGER_KEY_FILE": empty}, []string{"--cert-file", empty}},
		"--server: write the collector's API as":           {nil, []string{"--server", "ftp://user:pa55word@here"}},
		"RETRYLEDGER_SERVER: write the collector's API as": {map[string]string{"RETRYLEDGER_SERVER": "http://user:pa55word@"}, nil},
	} {
		_, stderr, code := process{variables: test.variables}.run(t, append([]string{"top"}, test.args...)...)
		require.Equal(t, cli.ExitUsage, code, want)
		require.Contains(t, stderr, want)
		require.NotContains(t, stderr, "pa55word")
	}
}

func TestAPasswordInTheAddressIsSentAndNotSaid(t *testing.T) {
	t.Parallel()
	_, stderr, code := process{}.run(t, "top", "--server", "http://user:pa55word@127.0.0.1:1")
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "no answer from 127.0.0.1:1")
	require.NotContains(t, stderr, "pa55word")
}

func TestARefusedTokenIsToldFromNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		token string
		says  string
	}{
		"none":    {"", "wants to know who asks; set RETRYLEDGER_TOKEN"},
		"another": {"t0ken", "refused the token"},
	} {
		p := serve(t, http.StatusUnauthorized, nil, nil)
		p.variables["RETRYLEDGER_TOKEN"] = test.token
		_, stderr, code := p.run(t, "top")
		require.Equal(t, cli.ExitUnreachable, code, name)
		require.Contains(t, stderr, test.says, name)
		require.NotContains(t, stderr, "t0ken", name)
	}
}

// A server that asks for a certificate and leaves says no more than that it asked: the
// alert of TLS 1.3 that tells why may be lost with the connection.
func TestWhoAsksForACertificateAndLeavesIsUnderstood(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))

	_, stderr, code := process{}.run(t, "top", "--server", server.URL, "--ca-file", ca)
	require.Equal(t, cli.ExitUnreachable, code)
	require.Contains(t, stderr, "EOF")
	require.Contains(t, stderr, "--cert-file")
}
