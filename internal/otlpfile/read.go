// Package otlpfile reads files of OTLP traces as exporters, the Collector's file
// exporter and people with curl write them: a protobuf or JSON
// ExportTraceServiceRequest, JSON lines of them, and gzip of any of these. The
// format is told from the content, never from the file's name.
package otlpfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// DefaultLimit bounds what one file may hold after decompression, in bytes.
const DefaultLimit int64 = 512 << 20

// ErrTooLarge is returned for a file that holds more than the limit.
var ErrTooLarge = errors.New("the file is larger than the limit")

// ErrNotTraces is returned for a file that is no OTLP trace request in any
// spelling that is read here. The error around it says what was found.
var ErrNotTraces = errors.New("not an OTLP trace export request")

// Read hands every request in r to each, in order, and returns how many there were.
// It reads at most limit decompressed bytes; a file of JSON lines is held in memory
// one line at a time, any other whole. An error of each ends the reading and is
// returned as it is.
func Read(r io.Reader, limit int64, each func(ptrace.Traces) error) (int, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	buffered := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return 0, fmt.Errorf("read the gzip header: %w", err)
		}
		defer func() { _ = unzipped.Close() }()
		buffered = bufio.NewReaderSize(&cappedReader{r: unzipped, left: limit, limit: limit}, 64<<10)
	} else {
		buffered = bufio.NewReaderSize(&cappedReader{r: buffered, left: limit, limit: limit}, 64<<10)
	}
	head, err := buffered.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, reading(err)
	}
	if len(head) == 0 {
		return 0, nil
	}
	// A protobuf request begins with 0x0a, which is also a newline before a JSON
	// document; the whole content decides between the two.
	if head[0] == '\n' {
		content, err := io.ReadAll(buffered)
		if err != nil {
			return 0, reading(err)
		}
		td, err := unmarshalProtobuf(content)
		if err == nil {
			return 1, each(td)
		}
		if head = bytes.TrimLeft(content, space); !looksLikeJSON(head) && otherFormat(head) == "" {
			return 0, err
		}
		buffered = bufio.NewReader(bytes.NewReader(head))
	}
	if found := otherFormat(head); found != "" {
		return 0, fmt.Errorf("%w: %s", ErrNotTraces, found)
	}
	if looksLikeJSON(head) {
		return readJSON(buffered, each)
	}
	return readProtobuf(buffered, each)
}

func readProtobuf(r io.Reader, each func(ptrace.Traces) error) (int, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return 0, reading(err)
	}
	td, err := unmarshalProtobuf(content)
	if err != nil {
		return 0, err
	}
	return 1, each(td)
}

// unmarshalProtobuf refuses what protobuf itself would let pass: short texts are
// often valid messages of unknown fields only.
func unmarshalProtobuf(content []byte) (ptrace.Traces, error) {
	var proto ptrace.ProtoUnmarshaler
	td, err := proto.UnmarshalTraces(content)
	if err != nil {
		return ptrace.Traces{}, fmt.Errorf("%w: neither JSON nor a whole protobuf message (%v)", ErrNotTraces, err) //nolint:errorlint // one cause is enough
	}
	if td.ResourceSpans().Len() == 0 {
		return ptrace.Traces{}, fmt.Errorf("%w: neither JSON nor a protobuf message with resource spans", ErrNotTraces)
	}
	return td, nil
}

func readJSON(r *bufio.Reader, each func(ptrace.Traces) error) (int, error) {
	documents := documentReader{r: r}
	for n := 0; ; n++ {
		document, err := documents.next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("JSON document %d: %w", n+1, err)
		}
		td, err := unmarshalJSON(document)
		if err != nil {
			return n, fmt.Errorf("JSON document %d: %w", n+1, err)
		}
		if err := each(td); err != nil {
			return n, err
		}
	}
}

func unmarshalJSON(document []byte) (ptrace.Traces, error) {
	var unmarshaler ptrace.JSONUnmarshaler
	td, err := unmarshaler.UnmarshalTraces(document)
	if err != nil {
		td, err = unmarshaler.UnmarshalTraces(quoteNonFinite(document))
	}
	if err != nil {
		return ptrace.Traces{}, fmt.Errorf("%w: %v", ErrNotTraces, err) //nolint:errorlint // one cause is enough
	}
	if td.ResourceSpans().Len() == 0 && len(bytes.TrimSpace(document[1:len(document)-1])) > 0 &&
		!bytes.Contains(document, []byte(`"resourceSpans"`)) && !bytes.Contains(document, []byte(`"resource_spans"`)) {
		return ptrace.Traces{}, fmt.Errorf("%w: a JSON object without resourceSpans", ErrNotTraces)
	}
	return td, nil
}

// space is JSON's.
const space = " \t\r\n"

// looksLikeJSON tells whether the first thing after white space opens an object.
func looksLikeJSON(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), space)
	return len(head) > 0 && head[0] == '{'
}

// otherFormat names what a file is when it is one of the things that are handed
// over by mistake, "" if it is none of them.
func otherFormat(head []byte) string {
	switch trimmed := bytes.TrimLeft(head, space); {
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "it is compressed with zstd; decompress it first (zstd -d), gzip is read as it is"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "it is a zip archive; unpack it first"
	case bytes.HasPrefix(trimmed, []byte("[")):
		return "it is a JSON array; write one request object, or one a line"
	}
	return ""
}

func reading(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("read the content: %w", err)
}

// cappedReader fails with ErrTooLarge where io.LimitReader would pretend the end.
type cappedReader struct {
	r           io.Reader
	left, limit int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left < 0 {
		return 0, fmt.Errorf("%w of %d bytes", ErrTooLarge, c.limit)
	}
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.left < 0 {
		return n - 1, fmt.Errorf("%w of %d bytes", ErrTooLarge, c.limit)
	}
	return n, err
}
