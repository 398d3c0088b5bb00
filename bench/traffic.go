//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
)

// batchSpans is how many spans an SDK's batch processor sends in one message.
const batchSpans = 512

// traffic is a file of OTLP requests, each behind its length, and what is in it.
type traffic struct {
	path     string
	spans    int
	requests int
	bytes    int64
}

func (t *traffic) String() string {
	return fmt.Sprintf("%d spans in %d messages, %d bytes a span", t.spans, t.requests, t.bytes/int64(t.spans))
}

var requestFile = regexp.MustCompile(`^\d+\.(pb|json)(\.gz)?$`)

// errNoCaptures is returned where there is nothing to multiply.
var errNoCaptures = errors.New("no captures")

// readCaptures reads every recorded execution below folder, one list of requests each.
func readCaptures(folder string) ([][]ptrace.Traces, error) {
	folders, err := filepath.Glob(filepath.Join(folder, "*", "*"))
	if err != nil {
		return nil, fmt.Errorf("list the captures: %w", err)
	}
	var captures [][]ptrace.Traces
	for _, capture := range folders {
		entries, err := os.ReadDir(capture)
		if err != nil {
			continue // a file
		}
		var requests []ptrace.Traces
		for _, entry := range entries {
			if !requestFile.MatchString(entry.Name()) {
				continue
			}
			if err := readRequests(filepath.Join(capture, entry.Name()), &requests); err != nil {
				return nil, err
			}
		}
		if len(requests) > 0 {
			captures = append(captures, requests)
		}
	}
	if len(captures) == 0 {
		return nil, fmt.Errorf("read %s: %w: run the benchmark in the project's folder", folder, errNoCaptures)
	}
	return captures, nil
}

func readRequests(path string, into *[]ptrace.Traces) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a capture: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := otlpfile.Read(f, 0, func(td ptrace.Traces) error {
		*into = append(*into, td)
		return nil
	}); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// multiply writes requests of at least spans spans: all captures again and again, each
// time with ids of their own, prompts lengthened to promptBytes, and cut as an SDK's batch
// processor cuts them. No span comes twice. What it writes depends on seed and end alone.
func multiply(captures [][]ptrace.Traces, path string, spans, promptBytes int, seed uint64, end time.Time) (*traffic, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write the traffic: %w", err)
	}
	w := &requestWriter{out: bufio.NewWriterSize(f, 1<<20), traffic: traffic{path: path}}
	r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // to be drawn again, not to be secret
	for w.traffic.spans < spans {
		for _, i := range r.Perm(len(captures)) {
			var id [16]byte
			binary.BigEndian.PutUint64(id[:8], seed)
			binary.BigEndian.PutUint64(id[8:], r.Uint64())
			copies := make([]ptrace.Traces, len(captures[i]))
			for k, td := range captures[i] {
				copies[k] = ptrace.NewTraces()
				td.CopyTo(copies[k])
			}
			replay.Rewrite(copies, replay.NewIdentities(id), end.Add(-time.Duration(r.IntN(30_000))*time.Millisecond), "")
			if err := w.add(distinct(copies), promptBytes, r); err != nil {
				return nil, errors.Join(fmt.Errorf("write the traffic: %w", err), f.Close())
			}
			if w.traffic.spans >= spans {
				break
			}
		}
	}
	if err := errors.Join(w.flush(), w.out.Flush(), f.Close()); err != nil {
		return nil, fmt.Errorf("write the traffic: %w", err)
	}
	return &w.traffic, nil
}

// distinct leaves each span of the requests once: a span that a capture sent twice would
// be one row on one side and two on the other.
func distinct(requests []ptrace.Traces) []ptrace.Traces {
	type key struct {
		trace pcommon.TraceID
		span  pcommon.SpanID
	}
	seen := map[key]bool{}
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				ss.Spans().RemoveIf(func(s ptrace.Span) bool {
					k := key{s.TraceID(), s.SpanID()}
					again := seen[k]
					seen[k] = true
					return again
				})
			}
		}
	}
	return requests
}

// requestWriter gathers spans into messages.
type requestWriter struct {
	out     *bufio.Writer
	pending ptrace.Traces
	waiting int
	traffic traffic
}

func (w *requestWriter) add(requests []ptrace.Traces, promptBytes int, r *rand.Rand) error {
	for _, td := range requests {
		lengthenPrompts(td, promptBytes, r)
		n := td.SpanCount()
		w.traffic.spans += n
		if w.waiting == 0 {
			w.pending = ptrace.NewTraces()
		}
		td.ResourceSpans().MoveAndAppendTo(w.pending.ResourceSpans())
		if w.waiting += n; w.waiting >= batchSpans {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *requestWriter) flush() error {
	if w.waiting == 0 {
		return nil
	}
	w.waiting = 0
	body, err := ptraceotlp.NewExportRequestFromTraces(w.pending).MarshalProto()
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	w.traffic.requests++
	w.traffic.bytes += int64(len(body))
	if err := binary.Write(w.out, binary.BigEndian, uint32(len(body))); err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	if _, err := w.out.Write(body); err != nil {
		return fmt.Errorf("write a request: %w", err)
	}
	return nil
}

// content are parts of the keys under which instrumentations keep prompts and answers.
var content = []string{"input", "output", "prompt", "completion", "message", "content"}

// words make texts that compress as prose does.
var words = strings.Fields(`the a of and to in is that for on with as was by an be this which or from at are it you
	please answer question customer order invoice refund policy document section context according provide result
	summary following step tool call response value error retry model user system assistant instruction example`)

// lengthenPrompts makes prompts and answers as long as they are in production: the
// recorded applications said a sentence or two.
func lengthenPrompts(td ptrace.Traces, length int, r *rand.Rand) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				for key, value := range span.Attributes().All() {
					if value.Type() != pcommon.ValueTypeStr || len(value.Str()) < 24 || len(value.Str()) >= length {
						continue
					}
					if !slices.ContainsFunc(content, func(part string) bool { return strings.Contains(key, part) }) {
						continue
					}
					value.SetStr(prose(value.Str(), length, r))
				}
			}
		}
	}
}

// prose puts words where they leave a text what it is: behind it, or into the last string of
// JSON.
func prose(text string, length int, r *rand.Rand) string {
	var b strings.Builder
	end := strings.LastIndexByte(text, '"')
	if text[0] != '{' && text[0] != '[' || end < 0 {
		end = len(text)
	}
	b.WriteString(text[:end])
	for b.Len() < length {
		b.WriteByte(' ')
		b.WriteString(words[r.IntN(len(words))])
	}
	b.WriteString(text[end:])
	return b.String()
}

// requests reads a file of requests one by one; io.EOF ends it.
type requests struct {
	f  *os.File
	in *bufio.Reader
}

func (t *traffic) open() (*requests, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, fmt.Errorf("read the traffic: %w", err)
	}
	return &requests{f: f, in: bufio.NewReaderSize(f, 1<<20)}, nil
}

func (r *requests) next() ([]byte, error) {
	var size uint32
	if err := binary.Read(r.in, binary.BigEndian, &size); err != nil {
		return nil, err //nolint:wrapcheck // io.EOF is the end
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r.in, body); err != nil {
		return nil, fmt.Errorf("read the traffic: %w", err)
	}
	return body, nil
}
