// Package engine runs an embedded ClickHouse: the library of the npm package
// @chdb/lib-<platform>, opened in a child process that is this same executable
// started again, which listens for the native protocol on loopback.
//
// A crash of ClickHouse therefore never takes the collector down: the child is
// started again at the same address and clients reconnect by themselves.
package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"go.uber.org/zap"
)

const (
	// User is the name of the engine's own user. Its password is generated at
	// the first start and kept in the file PasswordFile of the data folder.
	User = "retryledger"
	// PasswordFile is the name, inside the data folder, of the file (mode 0600)
	// with the password of User.
	PasswordFile = "password"
	// DefaultSharedListen is where RunShared listens unless told otherwise.
	DefaultSharedListen = "127.0.0.1:9000"

	defaultListen       = "127.0.0.1:0"
	defaultMemoryLimit  = 4 << 30
	minMemoryLimit      = 256 << 20
	defaultLogLevel     = "information"
	defaultLogFileBytes = 16 << 20
	defaultLogFiles     = 3
	defaultStartTimeout = 2 * time.Minute
	defaultLockWait     = 10 * time.Second
)

// Options say where an engine keeps its data and how it is reached. Only
// DataDir is required.
type Options struct {
	// DataDir is the folder of the store, its logs, its lock and its password.
	// It is created with mode 0700 if it does not exist. One engine at a time.
	DataDir string
	// Listen is the address of the native protocol, "host:port" with an IP
	// address as host. Port 0 (the default, on 127.0.0.1) picks a free port at
	// Start and keeps it over every restart of the engine.
	Listen string
	// Unencrypted allows Listen to be reached from other machines, although nothing that
	// goes over it is encrypted.
	Unencrypted bool
	// HTTPPort opens ClickHouse's HTTP interface on the host of Listen.
	// 0, the default, leaves it closed.
	HTTPPort int
	// MemoryLimit is the most memory the engine may use, in bytes. 0 means the
	// smaller of 4 GiB and half of the memory of this machine or container.
	MemoryLimit int64
	// LogLevel is one of ClickHouse's: none, fatal, critical, error, warning,
	// notice, information (default), debug, trace, test.
	LogLevel string
	// LogFileBytes is the size at which the engine's log file is rotated
	// (default 16 MiB), LogFiles how many rotated ones are kept (default 3).
	LogFileBytes int64
	LogFiles     int
	// ReadOnly adds a user that can only read, for Grafana.
	ReadOnly *ReadOnlyUser
	// Clusters are written as remote_servers, for Distributed tables.
	Clusters map[string][]Shard

	// Library is the path of libchdb.so. If empty it is taken from the
	// environment variable RETRYLEDGER_CLICKHOUSE_LIB, and if that is empty
	// too the pinned package is fetched into CacheDir.
	Library string
	// CacheDir is where the fetched library is kept, by default
	// retryledger/engine in the user's cache folder.
	CacheDir string
	// Progress is told how far a fetch has come; nil logs it.
	Progress func(Progress)

	// StartTimeout bounds the wait for the first answer of the engine, the
	// fetch not counted (default 2 minutes).
	StartTimeout time.Duration
	// LockWait is how long Start waits for a data folder whose last owner is
	// dead but whose engine still runs out (default 10 s).
	LockWait time.Duration
	// Logger reports starts, crashes and restarts; nil reports nothing.
	Logger *zap.Logger
}

// ReadOnlyUser is a user that may read Databases (all if empty), change
// settings of its own queries, and nothing else.
type ReadOnlyUser struct {
	Name      string
	Password  string
	Databases []string
}

// Shard is one shard of a cluster, with one replica.
type Shard struct {
	Addr     string // host:port of the native protocol
	User     string
	Password string
}

var (
	logLevels = map[string]bool{"none": true, "fatal": true, "critical": true, "error": true, "warning": true,
		"notice": true, "information": true, "debug": true, "trace": true, "test": true}
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// withDefaults checks the options and fills in what was left out. Every error
// names the option and says what it may be.
func (o Options) withDefaults() (Options, error) {
	switch runtime.GOOS {
	case "linux", "darwin":
	default:
		_, err := platformOf(runtime.GOOS, runtime.GOARCH, "/")
		return o, err
	}
	if o.DataDir == "" {
		return o, errors.New("engine: data_dir is empty: name a folder for the store")
	}
	abs, err := filepath.Abs(o.DataDir)
	if err != nil {
		return o, fmt.Errorf("engine: data_dir %q: %w", o.DataDir, err)
	}
	o.DataDir = abs
	if o.Listen == "" {
		o.Listen = defaultListen
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil || net.ParseIP(host) == nil {
		return o, fmt.Errorf("engine: listen %q is not an IP address with a port: write for example 127.0.0.1:9000", o.Listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return o, fmt.Errorf("engine: listen %q: the port must be a number from 0 (any free one) to 65535", o.Listen)
	}
	if !isLoopback(host) && !o.Unencrypted {
		return o, fmt.Errorf("engine: other machines can reach listen %q, and what goes over it is not encrypted: "+
			"listen on 127.0.0.1, or, where only a trusted network reaches it, say so by --unencrypted", o.Listen)
	}
	if o.HTTPPort < 0 || o.HTTPPort > 65535 {
		return o, fmt.Errorf("engine: http_port %d: must be from 1 to 65535, or 0 for no HTTP", o.HTTPPort)
	}
	if o.MemoryLimit == 0 {
		o.MemoryLimit = defaultMemory(PhysicalMemory())
	}
	if o.MemoryLimit < minMemoryLimit {
		return o, fmt.Errorf("engine: memory_limit of %d bytes is too small: ClickHouse needs at least %d MiB", o.MemoryLimit, minMemoryLimit>>20)
	}
	if o.LogLevel == "" {
		o.LogLevel = defaultLogLevel
	}
	if !logLevels[o.LogLevel] {
		return o, fmt.Errorf("engine: log_level %q is unknown: use none, fatal, critical, error, warning, notice, information, debug or trace", o.LogLevel)
	}
	if o.LogFileBytes <= 0 {
		o.LogFileBytes = defaultLogFileBytes
	}
	if o.LogFiles <= 0 {
		o.LogFiles = defaultLogFiles
	}
	if r := o.ReadOnly; r != nil {
		if !identifier.MatchString(r.Name) || r.Name == User || r.Name == "default" {
			return o, fmt.Errorf("engine: read-only user %q: use a name of letters, digits and _ other than %q and \"default\"", r.Name, User)
		}
		if r.Password == "" {
			return o, fmt.Errorf("engine: read-only user %q has no password: set one, any user of this machine could read the ledger otherwise", r.Name)
		}
		for _, db := range r.Databases {
			if !identifier.MatchString(db) {
				return o, fmt.Errorf("engine: read-only user %q: database %q is not a name of letters, digits and _", r.Name, db)
			}
		}
	}
	for name, shards := range o.Clusters {
		if !identifier.MatchString(name) {
			return o, fmt.Errorf("engine: cluster %q is not a name of letters, digits and _", name)
		}
		for _, s := range shards {
			if _, _, err := net.SplitHostPort(s.Addr); err != nil {
				return o, fmt.Errorf("engine: cluster %q: shard address %q is not host:port", name, s.Addr)
			}
		}
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.LockWait <= 0 {
		o.LockWait = defaultLockWait
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o, nil
}

// defaultMemory is the smaller of 4 GiB and half of total bytes; half of an
// unknown total (0) is not guessed.
func defaultMemory(total int64) int64 {
	if total <= 0 {
		return defaultMemoryLimit
	}
	return max(minMemoryLimit, min(defaultMemoryLimit, total/2))
}

// environment is what the child sees of our environment. Credentials for
// clouds and services in it are nothing ClickHouse needs, and it would use
// them if a query named such a service.
func environment() []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "GOCOVERDIR", "GORACE", "GOTRACEBACK"}
	// Partitions are days: they must not depend on where the process runs.
	env := []string{"TZ=UTC", HostEnv + "=1"}
	for _, k := range keep {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// mergeThreads is the size of the pool for merges and mutations. The
// library's own default is 2, too few for the views of one ingest pipeline.
func mergeThreads() int { return min(16, max(4, runtime.NumCPU())) }
