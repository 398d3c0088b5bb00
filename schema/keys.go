package schema

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The kinds of keys. They are hashed in, so they must never change.
const (
	kindTrace  = 't'
	kindRun    = 'r'
	kindThread = 'h'
	kindTask   = 'k'
	kindBucket = 'b'
	kindAlone  = 'a'
)

// RunKeys are the keys by which the traces of one run find each other: the
// explicit run id, the thread, and the task within its thread, each scoped by
// service and environment. The order has no meaning; a span without any of them
// has none.
func (s *Span) RunKeys() []uint64 {
	keys := make([]uint64, 0, 4)
	if s.RunID != "" {
		keys = append(keys, s.key(kindRun, s.RunID))
	}
	if s.ThreadID != "" {
		keys = append(keys, s.key(kindThread, s.ThreadID))
	}
	if s.joinsByTask() {
		keys = append(keys, s.key(kindTask, s.TaskKey))
	}
	if s.StandsAlone() {
		keys = append(keys, s.key(kindAlone, s.ThreadID))
	}
	return keys
}

// StandsAlone tells whether the span is a step or a call that is a trace's root and
// belongs to a thread: some instrumentations export every step as a trace of its own,
// without a pipeline's root.
func (s *Span) StandsAlone() bool {
	if !s.ParentID.IsZero() || s.ThreadID == "" || s.RunID != "" || s.GraphRoot {
		return false
	}
	return s.Role == RoleModel || s.Role == RoleTool || s.Step != "" || s.TaskKey != "" && s.Node != ""
}

// joinsByTask tells whether the span's task may lead to other traces of its run: those
// of its thread that execute the task again, or, without a thread, the trace in which
// another instrumentation shows it too. For those a graph's first step is enough.
func (s *Span) joinsByTask() bool {
	return s.TaskKey != "" && (s.ThreadID != "" || s.GraphStep == 0 || s.GraphStep == 1)
}

// JoinKeys are those of RunKeys that join traces: that of the explicit run id, that
// of the task within its thread, and that of a thread whose steps stand alone. 0
// stands for none. A task without a thread joins only views of one run: two runs of
// one input may have equal ones.
func (s *Span) JoinKeys() (run, task, alone uint64) {
	if s.RunID != "" {
		run = s.key(kindRun, s.RunID)
	}
	if s.joinsByTask() {
		task = s.key(kindTask, s.TaskKey)
	}
	if s.StandsAlone() {
		alone = s.key(kindAlone, s.ThreadID)
	}
	return run, task, alone
}

func (s *Span) key(kind byte, text string) uint64 {
	var d xxhash.Digest
	d.Reset()
	writeKeyPart(&d, string(rune(kind)))
	writeKeyPart(&d, s.Service)
	writeKeyPart(&d, s.Environment)
	if kind == kindTask {
		writeKeyPart(&d, s.ThreadID)
	}
	writeKeyPart(&d, text)
	return d.Sum64()
}

// traceKey is the key under which a trace is found by itself, and between which
// ends its spans lie.
func traceKey(id TraceID) uint64 { return idKey(kindTrace, id) }

// bucketKey is the key of a trace that has spans whose ends cannot be real.
// They would stretch the range of traceKey over the whole store.
func bucketKey(id TraceID) uint64 { return idKey(kindBucket, id) }

func idKey(kind byte, id TraceID) uint64 {
	var d xxhash.Digest
	d.Reset()
	writeKeyPart(&d, string(rune(kind)))
	writeKeyPart(&d, string(id[:]))
	return d.Sum64()
}

// writeKeyPart writes the length first, so that ("a","bc") is not ("ab","c").
func writeKeyPart(d *xxhash.Digest, part string) {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(part)))
	_, _ = d.Write(n[:])
	_, _ = d.WriteString(part)
}
