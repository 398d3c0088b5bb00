package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/replay"
)

// appearWithin bounds the wait for spans to show in an answer.
const appearWithin = time.Minute

// daemon is a running collector, and ways to send to it.
type daemon struct {
	*collectortest.Collector
	t *testing.T
}

func newPlace(t *testing.T) collectortest.Place {
	t.Helper()
	return collectortest.NewPlace(t)
}

// start runs a collector and waits until it says that it is ready.
func start(t *testing.T, p collectortest.Place, args ...string) daemon {
	t.Helper()
	return daemon{collectortest.Start(t, p, args...), t}
}

// launch starts a collector without waiting for it.
func launch(t *testing.T, p collectortest.Place) daemon {
	t.Helper()
	return daemon{collectortest.Launch(t, p), t}
}

// sender sends spans in one of the ways that applications have.
func (d daemon) sender(w way) replay.Sender {
	d.t.Helper()
	var s replay.Sender
	var err error
	if w.encoding == "" {
		s, err = replay.NewGRPC(d.GRPC, w.gzip, replay.Access{})
	} else {
		s, err = replay.NewHTTP("http://"+d.HTTP, w.encoding, w.gzip, replay.Access{})
	}
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = s.Close() })
	return s
}

// way is a protocol, an encoding ("" is gRPC) and a compression.
type way struct {
	name     string
	encoding replay.Encoding
	gzip     bool
}

var ways = []way{
	{"gRPC", "", false},
	{"gRPC gzip", "", true},
	{"HTTP protobuf", replay.Protobuf, false},
	{"HTTP protobuf gzip", replay.Protobuf, true},
	{"HTTP JSON", replay.JSON, false},
	{"HTTP JSON gzip", replay.JSON, true},
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(deadline), "still after %v: %v", within, err)
		time.Sleep(50 * time.Millisecond)
	}
}
