package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A component that is added must be known to the check of open doors, or be known to
// listen nowhere.
func TestEveryComponentThatListensIsChecked(t *testing.T) {
	f, err := factories(builtModules(), io.Discard)
	require.NoError(t, err)
	for kind := range f.Receivers {
		assert.Contains(t, []string{"otlp"}, kind.String(), "listeners() does not know it")
	}
	for kind := range f.Extensions {
		assert.Contains(t, []string{
			"retryledger_api", "retryledger_alerts", "health_check", // listeners() knows them
			"basicauth", "bearertokenauth", "retryledger_store", "retryledger_attribution", "retryledger_console", "retryledger_doors", "retryledger_admission", // listen nowhere, or on loopback alone
		}, kind.String(), "listeners() does not know it")
	}
}

func TestOnThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:4317": true, "localhost:4317": true, "LOCALHOST:1": true, "[::1]:4317": true, "127.8.9.1:1": true, "localhost": true, "127.0.0.1": true, "::1": true,
		"0.0.0.0:4317": false, ":4317": false, "[::]:4317": false, "10.0.0.1:4317": false, "collector:4317": false, "localhost.example.com:1": false, "": false,
		"[::ffff:10.0.0.1]:1": false, "[::ffff:127.0.0.1]:1": true,
	} {
		assert.Equal(t, want, onThisMachine(address), address)
	}
}

// Gossip proves who it is by certificates, as its TLS file says.
func TestGossipIsClosedByClientCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tls.yml")
	for text, asks := range map[string]bool{
		"tls_server_config: {client_auth_type: RequireAndVerifyClientCert}": true,
		"tls_server_config: {client_auth_type: RequestClientCert}":          false,
		"tls_server_config: {}": false,
		"no: [yaml":             false,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		l, ok := gossip("retryledger_alerts", map[string]any{"peers": []any{"a:1"}, "bind_address": "0.0.0.0:9094", "tls_config_file": file})
		require.True(t, ok)
		assert.True(t, l.encrypted)
		assert.Equal(t, asks, l.asks, text)
	}
	_, ok := gossip("retryledger_alerts", map[string]any{"bind_address": "0.0.0.0:9094"})
	assert.False(t, ok, "without peers it does not listen")
}
