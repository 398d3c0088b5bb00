package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unique"
)

// briefLayout is the version of the layout that sql/0008_brief.sql and
// sql/0016_brief_hidden.sql write.
const briefLayout = 1

// briefReader reads brief rows, one after the other into the same memory.
type briefReader struct {
	brief Brief
	known [1024]knownWord // words that came before, each at its place: few make up most rows

	rest   []byte // of the brief that is read
	broken bool   // it cannot be read
}

type knownWord struct {
	text string
	word Word
}

// briefColumns are the columns of brief rows.
var briefColumns = []column[briefReader]{
	id("trace_id", func(r *briefReader) []byte { return r.brief.TraceID[:] }, func(r *briefReader) any { return &r.brief.TraceID }),
	{read: "reinterpretAsFixedString(version)", dest: func(r *briefReader) any { return &r.brief.Version }},
	{read: "brief", dest: func(r *briefReader) any { return r }},
}

var errBrief = errors.New("it is cut short, or its arrays have different lengths")

// emptyWord is the word that most arrays hold most often.
var emptyWord = unique.Make("")

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
	rows := sized(r, &r.brief.Runs)
	for i := range r.words(len(rows)) {
		rows[i].Service = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Environment = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Version = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Completion = r.word()
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Anchor = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Exhausted = b != 0
	}
	for i, ends := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].EndNs = secondAt(ends, i)
	}
}

func (r *briefReader) operations() {
	rows := sized(r, &r.brief.Operations)
	for i, runs := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].Run = binary.LittleEndian.Uint32(runs[4*i:])
	}
	for i := range r.words(len(rows)) {
		rows[i].Step = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Grain = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Outcome = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Provider = r.word()
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].FellBack = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].CountsInStep = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Settled = b != 0
	}
	for i, ends := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].EndNs = secondAt(ends, i)
	}
}

func (r *briefReader) attempts() {
	rows := sized(r, &r.brief.Attempts)
	for i, runs := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].Run = binary.LittleEndian.Uint32(runs[4*i:])
	}
	for i := range r.words(len(rows)) {
		rows[i].Step = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Grain = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Ending = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Charge = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].Provider = r.word()
	}
	for i := range r.words(len(rows)) {
		rows[i].ErrorClass = r.word()
	}
	for i, statuses := 0, r.fixed(len(rows), 2); i < len(rows); i++ {
		rows[i].HTTPStatus = int64(binary.LittleEndian.Uint16(statuses[2*i:]))
	}
	for i, tokens := 0, r.fixed(len(rows), 8); i < len(rows); i++ {
		rows[i].Tokens = int64(binary.LittleEndian.Uint64(tokens[8*i:]))
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Counted = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Wasted = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Request = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Midway = b != 0
	}
	for i, b := range r.fixed(len(rows), 1) {
		rows[i].Violated = b != 0
	}
	for i, ends := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].EndNs = secondAt(ends, i)
	}
}

func (r *briefReader) violations() {
	rows := sized(r, &r.brief.Violations)
	for i, runs := 0, r.fixed(len(rows), 8); i < len(rows); i++ {
		rows[i].Run = int64(binary.LittleEndian.Uint64(runs[8*i:]))
	}
	for i := range r.words(len(rows)) {
		rows[i].Node = r.word()
	}
	for i, counts := 0, r.fixed(len(rows), 8); i < len(rows); i++ {
		rows[i].Count = int64(binary.LittleEndian.Uint64(counts[8*i:]))
	}
	for i, times := 0, r.fixed(len(rows), 4); i < len(rows); i++ {
		rows[i].TimeNs = secondAt(times, i)
	}
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

// words begins an array of n words, and returns how many to read.
func (r *briefReader) words(n int) int {
	if r.length() != n {
		r.broken = true
	}
	if r.broken {
		return 0
	}
	return n
}

// fixed are the bytes of an array of n elements of a width, zeros where it is broken.
func (r *briefReader) fixed(n, width int) []byte {
	if r.length() != n {
		r.broken = true
	}
	return r.bytes(n * width)
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

// secondAt is a time in whole seconds, as nanoseconds.
func secondAt(seconds []byte, i int) int64 {
	return int64(binary.LittleEndian.Uint32(seconds[4*i:])) * secondNs
}

func (r *briefReader) word() Word {
	var text []byte
	if len(r.rest) > 0 && r.rest[0] < 0x80 && int(r.rest[0]) < len(r.rest) { // the length of most
		text, r.rest = r.rest[1:1+r.rest[0]], r.rest[1+r.rest[0]:]
	} else {
		text = r.bytes(r.length())
	}
	n := len(text)
	if n == 0 {
		return emptyWord
	}
	known := &r.known[(n*37+int(text[0])*7+int(text[n/2])*3+int(text[n-1]))%len(r.known)]
	if known.text != string(text) {
		known.word = unique.Make(string(text))
		known.text = known.word.Value()
	}
	return known.word
}
