package admission

import (
	"bytes"
	"strings"

	jsoniter "github.com/json-iterator/go"
)

// jsonWalk estimates for OTLP's JSON what walk estimates for protobuf. It reads a message
// by the calls that pdata reads it by, so that both see the same fields, also where jsoniter
// takes what is no JSON: [},}] is two empty objects.
type jsonWalk struct {
	estimate
	p  []byte
	it *jsoniter.Iterator
}

// atMostJSON is what no message of these bytes takes more than, OTLP or not: each part of
// an array comes after a comma or the array's beginning, and takes widest at most; all else
// is texts and names, and takes twice its size at most.
func atMostJSON(p []byte) int64 {
	parts := bytes.Count(p, []byte(",")) + bytes.Count(p, []byte("["))
	return int64(parts)*widest + 2*int64(len(p))
}

func newWalkJSON(p []byte, most int64) *jsonWalk {
	return &jsonWalk{estimate: estimate{most: most, at: int64(len(p))}, p: p}
}

// walk walks the message until it is refused, and returns what makes it no OTLP.
func (w *jsonWalk) walk() error {
	w.it = jsoniter.ConfigFastest.BorrowIterator(w.p)
	defer jsoniter.ConfigFastest.ReturnIterator(w.it)
	w.object(request)
	if w.refused == admitted && w.it.Error == nil && w.size() > w.most {
		w.refused = decodesTooLarge
	}
	if w.refused != admitted {
		return nil
	}
	return w.it.Error
}

// mayNest is how deep values can lie in each other at most: each array or list is named
// arrayValue or kvlistValue, or array_value or kvlist_value, or so with a letter escaped.
func mayNest(p []byte) int {
	n := 0
	for _, part := range []string{"rray", "vlist", `\u00`} {
		n += bytes.Count(p, []byte(part))
	}
	return n
}

// shape is what a field of OTLP's JSON is.
type shape uint8

const (
	text     shape = iota
	texts          // an array of them
	hex            // an id, or bytes
	truth          // true or false
	enum           // its name or number
	number32       // numbers, or texts of them
	number64
	signed32
	signed64
	float
	one  // a message
	many // an array of them
)

type jsonField struct {
	number uint8 // in fields
	shape  shape
}

// jsonFields has each field that pdata reads, by message and name.
var jsonFields = func() (both [kinds]map[string]jsonField) {
	for k, names := range [kinds]map[string]jsonField{
		request:       {"resourceSpans": {1, many}},
		resourceSpans: {"resource": {1, one}, "scopeSpans": {2, many}, "deprecatedScopeSpans": {2, many}, "schemaUrl": {3, text}},
		resource:      {"attributes": {1, many}, "droppedAttributesCount": {2, number32}, "entityRefs": {3, many}},
		entityRef:     {"schemaUrl": {1, text}, "type": {2, text}, "idKeys": {3, texts}, "descriptionKeys": {4, texts}},
		scopeSpans:    {"scope": {1, one}, "spans": {2, many}, "schemaUrl": {3, text}},
		scope:         {"name": {1, text}, "version": {2, text}, "attributes": {3, many}, "droppedAttributesCount": {4, number32}},
		span: {
			"traceId": {1, hex}, "spanId": {2, hex}, "traceState": {3, text}, "parentSpanId": {4, hex}, "flags": {16, number32},
			"name": {5, text}, "kind": {6, enum}, "startTimeUnixNano": {7, number64}, "endTimeUnixNano": {8, number64},
			"attributes": {9, many}, "droppedAttributesCount": {10, number32}, "events": {11, many}, "droppedEventsCount": {12, number32},
			"links": {13, many}, "droppedLinksCount": {14, number32}, "status": {15, one},
		},
		event: {"timeUnixNano": {1, number64}, "name": {2, text}, "attributes": {3, many}, "droppedAttributesCount": {4, number32}},
		link: {
			"traceId": {1, hex}, "spanId": {2, hex}, "traceState": {3, text}, "attributes": {4, many},
			"droppedAttributesCount": {5, number32}, "flags": {6, number32},
		},
		spanStatus: {"message": {2, text}, "code": {3, enum}},
		keyValue:   {"key": {1, text}, "value": {2, one}, "keyStrindex": {3, signed32}},
		anyValue: {
			"stringValue": {1, text}, "boolValue": {2, truth}, "intValue": {3, signed64}, "doubleValue": {4, float},
			"arrayValue": {5, one}, "kvlistValue": {6, one}, "bytesValue": {7, hex}, "stringValueStrindex": {8, signed32},
		},
		arrayValue:   {"values": {1, many}},
		keyValueList: {"values": {1, many}},
	} {
		both[k] = make(map[string]jsonField)
		for name, f := range names {
			both[k][name], both[k][snake(name)] = f, f
		}
	}
	return both
}()

// snake is the name of a field as protobuf spells it.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (w *jsonWalk) goesOn() bool { return w.it.Error == nil && w.refused == admitted }

// object walks a message.
func (w *jsonWalk) object(k kind) {
	for name := w.it.ReadObject(); name != "" && w.goesOn(); name = w.it.ReadObject() {
		f, known := jsonFields[k][name]
		if !known {
			w.it.Skip()
			continue
		}
		switch about := fields[k][f.number]; f.shape {
		case many:
			for w.goesOn() && w.it.ReadArray() {
				w.part(about)
				w.message(about.child)
			}
		case one:
			w.part(about)
			w.message(about.child)
		case texts:
			for w.goesOn() && w.it.ReadArray() {
				w.part(about)
				w.it.ReadString()
			}
		default:
			w.part(about)
			w.read(f.shape)
		}
	}
}

// part counts a part of a message.
func (w *jsonWalk) part(about field) {
	w.counts[about.child]++
	w.takes += int64(about.takes)
	if w.takes+w.at > w.most {
		w.refused = decodesTooLarge
	}
}

func (w *jsonWalk) message(k kind) {
	if !w.goesOn() {
		return
	}
	if k == arrayValue || k == keyValueList {
		w.nested++
		if w.nested > deepest {
			w.refused = nestedTooDeep
			return
		}
		defer func() { w.nested-- }()
	}
	w.object(k)
}

// read reads a text or a number as pdata does, and no further than it.
func (w *jsonWalk) read(s shape) {
	switch s {
	case text:
		w.it.ReadString()
		return
	case hex:
		w.it.ReadStringAsSlice()
		return
	case truth:
		w.it.ReadBool()
		return
	}
	switch next := w.it.WhatIsNext(); {
	case next == jsoniter.StringValue:
		w.it.ReadString()
	case next != jsoniter.NumberValue:
		w.it.ReportError("read", "neither a number nor a text")
	case s == number32:
		w.it.ReadUint32()
	case s == number64:
		w.it.ReadUint64()
	case s == signed64:
		w.it.ReadInt64()
	case s == float:
		w.it.ReadFloat64()
	default:
		w.it.ReadInt32()
	}
}
