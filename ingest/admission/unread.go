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
	// It would take more memory than is allowed, or a stack without end.
	decodesTooLarge reason = "decodes_too_large"
	nestedTooDeep   reason = "nested_too_deep"
)

// remedy says what a sender's owner can do.
var remedy = map[reason]string{
	tooLarge:        "send smaller batches, or raise max_recv_msg_size_mib of the receiver",
	malformed:       "if it is too large, send smaller batches, or raise max_request_body_size of the receiver",
	decodesTooLarge: "it has very many parts for its size, as no usual instrumentation sends: see who sent it; or send smaller batches, or raise max_decoded_mib of retryledger_admission",
	nestedTooDeep:   "a value lies in arrays and lists without end, as no usual instrumentation sends: see who sent it, or send the value as text",
}

// unread counts the messages that receivers cannot read, or must not decode. Their senders
// do not send them again, and the receivers themselves say nothing of it.
type unread struct {
	codec  codec
	now    func() time.Time
	logger *zap.Logger
	count  metric.Int64Counter

	told seldom.Lines
}

func newUnread(memory *memory, settings component.TelemetrySettings, now func() time.Time) (*unread, error) {
	u := &unread{codec: newCodec(memory), now: now, logger: settings.Logger}
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
		u.logger.Warn("A message could not be read, and its sender gives it up",
			zap.String("reason", string(why)), zap.String("answered", said), zap.String("remedy", remedy[why]))
	}
}

// answered is told how an HTTP receiver answered, and why it was not let read the message.
func (u *unread) answered(r *http.Request, code int, refused reason) {
	switch refused { //nolint:exhaustive // the others are not read
	case admitted:
	case decodedFull: // its sender comes again
		return
	default:
		u.add(r.Context(), refused, fmt.Sprint(code, " ", http.StatusText(code)))
		return
	}
	switch code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		u.add(r.Context(), malformed, fmt.Sprint(code, " ", http.StatusText(code)))
	}
}

// call is a gRPC call on its way.
type call struct {
	reached atomic.Bool // its message was decoded
	request any         // that a further message would be decoded into
	arrival *arrival    // nil if nothing arrived that could be decoded
}

// refused is why its message was not decoded.
func (c *call) refused() reason {
	if c.arrival == nil {
		return admitted
	}
	return c.arrival.refused
}

type callKey struct{}

// TagRPC implements stats.Handler: an interceptor would not see what cannot be decoded.
func (u *unread) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{})
}

// HandleRPC implements stats.Handler.
func (u *unread) HandleRPC(ctx context.Context, event stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.InPayload:
		u.codec.received(c, event)
	case *stats.End:
		u.codec.ended(c)
		u.ended(ctx, c, event)
	}
}

func (u *unread) ended(ctx context.Context, c *call, end *stats.End) {
	switch code := status.Code(end.Error); {
	case c.refused() == decodedFull: // its sender comes again
	case c.refused() != admitted:
		u.add(ctx, c.refused(), code.String())
	case c.reached.Load(): // what the receiver said of what it had read
	case code == codes.ResourceExhausted:
		u.add(ctx, tooLarge, code.String())
	case code == codes.Internal, code == codes.InvalidArgument, code == codes.Unimplemented:
		u.add(ctx, malformed, code.String())
	default: // a sender that left
	}
}

// TagConn implements stats.Handler.
func (u *unread) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (u *unread) HandleConn(context.Context, stats.ConnStats) {}
