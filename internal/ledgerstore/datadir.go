package ledgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/retryledger/retryledger/internal/datadir"
)

// openDataDir creates the folder and locks it for this collector.
func openDataDir(dir string) (path string, lock *flock.Flock, err error) {
	if dir == "" {
		if dir, err = datadir.Default(); err != nil {
			return "", nil, fmt.Errorf("%w; name one with data_dir of the extension %s", err, Type)
		}
	}
	if strings.HasPrefix(dir, "~"+string(filepath.Separator)) {
		return "", nil, fmt.Errorf("data_dir is %q: no shell replaces ~ here; write the path in full, or ${env:HOME}%s", dir, dir[1:])
	}
	if path, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("data_dir %q: %w", dir, err)
	}
	// The rows say what the users' pipelines do: nobody else's business.
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", nil, fmt.Errorf("create the data folder: %w; name a folder that this user may write with data_dir of the extension %s", err, Type)
	}
	lock = flock.New(filepath.Join(path, "collector.lock"))
	locked, err := lock.TryLock()
	switch {
	case errors.Is(err, os.ErrPermission):
		return "", nil, fmt.Errorf("the data folder %s belongs to another user: %w; name another with data_dir of the extension %s", path, err, Type)
	case err != nil:
		return "", nil, fmt.Errorf("lock the data folder %s: %w", path, err)
	case !locked:
		return "", nil, fmt.Errorf("another collector uses the data folder %s: stop it, or give this one a folder of its own with data_dir of the extension %s. "+
			"Several collectors share a ledger through one engine (the subcommand engine) or server, named by endpoint", path, Type)
	}
	return path, lock, nil
}
