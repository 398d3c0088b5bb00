package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func TestExplain(t *testing.T) {
	var config effectiveConfig
	require.NoError(t, config.Convert(context.Background(), confmap.NewFromStringMap(map[string]any{
		"receivers": map[string]any{"otlp": map[string]any{"protocols": map[string]any{
			"grpc": map[string]any{"endpoint": "127.0.0.1:4317"},
		}}},
		"exporters": map[string]any{"otlp_grpc": map[string]any{"endpoint": "elsewhere:9999"}},
	})))
	taken := func(port int) error {
		return fmt.Errorf("cannot start pipelines: %w", &net.OpError{
			Op: "listen", Net: "tcp",
			Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port},
			Err:  os.NewSyscallError("bind", syscall.EADDRINUSE),
		})
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a port with its setting", taken(4317), "Port 127.0.0.1:4317 is taken by another program, perhaps another collector. Stop it, or give this one another port: --set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:14317"},
		{"a port that only an exporter names", taken(9999), "Port 127.0.0.1:9999 is taken by another program, perhaps another collector. Stop it, or give this one another port."},
		{"a port without an address", fmt.Errorf("serve: %w", syscall.EADDRINUSE), "A port is taken by another program. Stop that program, or give the collector another port with --set."},
		{"an error that says it itself", fmt.Errorf("failed to start extensions: %w", errors.New("the disk is full")), "Error: the disk is full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, explain(c.err, &config))
		})
	}
}

func TestAnotherPort(t *testing.T) {
	for port, want := range map[int]int{4317: 14317, 4320: 14320, 55535: 65535, 55536: 45536, 65535: 55535} {
		assert.Equal(t, want, anotherPort(port), strconv.Itoa(port))
	}
}
