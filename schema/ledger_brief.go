package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A brief row holds what the signals of alerts look at. The store keeps it in one
// column: reading forty arrays costs more than anything else in a second's evaluation.
//
// Of the fields of LedgerRow a brief row gives the trace, the version and the last
// receipt; of runs service, environment, version, completion, anchor, exhausted and
// end; of operations run, step, provider, grain, outcome, end, whether a fallback ran,
// counts in step and settled; of attempts run, step, provider, grain, ending, charge
// (none of a repeat in a hidden layer), end, status, class of error, counted, wasted, request, midway and violated, and all
// tokens as input; of violations run, node, count and time. Ends and times are in whole
// seconds: bounded as BoundedEnd has it, and rounded up.

// briefLayout is the version of the layout that sql/0008_brief.sql and
// sql/0016_brief_hidden.sql write.
const briefLayout = 1

// briefReader reads brief rows, one after the other into the same memory.
type briefReader struct {
	row    LedgerRow
	words  [1024]string // that came before, each at its place: few make up most rows
	tokens []int64      // of the attempts

	rest   []byte // of the brief that is read
	broken bool   // it cannot be read
}

// briefColumns are the columns of brief rows.
var briefColumns = []column[briefReader]{
	id("trace_id", func(r *briefReader) []byte { return r.row.TraceID[:] }, func(r *briefReader) any { return &r.row.TraceID }),
	{read: "reinterpretAsFixedString(version)", dest: func(r *briefReader) any { return &r.row.Version }},
	{read: "last_received_ns", dest: func(r *briefReader) any { return &r.row.LastReceivedNs }},
	{read: "brief", dest: func(r *briefReader) any { return r }},
}

var errBrief = errors.New("it is cut short, or its arrays have different lengths")

// UnmarshalBinary reads a brief into the row.
func (r *briefReader) UnmarshalBinary(data []byte) error {
	r.rest, r.broken = data, false
	if layout := r.bytes(1)[0]; layout != briefLayout {
		return fmt.Errorf("a row of the ledger has a brief of layout %d, and this release reads %d: start the newer release", layout, briefLayout)
	}
	r.runs()
	r.operations()
	r.attempts()
	r.violations()
	if r.broken || len(r.rest) > 0 {
		return fmt.Errorf("read a brief of %d bytes: %w", len(data), errBrief)
	}
	return nil
}

func (r *briefReader) runs() {
	rows := sized(r, &r.row.Runs)
	array(r, rows, func(run *RunRow) { run.Service = r.word() })
	array(r, rows, func(run *RunRow) { run.Environment = r.word() })
	array(r, rows, func(run *RunRow) { run.Version = r.word() })
	array(r, rows, func(run *RunRow) { run.Completion = r.word() })
	array(r, rows, func(run *RunRow) { run.Anchor = r.bool() })
	array(r, rows, func(run *RunRow) { run.Exhausted = r.bool() })
	array(r, rows, func(run *RunRow) { run.EndNs = r.second() })
}

func (r *briefReader) operations() {
	rows := sized(r, &r.row.Operations)
	array(r, rows, func(o *OperationRow) { o.Run = r.uint32() })
	array(r, rows, func(o *OperationRow) { o.Step = r.word() })
	array(r, rows, func(o *OperationRow) { o.Grain = r.word() })
	array(r, rows, func(o *OperationRow) { o.Outcome = r.word() })
	array(r, rows, func(o *OperationRow) { o.Provider = r.word() })
	array(r, rows, func(o *OperationRow) { o.Fallbacks = int64(r.bytes(1)[0]) })
	array(r, rows, func(o *OperationRow) { o.CountsInStep = r.bool() })
	array(r, rows, func(o *OperationRow) { o.Settled = r.bool() })
	array(r, rows, func(o *OperationRow) { o.EndNs = r.second() })
}

func (r *briefReader) attempts() {
	rows := sized(r, &r.row.Attempts)
	if cap(r.tokens) < len(rows) {
		r.tokens = make([]int64, len(rows))
	}
	tokens := r.tokens[:len(rows)]
	array(r, rows, func(a *AttemptRow) { a.Run = r.uint32() })
	array(r, rows, func(a *AttemptRow) { a.Step = r.word() })
	array(r, rows, func(a *AttemptRow) { a.Grain = r.word() })
	array(r, rows, func(a *AttemptRow) { a.Ending = r.word() })
	array(r, rows, func(a *AttemptRow) { a.Charge = r.word() })
	array(r, rows, func(a *AttemptRow) { a.Provider = r.word() })
	array(r, rows, func(a *AttemptRow) { a.ErrorClass = r.word() })
	array(r, rows, func(a *AttemptRow) { a.HTTPStatus = int64(binary.LittleEndian.Uint16(r.bytes(2))) })
	array(r, tokens, func(n *int64) { *n = r.int64() })
	for i, n := range tokens {
		rows[i].InputTokens = nil
		if n > 0 {
			rows[i].InputTokens = &tokens[i]
		}
	}
	array(r, rows, func(a *AttemptRow) { a.Counted = r.bool() })
	array(r, rows, func(a *AttemptRow) { a.Wasted = r.bool() })
	array(r, rows, func(a *AttemptRow) { a.Request = r.bool() })
	array(r, rows, func(a *AttemptRow) { a.Midway = r.bool() })
	array(r, rows, func(a *AttemptRow) { a.Violated = r.bool() })
	array(r, rows, func(a *AttemptRow) { a.EndNs = r.second() })
}

func (r *briefReader) violations() {
	rows := sized(r, &r.row.Violations)
	array(r, rows, func(v *ViolationRow) { v.Run = r.int64() })
	array(r, rows, func(v *ViolationRow) { v.Node = r.word() })
	array(r, rows, func(v *ViolationRow) { v.Count = r.int64() })
	array(r, rows, func(v *ViolationRow) { v.TimeNs = r.second() })
}

// sized makes as many elements as the next array has.
func sized[E any](r *briefReader, elements *[]E) []E {
	n, _ := binary.Uvarint(r.rest)
	n = min(n, uint64(len(r.rest))) // each takes a byte at least
	if uint64(cap(*elements)) < n {
		*elements = make([]E, n)
	}
	*elements = (*elements)[:n]
	return *elements
}

// array reads an array, an element at a time.
func array[E any](r *briefReader, elements []E, read func(*E)) {
	if r.length() != len(elements) {
		r.broken = true
	}
	for i := 0; i < len(elements) && !r.broken; i++ {
		read(&elements[i])
	}
}

// length is that of an array or a text.
func (r *briefReader) length() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)-size) {
		r.broken = true
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// bytes are the next n, zeros where there are fewer.
func (r *briefReader) bytes(n int) []byte {
	if len(r.rest) < n {
		r.broken, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *briefReader) bool() bool     { return r.bytes(1)[0] != 0 }
func (r *briefReader) uint32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }
func (r *briefReader) int64() int64   { return int64(binary.LittleEndian.Uint64(r.bytes(8))) }

// second is a time in whole seconds, as nanoseconds.
func (r *briefReader) second() int64 { return int64(r.uint32()) * secondNs }

func (r *briefReader) word() string {
	text := r.bytes(r.length())
	if len(text) == 0 {
		return ""
	}
	n := len(text)
	known := &r.words[(n*37+int(text[0])*7+int(text[n/2])*3+int(text[n-1]))%len(r.words)]
	if *known != string(text) {
		*known = string(text)
	}
	return *known
}
