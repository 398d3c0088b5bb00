package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// exportRequest is what pdata's codec decodes the request of a traces service into, an
// internal type; nil if pdata has no such field any more, which a test would show.
var exportRequest = func() reflect.Type {
	if f, ok := reflect.TypeFor[ptraceotlp.ExportRequest]().FieldByName("orig"); ok {
		return f.Type
	}
	return nil
}()

// codec decodes requests that the memory has room for. Others it leaves empty, and keeps why:
// an error here would be answered as INTERNAL, which tells the sender of a defect. Of a
// call's events its payload comes next, and tells the call.
type codec struct {
	encoding.CodecV2
	memory   *memory
	arrivals *sync.Map // by request, until nothing more is decoded into it
}

// arrival is a message over gRPC that was decoded, or not.
type arrival struct {
	refused reason
	holds   *reservation
}

func newCodec(m *memory) codec {
	return codec{CodecV2: encoding.GetCodecV2(proto.Name), memory: m, arrivals: &sync.Map{}}
}

// errSecond is returned for a second message of a call that takes one. gRPC decodes it into
// the request beside the first, and then refuses both.
var errSecond = errors.New("a second message")

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	if reflect.TypeOf(into) != exportRequest {
		return c.CodecV2.Unmarshal(data, into) //nolint:wrapcheck // it stands for it
	}
	a := &arrival{holds: c.memory.reserve()}
	if _, second := c.arrivals.LoadOrStore(into, a); second {
		return errSecond
	}
	whole := false // or else the call is not told of it
	defer func() {
		if !whole {
			c.arrivals.Delete(into)
			a.holds.release()
		}
	}()
	if a.refused = a.holds.protobuf(data); a.refused == admitted {
		if err := c.CodecV2.Unmarshal(data, into); err != nil {
			return err //nolint:wrapcheck // it stands for it
		}
	}
	whole = true
	return nil
}

// body is a request's body over HTTP, read no further by its receiver where decoding it
// would take more memory than there is: its last Read fails then, and the receiver gives that
// error to the sender.
type body struct {
	io.ReadCloser
	holds   *reservation
	walk    *walk         // protobuf's
	whole   *bytes.Reader // JSON, once it is read and admitted
	json    bool
	refused reason
	read    func() // is told when all is read
	busy    func() // is told when it is refused with decodedFull
}

func newBody(r *http.Request, m *memory, read, busy func()) *body {
	out := &body{ReadCloser: r.Body, holds: m.reserve(), read: read, busy: busy}
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/x-protobuf":
		out.walk = newWalk(m.most, m.coarse)
	case "application/json":
		out.json = true
	}
	return out
}

// Read implements io.Reader. It tells when all is read: what follows, waiting for the disk,
// has no bound, and the server takes a deadline that passes for a sender that left.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.refused != admitted:
		return 0, b.holds.of.says(b.refused)
	case b.json:
		return b.readJSON(p)
	}
	n, err := b.ReadCloser.Read(p)
	if b.walk != nil {
		b.refused = b.walk.feed(p[:n])
		if b.refused == admitted && !b.holds.take(b.walk.size(), b.holds.of.most) {
			b.refused = decodedFull
		}
		if b.refused != admitted {
			b.holds.release()
			_, _ = io.Copy(io.Discard, b.ReadCloser) // so that the sender hears the answer, whatever else comes
			b.read()
			return 0, b.refuse()
		}
	}
	if errors.Is(err, io.EOF) {
		b.read()
	}
	return n, err //nolint:wrapcheck // it stands for it
}

func (b *body) refuse() error {
	if b.refused == decodedFull {
		b.busy()
	}
	return b.holds.of.says(b.refused)
}

// readJSON gives JSON away when all of it is read.
func (b *body) readJSON(p []byte) (int, error) {
	if b.whole == nil {
		var all bytes.Buffer // grows with what comes: a sender may promise much and send nothing
		if _, err := all.ReadFrom(b.ReadCloser); err != nil {
			return 0, err //nolint:wrapcheck // it stands for it
		}
		b.read()
		why, err := b.holds.json(all.Bytes())
		switch {
		case why != admitted:
			b.refused = why
			return 0, b.refuse()
		case err != nil:
			return 0, status.Error(codes.InvalidArgument, fmt.Sprintf("no OTLP: %v", err)) //nolint:wrapcheck // what goes to the sender
		}
		b.whole = bytes.NewReader(all.Bytes())
	}
	n, err := b.whole.Read(p)
	if b.whole.Len() == 0 {
		b.whole = bytes.NewReader(nil) // the receiver has it now
	}
	return n, err //nolint:wrapcheck // it stands for it
}

// received is told of a call's request, when it is decoded or refused.
func (c codec) received(call *call, event *stats.InPayload) {
	if a, ok := c.arrivals.Load(event.Payload); ok {
		call.request = event.Payload
		call.arrival, _ = a.(*arrival)
	}
}

// forget is told when nothing more is decoded into a call's request.
func (c codec) forget(call *call) {
	if call.request != nil {
		c.arrivals.Delete(call.request)
		call.request = nil
	}
}

// ended is told when nothing holds a call's request any more.
func (c codec) ended(call *call) {
	c.forget(call)
	if call.arrival != nil {
		call.arrival.holds.release()
	}
}
