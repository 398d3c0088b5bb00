package cli

import (
	"context"
	"fmt"
)

// unlessInterrupted reads something, unless ctx ends first: a pipe or standard input may
// have no writer for ever, and its reader cannot be called back. Who is left behind must
// share nothing with the caller.
func unlessInterrupted[T any](ctx context.Context, what string, read func() (T, error)) (T, error) {
	type result struct {
		of  T
		err error
	}
	done := make(chan result, 1)
	go func() {
		of, err := read()
		done <- result{of, err}
	}()
	select {
	case r := <-done:
		return r.of, r.err
	case <-ctx.Done():
		var nothing T
		return nothing, fmt.Errorf("read %s: %w", what, ctx.Err())
	}
}
