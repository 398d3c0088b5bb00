//go:build !linux && !darwin

package engine

import (
	"errors"
	"fmt"
	"os"
)

// Nothing here runs: withDefaults refuses the platform first. The package
// compiles so that the rest of the collector works with a ClickHouse server.

type child struct{}

func launch(layout, *os.File) (*child, error) { return nil, errors.ErrUnsupported }
func (c *child) id() int                      { return 0 }
func (c *child) exited() <-chan struct{}      { return nil }
func (c *child) end()                         {}
func (c *child) kill()                        {}
func (c *child) complaint() string            { return "" }
func (c *child) reason() error                { return errors.ErrUnsupported }
func lockFile(*os.File) error                 { return errors.ErrUnsupported }
func isLocked(error) bool                     { return false }
func alive(int) bool                          { return false }
func PhysicalMemory() int64                   { return 0 }
func freeBytes(string) (int64, error)         { return 0, errors.ErrUnsupported }
func isDiskFull(err error) bool               { return errors.Is(err, errDiskFull) }

// HostMain is the body of the process that carries the engine, which does not
// exist for this platform.
func HostMain([]string) int {
	fmt.Fprintln(os.Stderr, "the embedded ClickHouse does not exist for this platform")
	return 1
}
