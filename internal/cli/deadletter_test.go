package cli_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/cli"
	"github.com/retryledger/retryledger/schema"
)

// lettersFolder is a data folder with some dead letters, and its journal.
func lettersFolder(t *testing.T) (data, folder string) {
	t.Helper()
	data = t.TempDir()
	folder = filepath.Join(data, "journal")
	require.NoError(t, os.Mkdir(folder, 0o700))
	row, err := journal.EncodeRows([]schema.Span{{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{7}}})
	require.NoError(t, err)
	at := func(minute int) time.Time { return time.Date(2026, 3, 2, 11, minute, 0, 0, time.UTC) }
	f := deadletter.New(folder, 1<<20)
	_, err = f.Add(
		deadletter.Letter{Time: at(1), Kind: deadletter.KindSpan, Cause: deadletter.CauseNoTraceID, Reason: "the span has no trace id", SpanID: "0000000000000002", Service: "shop"},
		deadletter.Letter{Time: at(1), Kind: deadletter.KindSpan, Cause: deadletter.CauseNoTraceID, Reason: "the span has no trace id", Count: 4900},
		deadletter.Letter{Time: at(2), Kind: deadletter.KindRow, Cause: deadletter.CauseStoreRefused, Reason: "insert 1 rows into spans: \x1b[31mcode: 321", TraceID: "01000000000000000000000000000000", SpanID: "0700000000000000", Service: "shop", Row: row},
		deadletter.Letter{Time: at(3), Kind: deadletter.KindJournal, Reason: "the checksum does not match", Segment: "0000000000000001-00000000000000aa.journal", Offset: 64, Length: 4096},
	)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return data, folder
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	data, folder := lettersFolder(t)
	golden(t, "deadletter_list", process{width: 140}.must(t, "deadletter", "list", "--data-dir", data))
	golden(t, "deadletter_list_json", process{}.must(t, "deadletter", "list", "--journal", folder, "--format", "json", "--limit", "2"))
	by := process{variables: map[string]string{"RETRYLEDGER_DATA_DIR": data}}
	assert.Contains(t, by.must(t, "deadletter", "list"), "4903 items")
	require.NoError(t, os.Remove(filepath.Join(folder, deadletter.Name)))
	assert.Contains(t, by.must(t, "deadletter", "list"), "No dead letters")
}

func TestDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	data, folder := lettersFolder(t)
	_, stderr, code := process{}.run(t, "deadletter", "replay", "--data-dir", data, "--wait", "1ms")
	assert.Equal(t, cli.ExitUnreachable, code)
	assert.Contains(t, stderr, "The request stays")
	id, asked := deadletter.Requested(folder)
	require.True(t, asked)

	require.NoError(t, deadletter.Respond(folder, deadletter.Answer{ID: id, Replayed: 1, Kept: 3})) // as the collector does
	assert.Equal(t, "1 row replayed from "+folder+": now in the journal, from where they go to the store.\nLeft there, for nothing of them can be replayed: 3 lines.\n",
		process{}.must(t, "deadletter", "replay", "--data-dir", data))

	_, asked = deadletter.Requested(folder)
	require.True(t, asked, "the answer was there before the request in this test")
	require.NoError(t, deadletter.Respond(folder, deadletter.Answer{ID: id, Error: "the journal is full"}))
	_, stderr, code = process{}.run(t, "deadletter", "replay", "--data-dir", data)
	assert.Equal(t, cli.ExitUnreachable, code)
	assert.Contains(t, stderr, "the journal is full")
}

func TestMistakesWithDeadLetters(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"list", "--data-dir", empty}, cli.ExitInput, "--data-dir"},
		{[]string{"replay", "--journal", filepath.Join(empty, "none")}, cli.ExitInput, "none"},
		{[]string{"list", "--format", "xml"}, cli.ExitUsage, "table or json"},
		{[]string{"list", "--limit", "-1"}, cli.ExitUsage, "--limit"},
		{[]string{"list", "extra"}, cli.ExitUsage, "no arguments"},
	} {
		_, stderr, code := process{}.run(t, append([]string{"deadletter"}, c.args...)...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, stderr, c.says)
	}
}
