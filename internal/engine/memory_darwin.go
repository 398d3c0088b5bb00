package engine

import "golang.org/x/sys/unix"

// PhysicalMemory is this machine's memory in bytes.
func PhysicalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
