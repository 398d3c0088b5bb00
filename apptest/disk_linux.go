//go:build linux

package apptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// diskMiB is the size of a journal's disk.
const diskMiB = 32

// disk is a folder whose space can be used up, if this user may mount one.
type disk struct {
	folder  string
	mounted bool
}

func newDisk(folder string) (*disk, error) {
	d, err := partOfDisk(folder)
	if err != nil {
		return nil, err
	}
	d.mounted = syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", diskMiB)) == nil
	return d, nil
}

// partOfDisk is a folder on the disk of its parent folder, which is not to be filled.
func partOfDisk(folder string) (*disk, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for a journal: %w", err)
	}
	return &disk{folder: folder}, nil
}

func (d *disk) filler() string { return filepath.Join(d.folder, "filler") }

// fill uses up all that is left.
func (d *disk) fill() error {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("fill a disk: %w", err)
	}
	block := make([]byte, 64<<10)
	for err == nil {
		if _, err = f.Write(block); err != nil && len(block) > 1 {
			block, err = block[:len(block)/2], nil
		}
	}
	if cerr := f.Close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill a disk: %w", err)
	}
	return nil
}

// empty gives the space back.
func (d *disk) empty() error {
	if err := os.Remove(d.filler()); err != nil {
		return fmt.Errorf("empty a disk: %w", err)
	}
	return nil
}

func (d *disk) close() {
	if d.mounted {
		_ = syscall.Unmount(d.folder, syscall.MNT_DETACH)
	}
}
