// Package enginetest gives tests a real ClickHouse: one engine shared by every
// test process of this user, with an empty database for each test, or an
// engine of the test's own.
//
// A test whose engine cannot be had fails, with a sentence that says why.
// RETRYLEDGER_TEST_NO_ENGINE=1 skips it instead.
package enginetest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/internal/engine"
)

// NoEngineEnv set to 1 skips the tests that need an engine.
const NoEngineEnv = "RETRYLEDGER_TEST_NO_ENGINE"

// A test binary is started again as the engine's process and as the keeper of
// the shared engine. Neither runs a test, and no TestMain is needed for it.
func init() {
	switch {
	case engine.IsHost():
		os.Exit(engine.HostMain(os.Args[2:]))
	case os.Getenv(keeperEnv) != "":
		os.Exit(keep(os.Getenv(keeperEnv)))
	}
}

// DB is an empty database on the shared engine.
type DB struct {
	Name    string
	Conn    driver.Conn         // open, with Name as its database
	Options *clickhouse.Options // for further connections, with Name as the database
}

// Database creates an empty database on the shared engine and drops it when
// the test ends.
func Database(t testing.TB) *DB {
	t.Helper()
	skipUnwanted(t)
	s, err := shared()
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	return database(t, s.options())
}

// database creates a database through admin, the options of an engine.
func database(t testing.TB, admin *clickhouse.Options) *DB {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opts := *admin
	opts.Auth.Database = name
	root, err := clickhouse.Open(admin)
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	if err := root.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		root.Close()
		t.Fatalf("enginetest: create a database: %v", err)
	}
	conn, err := clickhouse.Open(&opts)
	if err != nil {
		root.Close()
		t.Fatalf("enginetest: %v", err)
	}
	t.Cleanup(func() {
		conn.Close()
		defer root.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := root.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" SYNC"); err != nil {
			t.Errorf("enginetest: drop the database: %v", err)
		}
	})
	own := opts
	return &DB{Name: name, Conn: conn, Options: &own}
}

// Start starts an engine for this test alone, to crash or to restart, and
// shuts it down when the test ends. An empty opts.DataDir becomes a temporary
// folder.
func Start(t testing.TB, opts engine.Options) *engine.Engine {
	t.Helper()
	skipUnwanted(t)
	if opts.DataDir == "" {
		opts.DataDir = filepath.Join(t.TempDir(), "engine")
	}
	if opts.MemoryLimit == 0 {
		opts.MemoryLimit = 1 << 30
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	e, err := engine.Start(ctx, opts)
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("enginetest: %v", err)
		}
	})
	return e
}

func skipUnwanted(t testing.TB) {
	t.Helper()
	if os.Getenv(NoEngineEnv) == "1" {
		t.Skip("needs ClickHouse; " + NoEngineEnv + "=1 is set")
	}
}
