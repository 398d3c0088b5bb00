//go:build linux

// Package procfs reads what a process holds of the machine, for tests and benchmarks of
// the programs as they are shipped.
package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The fields of a process's status that are sizes.
const (
	Resident = "VmRSS" // memory that is resident now
	Peak     = "VmHWM" // the most that ever was
)

var errNoField = errors.New("its status does not say")

// Memory is a size of a process's status, in bytes.
func Memory(pid int, field string) (int64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: %s: %w", pid, field, errNoField)
}

// Children are the processes that a process has started and that are still there.
func Children(pid int) []int {
	var out []int
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		for word := range strings.FieldsSeq(string(content)) {
			if child, err := strconv.Atoi(word); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}
