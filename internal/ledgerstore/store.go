package ledgerstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gofrs/flock"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/schema"
)

// Store is the place where the ledger is kept.
type Store interface {
	// Conn is a pool of connections to the ledger's database, with the schema
	// migrated. It waits until the store is up or ctx ends; the error then says
	// why the store is not up. The pool belongs to the store: do not close it.
	Conn(ctx context.Context) (driver.Conn, error)
	// DataDir is the absolute path of the collector's own folder, which exists
	// and is locked for it. The engine's tables are in its subfolder engine.
	DataDir() string
	// Database is the name of the ledger's database.
	Database() string
	// Location says for people where the ledger is: a folder or an endpoint.
	Location() string
}

// From finds the store that a component's configuration names. Call it in Start,
// not before.
func From(host component.Host, id component.ID) (Store, error) {
	found, ok := host.GetExtensions()[id]
	if !ok {
		return nil, fmt.Errorf("the store %q is no running extension: add it under extensions and to service::extensions", id)
	}
	store, ok := found.(Store)
	if !ok {
		return nil, fmt.Errorf("the extension %q is no store: name one of type %s", id, Type)
	}
	return store, nil
}

const (
	firstTry     = 15 * time.Second // for a server to answer before the collector starts without it
	dialTimeout  = 5 * time.Second
	maxConns     = 16
	firstPause   = time.Second
	longestPause = 30 * time.Second
	engineFolder = "engine"
)

type ledgerStore struct {
	config *Config
	log    *zap.Logger
	id     component.ID

	dataDir string
	lock    *flock.Flock
	engine  *engine.Engine

	lookAfter  time.Duration      // between two looks whether the tables are still there
	stop       context.CancelFunc // of what goes on in the background
	background sync.WaitGroup

	ready chan struct{} // closed when conn is set
	mu    sync.Mutex
	conn  driver.Conn
	cause error // why the store is not up
}

var _ Store = (*ledgerStore)(nil)

func newStore(config *Config, settings extension.Settings) *ledgerStore {
	return &ledgerStore{
		config: config, log: settings.Logger, id: settings.ID, lookAfter: 10 * time.Second,
		ready: make(chan struct{}), cause: errors.New("it has not been started"),
	}
}

// Start brings the store up. The embedded engine is up when it returns. A server
// that cannot be reached is tried again in the background, while the journal
// holds what comes in; one that refuses is an error.
func (s *ledgerStore) Start(ctx context.Context, host component.Host) (err error) {
	if s.dataDir, s.lock, err = openDataDir(s.config.DataDir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// The Collector does not shut down what did not start.
			err = errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if s.config.Endpoint == "" {
		return s.startEngine(ctx, background)
	}
	opts, err := s.serverOptions(ctx)
	if err != nil {
		return err
	}
	tryCtx, cancel := context.WithTimeout(ctx, firstTry)
	err = s.connect(tryCtx, opts)
	cancel()
	if err == nil {
		s.background.Go(func() { s.keepTables(background, opts) })
		return nil
	}
	if refused(err) || ctx.Err() != nil {
		return err
	}
	s.log.Warn("The store cannot be reached. Spans are accepted and kept in the journal until it can; the ledger stands still.",
		zap.String("endpoint", s.config.Endpoint), zap.Error(err))
	componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
	s.background.Go(func() {
		s.keepTrying(background, host, opts)
		s.keepTables(background, opts)
	})
	return nil
}

func (s *ledgerStore) startEngine(ctx, background context.Context) error {
	c := s.config.Engine
	opts := engine.Options{
		DataDir:     filepath.Join(s.dataDir, engineFolder),
		Listen:      net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)),
		HTTPPort:    c.HTTPPort,
		MemoryLimit: c.MemoryLimitMiB << 20,
		LogLevel:    c.LogLevel,
		Library:     c.Lib,
		CacheDir:    c.CacheDir,
		Progress:    showProgress(os.Stderr),
		Logger:      s.log,
	}
	if r := c.Readonly.Get(); r != nil {
		opts.ReadOnly = &engine.ReadOnlyUser{Name: r.Username, Password: string(r.Password), Databases: []string{s.config.Database}}
	}
	started, err := engine.Start(ctx, opts)
	if err != nil {
		return err
	}
	s.engine = started
	if err := s.connect(ctx, started.ClientOptions()); err != nil {
		return err
	}
	s.background.Go(func() { s.keepTables(background, started.ClientOptions()) })
	return nil
}

func (s *ledgerStore) serverOptions(ctx context.Context) (*clickhouse.Options, error) {
	opts := &clickhouse.Options{
		Addr:        []string{s.config.Endpoint},
		Auth:        clickhouse.Auth{Username: s.config.Username, Password: string(s.config.Password)},
		DialTimeout: dialTimeout,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
	if c := s.config.TLS.Get(); c != nil {
		conf, err := c.LoadTLSConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("tls of the store: %w", err)
		}
		if conf == nil { // tls::insecure
			return opts, nil
		}
		if conf.ServerName == "" {
			conf.ServerName, _, _ = net.SplitHostPort(s.config.Endpoint)
		}
		conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
		opts.TLS = conf
	}
	return opts, nil
}

// connect creates and migrates the database and, when that is done, makes the
// store ready.
func (s *ledgerStore) connect(ctx context.Context, opts *clickhouse.Options) (err error) {
	defer func() {
		if err != nil {
			err = s.explained(err)
			s.mu.Lock()
			s.cause = err
			s.mu.Unlock()
		}
	}()
	if err := s.createDatabase(ctx, opts); err != nil {
		return err
	}
	own := *opts
	own.Auth.Database = s.config.Database
	own.MaxOpenConns, own.MaxIdleConns = maxConns, maxConns/2
	conn, err := clickhouse.Open(&own)
	if err != nil {
		return err
	}
	if err := s.migrate(ctx, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	if err := schema.DropAbandoned(ctx, conn, schema.AbandonedAfter); err != nil {
		s.log.Warn("What a deletion that was killed had noted is still in the store. It is tried again at the next start and at the next deletion.", zap.Error(err))
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	close(s.ready)
	return nil
}

func (s *ledgerStore) createDatabase(ctx context.Context, opts *clickhouse.Options) error {
	root, err := clickhouse.Open(opts)
	if err != nil {
		return err
	}
	return errors.Join(schema.CreateDatabase(ctx, root, s.config.Database), root.Close())
}

func (s *ledgerStore) migrate(ctx context.Context, conn driver.Conn) error {
	return schema.Migrate(ctx, conn, schema.MigrateOptions{SpanRetention: s.config.Retention.Spans, LedgerRetention: s.config.Retention.Ledger})
}

func (s *ledgerStore) keepTrying(ctx context.Context, host component.Host, opts *clickhouse.Options) {
	pause := firstPause
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
		err := s.connect(ctx, opts)
		switch {
		case err == nil:
			s.log.Warn("The store is reached. What the journal holds goes in now.", zap.String("endpoint", s.config.Endpoint))
			componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
			return
		case ctx.Err() != nil:
			return
		case refused(err) && err.Error() != said: // once for each reason
			s.log.Error("The store refuses the collector.", zap.String("endpoint", s.config.Endpoint), zap.Error(err))
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
			said = err.Error()
		}
	}
}

// Shutdown closes the connections and ends the engine. It may be called twice.
func (s *ledgerStore) Shutdown(ctx context.Context) error {
	if s.stop != nil {
		s.stop()
		s.background.Wait()
	}
	var errs []error
	s.mu.Lock()
	conn := s.conn
	s.conn, s.cause = nil, errors.New("it has been shut down")
	s.mu.Unlock()
	if conn != nil {
		errs = append(errs, conn.Close())
	}
	if s.engine != nil {
		errs = append(errs, s.engine.Shutdown(ctx))
		s.engine = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Conn implements Store.
func (s *ledgerStore) Conn(ctx context.Context) (driver.Conn, error) {
	select {
	case <-s.ready:
	default:
		select {
		case <-s.ready:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, fmt.Errorf("wait for the store: %w: %w", ctx.Err(), s.cause)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil, fmt.Errorf("the store is closed: %w", s.cause)
	}
	return s.conn, nil
}

// DataDir implements Store.
func (s *ledgerStore) DataDir() string { return s.dataDir }

// Database implements Store.
func (s *ledgerStore) Database() string { return s.config.Database }

// Location implements Store.
func (s *ledgerStore) Location() string {
	if s.config.Endpoint != "" {
		return "database " + s.config.Database + " at " + s.config.Endpoint
	}
	return filepath.Join(s.dataDir, engineFolder)
}
