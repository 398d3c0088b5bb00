// Package admission is the Collector extension retryledger_admission: it bounds how many
// messages receivers read at a time, and turns those beyond away before they are read, so
// that their senders come again later (gRPC UNAVAILABLE, HTTP 503). It bounds what they take
// together when they are decoded, and turns those beyond away likewise before they are; or
// refuses them for good, where one takes more by itself (gRPC INVALID_ARGUMENT, HTTP 400).
//
// A receiver uses it by naming it as middleware:
//
//	receivers:
//	  otlp:
//	    protocols:
//	      grpc: {middlewares: [{id: retryledger_admission}]}
//	      http: {middlewares: [{id: retryledger_admission}]}
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/retryledger/retryledger/internal/seldom"
)

var componentType = component.MustNewType("retryledger_admission")

const scopeName = "github.com/retryledger/retryledger/ingest/admission"

// NewFactory creates the factory of the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(componentType,
		func() component.Config { return defaultConfig() }, create, component.StabilityLevelAlpha)
}

// errConfig is returned for a configuration of another component.
var errConfig = errors.New("not a configuration of retryledger_admission")

func create(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("create %s from a %T: %w", settings.ID, config, errConfig)
	}
	return newMiddleware(c, settings.TelemetrySettings, time.Now)
}

// middleware stands before receivers.
type middleware struct {
	component.StartFunc
	component.ShutdownFunc

	gate       *gate
	readWithin time.Duration
	now        func() time.Time
	logger     *zap.Logger
	unread     *unread
	turned     metric.Int64Counter
	told       seldom.Lines
}

var (
	_ extensionmiddleware.HTTPServer = (*middleware)(nil)
	_ extensionmiddleware.GRPCServer = (*middleware)(nil)
)

func newMiddleware(c *Config, settings component.TelemetrySettings, now func() time.Time) (*middleware, error) {
	m := &middleware{gate: newGate(c.MaxInFlight, now), readWithin: c.ReadWithin, now: now, logger: settings.Logger}
	var err error
	if m.unread, err = newUnread(newMemory(int64(c.MaxDecodedMiB)<<20, c.MaxInFlight), settings, now); err != nil {
		return nil, err
	}
	m.turned, err = settings.MeterProvider.Meter(scopeName).Int64Counter("retryledger_admission_messages_refused",
		metric.WithUnit("{message}"), metric.WithDescription("Messages that were turned away before they were read, or before they were decoded (max_decoded_mib), by reason; senders are told to try again."))
	if err != nil {
		return nil, fmt.Errorf("count what is turned away: %w", err)
	}
	return m, nil
}

// turnAway counts a message that is not read or not decoded, and says so now and then.
func (m *middleware) turnAway(ctx context.Context, why reason) {
	m.turned.Add(context.WithoutCancel(ctx), 1, metric.WithAttributes(attribute.String("reason", string(why))))
	unsaid, due := m.told.Due(string(why), 1, m.now())
	if !due {
		return
	}
	m.logger.Warn("Messages are turned away before they are decoded; their senders are told to try again. Nothing that was acknowledged is touched",
		zap.String("reason", string(why)), zap.Int("messages", unsaid+1), zap.Int("max_in_flight", m.gate.max), zap.Int64("max_decoded_mib", m.unread.codec.memory.most>>20))
}

// retryAfter is when a sender over HTTP should come again, in seconds.
const retryAfter = "1"

// GetHTTPHandler implements extensionmiddleware.HTTPServer.
func (m *middleware) GetHTTPHandler(context.Context) (extensionmiddleware.WrapHTTPHandlerFunc, error) {
	return func(_ context.Context, base http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			if why := m.gate.enter(); why != admitted {
				m.turnAway(ctx, why)
				w.Header().Set("Retry-After", retryAfter)
				// The server reads a part of what is on its way before it answers, so that
				// an honest sender hears it.
				m.readUntil(http.NewResponseController(w), refusedWithin)
				http.Error(w, "the collector is busy, try again", http.StatusServiceUnavailable)
				return
			}
			answer := &answerWriter{ResponseWriter: w}
			how := neither // if the handler panics
			defer func() { m.gate.leave(how) }()
			connection := http.NewResponseController(w)
			m.readUntil(connection, m.readWithin)
			read := newBody(r, m.unread.codec.memory, func() { m.readUntil(connection, 0) }, func() {
				m.turnAway(ctx, decodedFull)
				w.Header().Set("Retry-After", retryAfter)
			})
			defer read.holds.release()
			r.Body = read
			base.ServeHTTP(answer, r)
			m.readUntil(connection, 0)
			if ctx.Err() == nil { // or else its sender has left, which says nothing
				how = answer.outcome()
			}
			m.unread.answered(r, answer.status, read.refused)
		}), nil
	}, nil
}

// refusedWithin is how long the rest of a message that is turned away may take.
const refusedWithin = 5 * time.Second

// readUntil bounds the reading from a connection; 0 ends the bound. A connection that
// cannot be bounded has a server that bounds it.
func (m *middleware) readUntil(connection *http.ResponseController, within time.Duration) {
	var deadline time.Time
	if within > 0 {
		deadline = time.Now().Add(within) // the kernel's clock, not the gate's
	}
	if err := connection.SetReadDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		m.logger.Debug("A message's reading could not be bounded", zap.Error(err))
	}
}

// answerWriter remembers the status of an answer.
type answerWriter struct {
	http.ResponseWriter
	status int
}

func (w *answerWriter) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // it stands for it
}

// Unwrap lets http.ResponseController reach what is behind.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) outcome() outcome {
	switch w.status {
	case 0, http.StatusOK:
		return taken
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return refused
	default:
		return neither
	}
}

// visit is a gRPC message on its way.
type visit struct {
	how  atomic.Int64
	late *time.Timer // ends a message that does not arrive
}

type visitKey struct{}

// GetGRPCServerOptions implements extensionmiddleware.GRPCServer. The tap is asked when the
// headers of a message have arrived and its body has not been read; an interceptor would
// be asked when it is decoded.
func (m *middleware) GetGRPCServerOptions(context.Context) ([]grpc.ServerOption, error) {
	return []grpc.ServerOption{
		grpc.StatsHandler(m.unread),
		grpc.ForceServerCodecV2(m.unread.codec),
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			if why := m.gate.enter(); why != admitted {
				m.turnAway(ctx, why)
				return ctx, errBusy
			}
			v := &visit{}
			v.how.Store(int64(neither))
			reading, cancel := context.WithCancel(ctx)
			v.late = time.AfterFunc(m.readWithin, cancel)
			// The stream's end cancels its context, whatever ends it.
			context.AfterFunc(reading, func() {
				v.late.Stop()
				cancel()
				m.gate.leave(outcome(v.how.Load()))
			})
			return context.WithValue(reading, visitKey{}, v), nil
		}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			v, ok := ctx.Value(visitKey{}).(*visit)
			if c, called := ctx.Value(callKey{}).(*call); called {
				m.unread.codec.forget(c)
				if why := c.refused(); why != admitted {
					if why == decodedFull {
						m.turnAway(ctx, why)
						if ok {
							v.how.Store(int64(refused))
						}
					}
					return nil, m.unread.codec.memory.says(why)
				}
				c.reached.Store(true)
			}
			if ok {
				v.late.Stop()
			}
			answer, err := handler(ctx, request)
			if ok && ctx.Err() == nil { // or else its sender has left, which says nothing
				switch status.Code(err) { //nolint:exhaustive // the others say nothing
				case codes.OK:
					v.how.Store(int64(taken))
				case codes.Unavailable, codes.ResourceExhausted:
					v.how.Store(int64(refused))
				}
			}
			return answer, err
		}),
	}, nil
}
