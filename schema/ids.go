package schema

import "fmt"

// UnmarshalBinary takes the 16 bytes of an id.
func (t *TraceID) UnmarshalBinary(data []byte) error {
	if len(data) != len(t) {
		return fmt.Errorf("%d bytes: %w", len(data), ErrBadTraceID)
	}
	copy(t[:], data)
	return nil
}

// UnmarshalBinary takes the 8 bytes of an id.
func (s *SpanID) UnmarshalBinary(data []byte) error {
	if len(data) != len(s) {
		return fmt.Errorf("a span id has 8 bytes, not %d", len(data))
	}
	copy(s[:], data)
	return nil
}
