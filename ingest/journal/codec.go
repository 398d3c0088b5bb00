package journal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/tinylib/msgp/msgp"

	"github.com/retryledger/retryledger/schema"
)

// A payload is one version byte, then an S2 block, which holds rows as
// MessagePack maps one after the other. The version says how to read the
// rest; it changes only when a row that an older build wrote could no longer
// be told from a newer one's. Every version ever written stays readable.
const payloadVersion byte = 1

// Bounds of one payload. They bound what Decode allocates for bytes that
// nobody vouches for, and what one damaged record can take with it.
const (
	targetRawBytes = 64 << 10 // a record is closed when its rows reach this, before compression
	maxRawBytes    = 4 << 20  // one row may not be larger
	maxRows        = 4096
	maxPayload     = 6 << 20 // above what S2 makes of targetRawBytes + maxRawBytes
)

var (
	// ErrRowTooLarge is returned for a row that no record can hold.
	ErrRowTooLarge = errors.New("the row is too large for the journal")
	// ErrNewerFormat is returned for a record of a later build.
	ErrNewerFormat = errors.New("the record was written by a newer version of retryledger")
	// ErrMalformed is returned for bytes that are no payload.
	ErrMalformed = errors.New("the record is malformed")
)

// scratch is what encoding needs and can be used again.
type scratch struct {
	row row
	raw []byte
}

var scratches sync.Pool // of *scratch

func getScratch() *scratch {
	if sc, ok := scratches.Get().(*scratch); ok {
		return sc
	}
	return new(scratch)
}

// encode appends spans to dst as records: for each, begin is called with
// where its payload starts, and end with where it ends and its rows. The
// bytes depend on the spans alone.
func encode(dst []byte, spans []schema.Span, begin func([]byte) []byte, end func([]byte, int)) ([]byte, error) {
	sc := getScratch()
	defer scratches.Put(sc)
	raw, rows := sc.raw[:0], 0
	closeRecord := func() {
		dst = begin(dst)
		dst = append(dst, payloadVersion)
		at := len(dst)
		dst = append(dst, make([]byte, s2.MaxEncodedLen(len(raw)))...)
		dst = dst[:at+len(s2.Encode(dst[at:], raw))]
		end(dst, rows)
		raw, rows = raw[:0], 0
	}
	for i := range spans {
		if len(raw) >= targetRawBytes || rows == maxRows {
			closeRecord()
		}
		var err error
		if raw, err = sc.row.append(raw, &spans[i]); err != nil {
			sc.raw = raw
			return dst, fmt.Errorf("encode span %s of trace %s: %w", spans[i].SpanID, spans[i].TraceID, err)
		}
		rows++
	}
	if rows > 0 {
		closeRecord()
	}
	sc.raw = raw
	return dst, nil
}

// append appends s as one encoded row.
func (r *row) append(raw []byte, s *schema.Span) ([]byte, error) {
	if max(len(s.RetryEvents), len(s.Violations), len(s.UnfinishedSteps)) > maxList {
		return raw, ErrRowTooLarge
	}
	r.fromSpan(s)
	out, err := r.MarshalMsg(raw)
	if err != nil {
		return raw, err
	}
	if len(out)-len(raw) > maxRawBytes {
		return raw, ErrRowTooLarge
	}
	return out, nil
}

// CheckRow tells whether the journal can hold s: nil, or ErrRowTooLarge.
func CheckRow(s *schema.Span) error {
	var r row
	_, err := r.append(nil, s)
	return err
}

// EncodeRows writes spans as one payload, which DecodeRows reads; for rows
// that leave the journal, such as into a dead-letter file. It fails with
// ErrRowTooLarge when the spans exceed one payload.
func EncodeRows(spans []schema.Span) ([]byte, error) {
	var out []byte
	payloads := 0
	out, err := encode(out, spans, func(b []byte) []byte { payloads++; return b }, func([]byte, int) {})
	if err != nil {
		return nil, err
	}
	if payloads > 1 {
		return nil, fmt.Errorf("%d spans do not fit one payload: %w", len(spans), ErrRowTooLarge)
	}
	return out, nil
}

// DecodeRows reads a payload of any version so far. The spans share no memory
// with it. It allocates at most a fixed multiple of the payload's stated size,
// which is bounded. Its errors are ErrNewerFormat and ErrMalformed.
func DecodeRows(payload []byte) ([]schema.Span, error) {
	return decode(nil, payload)
}

// decode appends the spans of payload to dst.
func decode(dst []schema.Span, payload []byte) ([]schema.Span, error) {
	if len(payload) == 0 {
		return dst, fmt.Errorf("no version: %w", ErrMalformed)
	}
	switch v := payload[0]; {
	case v == payloadVersion:
		return decodeV1(dst, payload[1:])
	case v > payloadVersion && v < 128:
		return dst, fmt.Errorf("format %d, this build reads up to %d: %w", v, payloadVersion, ErrNewerFormat)
	default:
		return dst, fmt.Errorf("format %d: %w", v, ErrMalformed)
	}
}

func decodeV1(dst []schema.Span, block []byte) ([]schema.Span, error) {
	size, err := s2.DecodedLen(block)
	if err != nil || size > targetRawBytes+maxRawBytes {
		return dst, fmt.Errorf("S2 block of %d bytes: %w", size, ErrMalformed)
	}
	sc := getScratch()
	defer scratches.Put(sc)
	if cap(sc.raw) < size {
		sc.raw = make([]byte, size)
	}
	raw, err := s2.Decode(sc.raw[:cap(sc.raw)], block)
	if err != nil {
		return dst, fmt.Errorf("S2 block: %w: %w", err, ErrMalformed)
	}
	start := len(dst)
	for len(raw) > 0 {
		if len(dst)-start == maxRows {
			return dst[:start], fmt.Errorf("more than %d rows: %w", maxRows, ErrMalformed)
		}
		sc.row = row{}
		if raw, err = sc.row.UnmarshalMsg(raw); err != nil {
			return dst[:start], fmt.Errorf("row %d: %w: %w", len(dst)-start, msgp.Cause(err), ErrMalformed)
		}
		dst = append(dst, sc.row.toSpan())
	}
	return dst, nil
}
