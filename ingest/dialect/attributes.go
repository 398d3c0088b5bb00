package dialect

import (
	"math"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/gjson"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// attributes reads attributes tolerantly: real instrumentations write numbers as
// strings, lists as JSON or as joined text, and booleans as words.
type attributes struct{ m pcommon.Map }

func (a attributes) has(key string) bool {
	_, ok := a.m.Get(key)
	return ok
}

// text is the first of keys that is set to a non-empty scalar.
func (a attributes) text(keys ...string) string {
	for _, key := range keys {
		v, ok := a.m.Get(key)
		if !ok {
			continue
		}
		switch v.Type() {
		case pcommon.ValueTypeStr:
			if s := v.Str(); s != "" {
				return s
			}
		case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeBool:
			return v.AsString()
		default: // maps, lists and bytes name nothing
		}
	}
	return ""
}

// hash identifies the value of the first of keys that is set, whatever its type; 0 if
// none is.
func (a attributes) hash(keys ...string) uint64 {
	for _, key := range keys {
		if v, ok := a.m.Get(key); ok {
			if text := v.AsString(); text != "" {
				return xxhash.Sum64String(text) | 1
			}
		}
	}
	return 0
}

// integer is the first of keys that holds a whole number, as an int, a double or a text.
func (a attributes) integer(keys ...string) (int64, bool) {
	for _, key := range keys {
		v, ok := a.m.Get(key)
		if !ok {
			continue
		}
		switch v.Type() {
		case pcommon.ValueTypeInt:
			return v.Int(), true
		case pcommon.ValueTypeDouble:
			if n, ok := whole(v.Double()); ok {
				return n, true
			}
		case pcommon.ValueTypeStr:
			if n, ok := wholeText(v.Str()); ok {
				return n, true
			}
		default: // no number
		}
	}
	return 0, false
}

// count is integer bounded to what a counter column holds; negatives are no counts.
func (a attributes) count(keys ...string) (int32, bool) {
	n, ok := a.integer(keys...)
	if !ok || n < 0 {
		return 0, false
	}
	return int32(min(n, math.MaxInt32)), true
}

func whole(f float64) (int64, bool) {
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 { // NaN fails the first test
		return 0, false
	}
	return int64(f), true
}

func wholeText(s string) (int64, bool) {
	s = strings.Trim(strings.TrimSpace(s), `"`)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return whole(f)
	}
	return 0, false
}

// number is the first of keys that holds a finite number.
func (a attributes) number(keys ...string) (float64, bool) {
	for _, key := range keys {
		v, ok := a.m.Get(key)
		if !ok {
			continue
		}
		f := math.NaN()
		switch v.Type() {
		case pcommon.ValueTypeInt:
			f = float64(v.Int())
		case pcommon.ValueTypeDouble:
			f = v.Double()
		case pcommon.ValueTypeStr:
			if parsed, err := strconv.ParseFloat(strings.TrimSpace(v.Str()), 64); err == nil {
				f = parsed
			}
		default: // no number
		}
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, true
		}
	}
	return 0, false
}

// boolean reads a bool, 0 or 1, or the words true, false, yes, no.
func (a attributes) boolean(key string) (value, ok bool) {
	v, ok := a.m.Get(key)
	if !ok {
		return false, false
	}
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return v.Bool(), true
	case pcommon.ValueTypeInt:
		return v.Int() != 0, v.Int() == 0 || v.Int() == 1
	case pcommon.ValueTypeStr:
		switch strings.ToLower(strings.TrimSpace(v.Str())) {
		case "true", "yes", "1":
			return true, true
		case "false", "no", "0":
			return false, true
		}
	default: // no truth value
	}
	return false, false
}

// list reads a list of texts in any of the forms in use: an array, an array as JSON
// text, a joined text, or a single text.
func (a attributes) list(key string) []string {
	v, ok := a.m.Get(key)
	if !ok {
		return nil
	}
	return listOf(v)
}

func listOf(v pcommon.Value) []string {
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		var out []string
		for _, item := range v.Slice().All() {
			if s := item.AsString(); s != "" {
				out = append(out, s)
			}
		}
		return out
	case pcommon.ValueTypeStr:
		return splitList(v.Str())
	default:
		return nil
	}
}

func splitList(s string) []string {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil
	}
	if s[0] == '"' && gjson.Valid(s) { // a text that was encoded twice
		return splitList(gjson.Parse(s).String())
	}
	if s[0] == '[' && gjson.Valid(s) {
		var out []string
		for _, item := range gjson.Parse(s).Array() {
			if t := item.String(); t != "" {
				out = append(out, t)
			}
		}
		return out
	}
	if s[0] == '[' && s[len(s)-1] == ']' { // a Python list's own text
		s = s[1 : len(s)-1]
	}
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.Trim(strings.TrimSpace(part), `'"`); part != "" {
			out = append(out, part)
		}
	}
	return out
}
