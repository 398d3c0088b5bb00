package engine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent asks the kernel for a SIGTERM when the parent dies, in case
// something else holds the other end of standard input open.
func dieWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0) }

// selfExecutable is this very program, even if its file has been replaced or
// removed since: the parent and its host must be of one version.
func selfExecutable() (string, error) { return "/proc/self/exe", nil }
