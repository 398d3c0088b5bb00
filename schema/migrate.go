package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// MigrateOptions are what the DDL leaves to the user.
type MigrateOptions struct {
	SpanRetention   time.Duration // of spans and their keys, whole days; 0 means DefaultSpanRetention
	LedgerRetention time.Duration // of the ledger, whole days; 0 means DefaultLedgerRetention
}

// The retention where none is configured.
const (
	DefaultSpanRetention   = 30 * 24 * time.Hour
	DefaultLedgerRetention = 400 * 24 * time.Hour
)

func (o MigrateOptions) days() (spans, ledger int) {
	if o.SpanRetention == 0 {
		o.SpanRetention = DefaultSpanRetention
	}
	if o.LedgerRetention == 0 {
		o.LedgerRetention = DefaultLedgerRetention
	}
	const day = 24 * time.Hour
	return int((o.SpanRetention + day - 1) / day), int((o.LedgerRetention + day - 1) / day)
}

type migration struct {
	version int
	name    string
	text    string
}

func migrations() ([]migration, error) {
	var list []migration
	err := fs.WalkDir(sqlFiles, "sql", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%s does not begin with its version: %w", path, err)
		}
		text, err := sqlFiles.ReadFile(path)
		if err != nil {
			return err
		}
		if n := len(list); n > 0 && list[n-1].version == version {
			// A store that has recorded one of them would never get the other.
			return fmt.Errorf("%s and %s.sql have one version", entry.Name(), list[n-1].name)
		}
		list = append(list, migration{version, strings.TrimSuffix(entry.Name(), ".sql"), string(text)})
		return nil
	})
	return list, err
}

// Version is the newest schema version that this release knows.
func Version() int {
	list, err := migrations()
	if err != nil || len(list) == 0 {
		panic(fmt.Sprintf("the embedded migrations cannot be read: %v", err)) // impossible: they are compiled in
	}
	return list[len(list)-1].version
}

const createMigrations = "CREATE TABLE IF NOT EXISTS schema_migrations (version UInt32, name String, applied_at DateTime DEFAULT now()) " +
	"ENGINE = ReplacingMergeTree ORDER BY version SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"

var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// ValidDatabase tells whether name can be the name of a database.
func ValidDatabase(name string) bool { return databaseName.MatchString(name) }

// CreateDatabase creates the database if it does not exist. conn may have
// another database, or none. A user without the right to create databases is
// fine where it exists.
func CreateDatabase(ctx context.Context, conn driver.Conn, name string) error {
	if !ValidDatabase(name) {
		return fmt.Errorf("%q is no name of a database: use letters, digits and underscores, a letter first", name)
	}
	var there uint64
	if err := conn.QueryRow(ctx, "SELECT count() FROM system.databases WHERE name = ?", name).Scan(&there); err != nil {
		return fmt.Errorf("look for database %q: %w", name, err)
	}
	if there > 0 {
		return nil
	}
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+quoted(name)); err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// Migrate brings conn's database to Version and sets the retention. Any number
// of collectors may do so at once: every statement may be repeated, and a
// version is recorded after all of its statements. A database that a newer
// release migrated gives a *NewerSchemaError and is not touched.
func Migrate(ctx context.Context, conn driver.Conn, opts MigrateOptions) error {
	list, err := migrations()
	if err != nil {
		return err
	}
	if err := repeated(ctx, conn, createMigrations); err != nil {
		return fmt.Errorf("create the table of migrations: %w", err)
	}
	var found uint32
	var database string
	err = conn.QueryRow(ctx, "SELECT max(version), currentDatabase() FROM schema_migrations").Scan(&found, &database)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if known := list[len(list)-1].version; int(found) > known {
		return &NewerSchemaError{Database: database, Found: int(found), Known: known}
	}
	spanDays, ledgerDays := opts.days()
	fill := strings.NewReplacer("{spans_days}", strconv.Itoa(spanDays), "{ledger_days}", strconv.Itoa(ledgerDays))
	for _, m := range list {
		if m.version <= int(found) {
			continue
		}
		for _, statement := range statements(fill.Replace(m.text)) {
			if err := repeated(ctx, conn, statement); err != nil {
				return fmt.Errorf("migrate database %q to schema version %d (%s): %w", database, m.version, m.name, err)
			}
		}
		if err := conn.Exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES (?, ?)", uint32(m.version), m.name); err != nil {
			return fmt.Errorf("record schema version %d of database %q: %w", m.version, database, err)
		}
	}
	return setRetention(ctx, conn, spanDays, ledgerDays)
}

// statements splits a file at the semicolons that end a line, comments left out.
func statements(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text+"\n", ";\n") {
		var lines []string
		for line := range strings.SplitSeq(part, "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), "--") {
				lines = append(lines, line)
			}
		}
		if s := strings.TrimSpace(strings.Join(lines, "\n")); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// Codes that two migrators of one database can give each other.
const (
	codeTableExists   = 57
	codeUnknownTable  = 60
	codeDDLInProgress = 731
)

// repeated runs a statement that may be run again, over the collisions of
// another migrator.
func repeated(ctx context.Context, conn driver.Conn, statement string) error {
	for try := 1; ; try++ {
		err := conn.Exec(ctx, statement)
		var exception *proto.Exception
		if try == 5 || !errors.As(err, &exception) {
			return err
		}
		switch exception.Code {
		case codeTableExists, codeUnknownTable, codeDDLInProgress:
			continue
		}
		return err
	}
}

// setRetention changes the TTLs where the configuration changed. It does
// nothing, and needs no right to do it, where it did not.
func setRetention(ctx context.Context, conn driver.Conn, spanDays, ledgerDays int) error {
	const received = "toDateTime(intDiv(received_ns, 1000000000), 'UTC')"
	for _, table := range []struct {
		name, from string
		days       int
	}{
		{"spans", received, spanDays},
		{"run_keys", "received_at", spanDays},
		{"ledger", "received_at", ledgerDays},
		{"usage_hours", "toDateTime(hour * 3600, 'UTC')", ledgerDays},
	} {
		interval := fmt.Sprintf("toIntervalDay(%d)", table.days)
		var ddl string
		err := conn.QueryRow(ctx, "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = ?", table.name).Scan(&ddl)
		if err != nil {
			return fmt.Errorf("read the retention of %s: %w", table.name, err)
		}
		if strings.Contains(ddl, interval) {
			continue
		}
		if err := repeated(ctx, conn, fmt.Sprintf("ALTER TABLE %s MODIFY TTL %s + %s", table.name, table.from, interval)); err != nil {
			return fmt.Errorf("set the retention of %s to %d days: %w", table.name, table.days, err)
		}
	}
	return nil
}
