package query_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// hostileTexts are values that mean something else where they are not taken for values.
var hostileTexts = []string{
	"plain", "'", "''", `"`, "`", `\`, `\\`, `\'`, `'\`, `\N`, `\t`, "\t", "\n", "\r\n", `\n`, "\x00", `\0`, `\x27`,
	"' OR 1=1 --", `\' OR 1=1 --`, `'; DROP TABLE ledger; --`, "') OR ('1'='1", "x' UNION ALL SELECT name FROM system.tables --",
	"{service:String}", "{since:Int64}", "{id:Identifier}", "?", "$1", ":id", "@id", "%", "_", "%%", "NULL", "null", "nan",
	"--", "/*", "*/", "#", ";", "(", ")", "[", "]", "a,b", "ünï", "日本", "\u2028", "🤖", "\u202e", "a\\\nb", "\b\f\v\a\x1b[0m", "\\u0027", "&#39;", "%27",
	strings.Repeat("'", 200), strings.Repeat(`\`, 199),
}

// TestFiltersAreValues: whatever a filter says, it finds what is called exactly so, and
// changes nothing.
func TestFiltersAreValues(t *testing.T) {
	t.Parallel()
	var spans []schema.Span
	add := func(text string) {
		n := len(spans) + 1
		end := storetest.Day.UnixNano() + int64(n)
		spans = append(spans, schema.Span{
			TraceID: schema.TraceID{0xAB, byte(n >> 8), byte(n), 1}, SpanID: schema.SpanID{byte(n >> 8), byte(n), 1},
			StartNs: end - 1, EndNs: end, ReceivedNs: end + int64(time.Hour), Service: text, Step: text, RunID: text, RunIDRank: 1, Name: "work",
			GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1, InputTokens: schema.Unknown, OutputTokens: schema.Unknown, CostUSD: math.NaN(),
		})
	}
	for _, text := range hostileTexts {
		add(text)
	}
	s := storetest.OfSpans(t, spans)
	require.Len(t, s.Ledger.Runs, len(hostileTexts))
	asker := query.New(s.Conn, query.Limits{Timeout: time.Minute, MaxRows: 1000})

	ctx := context.Background()
	for i, text := range hostileTexts {
		f := answer.Filter{Service: text}
		runs, err := asker.Runs(ctx, answer.RunFilter{Filter: f})
		require.NoError(t, err, "%q", text)
		require.Len(t, runs.Runs, 1, "%q", text)
		require.Equal(t, text, runs.Runs[0].RunID)
		if i%3 == 0 {
			run, err := asker.Run(ctx, text)
			require.NoError(t, err, "%q", text)
			require.Equal(t, text, run.RunID)
		}
		if i%13 == 0 { // its statements take the same parameters, and longer
			top, err := asker.Top(ctx, f)
			require.NoError(t, err, "%q", text)
			require.Equal(t, asJSON(t, answer.TopOf(s.Ledger, f)), asJSON(t, top), "%q", text)
			require.Len(t, top.Steps, 1, "%q", text)
			runs, err = asker.Runs(ctx, answer.RunFilter{Completion: text})
			require.NoError(t, err, "%q", text)
			require.Empty(t, runs.Runs, "no run has a state of that name: %q", text)
		}
	}
	for i := range len(hostileTexts) - 1 { // what nothing is called finds nothing
		text := hostileTexts[i] + hostileTexts[i+1]
		if i%6 != 0 || slices.Contains(hostileTexts, text) {
			continue
		}
		runs, err := asker.Runs(ctx, answer.RunFilter{Filter: answer.Filter{Service: text}})
		require.NoError(t, err, "%q", text)
		require.Empty(t, runs.Runs, "%q", text)
	}
	after := ask(t, func(ctx context.Context) (answer.Top, error) { return asker.Top(ctx, answer.Filter{}) })
	require.Equal(t, asJSON(t, answer.TopOf(s.Ledger, answer.Filter{})), asJSON(t, after), "nothing was changed")
	var tables uint64
	require.NoError(t, s.Conn.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'ledger'").Scan(&tables))
	require.Equal(t, uint64(1), tables)
}
