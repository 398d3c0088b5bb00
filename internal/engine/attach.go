package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// BackupFolder is the folder below an engine's data folder that BACKUP and RESTORE reach.
const BackupFolder = "backups"

// ErrNoEngine is returned for a folder that no engine keeps its data in.
var ErrNoEngine = errors.New("no engine keeps its data there")

// Attach finds the engine that a collector of this data folder runs, or that runs alone on
// it, for a program of the same user. It returns options for clients and the engine's own
// folder. Whether the engine runs shows when a client connects.
func Attach(dir string) (*clickhouse.Options, string, error) {
	for _, folder := range []string{filepath.Join(dir, "engine"), dir} {
		files := layoutOf(folder)
		c, err := readHostConfig(files.hostJSON)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		pw, err := os.ReadFile(files.pwd)
		if err != nil {
			return nil, "", fmt.Errorf("read the password of the engine: %w", err)
		}
		return &clickhouse.Options{
			Addr:        []string{net.JoinHostPort(dialHost(c.ListenHost), fmt.Sprint(c.Port))},
			Auth:        clickhouse.Auth{Username: User, Password: strings.TrimSpace(string(pw))},
			DialTimeout: 5 * time.Second, ReadTimeout: 24 * time.Hour, // a backup says nothing before it is done
		}, folder, nil
	}
	return nil, "", fmt.Errorf("%s: %w", dir, ErrNoEngine)
}
