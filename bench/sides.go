//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/answer"
)

// store is the engine that both sides write into.
type store struct {
	*process
	address  string
	password string
	conn     driver.Conn
}

const engineUser = "retryledger"

func startStore(ctx context.Context, collector, folder string) (_ *store, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &store{address: address}
	if s.process, err = start(ctx, "the engine", collector, []string{"engine", "--data-dir", folder, "--listen", address}, nil, wrote("listens at "+address)); err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(filepath.Join(folder, "password"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the engine's password: %w", err), s.stop())
	}
	s.password = strings.TrimSpace(string(secret))
	s.conn, err = clickhouse.Open(&clickhouse.Options{Addr: []string{address}, Auth: clickhouse.Auth{Username: engineUser, Password: s.password}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the engine: %w", err), s.stop())
	}
	return s, nil
}

// side is one of the two that are compared.
type side struct {
	name     string
	database string
	spans    string // the table of spans
	// start runs the collector on an empty folder; it takes OTLP over gRPC at the address.
	start func(ctx context.Context, folder string) (p *process, grpc string, caughtUp func(context.Context) bool, err error)
}

func (s *store) ours(collector string) side {
	return side{
		name: "retryledger", database: "retryledger", spans: "spans",
		start: func(ctx context.Context, folder string) (*process, string, func(context.Context) bool, error) {
			var free [4]string
			for i := range free {
				var err error
				if free[i], err = freeAddress(ctx); err != nil {
					return nil, "", nil, err
				}
			}
			p, err := start(ctx, "retryledger's collector", collector, []string{
				"--set=receivers.otlp.protocols.grpc.endpoint=" + free[0],
				"--set=receivers.otlp.protocols.http.endpoint=" + free[1],
				"--set=receivers.otlp/langfuse.protocols.http.endpoint=" + free[2],
				"--set=extensions.retryledger_api.endpoint=" + free[3],
				"--set=extensions.retryledger_store.endpoint=" + s.address,
				"--set=extensions.retryledger_store.username=" + engineUser,
				"--set=extensions.retryledger_store.password=${env:BENCH_PASSWORD}",
			}, []string{"BENCH_PASSWORD=" + s.password, "RETRYLEDGER_DATA_DIR=" + folder}, wrote("retryledger is ready."))
			return p, free[0], func(ctx context.Context) bool { return attributed(ctx, free[3]) }, err
		},
	}
}

// attributed tells whether all spans that are in the store are in the ledger too.
func attributed(ctx context.Context, api string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/api/v1/status", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	var status answer.Status
	return json.NewDecoder(response.Body).Decode(&status) == nil && status.LedgerLagMs == 0 && status.Runs > 0
}

func (s *store) contrib(program, config string) side {
	return side{
		name: "contrib", database: "otel", spans: "otel_traces",
		start: func(ctx context.Context, _ string) (*process, string, func(context.Context) bool, error) {
			address, err := freeAddress(ctx)
			if err != nil {
				return nil, "", nil, err
			}
			p, err := start(ctx, "contrib's collector", program, []string{"--config", config}, []string{
				"BENCH_LISTEN=" + address, "BENCH_ENGINE=" + s.address, "BENCH_USER=" + engineUser,
				"BENCH_PASSWORD=" + s.password, "BENCH_DATABASE=otel",
			}, listens(ctx, address))
			return p, address, func(context.Context) bool { return true }, err
		},
	}
}

// rows is how many rows the table of spans has; 0 while it does not exist.
func (s *store) rows(ctx context.Context, of side) uint64 {
	var n uint64
	if err := s.conn.QueryRow(ctx, "SELECT count() FROM "+of.database+"."+of.spans).Scan(&n); err != nil {
		return 0
	}
	return n
}

// bytes are what the spans, and all that the side keeps, take on disk once merged.
func (s *store) bytes(ctx context.Context, of side) (spans, all uint64, err error) {
	if err := s.conn.Exec(ctx, "OPTIMIZE TABLE "+of.database+"."+of.spans+" FINAL"); err != nil {
		return 0, 0, fmt.Errorf("merge the spans of %s: %w", of.name, err)
	}
	err = s.conn.QueryRow(ctx, `SELECT sumIf(bytes_on_disk, table = {table:String}), sum(bytes_on_disk)
		FROM system.parts WHERE active AND database = {database:String}`,
		clickhouse.Named("table", of.spans), clickhouse.Named("database", of.database)).Scan(&spans, &all)
	if err != nil {
		return 0, 0, fmt.Errorf("measure the store of %s: %w", of.name, err)
	}
	return spans, all, nil
}

func (s *store) drop(ctx context.Context, of side) error {
	if err := s.conn.Exec(ctx, "DROP DATABASE IF EXISTS "+of.database+" SYNC"); err != nil {
		return fmt.Errorf("clear the store of %s: %w", of.name, err)
	}
	return nil
}

// freeAddress is one on loopback that nothing listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), nil
}

// round is what one side did with the traffic.
type round struct {
	sending
	rows       uint64
	queryable  time.Duration // from the first message until the last span could be asked for
	caughtUp   time.Duration // until the ledger had them too, ours alone
	collector  usage
	engine     time.Duration // CPU
	spanBytes  uint64
	totalBytes uint64
}

// quiet is how long the number of rows must stand still before it is the last one.
const quiet = 7 * time.Second // longer than contrib's flush_timeout

// errMissing is returned when not every span arrived.
var errMissing = errors.New("spans are missing")

// run measures one side: from the first message until everything is in the store.
func (s *store) run(ctx context.Context, of side, t *traffic, folder string) (_ *round, err error) {
	if err := s.drop(ctx, of); err != nil {
		return nil, err
	}
	p, grpc, caughtUp, err := of.start(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop(), s.drop(ctx, of), os.RemoveAll(folder)) }()
	before := s.usage().cpu
	started := time.Now()
	watch := make(chan *round, 1)
	sent := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { watch <- s.watch(watching, of, started, caughtUp, sent) }()
	went, err := t.send(ctx, grpc)
	close(sent)
	if err != nil {
		return nil, fmt.Errorf("%w; %s wrote:\n%s", err, p.name, &p.out)
	}
	r := <-watch
	r.sending = *went
	r.collector = p.usage()
	r.engine = s.usage().cpu - before
	if r.rows != uint64(t.spans) {
		return nil, fmt.Errorf("%s keeps %d of %d: %w", of.name, r.rows, t.spans, errMissing)
	}
	if r.spanBytes, r.totalBytes, err = s.bytes(ctx, of); err != nil {
		return nil, err
	}
	return r, nil
}

// watch counts rows until they stand still and the ledger is done.
func (s *store) watch(ctx context.Context, of side, started time.Time, caughtUp func(context.Context) bool, sent <-chan struct{}) *round {
	r := &round{}
	var done bool // all is sent
	for {
		select {
		case <-ctx.Done():
			return r
		case <-sent:
			done, sent = true, nil
		case <-time.After(25 * time.Millisecond):
		}
		if n := s.rows(ctx, of); n != r.rows {
			r.rows, r.queryable, r.caughtUp = n, time.Since(started), 0
			continue
		}
		if !done {
			continue
		}
		if r.caughtUp == 0 && caughtUp(ctx) {
			r.caughtUp = time.Since(started)
		}
		if r.caughtUp > 0 && time.Since(started)-r.queryable > quiet {
			return r
		}
	}
}
