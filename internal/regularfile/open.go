// Package regularfile opens what a configuration names as a file, and nothing that
// could keep a reader waiting or never ends.
package regularfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is a folder, a pipe, a socket or a device.
var ErrNotRegular = errors.New("it is no regular file")

// Open opens a regular file, or a link to one, for reading. It never waits, as opening a
// pipe does until somebody writes to it. The error is a *fs.PathError.
func Open(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was attempted
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w but %s", ErrNotRegular, kind(info.Mode()))}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}
