package admission

import "math"

// kind is a message of OTLP's protobuf for traces, as its decoder makes one.
type kind uint8

const (
	none kind = iota // a field without messages in it
	request
	resourceSpans
	resource
	entityRef
	scopeSpans
	scope
	span
	event
	link
	spanStatus
	keyValue
	anyValue
	arrayValue
	keyValueList
	kinds
)

// The wire types of protobuf.
const (
	wireVarint     = 0
	wireI64        = 1
	wireLen        = 2
	wireStartGroup = 3
	wireEndGroup   = 4
	wireI32        = 5
)

// field is what pdata's decoder does with a field of a message.
type field struct {
	known bool
	wire  uint8 // what it must be on the wire
	child kind  // the message in it
	takes uint8 // bytes of memory each time that it comes, without its content
}

// scopeSpansOld is the number of a field that resourceSpans had in early OTLP, and that
// pdata still reads as scopeSpans.
const scopeSpansOld, scopeSpansNow = 1000, 2

// fields has each field that pdata reads, by message and number. What one takes is the size
// of its struct in Go, rounded up as the allocator does, with a pointer in an array that
// has up to twice the room; or twice the size, where the structs lie in the array. Unknown
// fields are read over.
// Source: opentelemetry-proto v1 (trace.proto, resource.proto, common.proto), and the
// structs of pdata v1.67; FuzzNothingDecodesToMoreThanWasEstimated measures them.
var fields = [kinds][17]field{
	request: {1: {true, wireLen, resourceSpans, 144}},
	resourceSpans: {
		1:             {true, wireLen, resource, 0},
		scopeSpansNow: {true, wireLen, scopeSpans, 128},
		3:             {true, wireLen, none, 0},
	},
	resource: {
		1: {true, wireLen, keyValue, 80},
		2: {true, wireVarint, none, 0},
		3: {true, wireLen, entityRef, 96},
	},
	entityRef: {
		1: {true, wireLen, none, 0},
		2: {true, wireLen, none, 0},
		3: {true, wireLen, none, 32},
		4: {true, wireLen, none, 32},
	},
	scopeSpans: {
		1: {true, wireLen, scope, 0},
		2: {true, wireLen, span, 240},
		3: {true, wireLen, none, 0},
	},
	scope: {
		1: {true, wireLen, none, 0},
		2: {true, wireLen, none, 0},
		3: {true, wireLen, keyValue, 80},
		4: {true, wireVarint, none, 0},
	},
	span: {
		1:  {true, wireLen, none, 0},
		2:  {true, wireLen, none, 0},
		3:  {true, wireLen, none, 0},
		4:  {true, wireLen, none, 0},
		5:  {true, wireLen, none, 0},
		6:  {true, wireVarint, none, 0},
		7:  {true, wireI64, none, 0},
		8:  {true, wireI64, none, 0},
		9:  {true, wireLen, keyValue, 80},
		10: {true, wireVarint, none, 0},
		11: {true, wireLen, event, 80},
		12: {true, wireVarint, none, 0},
		13: {true, wireLen, link, 96},
		14: {true, wireVarint, none, 0},
		15: {true, wireLen, spanStatus, 0},
		16: {true, wireI32, none, 0},
	},
	event: {
		1: {true, wireI64, none, 0},
		2: {true, wireLen, none, 0},
		3: {true, wireLen, keyValue, 80},
		4: {true, wireVarint, none, 0},
	},
	link: {
		1: {true, wireLen, none, 0},
		2: {true, wireLen, none, 0},
		3: {true, wireLen, none, 0},
		4: {true, wireLen, keyValue, 80},
		5: {true, wireVarint, none, 0},
		6: {true, wireI32, none, 0},
	},
	spanStatus: {
		2: {true, wireLen, none, 0},
		3: {true, wireVarint, none, 0},
	},
	keyValue: {
		1: {true, wireLen, none, 0},
		2: {true, wireLen, anyValue, 0},
		3: {true, wireVarint, none, 0},
	},
	anyValue: {
		1: {true, wireLen, none, 16},
		2: {true, wireVarint, none, 8},
		3: {true, wireVarint, none, 8},
		4: {true, wireI64, none, 8},
		5: {true, wireLen, arrayValue, 32},
		6: {true, wireLen, keyValueList, 32},
		7: {true, wireLen, none, 24},
		8: {true, wireVarint, none, 8},
	},
	arrayValue:   {1: {true, wireLen, anyValue, 32}},
	keyValueList: {1: {true, wireLen, keyValue, 80}},
}

const (
	// widest is what the largest part of a message takes, whose tag and length are two
	// bytes on the wire.
	widest = 240
	// worst is what a byte on the wire takes at most that is within a span, a scope or a
	// resource: half of a link.
	worst = 48
	// levelSize is how many bytes an array or list takes at least on the wire, in which
	// another one is.
	levelSize = 4
)

// deepest is how deep arrays and lists of an attribute's value may lie in each other. pdata
// decodes them by recursion, as everything does that reads them after it, and a Go program
// whose stack passes 1 GB ends. Values that mean something lie less than ten deep.
const deepest = 1000

// estimate is what decoding a message takes, as far as it was walked.
type estimate struct {
	most   int64        // bytes that it may take
	at     int64        // bytes walked; its texts are not more
	counts [kinds]int64 // the messages in it
	takes  int64        // bytes that they take, without the texts
	nested int          // arrays and lists around the next field

	refused reason
}

// size is what decoding takes, in bytes, as far as it was walked.
func (e *estimate) size() int64 { return e.takes + e.at }

// walk estimates what decoding a message takes, from the bytes on the wire as they come
// and before pdata sees them: it follows the fields as pdata does, and counts the messages
// that pdata would make. Where the bytes are no OTLP it stops, as pdata does.
//
// It costs a fifth of decoding, or a hundredth while it may be coarse: most messages could
// not take too much even if each of their small parts were as bad as can be.
type walk struct {
	estimate
	coarse int64   // what the message may take until its small parts are looked into
	open   []level // the messages around the next field, outermost first
	groups int     // groups of an unknown field around it
	skip   int64   // bytes of a field that are still to come
	held   [20]byte
	holds  int  // bytes of held: the beginning of a tag and length that are not whole
	broken bool // no OTLP from here on
}

// level is a message that has not ended.
type level struct {
	kind kind
	end  int64 // in bytes of the whole
}

func newWalk(most, coarse int64) *walk {
	return &walk{estimate: estimate{most: most}, coarse: coarse, open: append(make([]level, 0, 16), level{request, math.MaxInt64})}
}

// feed walks the next bytes of a message. It says why the message must not be decoded, or
// admitted.
func (w *walk) feed(p []byte) reason {
	w.follow(p)
	if w.refused == admitted && w.size() > w.most {
		w.refused = decodesTooLarge
	}
	return w.refused
}

func (w *walk) follow(p []byte) {
	for len(p) > 0 && !w.broken && w.refused == admitted {
		if w.skip > 0 {
			n := min(w.skip, int64(len(p)))
			w.skip, w.at, p = w.skip-n, w.at+n, p[n:]
			continue
		}
		if w.holds == 0 {
			if used := w.fields(p); used < len(p) {
				w.holds = copy(w.held[:], p[used:])
			}
			return
		}
		n := copy(w.held[w.holds:], p)
		used := w.fields(w.held[:w.holds+n])
		if used == 0 {
			w.holds += n
			return
		}
		p, w.holds = p[used-w.holds:], 0
	}
}

// fields walks the fields of p until its end, or until a tag and length are not whole, and
// returns how many bytes it walked.
func (w *walk) fields(p []byte) int {
	base, i := w.at, 0
	top := &w.open[len(w.open)-1]
	for {
		for base+int64(i) >= top.end {
			if w.groups > 0 { // a group must end in its message
				w.broken = true
				break
			}
			top = w.leave()
		}
		if i >= len(p) || w.broken || w.refused != admitted {
			break
		}
		// The tag, and the number or length after it.
		tag, n := varint(p[i:])
		if n <= 0 {
			w.broken = n < 0
			break
		}
		wire, number := uint8(tag&7), int32(tag>>3) // cut as pdata cuts it
		var value uint64
		if wire == wireVarint || wire == wireLen {
			var m int
			if value, m = varint(p[i+n:]); m <= 0 {
				w.broken = m < 0
				break
			}
			n += m
		}
		end := base + int64(i+n)
		size := int64(value)
		switch wire {
		case wireVarint:
			size = 0
		case wireI64:
			size = 8
		case wireI32:
			size = 4
		case wireLen:
		case wireStartGroup, wireEndGroup:
			size = 0
		default:
			w.broken = true
		}
		if number <= 0 || size < 0 || end+size < 0 || end+size > top.end {
			w.broken = true
		}
		if w.broken {
			break
		}
		i += n

		var f field
		switch {
		case w.groups > 0:
		case number < int32(len(fields[none])):
			f = fields[top.kind][number]
		case number == scopeSpansOld && top.kind == resourceSpans:
			f = fields[resourceSpans][scopeSpansNow]
		}
		switch {
		case f.known && f.wire != wire:
			w.broken = true
		case f.known:
			w.takes += int64(f.takes)
			if w.takes+end > w.most {
				w.refused = decodesTooLarge
			}
			if f.child == none {
				break
			}
			w.counts[f.child]++
			if f.child > scopeSpans && size <= int64(deepest-w.nested)*levelSize && w.takes+end+size*worst <= w.coarse {
				w.takes += size * worst
				break
			}
			if f.child == keyValue && size <= int64(len(p)-i) {
				if takes, ok := plainAttribute(p[i : i+int(size)]); ok {
					w.counts[anyValue]++
					w.takes += takes
					break
				}
			}
			top = w.enter(f.child, end+size)
			continue // its fields are the next ones
		case wire == wireStartGroup:
			w.groups++
		case wire == wireEndGroup:
			w.broken = w.groups == 0
			w.groups--
		default:
			w.groups = 0 // pdata ends its reading of a group at the first field in it
		}
		if rest := size - int64(len(p)-i); rest > 0 {
			w.skip = rest
			i = len(p)
		} else {
			i += int(size)
		}
	}
	w.at = base + int64(i)
	return i
}

func (w *walk) enter(k kind, end int64) *level {
	w.open = append(w.open, level{k, end})
	if k == arrayValue || k == keyValueList {
		w.nested++
		if w.nested > deepest {
			w.refused = nestedTooDeep
		}
	}
	return &w.open[len(w.open)-1]
}

func (w *walk) leave() *level {
	if k := w.open[len(w.open)-1].kind; k == arrayValue || k == keyValueList {
		w.nested--
	}
	w.open = w.open[:len(w.open)-1]
	return &w.open[len(w.open)-1]
}

// plainAttribute is the short way through an attribute as SDKs write it: a key, then a text, a
// number or a truth. It returns what its value takes, and false for any other attribute.
func plainAttribute(p []byte) (takes int64, ok bool) {
	// The key, and the tag of the value.
	if len(p) < 2 || p[0] != 1<<3|wireLen || p[1] >= 0x80 {
		return 0, false
	}
	i := 2 + int(p[1])
	if i+3 > len(p) || p[i] != 2<<3|wireLen {
		return 0, false
	}
	size, n := varint(p[i+1:])
	i += 1 + n
	if n <= 0 || size != uint64(len(p)-i) || size < 2 {
		return 0, false
	}
	switch p[i] {
	case 1<<3 | wireLen:
		size, n := varint(p[i+1:])
		return 16, n > 0 && size == uint64(len(p)-i-1-n)
	case 2<<3 | wireVarint, 3<<3 | wireVarint:
		_, n := varint(p[i+1:])
		return 8, n == len(p)-i-1
	case 4<<3 | wireI64:
		return 8, len(p)-i == 9
	}
	return 0, false
}

// varint reads a number as protobuf writes it. It returns 0 bytes where it is not whole,
// and -1 where it is none.
func varint(p []byte) (value uint64, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		return uint64(p[0]), 1
	}
	for shift := uint(0); shift < 64; shift += 7 {
		if n >= len(p) {
			return 0, 0
		}
		b := p[n]
		n++
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, n
		}
	}
	return 0, -1
}
