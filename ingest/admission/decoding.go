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

// bound is how much memory a message may take once it is decoded, in bytes.
type bound int64

// says tells a sender why its message is given up, and what to do.
func (b bound) says(why reason) error {
	if why == nestedTooDeep {
		return status.Errorf(codes.InvalidArgument, "not decoded: a value has arrays or lists more than %d deep in each other; send it as text", deepest) //nolint:wrapcheck // what goes to the sender
	}
	return status.Errorf(codes.InvalidArgument, //nolint:wrapcheck // what goes to the sender
		"not decoded: it would take more than %d MiB of memory (max_decoded_mib of retryledger_admission), having very many parts for its size; send smaller batches", b>>20)
}

// exportRequest is what pdata's codec decodes the request of a traces service into, an
// internal type; nil if pdata has no such field any more, which a test would show.
var exportRequest = func() reflect.Type {
	if f, ok := reflect.TypeFor[ptraceotlp.ExportRequest]().FieldByName("orig"); ok {
		return f.Type
	}
	return nil
}()

// codec decodes requests that take no more than bound. One that takes more it leaves empty
// and keeps in refused: an error here would be answered as INTERNAL, which tells the sender
// of a defect. Of a call's events its payload comes next, and tells the call.
type codec struct {
	encoding.CodecV2
	bound
	refused *sync.Map // reasons, by request
}

func newCodec(b bound) codec {
	return codec{CodecV2: encoding.GetCodecV2(proto.Name), bound: b, refused: &sync.Map{}}
}

// errSecond is returned for a second message of a call that takes one. gRPC decodes it into
// the request beside the first, and then refuses both.
var errSecond = errors.New("a second message")

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	if reflect.TypeOf(into) == exportRequest {
		if m, ok := into.(interface{ SizeProto() int }); ok && m.SizeProto() > 0 {
			return errSecond
		}
		w := newWalk(int64(c.bound))
		for _, buffer := range data {
			if why := w.feed(buffer.ReadOnlyData()); why != admitted {
				c.refused.Store(into, why)
				return nil
			}
		}
	}
	return c.CodecV2.Unmarshal(data, into) //nolint:wrapcheck // it stands for it
}

// body is a request's body over HTTP, read no further by its receiver where decoding it
// would take more than bound: its last Read fails then, and the receiver gives that error
// to the sender.
type body struct {
	io.ReadCloser
	bound
	walk    *walk         // protobuf's
	whole   *bytes.Reader // JSON, once it is read and admitted
	json    bool
	size    int64 // that its sender says; -1 if it does not
	refused reason
	read    func() // is told when all is read
}

func newBody(r *http.Request, b bound, read func()) *body {
	out := &body{ReadCloser: r.Body, bound: b, size: r.ContentLength, read: read}
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/x-protobuf":
		out.walk = newWalk(int64(b))
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
		return 0, b.says(b.refused)
	case b.json:
		return b.readJSON(p)
	}
	n, err := b.ReadCloser.Read(p)
	if b.walk != nil {
		if b.refused = b.walk.feed(p[:n]); b.refused != admitted {
			return 0, b.refuse()
		}
	}
	if errors.Is(err, io.EOF) {
		b.read()
	}
	return n, err //nolint:wrapcheck // it stands for it
}

// refuse reads the rest of what is on its way, so that the sender hears the answer.
func (b *body) refuse() error {
	_, _ = io.Copy(io.Discard, b.ReadCloser) // the answer is the same
	b.read()
	return b.says(b.refused)
}

// readJSON gives JSON away when all of it is read.
func (b *body) readJSON(p []byte) (int, error) {
	if b.whole == nil {
		var all bytes.Buffer
		if b.size > 0 {
			all.Grow(int(min(b.size, 64<<20)) + bytes.MinRead)
		}
		if _, err := all.ReadFrom(b.ReadCloser); err != nil {
			return 0, err //nolint:wrapcheck // it stands for it
		}
		b.read()
		why, err := walkJSON(all.Bytes(), int64(b.bound))
		switch {
		case why != admitted:
			b.refused = why
			return 0, b.says(why)
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
	call.request = event.Payload
	if why, ok := c.refused.LoadAndDelete(event.Payload); ok {
		call.refused, _ = why.(reason)
	}
}

// ended forgets a call's request.
func (c codec) ended(call *call) {
	if call.request != nil {
		c.refused.Delete(call.request)
		call.request = nil
	}
}
