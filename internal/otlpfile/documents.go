package otlpfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// documentReader cuts a stream into its top-level JSON objects, whether they stand
// one a line, are spread over lines, or follow each other without any space. It
// only counts brackets outside strings; what is inside is the unmarshaler's.
type documentReader struct {
	r *bufio.Reader
}

// next returns the next object, io.EOF after the last.
func (d documentReader) next() ([]byte, error) {
	first, err := d.skipSpace()
	if err != nil {
		return nil, err
	}
	if first != '{' {
		return nil, fmt.Errorf("%w: expected an object, found %q", ErrNotTraces, first)
	}
	document := []byte{first}
	depth, inString, escaped := 1, false, false
	for depth > 0 {
		c, err := d.r.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the file ends inside an object, it was cut off", ErrNotTraces)
		}
		if err != nil {
			return nil, reading(err)
		}
		document = append(document, c)
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return document, nil
}

func (d documentReader) skipSpace() (byte, error) {
	for {
		c, err := d.r.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, reading(err)
		}
		switch c {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf, ',':
		default:
			return c, nil
		}
	}
}

// nonFinite are the spellings of doubles that JSON has no word for, as encoders
// write them all the same: Python bare, JavaScript as null.
var nonFinite = []struct{ bare, quoted string }{
	{"-Infinity", `"-Inf"`}, {"Infinity", `"+Inf"`}, {"NaN", `"NaN"`},
}

// quoteNonFinite puts NaN and the infinities into the quotes that OTLP's JSON wants
// them in, and reads a doubleValue of null as NaN. Strings are left alone.
func quoteNonFinite(document []byte) []byte {
	out := make([]byte, 0, len(document)+64)
	inString, escaped := false, false
	stringStart := 0
	lastString := ""
	for i := 0; i < len(document); i++ {
		c := document[i]
		if inString {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inString = false
				lastString = string(document[stringStart:min(i, stringStart+32)])
			}
			out = append(out, c)
			continue
		}
		if c == '"' {
			inString, stringStart = true, i+1
			out = append(out, c)
			continue
		}
		replaced := false
		for _, word := range nonFinite {
			if bytes.HasPrefix(document[i:], []byte(word.bare)) {
				out = append(out, word.quoted...)
				i += len(word.bare) - 1
				replaced = true
				break
			}
		}
		if !replaced && c == 'n' && lastString == "doubleValue" && bytes.HasPrefix(document[i:], []byte("null")) {
			out = append(out, `"NaN"`...)
			i += len("null") - 1
			replaced = true
		}
		if !replaced {
			out = append(out, c)
		}
	}
	return out
}
