package schema

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// What people do to a store as a whole, beside the collectors that use it.

var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$`)

// ValidBackup tells whether name can be the name of a backup.
func ValidBackup(name string) bool {
	return backupName.MatchString(name) && !strings.Contains(name, "..")
}

// Backup writes the database into a folder of the engine's backups. It may be used
// meanwhile: each table is there as it was at one instant. base, if not empty, is an
// earlier backup that stays needed: only what is not in it is written.
func Backup(ctx context.Context, conn driver.Conn, database, name, base string) error {
	if !ValidBackup(name) || base != "" && !ValidBackup(base) || !ValidDatabase(database) {
		return fmt.Errorf("back up %q as %q: use letters, digits, dots, hyphens and underscores", database, name)
	}
	statement := "BACKUP DATABASE " + quoted(database) + " TO File('" + name + "')"
	if base != "" {
		statement += " SETTINGS base_backup = File('" + base + "')"
	}
	if err := conn.Exec(ctx, statement); err != nil {
		switch {
		case hasCode(err, codeBackupExists):
			err = ErrBackupExists
		case base != "" && hasCode(err, codeNoBackup):
			err = ErrNoBase
		}
		return fmt.Errorf("back up database %q as %q: %w", database, name, err)
	}
	return nil
}

// What is wrong with the names that Backup was given.
var (
	ErrBackupExists = errors.New("there is a backup of this name already")
	ErrNoBase       = errors.New("there is no backup to base it on")
)

// Codes by which ClickHouse refuses a backup (src/Common/ErrorCodes.cpp).
const (
	codeBackupExists = 598
	codeNoBackup     = 599
)

func hasCode(err error, code int32) bool {
	var exception *proto.Exception
	return errors.As(err, &exception) && exception.Code == code
}

// ErrNotEmpty is returned for a store that holds spans already.
var ErrNotEmpty = errors.New("the store holds spans already")

// Restore reads a backup into a database that is migrated and holds no spans. A backup of
// a newer release gives a *NewerSchemaError, and nothing is read.
func Restore(ctx context.Context, conn driver.Conn, database, name string) error {
	if !ValidBackup(name) || !ValidDatabase(database) {
		return fmt.Errorf("restore %q from %q: use letters, digits, dots, hyphens and underscores", database, name)
	}
	fail := func(err error) error { return fmt.Errorf("restore database %q from %q: %w", database, name, err) }
	var spans uint64
	if err := conn.QueryRow(ctx, "SELECT count() FROM spans").Scan(&spans); err != nil {
		return fail(err)
	}
	if spans > 0 {
		return fail(ErrNotEmpty)
	}
	// Its version first, under another name.
	look := "restored_" + strings.ToLower(rand.Text()[:12])
	if err := conn.Exec(ctx, fmt.Sprintf("RESTORE TABLE %[1]s.schema_migrations AS %[1]s.%[2]s FROM File('%[3]s')", quoted(database), look, name)); err != nil {
		return fail(err)
	}
	var found uint32
	err := conn.QueryRow(ctx, "SELECT max(version) FROM "+look).Scan(&found)
	if err := errors.Join(err, conn.Exec(ctx, "DROP TABLE "+look+" SYNC")); err != nil {
		return fail(err)
	}
	if int(found) > Version() {
		return fail(&NewerSchemaError{Database: database, Found: int(found), Known: Version()})
	}
	for _, statement := range []string{
		"RESTORE DATABASE " + quoted(database) + " FROM File('" + name + "') SETTINGS allow_non_empty_tables = 1, allow_different_table_def = 1, allow_different_database_def = 1",
		// The tables are of instants shortly one after the other, so that the ledger may lack
		// the last spans: who attributes sees them as new.
		"INSERT INTO spans (* EXCEPT (inserted_at, insert_id)) SELECT * EXCEPT (inserted_at, insert_id) FROM spans" +
			" WHERE inserted_at >= (SELECT max(inserted_at) FROM spans) - INTERVAL 1 HOUR SETTINGS max_partitions_per_insert_block = 0",
	} {
		if err := conn.Exec(ctx, statement); err != nil {
			return fail(err)
		}
	}
	return nil
}

// Doomed says whose runs are to be deleted. Exactly one field is set.
type Doomed struct {
	Service string // service.name
	Thread  string // a thread's, conversation's or session's id
	Run     string // a run's id
}

// Deleted counts what was deleted.
type Deleted struct{ Traces, Spans uint64 }

var errDoomed = errors.New("name one of service, thread and run")

// Delete deletes runs for good: all traces of the runs, and those without a run that are
// the service's or thread's alone, from every table, and what is said of them in the
// history of alerts. It returns when the parts without them are written; the engine keeps
// the parts before for some minutes more. Spans that come later, or wait in a journal, are
// new ones: stop who sends them first.
func Delete(ctx context.Context, conn driver.Conn, d Doomed) (Deleted, error) {
	var column, value string
	for name, text := range map[string]string{"service": d.Service, "thread_id": d.Thread, "run_id": d.Run} {
		if text == "" {
			continue
		}
		if column != "" {
			return Deleted{}, errDoomed
		}
		column, value = name, text
	}
	if column == "" {
		return Deleted{}, errDoomed
	}
	deleted, err := deleteWhere(ctx, conn, column, value)
	if err != nil {
		return deleted, fmt.Errorf("delete the runs whose %s is %q: %w", column, value, err)
	}
	return deleted, nil
}

// AbandonedAfter is when a deletion that has not ended was killed.
const AbandonedAfter = time.Hour

// DropAbandoned drops what deletions that were killed so long ago had noted of what they
// were to delete. The engine may still be carrying out what one asked of it.
func DropAbandoned(ctx context.Context, conn driver.Conn, after time.Duration) error {
	var names []string
	if err := conn.QueryRow(ctx, `SELECT groupArray(name) FROM system.tables
		WHERE database = currentDatabase() AND startsWith(name, 'doomed_') AND metadata_modification_time <= now() - toIntervalSecond(?)
			AND (SELECT count() FROM system.mutations WHERE database = currentDatabase() AND NOT is_done AND position(command, 'doomed_') > 0) = 0`,
		int64(after/time.Second)).Scan(&names); err != nil {
		return fmt.Errorf("look for deletions that were killed: %w", err)
	}
	for _, name := range names {
		if err := conn.Exec(ctx, "DROP TABLE IF EXISTS "+name+" SYNC"); err != nil {
			return fmt.Errorf("drop what a deletion that was killed left: %w", err)
		}
	}
	return nil
}

func deleteWhere(ctx context.Context, conn driver.Conn, column, value string) (deleted Deleted, err error) {
	if err := DropAbandoned(ctx, conn, AbandonedAfter); err != nil {
		return deleted, err
	}
	doomed := "doomed_" + strings.ToLower(rand.Text()[:12])
	if err := conn.Exec(ctx, "CREATE TABLE "+doomed+" (trace_id FixedString(16), hours Array(UInt32), run_ids Array(String)) ENGINE = MergeTree ORDER BY trace_id"); err != nil {
		return deleted, err
	}
	defer func() {
		err = errors.Join(err, conn.Exec(context.WithoutCancel(ctx), "DROP TABLE "+doomed+" SYNC"))
	}()
	ofSpans := "countIf(" + column + " = ?) > 0"
	if column == "service" {
		ofSpans = "countIf(service != ?) = 0" // a trace through several services is its run's
	}
	for _, statement := range []string{
		"INSERT INTO " + doomed + " SELECT trace_id, hours, `runs.run_id` FROM ledger FINAL WHERE has(`runs." + column + "`, ?)",
		"INSERT INTO " + doomed + " SELECT trace_id, [], [] FROM spans WHERE trace_id NOT IN (SELECT trace_id FROM " + doomed + ") AND trace_id NOT IN (SELECT trace_id FROM ledger WHERE notEmpty(`runs.run_id`))" +
			" GROUP BY trace_id HAVING " + ofSpans,
	} {
		if err := conn.Exec(ctx, statement, value); err != nil {
			return deleted, err
		}
	}
	if err := conn.QueryRow(ctx, "SELECT uniqExact(trace_id), (SELECT uniqExact(trace_id, span_id) FROM spans WHERE trace_id IN (SELECT trace_id FROM "+doomed+")) FROM "+doomed).
		Scan(&deleted.Traces, &deleted.Spans); err != nil {
		return deleted, err
	}
	var examples []string
	if err := conn.QueryRow(ctx, "SELECT groupUniqArray(run) FROM (SELECT arrayJoin(runs) AS run FROM alert_transitions)"+
		" WHERE run IN (SELECT arrayJoin(run_ids) FROM "+doomed+")").Scan(&examples); err != nil {
		return deleted, err
	}
	const now = " SETTINGS mutations_sync = 2"
	of := "DELETE WHERE trace_id IN (SELECT trace_id FROM " + doomed + ")" + now
	statements := []string{
		"INSERT INTO ledger_touched SELECT arrayJoin(hours) AS hour, now64(6, 'UTC') AS touched_at FROM " + doomed,
		// The spans first: without them nothing is attributed again. The ledger twice, for an
		// account that was under way.
		"ALTER TABLE spans " + of, "ALTER TABLE run_keys " + of, "ALTER TABLE ledger " + of,
		"ALTER TABLE usage_hours DELETE WHERE hour IN (SELECT arrayJoin(hours) FROM " + doomed + ")" + now,
		"ALTER TABLE ledger " + of,
	}
	for _, statement := range statements {
		if err := conn.Exec(ctx, statement); err != nil {
			return deleted, err
		}
	}
	if len(examples) > 0 {
		if err := conn.Exec(ctx, "ALTER TABLE alert_transitions UPDATE runs = arrayFilter(run -> NOT has(?, run), runs) WHERE hasAny(runs, ?)"+now, examples, examples); err != nil {
			return deleted, err
		}
	}
	if column == "service" {
		for _, table := range []string{"alert_samples", "alert_transitions"} {
			if err := conn.Exec(ctx, "ALTER TABLE "+table+" DELETE WHERE service = ?"+now, value); err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// Deletions says what Delete did to a store, as far as the store remembers it: a hundred
// changes of each table.
type Deletions struct {
	// Mark differs once more was deleted of the ledger or of the history of alerts; 0 where
	// nothing ever was. It may differ too when the store forgets deletions.
	Mark uint64
	// OfAlerts is when a service was deleted from the history of alerts last, to the second;
	// 1970 where none ever was.
	OfAlerts time.Time
}

// LastDeletions are the deletions that are finished.
func LastDeletions(ctx context.Context, conn driver.Conn) (Deletions, error) {
	var d Deletions
	err := conn.QueryRow(ctx, "SELECT sum(cityHash64(table, mutation_id, create_time)), maxIf(create_time, table = 'alert_transitions') FROM system.mutations"+
		" WHERE database = currentDatabase() AND table IN ('ledger', 'alert_transitions') AND is_done AND command LIKE '%DELETE WHERE%'").Scan(&d.Mark, &d.OfAlerts)
	if err != nil {
		return Deletions{}, fmt.Errorf("read what was deleted: %w", err)
	}
	return d, nil
}
