//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/procfs"
)

// postTraces sends bytes as they are to a receiver over HTTP.
func postTraces(t *testing.T, url string, body []byte) (code int, said string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if !assert.NoError(t, err) {
		return 0, ""
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	answered, err := http.DefaultClient.Do(request)
	if !assert.NoError(t, err) {
		return 0, ""
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(answered.Body)
	assert.NoError(t, err)
	return answered.StatusCode, string(text)
}

// Every receiver looks through a message before it is decoded, that of Langfuse's SDKs as well.
func TestEveryReceiverRefusesWhatDecodesTooLarge(t *testing.T) {
	p := newPlace(t)
	d := start(t, p, "--set=extensions.retryledger_admission.max_decoded_mib=1")
	empty := bytes.Repeat([]byte("\x0a\x00"), 1<<15) // 64 KiB of empty parts, which would take more than 4 MiB
	for _, address := range []string{p.HTTP + "/v1/traces", p.Langfuse + "/api/public/otel/v1/traces"} {
		code, said := postTraces(t, "http://"+address, empty)
		assert.Equal(t, http.StatusBadRequest, code, address)
		assert.Contains(t, said, "max_decoded_mib", address)
		code, said = postTraces(t, "http://"+address, empty[:100])
		assert.Equal(t, http.StatusOK, code, "%s: %s", address, said)
	}
	http.DefaultClient.CloseIdleConnections()
	d.Stop()
}

// Messages that each decode to nearly all that is allowed come at once, to both receivers. The
// collector keeps within what docs/configuration.md adds up, tells their senders to come again,
// and takes a message of others.
func TestHostileMessagesTogetherStayWithinTheBound(t *testing.T) {
	// The settings, in MiB.
	const (
		limit       = 200 // memory_limiter: limit_mib
		decoded     = 512 // max_decoded_mib
		message     = 16  // max_request_body_size
		inFlight    = 8   // max_in_flight
		alwaysThere = 96  // the program itself, and what the runtime holds beyond what it uses
	)
	p := newPlace(t)
	d := start(t, p,
		fmt.Sprintf("--set=processors.memory_limiter.limit_mib=%d", limit),
		"--set=processors.memory_limiter.spike_limit_mib=80",
		"--set=processors.memory_limiter.limit_percentage=0",
		"--set=processors.memory_limiter.spike_limit_percentage=0",
		fmt.Sprintf("--set=receivers.otlp.protocols.http.max_request_body_size=%d", message<<20),
		fmt.Sprintf("--set=receivers.otlp/langfuse.protocols.http.max_request_body_size=%d", message<<20),
		fmt.Sprintf("--set=extensions.retryledger_admission.max_in_flight=%d", inFlight),
		fmt.Sprintf("--set=extensions.retryledger_admission.max_decoded_mib=%d", decoded),
		"--set=extensions.retryledger_store.engine.memory_limit_mib=1024",
	)
	hostile := bytes.Repeat([]byte("\x0a\x00"), 480<<20/146) // resources without anything, of 146 bytes decoded
	var taken, refused atomic.Int64
	var group sync.WaitGroup
	for i := range 2 * inFlight {
		address := []string{p.HTTP + "/v1/traces", p.Langfuse + "/api/public/otel/v1/traces"}[i%2]
		group.Go(func() {
			switch code, said := postTraces(t, "http://"+address, hostile); code {
			case http.StatusOK:
				taken.Add(1)
			case http.StatusServiceUnavailable:
				refused.Add(1)
			default:
				t.Errorf("%d %s", code, said)
			}
		})
	}
	group.Wait()
	peak, err := procfs.Memory(d.PID, procfs.Peak)
	require.NoError(t, err)
	const bound = (limit + decoded + 2*inFlight*message + alwaysThere) << 20
	t.Logf("%d taken, %d asked to come again, at most %s of memory, bound %s", taken.Load(), refused.Load(), humanize.IBytes(uint64(peak)), humanize.IBytes(bound))
	if !collectortest.RaceDetector {
		assert.Less(t, peak, int64(bound))
	}
	assert.Positive(t, refused.Load())
	good := newBatch(t, strings.ToLower(t.Name()), time.Now())
	eventually(t, appearWithin, func() error { return d.sender(ways[0]).Send(t.Context(), good.td) })
	http.DefaultClient.CloseIdleConnections()
	d.Stop()
}
