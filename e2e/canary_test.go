package e2e

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/internal/porttest"
	"github.com/retryledger/retryledger/internal/replay"
)

// Everything that must not be kept has this word in it, and nothing else has.
const canary = "zilpzalp"

// canaryPrompts are contents; canarySecrets stand in names too.
var (
	canaryPrompts = []string{
		"Tell me about the zilpzalp in the mine",
		`[{"role":"user","content":"What does a zilpzalp eat?"}]`,
		`{"messages":["a zilpzalp sang"],"status":"the zilpzalp failed","error":"no zilpzalp"}`,
	}
	canarySecrets = []string{
		"sk-proj-zilpzalp0123456789abcdefGHIJ", "AKIAZILPZALP12345678", "Bearer zilpzalp0123456789", "https://zilpzalp:zilpzalpPassw0rd@db.example.com/x",
		"https://example.com/x?api_key=zilpzalp123&b=c", "password=zilpzalp123", "xoxb-123456789012-zilpzalp", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.zilpzalp",
	}
)

// dialectKeys are the texts in the code of the dialects that may be the key of an
// attribute or the name of a scope.
func dialectKeys(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../ingest/dialect/*.go")
	require.NoError(t, err)
	found := map[string]bool{}
	like := regexp.MustCompile(`^[A-Za-z_@][\w.@/:-]*$`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && like.MatchString(text) {
					found[text] = true
				}
			}
			return true
		})
	}
	require.Greater(t, len(found), 300)
	return slices.Sorted(maps.Keys(found))
}

// keptNames are the places whose text is kept for the name that it is.
func keptNames(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile("../ingest/dialect/testdata/kept.txt")
	require.NoError(t, err)
	kept := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		place, _, ok := strings.Cut(line, " → ")
		require.True(t, ok, line)
		kept[place[strings.LastIndex(place, " ")+1:]] = true // a key is a name wherever it stands
	}
	return kept
}

// canaryTraces are requests whose every text is a prompt, or a secret where names belong.
// What decides how a span is read is there too, so that all of it is looked at.
func canaryTraces(t *testing.T) (requests []ptrace.Traces, spans int) {
	t.Helper()
	keys, names := dialectKeys(t), keptNames(t)
	turn := 0
	text := func(key string) string {
		turn++
		if names[key] || turn%3 == 0 {
			return canarySecrets[turn%len(canarySecrets)]
		}
		return canaryPrompts[turn%len(canaryPrompts)]
	}
	fill := func(m pcommon.Map) {
		for _, key := range keys {
			if turn%7 == 0 {
				m.PutEmptySlice(key).AppendEmpty().SetStr(text(key))
			} else {
				m.PutStr(key, text(key))
			}
		}
	}
	kinds := []map[string]string{
		{"openinference.span.kind": "LLM"}, {"openinference.span.kind": "CHAIN"}, {"openinference.span.kind": "TOOL"},
		{"gen_ai.operation.name": "chat"}, {"gen_ai.operation.name": "execute_tool"}, {"langfuse.observation.type": "generation"}, {"traceloop.span.kind": "workflow"},
		{"langsmith.span.kind": "llm"}, {"mlflow.spanType": "\"LLM\""}, {},
	}
	now := time.Now()
	for i, scope := range keys {
		if !strings.ContainsAny(scope, ".-/@") && i%5 != 0 {
			continue // hardly the name of a scope
		}
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		fill(rs.Resource().Attributes())
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName(scope)
		ss.Scope().SetVersion(text(""))
		fill(ss.Scope().Attributes())
		span := ss.Spans().AppendEmpty()
		span.SetTraceID(pcommon.TraceID{0xCA, byte(i >> 8), byte(i)})
		span.SetSpanID(pcommon.SpanID{byte(i >> 8), byte(i), 1})
		span.SetName("call of " + canarySecrets[i%len(canarySecrets)])
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
		span.TraceState().FromRaw("vendor=" + canary)
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(text(""))
		fill(span.Attributes())
		for key, value := range kinds[i%len(kinds)] {
			span.Attributes().PutStr(key, value)
		}
		for _, name := range []string{"exception", "retry", "fallback", "gen_ai.content.prompt", "contract violation " + canarySecrets[0], text("")} {
			event := span.Events().AppendEmpty()
			event.SetName(name)
			fill(event.Attributes())
		}
		link := span.Links().AppendEmpty()
		link.TraceState().FromRaw("vendor=" + canary)
		fill(link.Attributes())
		requests = append(requests, td)
		spans++
	}
	return requests, spans
}

func sendAll(t *testing.T, d daemon, requests []ptrace.Traces) {
	t.Helper()
	for _, w := range []way{ways[0], {name: "JSON", encoding: replay.JSON}} {
		sender := d.sender(w)
		for _, td := range requests {
			require.NoError(t, sender.Send(t.Context(), td))
		}
	}
}

// Prompts and secrets are kept nowhere: in no table, journal, dead letter or log.
func TestNoPromptAndNoSecretIsKept(t *testing.T) {
	requests, spans := canaryTraces(t)
	require.Greater(t, spans, 100)
	p := newPlace(t)
	_, port, err := net.SplitHostPort(porttest.Free(t, 1)[0])
	require.NoError(t, err)
	t.Setenv("RETRYLEDGER_LOG_LEVEL", "debug")
	args := []string{"--set=extensions.retryledger_store.engine.port=" + port, "--set=extensions.retryledger_store.engine.log_level=trace"}
	d := start(t, p, args...)
	sendAll(t, d, requests)
	eventually(t, appearWithin, func() error {
		var status answer.Status
		if err := d.Get(context.Background(), "/api/v1/status", &status); err != nil {
			return err
		}
		if status.Spans < int64(spans) || status.LedgerLagMs > 0 {
			return fmt.Errorf("%d of %d spans, %v ms behind", status.Spans, spans, status.LedgerLagMs)
		}
		return nil
	})
	for _, path := range []string{"/api/v1/top?limit=0", "/api/v1/runs?limit=0", "/api/v1/alerts", "/api/v1/breakers"} {
		var answered any
		require.NoError(t, d.Get(t.Context(), path, &answered))
		assert.NotContains(t, strings.ToLower(asJSON(t, answered)), canary, path)
	}
	password, err := os.ReadFile(filepath.Join(p.Data, "engine", "password"))
	require.NoError(t, err)
	assertNotInTables(t, net.JoinHostPort("127.0.0.1", port), strings.TrimSpace(string(password)))
	d.Stop()
	assert.NotContains(t, strings.ToLower(d.Output()), canary)
	assertNowhere(t, p.Data, canary, "ZILPZALP")

	// While the store is away the journal holds the same rows, and no more.
	away := newPlace(t)
	d = start(t, away, "--set=extensions.retryledger_store.endpoint="+porttest.Free(t, 1)[0], "--set=extensions.retryledger_store.username=nobody")
	sendAll(t, d, requests[:50])
	d.Kill()
	assertNowhere(t, away.Data, canary, "ZILPZALP")
	read, err := journal.Open(journal.Options{Dir: filepath.Join(away.Data, "journal"), MaxBytes: 1 << 30, SegmentBytes: 64 << 20})
	require.NoError(t, err)
	rows := 0
	for {
		record, err := read.TryNext()
		if errors.Is(err, journal.ErrEmpty) {
			break
		}
		require.NoError(t, err)
		rows += len(record.Spans)
		assert.NotContains(t, strings.ToLower(fmt.Sprintf("%+v", record.Spans)), canary)
	}
	require.NoError(t, read.Close())
	assert.GreaterOrEqual(t, rows, 100)
}

// execOn runs a statement in the ledger's database of an engine.
func execOn(t *testing.T, address, password, statement string) {
	t.Helper()
	conn := ledgerOn(t, address, password)
	require.NoError(t, conn.Exec(t.Context(), statement))
	require.NoError(t, conn.Close())
}

func ledgerOn(t *testing.T, address, password string) driver.Conn {
	t.Helper()
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{address}, Auth: clickhouse.Auth{Database: "retryledger", Username: "retryledger", Password: password}})
	require.NoError(t, err)
	return conn
}

// assertNotInTables looks at every row of every table of the ledger.
func assertNotInTables(t *testing.T, address, password string) {
	t.Helper()
	conn := ledgerOn(t, address, password)
	defer func() { require.NoError(t, conn.Close()) }()
	var tables []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT groupArray(name) FROM system.tables WHERE database = 'retryledger' AND engine NOT LIKE '%View'").Scan(&tables))
	require.Contains(t, tables, "spans")
	require.Contains(t, tables, "ledger")
	// Not as one word: the engine's log holds the query.
	word := "concat('" + canary[:4] + "', '" + canary[4:] + "')"
	for _, table := range tables {
		var rows uint64
		var found []string
		require.NoError(t, conn.QueryRow(t.Context(), "WITH position(lower(line), "+word+") AS at SELECT count(), groupArrayIf(5)(substring(line, greatest(1, at - 60), 120), at > 0)"+
			" FROM (SELECT formatRow('JSONEachRow', *) AS line FROM "+table+")").Scan(&rows, &found))
		assert.Empty(t, found, "table %s", table)
		if table == "spans" || table == "ledger" {
			assert.Positive(t, rows, table)
		}
	}
}
