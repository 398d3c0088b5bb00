package schema

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

// Of two migrations of one version, a store that one of them brought there lacks the other.
func TestEachVersionIsOneMigration(t *testing.T) {
	list, err := migrations()
	require.NoError(t, err)
	for i, m := range list {
		assert.Equal(t, i+1, m.version, m.name)
	}
}

func TestCollectorsMigrateAtOnce(t *testing.T) {
	db := enginetest.Database(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			conn, err := clickhouse.Open(db.Options)
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = conn.Close() }()
			errs[i] = Migrate(t.Context(), conn, MigrateOptions{})
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	var version uint32
	var versions uint64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT max(version), uniqExact(version) FROM schema_migrations").Scan(&version, &versions))
	assert.EqualValues(t, Version(), version)
	assert.EqualValues(t, Version(), versions, "no version is left out")
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(1)}))
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}), "a second start")
}

func TestMigrationThatWasCutShortIsFinished(t *testing.T) {
	db := enginetest.Database(t)
	list, err := migrations()
	require.NoError(t, err)
	fill := strings.NewReplacer("{spans_days}", "30", "{ledger_days}", "400")
	require.NoError(t, db.Conn.Exec(t.Context(), statements(fill.Replace(list[0].text))[0]))
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}))
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{plainSpan(1)}))
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	db := migrated(t)
	require.NoError(t, db.Conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (?, 'future')", uint32(Version()+1)))
	require.NoError(t, db.Conn.Exec(t.Context(), "DROP VIEW steps"))
	err := Migrate(t.Context(), db.Conn, MigrateOptions{})
	var newer *NewerSchemaError
	require.ErrorAs(t, err, &newer)
	assert.Equal(t, NewerSchemaError{Database: db.Name, Found: Version() + 1, Known: Version()}, *newer)
	assert.ErrorContains(t, err, "at least as new")
	assert.Error(t, db.Conn.Exec(t.Context(), "SELECT 1 FROM steps"), "nothing was changed")
}

func TestRetentionFollowsTheConfiguration(t *testing.T) {
	db := enginetest.Database(t)
	ttls := func() (found []string) {
		for _, table := range []string{"spans", "run_keys", "ledger"} {
			var ddl string
			require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT engine_full FROM system.tables WHERE database = ? AND name = ?", db.Name, table).Scan(&ddl))
			_, after, _ := strings.Cut(ddl, "toIntervalDay(")
			days, _, _ := strings.Cut(after, ")")
			found = append(found, days)
		}
		return found
	}
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}))
	assert.Equal(t, []string{"30", "30", "400"}, ttls())
	day := 24 * time.Hour
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{SpanRetention: 6*day + time.Hour, LedgerRetention: 90 * day}))
	assert.Equal(t, []string{"7", "7", "90"}, ttls())
}

func TestRowsEndWithTheirRetention(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, Migrate(t.Context(), db.Conn, MigrateOptions{}))
	old, kept := plainSpan(1), plainSpan(2)
	old.ReceivedNs = time.Now().Add(-31 * 24 * time.Hour).UnixNano()
	kept.ReceivedNs = time.Now().UnixNano()
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{old}))
	require.NoError(t, InsertSpans(t.Context(), db.Conn, rand.Uint64, []Span{kept}))
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE spans FINAL"))
	found, err := SpansOfTraces(t.Context(), db.Conn, []TraceID{old.TraceID}, 10)
	require.NoError(t, err)
	require.Len(t, found[old.TraceID].Spans, 1, "a span is kept by its receipt, however old itself")
	assert.Equal(t, kept.SpanID, found[old.TraceID].Spans[0].SpanID)
}

func TestCreateDatabase(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, CreateDatabase(t.Context(), db.Conn, db.Name))
	name := db.Name + "_second"
	require.NoError(t, CreateDatabase(t.Context(), db.Conn, name))
	require.NoError(t, CreateDatabase(t.Context(), db.Conn, name))
	require.NoError(t, db.Conn.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" SYNC"))
	require.ErrorContains(t, CreateDatabase(t.Context(), db.Conn, "a`b"), "letters")
}

// The columns of the views are what people's queries and dashboards stand on. A
// change shows in testdata/views.txt; UPDATE_GOLDEN=1 writes it anew.
func TestViewColumns(t *testing.T) {
	db := migrated(t)
	rows, err := db.Conn.Query(t.Context(), "SELECT table, name, type FROM system.columns WHERE database = ? AND table IN ('attempts', 'operations', 'steps', 'runs', 'violations') ORDER BY table, position", db.Name)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	var text strings.Builder
	for rows.Next() {
		var table, name, kind string
		require.NoError(t, rows.Scan(&table, &name, &kind))
		text.WriteString(table + "." + name + " " + kind + "\n")
	}
	require.NoError(t, rows.Err())
	const path = "testdata/views.txt"
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), text.String())
}
