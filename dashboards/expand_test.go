package dashboards

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Expansion as Grafana and the data source do it, version 4 of the plugin: first
// $__conditionalAll in the browser, then variables, then macros in the plugin's
// process.

// selection is what a reader has chosen: the range, and values by variable. A variable
// without values has All.
type selection struct {
	from, to time.Time
	values   map[string][]string // of a text one value, which may be empty
}

const all = "$__all"

// expanded is the SQL that reaches the store, for a panel of so many points.
func (s selection) expanded(t testing.TB, sql string, points float64) string {
	t.Helper()
	sql = s.conditionalAll(t, sql)
	sql = s.interpolated(t, sql)
	sql = s.macros(t, sql, points)
	if i := strings.Index(sql, "$__"); i >= 0 {
		t.Fatalf("a macro is left: %s", sql[i:min(len(sql), i+60)])
	}
	return sql
}

// conditionalAll takes the last macro first, as the plugin does. It knows brackets and
// commas but no quotes, and JavaScript's replace gives dollars in the condition a
// meaning of their own.
func (s selection) conditionalAll(t testing.TB, sql string) string {
	t.Helper()
	const macro = "$__conditionalAll("
	for {
		at := strings.LastIndex(sql, macro)
		if at < 0 {
			return sql
		}
		args := arguments(sql[at+len(macro)-1:])
		require.Len(t, args, 2, "arguments of %s", sql[at:min(len(sql), at+120)])
		name := regexp.MustCompile(`\$\{?(\w+)\}?`).FindStringSubmatch(args[1])
		require.NotNil(t, name, "$__conditionalAll needs a variable: %q", args[1])
		condition := args[0]
		if values := s.values[name[1]]; len(values) == 0 || strings.Join(values, ",") == "" {
			condition = "1=1"
		}
		condition = regexp.MustCompile("\\$[$&`']").ReplaceAllStringFunc(condition, func(pattern string) string {
			if pattern == "$$" {
				return "$"
			}
			t.Fatalf("JavaScript's replace gives %s in a condition another meaning", pattern)
			return ""
		})
		sql = strings.Replace(sql, macro+args[0]+","+args[1]+")", condition, 1)
	}
}

// arguments splits what stands in the brackets that text begins with.
func arguments(text string) []string {
	var list []string
	depth, start := 0, 1
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 1 {
				list = append(list, text[start:i])
				start = i + 1
			}
		}
		if depth == 0 {
			return append(list, text[start:i])
		}
	}
	return nil
}

var reference = regexp.MustCompile(`\$(\w+)|\$\{(\w+)(?::(\w+))?\}`)

// interpolated replaces variables, also in links. A name that is no variable stays.
func (s selection) interpolated(t testing.TB, text string) string {
	t.Helper()
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		parts := reference.FindStringSubmatch(match)
		name, format := parts[1]+parts[2], parts[3]
		values, known := s.values[name]
		if !known {
			if parts[2] != "" {
				t.Fatalf("%s is no variable of the dashboard", match)
			}
			return match
		}
		if len(values) == 0 {
			values = []string{all}
		}
		switch format {
		case "json":
			var b strings.Builder // as JSON.stringify: no escapes for HTML
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			require.NoError(t, encoder.Encode(values))
			return strings.TrimSpace(b.String())
		case "queryparam":
			encoded := make([]string, len(values))
			for i, value := range values {
				encoded[i] = "var-" + name + "=" + url.QueryEscape(value)
			}
			return strings.Join(encoded, "&")
		case "percentencode": // of a text; as JavaScript does, and its strict form also !'()*
			return strings.NewReplacer("+", "%20", "%7E", "~").Replace(url.QueryEscape(values[0]))
		case "raw", "csv":
			return strings.Join(values, ",")
		case "": // the data source's own
			return "'" + strings.Join(values, "','") + "'"
		}
		t.Fatalf("%s: the tests do not know the format %q", match, format)
		return ""
	})
}

// literal is text between dollars, in which the plugin looks for no comment.
var literal = regexp.MustCompile(`(?s)\$retryledger_names\$.*?\$retryledger_names\$`)

var macro = regexp.MustCompile(`\$__(\w+)(\()?`)

// macros fills in what the plugin's process does: comments first, then the range.
func (s selection) macros(t testing.TB, sql string, points float64) string {
	t.Helper()
	outside := literal.ReplaceAllString(sql, "")
	require.False(t, strings.Contains(outside, "--") || strings.Contains(outside, "/*"), "the plugin would take a comment out")
	seconds := func(at time.Time) string { return fmt.Sprintf("toDateTime(%d)", at.Unix()) }
	millis := func(at time.Time) string { return fmt.Sprintf("fromUnixTimestamp64Milli(%d)", at.UnixMilli()) }
	interval := s.interval(points)
	for {
		at := macro.FindStringSubmatchIndex(sql)
		if at == nil {
			return sql
		}
		name, end := sql[at[2]:at[3]], at[3]
		var args []string
		if at[4] >= 0 {
			args = arguments(sql[at[4]:])
			end = at[4] + len(strings.Join(args, ",")) + 2
		}
		one := func() string {
			require.Len(t, args, 1, "arguments of $__%s", name)
			return strings.TrimSpace(args[0])
		}
		var text string
		switch name {
		case "fromTime":
			text = seconds(s.from)
		case "toTime":
			text = seconds(s.to)
		case "fromTime_ms":
			text = millis(s.from)
		case "toTime_ms":
			text = millis(s.to)
		case "timeFilter":
			text = one() + " >= " + seconds(s.from) + " AND " + one() + " <= " + seconds(s.to)
		case "timeFilter_ms":
			text = one() + " >= " + millis(s.from) + " AND " + one() + " <= " + millis(s.to)
		case "timeInterval":
			text = fmt.Sprintf("toStartOfInterval(toDateTime(%s), INTERVAL %d second)", one(), int(interval.Seconds()))
		case "interval_s":
			text = fmt.Sprint(int(interval.Seconds()))
		default:
			t.Fatalf("the tests do not know the macro $__%s", name)
		}
		sql = sql[:at[0]] + text + sql[end:]
	}
}

// interval is Grafana's: the range divided by the points, rounded to a usual one, at
// least a second.
func (s selection) interval(points float64) time.Duration {
	if points == 0 {
		points = 800
	}
	exact := time.Duration(float64(s.to.Sub(s.from)) / points)
	for _, usual := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	} {
		if exact <= usual*3/2 {
			return usual
		}
	}
	return time.Duration(math.MaxInt32) * time.Second
}

func TestExpansionIsThePlugins(t *testing.T) {
	t.Parallel()
	s := selection{
		from: time.UnixMilli(1_700_000_000_123), to: time.UnixMilli(1_700_000_120_456),
		values: map[string][]string{"step": {"it's", `a\b "q"`, "$x ${y}"}, "service": nil},
	}
	require.Equal(t, `WHERE has(JSONExtract($n$ ["it's","a\\b \"q\"","$x ${y}"] $n$, 'Array(String)'), step) AND 1=1`,
		s.expanded(t, `WHERE $__conditionalAll(has(JSONExtract($n$ ${step:json} $n$, 'Array(String)'), step), $step) AND $__conditionalAll(x IN (${service:json}), $service)`, 0))
	require.Equal(t, "a >= toDateTime(1700000000) AND a <= toDateTime(1700000120), fromUnixTimestamp64Milli(1700000000123), 1",
		s.expanded(t, "$__timeFilter(a), $__fromTime_ms, $__interval_s", 120))
}
