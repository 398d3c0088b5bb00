package api

import (
	"errors"
	"fmt"
	"net"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/retryledger/retryledger/analysis/query"
)

// Config is the configuration of the API extension.
type Config struct {
	// ServerConfig is the Collector's own: endpoint, tls, auth, cors and timeouts. It is a
	// named field because its Unmarshal would otherwise become Config's.
	ServerConfig confighttp.ServerConfig `mapstructure:",squash"`

	// Store is the extension that owns the ledger's database.
	Store component.ID `mapstructure:"store"`
	// QueryTimeout bounds one question, the wait for the store included.
	QueryTimeout time.Duration `mapstructure:"query_timeout"`
	// MaxConcurrentQueries bounds the questions that ask the store at once, about alerts too;
	// more wait.
	MaxConcurrentQueries int `mapstructure:"max_concurrent_queries"`
	// MaxQueryMemoryMiB bounds the memory that one question may take in the store.
	MaxQueryMemoryMiB int64 `mapstructure:"max_query_memory_mib"`
	// MaxQueryRows bounds the rows of the store that one question may read.
	MaxQueryRows int64 `mapstructure:"max_query_rows"`
	// MaxResults bounds the steps or runs of one answer.
	MaxResults int `mapstructure:"max_results"`
	// AllowedHosts are further names that the Host header may carry where the endpoint is
	// on loopback. Any other is refused there, so that no web page can read the ledger
	// through a name that it lets point to this machine.
	AllowedHosts []string `mapstructure:"allowed_hosts"`
}

// The defaults.
const (
	DefaultEndpoint = "127.0.0.1:4320"

	defaultStore         = "retryledger_store"
	defaultQueryTimeout  = 30 * time.Second
	defaultMaxConcurrent = 8
	defaultMaxMemoryMiB  = 1024
	defaultMaxQueryRows  = 500_000_000
	defaultMaxResults    = 10_000
	// defaultLimit is how many steps or runs are listed where a question states no limit.
	defaultLimit = 100
)

func createDefaultConfig() component.Config { return defaults() }

func defaults() *Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = DefaultEndpoint
	server.WriteTimeout = 2 * defaultQueryTimeout
	return &Config{
		ServerConfig: server, Store: component.MustNewID(defaultStore),
		QueryTimeout: defaultQueryTimeout, MaxConcurrentQueries: defaultMaxConcurrent, MaxResults: defaultMaxResults,
		MaxQueryMemoryMiB: defaultMaxMemoryMiB, MaxQueryRows: defaultMaxQueryRows,
	}
}

var (
	errStore       = errors.New("store: name the retryledger_store extension that holds the ledger")
	errTimeout     = errors.New("query_timeout: give a time above zero, such as 30s")
	errConcurrency = errors.New("max_concurrent_queries: give a number above zero")
	errMemory      = errors.New("max_query_memory_mib: give a number above zero")
	errRows        = errors.New("max_query_rows: give a number above zero")
	errResults     = errors.New("max_results: give a number above zero")
)

// Validate says what is wrong and how to mend it.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(c.ServerConfig.NetAddr.Endpoint); err != nil && c.ServerConfig.NetAddr.Transport != "unix" {
		errs = append(errs, fmt.Errorf("endpoint: write host:port, such as %s: %w", DefaultEndpoint, err))
	}
	if c.Store == (component.ID{}) {
		errs = append(errs, errStore)
	}
	if c.QueryTimeout <= 0 {
		errs = append(errs, errTimeout)
	} else if c.ServerConfig.WriteTimeout > 0 && c.ServerConfig.WriteTimeout <= c.QueryTimeout {
		errs = append(errs, fmt.Errorf("write_timeout: %s is not longer than query_timeout %s, so slow answers would be cut off; raise it",
			c.ServerConfig.WriteTimeout, c.QueryTimeout))
	}
	if c.MaxConcurrentQueries <= 0 {
		errs = append(errs, errConcurrency)
	}
	if c.MaxQueryMemoryMiB <= 0 {
		errs = append(errs, errMemory)
	}
	if c.MaxQueryRows <= 0 {
		errs = append(errs, errRows)
	}
	if c.MaxResults <= 0 {
		errs = append(errs, errResults)
	}
	return errors.Join(errs...)
}

// limits are those of one question.
func (c *Config) limits() query.Limits {
	return query.Limits{Timeout: c.QueryTimeout, MaxMemory: c.MaxQueryMemoryMiB << 20, MaxRead: c.MaxQueryRows, MaxRows: maxRows}
}
