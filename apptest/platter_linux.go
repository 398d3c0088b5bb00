//go:build linux

package apptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// platterMiB is the size of a platter. Its image takes what is written to it.
const platterMiB = 4096

// errNoPlatter is returned where this user may not mount one.
var errNoPlatter = errors.New("no file system can be mounted here that may be cut off")

// platter is a folder with a file system of its own (ext4), which loses what it had not
// been made to keep when its power is cut.
type platter struct{ image, folder string }

func newPlatter(ctx context.Context, within string) (*platter, error) {
	p := &platter{image: filepath.Join(within, "platter.img"), folder: filepath.Join(within, "platter")}
	image, err := os.OpenFile(p.image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the image of a file system: %w", err)
	}
	if err := errors.Join(image.Truncate(platterMiB<<20), image.Close(), os.Mkdir(p.folder, 0o700)); err != nil {
		return nil, fmt.Errorf("make the image of a file system: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", p.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w: %s", errNoPlatter, err, out)
	}
	if err := p.mount(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPlatter, err)
	}
	return p, nil
}

func (p *platter) mount(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "mount", "-o", "loop", p.image, p.folder).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", p.image, err, out)
	}
	return nil
}

// What linux/ext4 calls EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH: from now on
// nothing is written, the file system's own log included, as when the power is cut.
const (
	shutdown          = 0x8004587d
	withoutFlushOfLog = 2
)

// cut ends all writing at once. What was not confirmed by then is lost.
func (p *platter) cut() error {
	folder, err := os.Open(p.folder)
	if err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	err = unix.IoctlSetPointerInt(int(folder.Fd()), shutdown, withoutFlushOfLog)
	if err = errors.Join(err, folder.Close()); err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	return nil
}

// restore mounts what the disk held when its power was cut. Nobody may have a file open.
func (p *platter) restore(ctx context.Context) error {
	if err := p.unmount(); err != nil {
		return err
	}
	return p.mount(ctx)
}

func (p *platter) unmount() error {
	var err error
	for range 100 { // processes that were killed let go of their files a little later
		if err = syscall.Unmount(p.folder, 0); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", p.folder, err)
	}
	return nil
}
