package admission

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/seldom"
)

// The reasons for which a message is given up by its sender.
const (
	tooLarge  reason = "too_large" // above the receiver's limit
	malformed reason = "malformed" // no OTLP request; over HTTP also what is too large
)

// unread counts the messages that receivers cannot read. Their senders do not send them
// again, and the receivers themselves say nothing of it.
type unread struct {
	now    func() time.Time
	logger *zap.Logger
	count  metric.Int64Counter

	told seldom.Lines
}

func newUnread(settings component.TelemetrySettings, now func() time.Time) (*unread, error) {
	u := &unread{now: now, logger: settings.Logger}
	var err error
	u.count, err = settings.MeterProvider.Meter(scopeName).Int64Counter("retryledger_admission_messages_unread",
		metric.WithUnit("{message}"), metric.WithDescription("Messages that could not be read, by reason; senders give them up."))
	if err != nil {
		return nil, fmt.Errorf("count what cannot be read: %w", err)
	}
	return u, nil
}

func (u *unread) add(ctx context.Context, why reason, said string) {
	u.count.Add(context.WithoutCancel(ctx), 1, metric.WithAttributes(attribute.String("reason", string(why))))
	if _, due := u.told.Due(string(why), 1, u.now()); due {
		u.logger.Warn("A message could not be read, and its sender gives it up. If it is too large, send smaller batches, or raise max_recv_msg_size_mib (gRPC) or max_request_body_size (HTTP) of the receiver",
			zap.String("reason", string(why)), zap.String("answered", said))
	}
}

// answered is told how an HTTP receiver answered.
func (u *unread) answered(r *http.Request, code int) {
	switch code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		u.add(r.Context(), malformed, fmt.Sprint(code, " ", http.StatusText(code)))
	}
}

// call is a gRPC call on its way; reached tells that its message was decoded.
type call struct{ reached atomic.Bool }

type callKey struct{}

// TagRPC implements stats.Handler: an interceptor would not see what cannot be decoded.
func (u *unread) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{})
}

// HandleRPC implements stats.Handler.
func (u *unread) HandleRPC(ctx context.Context, event stats.RPCStats) {
	end, ok := event.(*stats.End)
	if !ok || end.Error == nil {
		return
	}
	if c, ok := ctx.Value(callKey{}).(*call); !ok || c.reached.Load() {
		return // what the receiver said of what it had read
	}
	switch code := status.Code(end.Error); code { //nolint:exhaustive // the others are a sender's that left
	case codes.ResourceExhausted:
		u.add(ctx, tooLarge, code.String())
	case codes.Internal, codes.InvalidArgument, codes.Unimplemented:
		u.add(ctx, malformed, code.String())
	}
}

// TagConn implements stats.Handler.
func (u *unread) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (u *unread) HandleConn(context.Context, stats.ConnStats) {}
