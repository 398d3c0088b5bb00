package engine

import "golang.org/x/sys/unix"

// physicalMemory is this machine's memory in bytes.
func physicalMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
