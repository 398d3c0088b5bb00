//go:build linux || darwin

package engine

import (
	"os"
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

func isLocked(err error) bool { return err == syscall.EWOULDBLOCK }

// alive says whether a process of that id exists on this machine.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return pid > 0 && (err == nil || err == syscall.EPERM)
}
