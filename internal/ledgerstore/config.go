package ledgerstore

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"

	"github.com/retryledger/retryledger/schema"
)

// Config says where the ledger is kept.
type Config struct {
	// Endpoint is host:port of the native protocol of a ClickHouse server, or of
	// an engine that several collectors share. Empty: this collector runs an
	// engine of its own.
	Endpoint string `mapstructure:"endpoint"`
	// Username and Password are those of the server at Endpoint.
	Username string              `mapstructure:"username"`
	Password configopaque.String `mapstructure:"password"`
	// TLS, if present, encrypts the connections to Endpoint.
	TLS configoptional.Optional[configtls.ClientConfig] `mapstructure:"tls"`
	// Database is created if it does not exist.
	Database string `mapstructure:"database"`
	// DataDir is the folder of the journal and of the engine's tables. One
	// collector at a time. Empty: retryledger in the user's folder for data.
	DataDir string `mapstructure:"data_dir"`
	// Retention is how long rows are kept.
	Retention RetentionConfig `mapstructure:"retention"`
	// Engine are the settings of the collector's own engine.
	Engine EngineConfig `mapstructure:"engine"`
}

// RetentionConfig is how long rows are kept after the collector received their
// spans, rounded up to whole days.
type RetentionConfig struct {
	Spans  time.Duration `mapstructure:"spans"`
	Ledger time.Duration `mapstructure:"ledger"`
}

// EngineConfig are the settings of the collector's own engine. They play no part
// where an endpoint is configured.
type EngineConfig struct {
	// Lib is the path of a libchdb.so to use instead of the fetched one.
	Lib string `mapstructure:"lib"`
	// CacheDir is where the fetched library is kept. Empty: retryledger/engine
	// in the user's cache folder.
	CacheDir string `mapstructure:"cache_dir"`
	// MemoryLimitMiB is the most memory the engine may use. 0: half of the
	// machine's or container's, at most 4096.
	MemoryLimitMiB int64 `mapstructure:"memory_limit_mib"`
	// Port is the port of the native protocol on loopback. 0: any free one.
	Port int `mapstructure:"port"`
	// HTTPPort is the port of ClickHouse's HTTP interface on loopback. 0: closed.
	HTTPPort int `mapstructure:"http_port"`
	// LogLevel is one of ClickHouse's.
	LogLevel string `mapstructure:"log_level"`
	// Readonly, if present, is a user that can only read, for Grafana.
	Readonly configoptional.Optional[ReadonlyConfig] `mapstructure:"readonly"`
}

// ReadonlyConfig is a user of the engine that can only read the database.
type ReadonlyConfig struct {
	Username string              `mapstructure:"username"`
	Password configopaque.String `mapstructure:"password"`
}

const (
	defaultDatabase = "retryledger"
	defaultUsername = "default"
	minRetention    = 24 * time.Hour
	maxRetention    = 20 * 365 * 24 * time.Hour // beyond, ClickHouse's DateTime ends
	minMemoryMiB    = 512
)

var logLevels = []string{"none", "fatal", "critical", "error", "warning", "notice", "information", "debug", "trace"}

func createDefaultConfig() component.Config { return defaultConfig() }

func defaultConfig() *Config {
	return &Config{
		Username: defaultUsername,
		Database: defaultDatabase,
		Retention: RetentionConfig{
			Spans:  schema.DefaultSpanRetention,
			Ledger: schema.DefaultLedgerRetention,
		},
		Engine: EngineConfig{LogLevel: "information"},
	}
}

// Validate says what is wrong and how to mend it.
func (c *Config) Validate() error {
	var errs []error
	if c.Endpoint != "" {
		errs = append(errs, validEndpoint(c.Endpoint))
		if c.Username == "" {
			errs = append(errs, errors.New(`username is empty: name a user of the server, or leave it out for "default"`))
		}
		errs = append(errs, c.unusedEngine())
	} else {
		if c.Password != "" {
			errs = append(errs, errors.New("password is set but endpoint is not: the collector's own engine makes its password itself; "+
				"remove password, or set endpoint to the server that it belongs to"))
		}
		if c.Username != defaultUsername {
			errs = append(errs, errors.New("username is set but endpoint is not: set endpoint to the server that the user belongs to, "+
				"or use engine::readonly for a user of the collector's own engine that can read"))
		}
		if c.TLS.HasValue() {
			errs = append(errs, errors.New("tls is set but endpoint is not: the collector's own engine listens on loopback only; "+
				"remove tls, or set endpoint to the server"))
		}
	}
	if !schema.ValidDatabase(c.Database) {
		errs = append(errs, fmt.Errorf("database is %q: use letters, digits and underscores, a letter first, such as %q", c.Database, defaultDatabase))
	}
	switch c.Database {
	case "default", "system", "information_schema", "INFORMATION_SCHEMA":
		errs = append(errs, fmt.Errorf("database is %q, which is ClickHouse's own: choose another name, such as %q", c.Database, defaultDatabase))
	}
	errs = append(errs,
		validRetention("retention::spans", c.Retention.Spans),
		validRetention("retention::ledger", c.Retention.Ledger),
		c.Engine.validate())
	if c.Retention.Ledger < c.Retention.Spans {
		errs = append(errs, fmt.Errorf("retention::ledger (%s) is shorter than retention::spans (%s): spans whose ledger is gone are of no use; "+
			"keep the ledger at least as long", c.Retention.Ledger, c.Retention.Spans))
	}
	return errors.Join(errs...)
}

func validEndpoint(endpoint string) error {
	if strings.Contains(endpoint, "://") {
		return fmt.Errorf("endpoint is %q: name host:port of ClickHouse's native protocol without a scheme, such as clickhouse.example.com:9000", endpoint)
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil || host == "" {
		return fmt.Errorf("endpoint is %q: name host:port of ClickHouse's native protocol, such as clickhouse.example.com:9000", endpoint)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("endpoint is %q: its port is no number between 1 and 65535", endpoint)
	}
	if n == 8123 || n == 8443 {
		return fmt.Errorf("endpoint is %q: port %d is usually ClickHouse's HTTP interface; name the port of the native protocol, "+
			"usually 9000 (9440 with tls)", endpoint, n)
	}
	return nil
}

func validRetention(name string, d time.Duration) error {
	if d < minRetention || d > maxRetention {
		return fmt.Errorf("%s is %s: keep rows between %s (a day) and %s (20 years)", name, d, minRetention, maxRetention)
	}
	return nil
}

// unusedEngine refuses settings that would be silently without effect.
func (c *Config) unusedEngine() error {
	defaults := defaultConfig().Engine
	if c.Engine.Lib != "" || c.Engine.CacheDir != "" || c.Engine.MemoryLimitMiB != 0 || c.Engine.Port != 0 || c.Engine.HTTPPort != 0 ||
		c.Engine.LogLevel != defaults.LogLevel || c.Engine.Readonly.HasValue() {
		return errors.New("engine is set and endpoint too: with an endpoint the collector runs no engine of its own; remove one of the two")
	}
	return nil
}

func (e *EngineConfig) validate() error {
	var errs []error
	if e.Lib != "" && !filepath.IsAbs(e.Lib) {
		errs = append(errs, fmt.Errorf("engine::lib is %q: give the full path of the library", e.Lib))
	}
	if e.MemoryLimitMiB != 0 && e.MemoryLimitMiB < minMemoryMiB {
		errs = append(errs, fmt.Errorf("engine::memory_limit_mib is %d: the engine needs at least %d", e.MemoryLimitMiB, minMemoryMiB))
	}
	for _, p := range []struct {
		name string
		port int
	}{{"engine::port", e.Port}, {"engine::http_port", e.HTTPPort}} {
		if p.port < 0 || p.port > 65535 {
			errs = append(errs, fmt.Errorf("%s is %d: use a number between 1 and 65535, or leave it out", p.name, p.port))
		}
	}
	if e.Port != 0 && e.Port == e.HTTPPort {
		errs = append(errs, fmt.Errorf("engine::port and engine::http_port are both %d: give each its own", e.Port))
	}
	if !slices.Contains(logLevels, e.LogLevel) {
		errs = append(errs, fmt.Errorf("engine::log_level is %q: use one of %s", e.LogLevel, strings.Join(logLevels, ", ")))
	}
	if r := e.Readonly.Get(); r != nil {
		if r.Username == "" || r.Username == defaultUsername {
			errs = append(errs, fmt.Errorf("engine::readonly::username is %q: choose another name, such as grafana", r.Username))
		}
		if r.Password == "" {
			errs = append(errs, errors.New("engine::readonly::password is empty: any user of this machine could read the ledger; set one"))
		}
	}
	return errors.Join(errs...)
}
