package dashboards

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// answered is what the store answers.
type answered struct {
	columns []string
	rows    []map[string]any
}

// asked runs SQL as a user that may only read.
func asked(t testing.TB, conn driver.Conn, sql string) (answered, error) {
	t.Helper()
	ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"readonly": 2, "max_execution_time": 60}))
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = rows.Close() }()
	found := answered{columns: rows.Columns()}
	for rows.Next() {
		dests := make([]any, len(found.columns))
		for i, c := range rows.ColumnTypes() {
			dests[i] = reflect.New(c.ScanType()).Interface()
		}
		if err := rows.Scan(dests...); err != nil {
			return answered{}, err
		}
		row := map[string]any{}
		for i, name := range found.columns {
			value := reflect.ValueOf(dests[i]).Elem()
			for value.Kind() == reflect.Pointer && !value.IsNil() {
				value = value.Elem()
			}
			row[name] = value.Interface()
			if value.Kind() == reflect.Pointer {
				row[name] = nil
			}
		}
		found.rows = append(found.rows, row)
	}
	return found, rows.Err()
}

// statement is a query of a dashboard, wherever it stands.
type statement struct {
	name     string
	sql      string
	panel    *documentPanel // nil: a variable's or an annotation's
	variable string         // "": a panel's or an annotation's
	query    documentQuery
}

func statements(t testing.TB) map[string][]statement {
	t.Helper()
	list := map[string][]statement{}
	for uid, d := range documents(t) {
		for _, p := range d.all() {
			for _, q := range p.Targets {
				list[uid] = append(list[uid], statement{name: uid + ": " + p.Title + " " + q.RefID, sql: q.RawSQL, panel: &p, query: q})
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				list[uid] = append(list[uid], statement{name: uid + ": variable " + v.Name, sql: v.sql(), variable: v.Name})
			}
		}
		for _, a := range d.Annotations.List {
			list[uid] = append(list[uid], statement{name: uid + ": annotation " + a.Name, sql: a.Target.RawSQL, query: a.Target})
		}
	}
	return list
}

// everything is the range of the captures, with All everywhere.
func everything(d document) selection {
	s := selection{from: storetest.Day.Add(-time.Hour), to: storetest.Day.Add(23 * time.Hour), values: map[string][]string{}}
	for _, v := range d.Templating.List {
		s.values[v.Name] = nil
		if d.writes(v.Name) {
			s.values[v.Name] = []string{""}
		}
	}
	return s
}

// restricted is s with the values of some variables.
func (s selection) restricted(values map[string][]string) selection {
	copied := selection{from: s.from, to: s.to, values: map[string][]string{}}
	for name, all := range s.values {
		copied.values[name] = all
		if chosen, ok := values[name]; ok {
			copied.values[name] = chosen
		}
	}
	return copied
}

// odd are names that somebody could have given, with what is special in SQL, JSON,
// regular expressions, Grafana and JavaScript.
var odd = map[string][]string{
	"service":     {`O'Neil's "shop"`, `back\slash\`},
	"environment": {"prod, (eu)", "(not stated)"},
	"version":     {"$1.0 ${step} $$", "1.0''; DROP TABLE spans"},
	"step":        {"überprüfen 検証 🙂", `a''b\'c`},
	"provider":    {"x-y/*z*/", "%27&var-step=a"},
	"run":         {`a--b /* '\`, "100 % ${run} $$ ü"},
	"tracing":     {`https://x.test/'\--/{trace_id}?a=%20b`, ""},
}

// oddRow is a trace of the odd names, the n-th of each. Each operation is repeated once.
func oddRow(n int) schema.LedgerRow {
	name := func(of string) string { return strings.ReplaceAll(odd[of][n], notStated, "") }
	end := storetest.Day.UnixNano()
	input := int64(100)
	row := schema.LedgerRow{
		TraceID: schema.TraceID{200, byte(n)}, State: schema.StateAttributed, Spans: 3, Version: schema.LedgerVersion{InsertedUs: 1},
		FirstEndNs: end - 2e9, LastEndNs: end, LastReceivedNs: end + 1e9,
	}
	row.Runs = []schema.RunRow{{
		RunID: name("run"), Service: name("service"), Environment: name("environment"), Version: name("version"),
		Completion: "incomplete", Quarantined: true, Anchor: true, TraceIDs: []schema.TraceID{row.TraceID}, Outcome: "ok",
		UnfinishedSteps: []string{name("step")}, RunLimit: 1, StepLimit: 1, Retries: int64(1000 - n), Exhausted: true, Deliveries: 3, PoisonPill: true,
		NeedsReview: true, OrphanSpans: 1, Spans: 3, StartNs: end - 3e9, EndNs: end, Warnings: []string{"a 'warning' of \\ $x"},
	}}
	row.Violations = []schema.ViolationRow{{Node: name("step"), Key: "k'\\", Direction: "input", Count: 2, TimeNs: end}}
	one := int64(1)
	row.Steps = []schema.StepRow{{
		Step: name("step"), Executions: 1, Visits: 1, Operations: 1, Calls: 2, CallsFailed: 1, RetriesCall: &one, RetriesTotal: &one,
		StepLimit: 0, OverBudget: true, Outcome: "succeeded_after_retry", Factorisation: "2", StartNs: end - 3e9, EndNs: end,
	}}
	row.Operations = []schema.OperationRow{{
		Step: name("step"), Grain: "call", Outcome: "succeeded_after_retry", Attempts: 2, Retries: 1, Provider: name("provider"),
		FirstError: "RateLimitError", StartNs: end - 3e9, EndNs: end, CountsInStep: true, Settled: true, Shows: schema.ShowsCall,
	}, {
		Index: 1, Step: name("step"), Grain: "execution", Outcome: "handled", Attempts: 1, FirstError: "RateLimitError", StartNs: end - 3e9, EndNs: end, Settled: true,
	}}
	lost := row.Operations[0]
	lost.Index, lost.Outcome, lost.LastError, lost.Futile = 1, "failed_after_retry", "RateLimitError", true
	row.Operations = append(row.Operations, lost)
	attempt := schema.AttemptRow{
		Grain: "call", Step: name("step"), Name: "chat", Parent: -1, Ordinal: 1, Evidence: "structure", Ending: "failed", ErrorClass: "RateLimitError",
		HTTPStatus: 429, Model: "m", Provider: name("provider"), StartNs: end - 3e9, EndNs: end - 2e9, InputTokens: &input, Counted: true, Wasted: true,
		WastedMs: 1000, WaitMs: 500, ViewOf: -1, Request: true, Shows: schema.ShowsCall,
	}
	row.Attempts = []schema.AttemptRow{attempt}
	attempt.Index, attempt.Ordinal, attempt.Charge, attempt.Ending, attempt.ErrorClass, attempt.HTTPStatus = 1, 2, "call", "succeeded", "", 0
	attempt.Wasted, attempt.WastedMs, attempt.WaitMs, attempt.EndNs = false, 0, 0, end
	row.Attempts = append(row.Attempts, attempt)
	attempt.Index, attempt.Ordinal, attempt.Charge, attempt.Ending, attempt.ErrorClass, attempt.Midway = 2, 1, "fallback", "failed", name("step"), true
	attempt.FallbackFrom, attempt.FallbackReason = name("provider"), name("step")
	row.Attempts = append(row.Attempts, attempt)
	return row
}

// TestEveryQueryRuns in an empty store and in one of all captures and odd names, with
// All, one variable alone, and all of them together.
func TestEveryQueryRuns(t *testing.T) {
	t.Parallel()
	empty := storetest.Empty(t)
	full := storetest.Of(t, capturetest.All(t), "checkout", "billing")
	require.NoError(t, schema.InsertLedger(context.Background(), full.Conn, []schema.LedgerRow{oddRow(0), oddRow(1)}))
	insertHistory(t, full)
	list, all := statements(t), documents(t)
	seen := map[string]bool{}
	for _, uid := range slices.Sorted(maps.Keys(list)) {
		whole := everything(all[uid])
		selections := map[string]selection{"all": whole}
		first := map[string][]string{}
		for name, values := range odd {
			first[name] = values[:1]
		}
		selections["one of each"] = whole.restricted(first)
		selections["several of each"] = whole.restricted(odd)
		selections["nobody's"] = whole.restricted(map[string][]string{"service": {"nobody's"}})
		for i, st := range list[uid] {
			if st.panel == nil && seen[st.sql] {
				continue // another dashboard's variable or annotation
			}
			seen[st.sql] = true
			t.Run(st.name, func(t *testing.T) {
				t.Parallel()
				selections := maps.Clone(selections)
				name := slices.Sorted(maps.Keys(odd))[i%len(odd)] // each alone in some of the queries
				selections["one "+name] = whole.restricted(map[string][]string{name: odd[name][1:]})
				points := 0.0
				if st.panel != nil {
					points = st.panel.MaxDataPoints
				}
				for name, selected := range selections {
					sql := selected.expanded(t, st.sql, points)
					found, err := asked(t, full.Conn, sql)
					require.NoError(t, err, "%s:\n%s", name, sql)
					if name == "all" {
						none, err := asked(t, empty.Conn, sql)
						require.NoError(t, err, "in an empty store:\n%s", sql)
						if st.panel != nil {
							assert.Empty(t, none.rows, "in an empty store the panel must be empty, for then it says what to do:\n%s", sql)
						}
					}
					if st.panel != nil {
						checkColumns(t, *st.panel, st.query, found)
						if name == "all" || name == "one of each" && oddRowsShow(st.panel.Title) {
							assert.NotEmpty(t, found.rows, "%s:\n%s", name, sql)
						}
						if name == "nobody's" && !slices.Contains(ofNoService, st.panel.Title) {
							assert.Empty(t, found.rows, "%s:\n%s", name, sql)
						}
					} else if st.variable != "" && name == "all" {
						checkOptions(t, st.variable, found)
					}
				}
			})
		}
	}
}

// ofNoService are the panels that do not depend on which services are chosen.
var ofNoService = []string{
	"Circuit breakers", "Why breakers changed", // of providers, over all services
	"At the end of the range", "Fires, or is about to", "Server errors (5xx) of providers, 15 % over 30 s", "Alerts over time", "History", // of alerts that are about no service
	"Spans in the range", "How far behind at the end", "In the store, whatever the range", "Spans per second", "Waiting in the journals", "From receipt to ledger", "Evaluation of alert rules", "Tables by size", // of collectors and the store
}

// oddRowsShow tells whether the odd runs have what the panel is about.
func oddRowsShow(title string) bool {
	return !slices.Contains([]string{}, title)
}

// checkColumns: the fields that the panel's overrides and links name are in its answer.
func checkColumns(t *testing.T, p documentPanel, q documentQuery, found answered) {
	t.Helper()
	if q.Format == asTimeSeries {
		require.Equal(t, "time", found.columns[0])
		for i := 1; i < len(found.rows); i++ {
			at, _ := found.rows[i]["time"].(time.Time)
			before, _ := found.rows[i-1]["time"].(time.Time)
			require.False(t, at.Before(before), "a time series is in order of time")
		}
	}
	if len(p.Targets) > 1 {
		return // its fields stand in several answers
	}
	for _, override := range p.FieldConfig.Overrides {
		if override.Matcher.ID == "byName" {
			assert.Contains(t, found.columns, override.Matcher.Options)
		}
	}
	for _, link := range p.links() {
		for _, field := range regexp.MustCompile(`\$\{__data\.fields\.(\w+)`).FindAllStringSubmatch(link, -1) {
			assert.Contains(t, found.columns, field[1], link)
		}
	}
	if x, ok := p.Options["xField"].(string); ok && x != "" {
		assert.Contains(t, found.columns, x)
	}
}

// checkOptions: a variable offers every odd name, and no empty one.
func checkOptions(t *testing.T, name string, found answered) {
	t.Helper()
	var options []string
	for _, row := range found.rows {
		option, _ := row[found.columns[0]].(string)
		options = append(options, option)
	}
	for _, want := range odd[name] {
		assert.Contains(t, options, want, name)
	}
	assert.NotContains(t, options, "", name)
}
