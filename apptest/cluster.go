//go:build linux

package apptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/internal/collectortest"
)

// cluster is two collectors that share one engine.
type cluster struct {
	folder     string
	engine     *process
	address    string // of the engine
	collectors [2]*node
	store      driver.Conn
}

// node is one collector and its places.
type node struct {
	*process
	place   collectortest.Place
	journal *disk
	grpc    *proxy
	http    *proxy
}

// newCluster starts everything in an empty folder. ports are nine free addresses, journals
// makes the disk of a journal, environment is what the engine has besides its data folder.
func newCluster(ctx context.Context, folder string, ports []string, journals func(folder string) (*disk, error), environment ...string) (_ *cluster, err error) {
	c := &cluster{folder: folder, address: ports[0]}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	engineData := filepath.Join(folder, "engine")
	c.engine = &process{
		name: "engine", ready: "listens at " + c.address,
		args: []string{"engine", "--data-dir", engineData, "--listen", c.address, "--memory-limit", "1GiB"},
		env:  append([]string{"RETRYLEDGER_DATA_DIR=" + engineData}, environment...),
	}
	if err := c.engine.start(ctx); err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(filepath.Join(engineData, "password"))
	if err != nil {
		return nil, fmt.Errorf("read the engine's password: %w", err)
	}
	password := strings.TrimSpace(string(secret))
	for i := range c.collectors {
		if c.collectors[i], err = newNode(ctx, c, i, ports[1+4*i:5+4*i], password, journals); err != nil {
			return nil, err
		}
		if err := c.collectors[i].start(ctx); err != nil {
			return nil, err
		}
	}
	c.store, err = clickhouse.Open(&clickhouse.Options{
		Addr: []string{c.address}, Auth: clickhouse.Auth{Database: "retryledger", Username: "retryledger", Password: password},
		DialTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the engine: %w", err)
	}
	return c, nil
}

func newNode(ctx context.Context, c *cluster, i int, ports []string, password string, journals func(folder string) (*disk, error)) (*node, error) {
	data := filepath.Join(c.folder, fmt.Sprintf("collector-%d", i))
	journal, err := journals(filepath.Join(c.folder, fmt.Sprintf("journal-%d", i)))
	if err != nil {
		return nil, err
	}
	n := &node{place: collectortest.Place{Data: data, GRPC: ports[0], HTTP: ports[1], Langfuse: ports[2], API: ports[3]}, journal: journal}
	n.process = &process{
		name: fmt.Sprintf("collector %d", i), ready: collectortest.ReadyText,
		args: append(n.place.Settings(),
			"--set=extensions.retryledger_store.endpoint="+c.address,
			"--set=extensions.retryledger_store.username=retryledger",
			"--set=extensions.retryledger_store.password=${env:APPTEST_PASSWORD}",
			"--set=exporters.retryledger.journal.directory="+filepath.Join(journal.folder, "journal"),
			// A long soak asks for everything at once.
			"--set=extensions.retryledger_api.query_timeout=3m",
			"--set=extensions.retryledger_api.write_timeout=4m",
			"--set=exporters.retryledger.journal.segment_size_mib=1",
			"--set=exporters.retryledger.journal.max_size_mib=8",
			"--set=exporters.retryledger.journal.min_free_disk_mib=4",
		),
		env: []string{"RETRYLEDGER_DATA_DIR=" + data, "APPTEST_PASSWORD=" + password},
	}
	if n.grpc, err = newProxy(ctx, n.place.GRPC); err != nil {
		return nil, err
	}
	if n.http, err = newProxy(ctx, n.place.HTTP); err != nil {
		return nil, err
	}
	return n, nil
}

// spans lists the spans that the store holds, trace id and span id in hexadecimal, sorted.
func (c *cluster) spans(ctx context.Context) (_ []string, err error) {
	rows, err := c.store.Query(ctx, "SELECT DISTINCT concat(lower(hex(trace_id)), lower(hex(span_id))) FROM spans ORDER BY 1")
	if err != nil {
		return nil, fmt.Errorf("list the spans of the store: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var held []string
	for rows.Next() {
		var span string
		if err := rows.Scan(&span); err != nil {
			return nil, fmt.Errorf("list the spans of the store: %w", err)
		}
		held = append(held, span)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the spans of the store: %w", err)
	}
	return held, nil
}

// close ends everything that still runs and gives back the disks.
func (c *cluster) close() {
	for _, n := range c.collectors {
		if n == nil {
			continue
		}
		for _, p := range []*proxy{n.grpc, n.http} {
			if p != nil {
				_ = p.Close()
			}
		}
		n.signal(syscall.SIGCONT)
		n.kill()
		n.journal.close()
	}
	if c.store != nil {
		_ = c.store.Close()
	}
	c.engine.signal(syscall.SIGCONT)
	c.engine.kill()
}

// stop ends everything as an operator does.
func (c *cluster) stop() error {
	const within = 30 * time.Second
	var errs []error
	for _, n := range c.collectors {
		errs = append(errs, n.stop(within))
	}
	return errors.Join(append(errs, c.engine.stop(within))...)
}

// merges starts or stops the engine's merges.
func (c *cluster) merges(ctx context.Context, verb string) error {
	if err := c.store.Exec(ctx, "SYSTEM "+verb+" MERGES"); err != nil {
		return fmt.Errorf("%s merges: %w", strings.ToLower(verb), err)
	}
	return nil
}

// merge makes the engine merge all parts now.
func (c *cluster) merge(ctx context.Context) error {
	for _, table := range []string{"spans", "ledger"} {
		if err := c.store.Exec(ctx, "OPTIMIZE TABLE "+table+" FINAL"); err != nil {
			return fmt.Errorf("merge the parts of %s: %w", table, err)
		}
	}
	return nil
}
