package signals

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/schema"
)

// Explanation is what stands behind the numerator of a sample.
type Explanation struct {
	TopError      string // the most frequent error, as "RateLimitError 429"; "" where none is stated
	TopErrorCount int64
	Runs          []string // ids of at most three runs, of those with that error first
}

const (
	exampleRuns      = 3
	maxCauses        = 1000            // groups of one error that are looked at, the most frequent
	explainTimeout   = 2 * time.Second // of the query
	explainMaxMemory = 1 << 30         // bytes, of the query
)

// cause is where a signal's numerator comes from: rows of a view, or repeats, and what
// their error is.
type cause struct{ view, where, err, step, provider string }

const (
	errorOfAttempt = "if(http_status = 0 OR error_class = toString(http_status), toString(error_class), trim(concat(error_class, ' ', toString(http_status))))"
	// repeats are the attempts with the error of the one before, in their operation and at
	// their grain: what a retry was made for. First tries that met none are left out.
	repeats       = "repeats"
	failedOutcome = "outcome IN ('failed_without_retry', 'failed_after_retry', 'handled')"
)

// causes ask for what events.go counts, but for whether it has settled: who asks why
// wants all there is.
var causes = map[Signal]cause{
	OperationErrorRatio:      {"operations", "grain = 'execution' AND " + failedOutcome, "last_error", "step", "''"},
	CallOperationErrorRatio:  {"operations", "grain != 'execution' AND counts_in_step AND " + failedOutcome, "last_error", "step", "provider"},
	AttemptErrorRatio:        {"attempts", "grain = 'call' AND counted AND ending = 'failed'", errorOfAttempt, "step", "provider"},
	ServerErrorRatio:         {"attempts", "request AND ending IN ('failed', 'unknown') AND (http_status BETWEEN 500 AND 599 OR http_status = 0 AND " + classOf + " IN ('" + strings.Join(serverErrors, "', '") + "'))", errorOfAttempt, "step", "provider"},
	ThrottledRatio:           {"attempts", "request AND ending IN ('failed', 'unknown') AND (http_status = 429 OR http_status = 0 AND " + classOf + " IN ('" + strings.Join(throttles, "', '") + "'))", errorOfAttempt, "step", "provider"},
	RetryRatio:               {repeats, "charge NOT IN ('', 'fallback') AND NOT hidden", "repeated", "step", "''"},
	FallbackRatio:            {"operations", "counts_in_step AND fallbacks > 0", "first_error", "step", "''"},
	ContractViolationRatio:   {"violations", "true", "concat('missing ', direction, ': ', key)", "node", "''"},
	IncompleteRunRatio:       {"runs", "completion IN ('incomplete', 'orphaned')", "if(notEmpty(unfinished_steps), concat('unfinished: ', arrayStringConcat(arraySort(unfinished_steps), ', ')), completion)", "''", "''"},
	BudgetExhaustedRatio:     {"runs", "exhausted", "if(retries >= run_limit, concat(toString(retries), ' of ', toString(run_limit), ' retries'), 'exhausted, as the application says')", "''", "''"},
	WastedTokenRatio:         {"attempts", "grain = 'call' AND counted AND wasted", errorOfAttempt, "step", "provider"},
	StreamMidwayFailureRatio: {"attempts", "midway", errorOfAttempt, "step", "provider"},
}

const classOf = `replaceRegexpOne(replaceRegexpOne(replaceAll(lower(error_class), '_', ''), 'error$', ''), 'exception$', '')`

// columns are those that the expressions of a cause name.
func (c cause) columns() []string {
	columns := []string{"service", "environment", "version", "run_id", "end_bounded_ns", "trace_end_ns"}
	switch c.view {
	case "operations":
		return append(columns, "step", "grain", "outcome", "counts_in_step", "last_error", "first_error", "fallbacks", "provider")
	case repeats:
		return append(columns, "step", "grain", "error_class", "http_status", "charge", "hidden", "trace_key", "operation", "start_ns", "ordinal")
	case "attempts":
		return append(columns, "step", "grain", "counted", "ending", "error_class", "http_status", "provider", "request", "wasted", "midway")
	case "violations":
		return append(columns, "node", "direction", "key", "count")
	}
	return append(columns, "completion", "unfinished_steps", "exhausted", "retries", "run_limit")
}

// rows is a subquery of the rows of traces that end after sinceNs.
func (c cause) rows(sinceNs int64) string {
	if c.view != repeats {
		return schema.Narrow(c.view, c.columns()...)
	}
	return fmt.Sprintf("(SELECT *, lagInFrame(error) OVER (PARTITION BY trace_key, run_id, operation, step, grain ORDER BY start_ns, ordinal ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS repeated"+
		" FROM (SELECT *, %s AS error FROM %s WHERE trace_end_ns > %d) WHERE charge != '' OR error != '')",
		errorOfAttempt, schema.Narrow("attempts", c.columns()...), sinceNs)
}

// Explain reads what stands behind the sample that q gave for a group: the most
// frequent error and runs that show it. Its cost is bounded; where the bound cuts it
// short the error is the store's.
func Explain(ctx context.Context, conn driver.Conn, q Query, group Labels) (Explanation, error) {
	c, ok := causes[q.Signal]
	if !ok {
		return Explanation{}, fmt.Errorf("explain %s: there is no such signal", q.Signal)
	}
	expressions := map[Dimension]string{Service: "service", Environment: "environment", Version: "version", Step: c.step, Provider: c.provider}
	conditions := []string{c.where, "end_bounded_ns > ?", "end_bounded_ns <= ?", "trace_end_ns > ?"}
	args := []any{q.ToNs - q.WindowNs, q.ToNs, q.ToNs - q.WindowNs}
	for _, d := range q.GroupBy {
		conditions = append(conditions, expressions[d]+" = ?")
		args = append(args, group.Get(d))
	}
	weight := "count()"
	if c.view == "violations" {
		weight = "toUInt64(sum(count))"
	}
	query := fmt.Sprintf("SELECT toString(service), toString(environment), toString(version), toString(%s), toString(%s), toString(%s) AS err, %s AS n, groupUniqArray(%d)(run_id)"+
		" FROM %s WHERE %s GROUP BY ALL ORDER BY n DESC, err LIMIT %d",
		c.step, c.provider, c.err, weight, exampleRuns, c.rows(q.ToNs-q.WindowNs), strings.Join(conditions, " AND "), maxCauses)
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_memory_usage": explainMaxMemory}))
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", q.Signal, err)
	}
	defer func() { _ = rows.Close() }()
	counts := make(map[string]int64)
	runs := make(map[string][]string)
	for rows.Next() {
		var labels Labels
		var text string
		var n uint64
		var examples []string
		if err := rows.Scan(&labels.Service, &labels.Environment, &labels.Version, &labels.Step, &labels.Provider, &text, &n, &examples); err != nil {
			return Explanation{}, fmt.Errorf("explain %s: %w", q.Signal, err)
		}
		if matches(labels, q.Where) {
			counts[text] += int64(n)
			runs[text] = append(runs[text], examples...)
		}
	}
	if err := rows.Err(); err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", q.Signal, err)
	}
	return explanation(counts, runs), nil
}

func explanation(counts map[string]int64, runs map[string][]string) Explanation {
	texts := make([]string, 0, len(counts))
	for text := range counts {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int {
		return cmp.Or(cmp.Compare(one(a == ""), one(b == "")), cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var x Explanation
	for i, text := range texts {
		if i == 0 && text != "" {
			x.TopError, x.TopErrorCount = text, counts[text]
		}
		slices.Sort(runs[text])
		for _, run := range runs[text] {
			if len(x.Runs) < exampleRuns && run != "" && !slices.Contains(x.Runs, run) {
				x.Runs = append(x.Runs, run)
			}
		}
	}
	return x
}
