//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// exportMethod is OTLP's one call for traces.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// verbatim sends messages that are encoded already, so that the sender costs next to
// nothing of the machine that both share.
type verbatim struct{}

func (verbatim) Name() string { return "proto" }

func (verbatim) Marshal(v any) ([]byte, error) {
	body, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encode %T: %w", v, errNotEncoded)
	}
	return *body, nil
}

func (verbatim) Unmarshal(data []byte, v any) error {
	body, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decode into %T: %w", v, errNotEncoded)
	}
	*body = data
	return nil
}

// errNotEncoded is returned for what is not an encoded message.
var errNotEncoded = errors.New("not an encoded message")

// sending is how traffic went.
type sending struct {
	took         time.Duration
	acknowledged int           // messages
	refusals     int           // answers that asked to try again
	p50, p99     time.Duration // from a message's first try to its acknowledgement
}

// senders is how many messages are under way at the same time.
const senders = 16

// send sends every message until it is acknowledged, as an SDK's exporter does.
func (t *traffic) send(ctx context.Context, target string) (*sending, error) {
	in, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.f.Close() }()
	started := time.Now()
	var (
		mu        sync.Mutex
		out       sending
		latencies []time.Duration
		failed    error
		group     sync.WaitGroup
	)
	queue := make(chan []byte, senders)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range senders {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("reach %s: %w", target, err)
		}
		group.Go(func() {
			defer func() { _ = conn.Close() }()
			for body := range queue {
				at := time.Now()
				refusals, err := sendOne(ctx, conn, body)
				mu.Lock()
				out.refusals += refusals
				if err == nil {
					out.acknowledged++
					latencies = append(latencies, time.Since(at))
				} else if failed == nil {
					failed = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for {
		body, err := in.next()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			break
		}
		if err != nil {
			cancel()
			failed = err
			break
		}
		queue <- body
	}
	close(queue)
	group.Wait()
	if failed != nil {
		return nil, failed
	}
	slices.Sort(latencies)
	out.took = time.Since(started)
	out.p50, out.p99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	return &out, nil
}

// sendOne sends until it is acknowledged, and tells how often it was asked to wait.
func sendOne(ctx context.Context, conn *grpc.ClientConn, body []byte) (refusals int, err error) {
	for {
		var answer []byte
		err := conn.Invoke(ctx, exportMethod, &body, &answer, grpc.ForceCodec(verbatim{}))
		switch status.Code(err) { //nolint:exhaustive // OTLP names those that may be tried again
		case codes.OK:
			return refusals, nil
		case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
			refusals++
		default:
			return refusals, fmt.Errorf("send a message: %w", err)
		}
		select {
		case <-ctx.Done():
			return refusals, fmt.Errorf("send a message: %w", ctx.Err())
		case <-time.After(min(100*time.Millisecond<<min(refusals, 6), 5*time.Second)):
		}
	}
}
