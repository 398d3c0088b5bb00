//go:build linux

package apptest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/procfs"
)

var overloadFor = flag.Duration("overload", 4*time.Second, "how long TestOverload offers three times what the collector takes")

// The settings that bound a collector's memory under load, as docs/configuration.md adds
// them up, in MiB.
const (
	overloadLimit       = 200 // memory_limiter: limit_mib
	overloadMessage     = 4   // max_recv_msg_size_mib
	overloadInFlight    = 16  // max_in_flight of the admission, over all connections
	overloadConnections = 8
	decoded             = 4  // times the size of a message, while it is decoded
	alwaysThere         = 96 // MiB: the program itself, and what the runtime holds beyond what it uses
)

// TestOverload offers a collector three times what it takes, in messages with prompts. It
// tells senders to wait, stays within the memory that its settings add up to, and keeps
// all that it acknowledged.
func TestOverload(t *testing.T) {
	place := collectortest.NewPlace(t)
	c := collectortest.Start(t, place,
		fmt.Sprintf("--set=processors.memory_limiter.limit_mib=%d", overloadLimit),
		"--set=processors.memory_limiter.spike_limit_mib=80",
		"--set=processors.memory_limiter.limit_percentage=0",
		"--set=processors.memory_limiter.spike_limit_percentage=0",
		fmt.Sprintf("--set=receivers.otlp.protocols.grpc.max_recv_msg_size_mib=%d", overloadMessage),
		fmt.Sprintf("--set=extensions.retryledger_admission.max_in_flight=%d", overloadInFlight),
		"--set=extensions.retryledger_store.engine.memory_limit_mib=1024",
	)
	o := &overload{conns: make([]ptraceotlp.GRPCClient, overloadConnections)}
	for i := range o.conns {
		conn, err := grpc.NewClient(place.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		o.conns[i] = ptraceotlp.NewGRPCClient(conn)
	}
	source := newHeavy()
	source.prepare(500)

	// What it takes: one message after the other on each connection.
	began := time.Now()
	var group sync.WaitGroup
	var measured atomic.Int64
	for i := range overloadConnections {
		group.Go(func() {
			for time.Since(began) < 3*time.Second {
				o.deliver(t.Context(), i, source.message())
				measured.Add(1)
			}
		})
	}
	group.Wait()
	takes := float64(measured.Load()) / time.Since(began).Seconds()
	require.Zero(t, o.gaveUp.Load())

	// Three times that, whether it answers or not.
	source.prepare(int(3 * takes * overloadFor.Seconds()))
	began = time.Now()
	pace := time.Duration(float64(time.Second) / (3 * takes))
	offered := 0
	for time.Since(began) < *overloadFor {
		for due := int(3*takes*time.Since(began).Seconds()) + 1; offered < due; offered++ { // also those that a busy machine let slip
			message, conn := source.message(), offered%overloadConnections
			group.Go(func() { o.deliver(t.Context(), conn, message) })
		}
		time.Sleep(pace)
	}
	lasted := time.Since(began)
	group.Wait()
	peak, err := procfs.Memory(c.PID, procfs.Peak)
	require.NoError(t, err)
	bound := int64(overloadLimit+overloadInFlight*overloadMessage*decoded+alwaysThere) << 20
	t.Logf("took %.0f messages/s of %s, was offered %.0f/s for %v; asked %d times to wait; at most %s of memory, bound %s; %d spans acknowledged, %d given up by their sender",
		takes, humanize.IBytes(uint64(source.size)), float64(offered)/lasted.Seconds(), lasted.Round(time.Second),
		o.refused.Load(), humanize.IBytes(uint64(peak)), humanize.IBytes(uint64(bound)), o.acknowledged.Load(), o.gaveUp.Load())
	assert.Positive(t, o.refused.Load(), "nobody was asked to wait")
	assert.Zero(t, o.gaveUp.Load(), "who waits is served")
	if !collectortest.RaceDetector {
		assert.Less(t, peak, bound)
	}

	// Every acknowledged span is there, once.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		var held answer.Status
		require.NoError(t, place.Get(context.Background(), "/api/v1/status", &held))
		assert.Equal(t, o.acknowledged.Load(), held.Spans)
	}, 2*time.Minute, 500*time.Millisecond)
	c.Stop()
}

// overload is what senders of many messages count.
type overload struct {
	conns        []ptraceotlp.GRPCClient
	refused      atomic.Int64 // answers that asked to try again
	acknowledged atomic.Int64 // spans
	gaveUp       atomic.Int64 // spans
}

// patience is how long a sender tries.
const patience = 4 * time.Minute

// deliver sends a message until it is acknowledged, or its patience ends.
func (o *overload) deliver(ctx context.Context, i int, message ptrace.Traces) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n := int64(message.SpanCount())
	request := ptraceotlp.NewExportRequestFromTraces(message)
	for wait := time.Second; ; wait = min(2*wait, 8*time.Second) { // exporters begin with five seconds
		_, err := o.conns[i].Export(ctx, request)
		if err == nil {
			o.acknowledged.Add(n)
			return
		}
		if status.Code(err) == codes.Unavailable {
			o.refused.Add(1)
		}
		select {
		case <-ctx.Done():
			o.gaveUp.Add(n)
			return
		case <-time.After(wait):
		}
	}
}

// heavy are messages of spans with prompts, made before they are needed, so that making
// them does not slow the sending; more are made where they do not suffice.
type heavy struct {
	mu    sync.Mutex
	g     traffic
	ready []ptrace.Traces
	size  int // of a message, in bytes
}

func newHeavy() *heavy {
	h := &heavy{g: traffic{r: rand.New(rand.NewPCG(1, 5)), truth: newTruth(), seed: 1}}
	h.prepare(1)
	h.size = (&ptrace.ProtoMarshaler{}).TracesSize(h.ready[0])
	return h
}

// prepare makes n messages.
func (h *heavy) prepare(n int) {
	for range n {
		h.ready = append(h.ready, h.make())
	}
}

// prompt is one text of all spans, which costs its memory once until it is sent.
var prompt = strings.Repeat("What does the policy say? ", 600)

func (h *heavy) make() ptrace.Traces {
	var spans []sentSpan
	for len(spans) < 128 {
		spans = append(spans, h.g.run(time.Now())...)
	}
	td := h.g.request(spans)
	for _, rs := range td.ResourceSpans().All() {
		for _, span := range rs.ScopeSpans().At(0).Spans().All() {
			span.Attributes().PutStr("gen_ai.input.messages", prompt)
		}
	}
	return td
}

func (h *heavy) message() ptrace.Traces {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ready) == 0 {
		return h.make()
	}
	last := len(h.ready) - 1
	td := h.ready[last]
	h.ready = h.ready[:last]
	return td
}
