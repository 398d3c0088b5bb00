//go:build linux || darwin

package engine

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile takes an exclusive lock of the open file, which every descriptor of it
// shares, those of child processes included.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return err
		}
	}
}

func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }

// alive says whether a process of that id exists on this machine and has not
// ended. One that has ended keeps its id until its parent asks for it, which
// the first process of a container often never does.
func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	if err := syscall.Kill(pid, 0); err != nil && err != syscall.EPERM {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true // no /proc here
	}
	// The name, in parentheses, may hold anything.
	_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
	return !strings.HasPrefix(rest, "Z")
}
