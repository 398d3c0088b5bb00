package query

import (
	"context"
	"errors"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

// ofOneRun is the key that all rows of one run share.
const ofOneRun = `cityHash64(service, environment, run_id)`

// topStatement gathers, by run and step, the attempts and operations of the window and
// the run's account, which says what layers it shows (a bit each) and whether it is
// over budget; then it sums by step. It is one aggregation over a union because joins
// of the three took twice as long. A run whose account is out of reach shows the
// layers in which repeats are charged.
const topStatement = `
SELECT 'step' AS part, service, step, '' AS label,
    arrayMap(n -> toInt64(n), [
        count(), countIf(over),
        sumIf(transport, bitTest(shows, 0)), countIf(bitTest(shows, 0)),
        sumIf(call, bitTest(shows, 1)), countIf(bitTest(shows, 1)),
        sumIf(node, bitTest(shows, 2)), countIf(bitTest(shows, 2)),
        sumIf(orchestrator, bitTest(shows, 3)), countIf(bitTest(shows, 3)),
        sumIf(worker, bitTest(shows, 4)), countIf(bitTest(shows, 4)),
        sum(executions), sum(visits), sum(operations), sum(fallback_operations),
        sum(calls), sum(calls_failed), sum(tool_calls), sum(http_calls), sum(fallbacks), sum(unknown),
        sum(wasted_unknown), sum(wasted_costs_known),
        toUInt64(sum(input)), toUInt64(sum(output)), toUInt64(sum(wasted_input)), toUInt64(sum(wasted_output))
    ]) AS counts,
    [toFloat64(sum(wasted_cost)), toFloat64(sum(wasted_time_ms)), toFloat64(sum(wasted_wait_ms))] AS sums
FROM (
    SELECT step, any(service) AS service,
        countIf(charge = 'transport') AS transport,
        countIf(charge = 'call') AS call,
        countIf(charge = 'node') AS node,
        countIf(charge = 'orchestrator') AS orchestrator,
        countIf(charge = 'worker') AS worker,
        if(countIf(source = 'account') > 0, groupBitOr(layers),
            toUInt8((transport > 0) + 2 * (call > 0) + 4 * (node > 0) + 8 * (orchestrator > 0) + 16 * (worker > 0))) AS shows,
        max(over_budget) AS over,
        countIf(charge = 'fallback') AS fallbacks,
        countIf(counted AND grain = 'execution') AS executions,
        countIf(counted AND grain = 'execution' AND charge NOT IN ('node', 'orchestrator', 'worker')) AS visits,
        countIf(counted AND grain = 'call') AS calls,
        countIf(counted AND grain = 'call' AND ending = 'failed') AS calls_failed,
        countIf(counted AND grain = 'tool') AS tool_calls,
        countIf(counted AND grain = 'http') AS http_calls,
        sumIf(ifNull(input_tokens, 0), counted AND grain = 'call') AS input,
        sumIf(ifNull(output_tokens, 0), counted AND grain = 'call') AS output,
        countIf(counted AND grain = 'call' AND isNull(input_tokens) AND isNull(output_tokens)) AS unknown,
        sumIf(ifNull(input_tokens, 0), counted AND grain = 'call' AND wasted) AS wasted_input,
        sumIf(ifNull(output_tokens, 0), counted AND grain = 'call' AND wasted) AS wasted_output,
        countIf(counted AND grain = 'call' AND wasted AND isNull(input_tokens) AND isNull(output_tokens)) AS wasted_unknown,
        sumIf(ifNull(cost_usd, 0), counted AND grain = 'call' AND wasted) AS wasted_cost,
        countIf(counted AND grain = 'call' AND wasted AND isNotNull(cost_usd)) AS wasted_costs_known,
        sum(wasted_ms) AS wasted_time_ms,
        sum(wait_ms) AS wasted_wait_ms,
        countIf(source = 'operation') AS operations,
        countIf(source = 'operation' AND fell_back) AS fallback_operations
    FROM (
        SELECT 'attempt' AS source, ` + ofOneRun + ` AS run, service, step,
            charge, grain, counted, ending, wasted, input_tokens, output_tokens, cost_usd, wasted_ms, wait_ms,
            false AS fell_back, toUInt8(0) AS layers, false AS over_budget
        FROM attempts
        WHERE step != '' AND ` + inWindow + `
        UNION ALL
        SELECT 'operation', ` + ofOneRun + `, service, step, '', '', false, '', false, NULL, NULL, NULL, 0, 0, fallbacks > 0, 0, false
        FROM operations
        WHERE counts_in_step AND step != '' AND ` + inWindow + `
        UNION ALL
        SELECT 'account', ` + ofOneRun + `, service, step, '', '', false, '', false, NULL, NULL, NULL, 0, 0, false,
            toUInt8(isNotNull(retries_transport) + 2 * isNotNull(retries_call) + 4 * isNotNull(retries_node)
                + 8 * isNotNull(retries_orchestrator) + 16 * isNotNull(retries_worker)), over_budget
        FROM steps
        WHERE ` + ofAccounts + ` AND ` + ofOneRun + ` IN (SELECT ` + ofOneRun + ` FROM attempts WHERE step != '' AND ` + inWindow + `)
    )
    GROUP BY run, step
    HAVING countIf(source != 'account') > 0
)
GROUP BY service, step`

// completionStatement counts the runs that have an attempt in the window, and how many
// of them are of a sampled source.
var completionStatement = `
SELECT 'completion', '', '', completion,
    [toInt64(uniqExact(` + ofOneRun + `)), toInt64(uniqExactIf(` + ofOneRun + `, ` + ofOneRun + ` IN (
        SELECT ` + ofOneRun + `
        FROM ` + schema.Narrow("runs", "service", "environment", "run_id", "sampled", "trace_end_ns") + `
        WHERE sampled AND ` + ofAccounts + `)))],
    CAST([], 'Array(Float64)')
FROM attempts
WHERE ` + inWindow + `
GROUP BY completion`

// errorStatement counts what answer.Causes marks: failed calls (a send inside a call is
// the call's), and failed executions in which neither a call nor an inner execution
// failed. parents[i + 1] is the attempt that encloses attempt i of a run; the walk up
// from a call to its execution passes the calls around it.
const errorStatement = `
WITH
    (from, executions, parents) -> arrayFold(
        (up, level) -> if(up < 0 OR executions[up + 1] = 1, up, parents[up + 1]), range(16), from) AS owner
SELECT 'error', of_service, step, class, [toInt64(status), toInt64(n)], CAST([], 'Array(Float64)')
FROM (
SELECT of_service, cause.step AS step, cause.class AS class, cause.status AS status, count() AS n
FROM (
    SELECT any(service) AS of_service,
        groupArrayInsertAt(toInt64(-1))(parent, ` + "`index`" + `) AS parents,
        groupArrayInsertAt(toUInt8(0))(grain = 'execution', ` + "`index`" + `) AS executions,
        groupArrayIf(
            CAST(tuple(toInt64(` + "`index`" + `), parent, grain = 'execution', grain = 'http' AND ending = 'failed', step, error_class, http_status, ` + inWindow + `),
                'Tuple(number Int64, parent Int64, execution UInt8, send UInt8, step String, class String, status Int64, counts UInt8)'),
            ending = 'failed' OR (ending = 'unknown' AND error_class != '' AND grain != 'execution')) AS failures,
        arrayFilter(f -> f.execution = 0 AND (f.send = 0 OR executions[greatest(f.parent, 0) + 1] = 1), failures) AS calls,
        arrayDistinct(arrayConcat(
            arrayMap(f -> owner(f.parent, executions, parents), calls),
            arrayMap(f -> f.parent, arrayFilter(f -> f.execution = 1, failures)))) AS explained
    FROM attempts
    WHERE ` + ofTraces + `
    GROUP BY ` + ofOneRun + `
    HAVING notEmpty(failures)
)
ARRAY JOIN arrayFilter(f -> f.counts = 1 AND f.step != '',
    arrayConcat(calls, arrayFilter(f -> f.execution = 1 AND NOT has(explained, f.number), failures))) AS cause
GROUP BY of_service, step, class, status
ORDER BY n DESC, class, status
LIMIT {max_errors:UInt64} BY of_service, step
)`

// answerStatements ask all at once: within one statement every part sees the store at the
// same moment, so that the numbers of one answer agree while spans come. Where the
// store's memory does not suffice for that, one after the other.
var answerStatements = [][]string{
	{topStatement + "\nUNION ALL\n" + completionStatement + "\nUNION ALL\n" + errorStatement},
	{topStatement, completionStatement, errorStatement},
}

type stepKey struct{ service, step string }

// Top answers which steps eat the retry budget.
func (a Asker) Top(ctx context.Context, f answer.Filter) (top answer.Top, err error) {
	for _, statements := range answerStatements {
		if top, err = a.top(ctx, f, statements); !needsMemory(err) {
			break
		}
	}
	if err != nil {
		return answer.Top{}, err
	}
	top.Finish(f.Limit)
	return top, nil
}

func needsMemory(err error) bool {
	var exception *proto.Exception
	return errors.As(err, &exception) && exception.Code == codeMemoryLimit
}

func (a Asker) top(ctx context.Context, f answer.Filter, statements []string) (answer.Top, error) {
	top := answer.NewTop(f)
	errorsOf := map[stepKey][]attribution.ErrorCount{}
	bound := parameters(f, map[string]any{"max_errors": uint64(answer.MaxErrors)})
	for _, statement := range statements {
		err := a.read(ctx, "the steps by retry consumption", statement, bound, func(rows driver.Rows) error {
			var part, label string
			var key stepKey
			var counts []int64
			var sums []float64
			if err := rows.Scan(&part, &key.service, &key.step, &label, &counts, &sums); err != nil {
				return err //nolint:wrapcheck // read wraps it
			}
			switch part {
			case "step":
				top.Steps = append(top.Steps, topStep(key, counts, sums))
			case "completion":
				top.Completion[label] = int(counts[0])
				top.Runs += int(counts[0])
				top.SampledRuns += int(counts[1])
			case "error":
				errorsOf[key] = append(errorsOf[key], attribution.ErrorCount{Class: label, HTTPStatus: int(counts[0]), Count: int(counts[1])})
			}
			return nil
		})
		if err != nil {
			return answer.Top{}, err
		}
	}
	for i := range top.Steps {
		step := &top.Steps[i]
		step.Errors = append(step.Errors, errorsOf[stepKey{step.Service, step.Step}]...)
	}
	return top, nil
}

// topStep is one row of topStatement.
func topStep(key stepKey, counts []int64, sums []float64) answer.TopStep {
	step := answer.TopStep{Service: key.service, Step: key.step}
	var retries, seen [5]uint64
	next := func() (n int64) {
		n, counts = counts[0], counts[1:]
		return n
	}
	step.Runs, step.RunsOverBudget = int(next()), int(next())
	for i := range retries {
		retries[i], seen[i] = uint64(next()), uint64(next())
	}
	for _, to := range []*int{
		&step.Executions, &step.Visits, &step.Operations, &step.FallbackOperations,
		&step.Calls, &step.CallsFailed, &step.ToolCalls, &step.HTTPCalls, &step.Fallbacks, &step.Tokens.UnknownCalls,
		&step.Wasted.UnknownCalls,
	} {
		*to = int(next())
	}
	if costsKnown := next(); costsKnown > 0 {
		step.Wasted.CostUSD = &sums[0]
	}
	for _, to := range []*int64{&step.Tokens.Input, &step.Tokens.Output, &step.Wasted.Input, &step.Wasted.Output} {
		*to = next()
	}
	step.Wasted.TimeMs, step.Wasted.WaitMs = sums[1], sums[2]
	step.SetRetries(retries, seen)
	return step
}
