package query

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

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
SELECT service, step, count() AS runs, countIf(over) AS over_budget,
    sumIf(transport, bitTest(shows, 0)), countIf(bitTest(shows, 0)),
    sumIf(call, bitTest(shows, 1)), countIf(bitTest(shows, 1)),
    sumIf(node, bitTest(shows, 2)), countIf(bitTest(shows, 2)),
    sumIf(orchestrator, bitTest(shows, 3)), countIf(bitTest(shows, 3)),
    sumIf(worker, bitTest(shows, 4)), countIf(bitTest(shows, 4)),
    sum(executions), sum(visits), sum(operations), sum(fallback_operations),
    sum(calls), sum(calls_failed), sum(tool_calls), sum(http_calls), sum(fallbacks),
    sum(input), sum(output), sum(unknown),
    sum(wasted_input), sum(wasted_output), sum(wasted_unknown), sum(wasted_cost), sum(wasted_costs_known),
    sum(wasted_time_ms), sum(wasted_wait_ms)
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
SELECT completion, uniqExact(` + ofOneRun + `),
    uniqExactIf(` + ofOneRun + `, ` + ofOneRun + ` IN (
        SELECT ` + ofOneRun + `
        FROM ` + schema.Narrow("runs", "service", "environment", "run_id", "sampled", "trace_end_ns") + `
        WHERE sampled AND ` + ofAccounts + `))
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
LIMIT {max_errors:UInt64} BY of_service, step`

type stepKey struct{ service, step string }

// Top answers which steps eat the retry budget.
func (a Asker) Top(ctx context.Context, f answer.Filter) (answer.Top, error) {
	top := answer.NewTop(f)
	steps := map[stepKey]int{}
	err := a.read(ctx, "the steps by retry consumption", topStatement, parameters(f, nil), func(rows driver.Rows) error {
		step, err := scanTopStep(rows)
		steps[stepKey{step.Service, step.Step}] = len(top.Steps)
		top.Steps = append(top.Steps, step)
		return err
	})
	if err != nil {
		return answer.Top{}, err
	}
	err = a.read(ctx, "the completion of runs", completionStatement, parameters(f, nil), func(rows driver.Rows) error {
		var completion string
		var n, sampled uint64
		if err := rows.Scan(&completion, &n, &sampled); err != nil {
			return err //nolint:wrapcheck // read wraps it
		}
		top.Completion[completion] = int(n)
		top.Runs += int(n)
		top.SampledRuns += int(sampled)
		return nil
	})
	if err != nil {
		return answer.Top{}, err
	}
	err = a.read(ctx, "the errors of steps", errorStatement,
		parameters(f, map[string]any{"max_errors": uint64(answer.MaxErrors)}), func(rows driver.Rows) error {
			var key stepKey
			var cause attribution.ErrorCount
			var status int64
			var n uint64
			if err := rows.Scan(&key.service, &key.step, &cause.Class, &status, &n); err != nil {
				return err //nolint:wrapcheck // read wraps it
			}
			cause.HTTPStatus, cause.Count = int(status), int(n)
			if i, ok := steps[key]; ok {
				top.Steps[i].Errors = append(top.Steps[i].Errors, cause)
			}
			return nil
		})
	if err != nil {
		return answer.Top{}, err
	}
	top.Finish(f.Limit)
	return top, nil
}

func scanTopStep(rows driver.Rows) (answer.TopStep, error) {
	var step answer.TopStep
	var runs, over, costsKnown uint64
	var retries, seen [5]uint64
	var executions, visits, operations, fallbackOperations, calls, failed, tools, sends, fallbacks, unknown, wastedUnknown uint64
	var cost float64
	err := rows.Scan(&step.Service, &step.Step, &runs, &over,
		&retries[0], &seen[0], &retries[1], &seen[1], &retries[2], &seen[2], &retries[3], &seen[3], &retries[4], &seen[4],
		&executions, &visits, &operations, &fallbackOperations, &calls, &failed, &tools, &sends, &fallbacks,
		&step.Tokens.Input, &step.Tokens.Output, &unknown,
		&step.Wasted.Input, &step.Wasted.Output, &wastedUnknown, &cost, &costsKnown,
		&step.Wasted.TimeMs, &step.Wasted.WaitMs)
	if err != nil {
		return step, err //nolint:wrapcheck // read wraps it
	}
	for to, from := range map[*int]uint64{
		&step.Runs: runs, &step.RunsOverBudget: over, &step.Executions: executions, &step.Visits: visits,
		&step.Operations: operations, &step.FallbackOperations: fallbackOperations, &step.Calls: calls, &step.CallsFailed: failed,
		&step.ToolCalls: tools, &step.HTTPCalls: sends, &step.Fallbacks: fallbacks,
		&step.Tokens.UnknownCalls: unknown, &step.Wasted.UnknownCalls: wastedUnknown,
	} {
		*to = int(from)
	}
	if costsKnown > 0 {
		step.Wasted.CostUSD = &cost
	}
	step.SetRetries(retries, seen)
	return step, nil
}
