-- What an instrumentation hides is not zero, so a sum over steps must know which layers
-- it is a sum of. Each attempt and operation says which layers the account of its step in
-- its run shows: bits 1 transport, 2 call, 4 node, 8 orchestrator, 16 worker. Where no
-- account is known it is the layer that the repeat is charged to. Rows from before say so
-- by the steps in the same row.
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS `attempts.shows` Array(UInt8) DEFAULT arrayMap((run, step, charge) -> toUInt8(bitAnd(31, if((arrayFirst(
        (bits, of_run, of_step) -> of_run = run AND of_step = step, arrayMap(
            (t, c, n, o, w) -> 32 + isNotNull(t) + 2 * isNotNull(c) + 4 * isNotNull(n) + 8 * isNotNull(o) + 16 * isNotNull(w),
            `steps.retries_transport`, `steps.retries_call`, `steps.retries_node`, `steps.retries_orchestrator`, `steps.retries_worker`),
        `steps.run`, `steps.step`) AS account) > 0, account, [0, 1, 2, 4, 8, 16][indexOf(['transport', 'call', 'node', 'orchestrator', 'worker'], charge) + 1]))), `attempts.run`, `attempts.step`, `attempts.charge`) COMMENT 'layers of which the account of its step shows repeats, as bits' CODEC(ZSTD(1)) AFTER `attempts.hidden`,
    ADD COLUMN IF NOT EXISTS `operations.shows` Array(UInt8) DEFAULT arrayMap((run, step) -> toUInt8(bitAnd(31, if((arrayFirst(
        (bits, of_run, of_step) -> of_run = run AND of_step = step, arrayMap(
            (t, c, n, o, w) -> 32 + isNotNull(t) + 2 * isNotNull(c) + 4 * isNotNull(n) + 8 * isNotNull(o) + 16 * isNotNull(w),
            `steps.retries_transport`, `steps.retries_call`, `steps.retries_node`, `steps.retries_orchestrator`, `steps.retries_worker`),
        `steps.run`, `steps.step`) AS account) > 0, account, 0))), `operations.run`, `operations.step`) COMMENT 'layers of which the account of its step shows repeats, as bits' CODEC(ZSTD(1)) AFTER `operations.settled`;

ALTER TABLE ledger MATERIALIZE COLUMN `attempts.shows`, MATERIALIZE COLUMN `operations.shows` SETTINGS mutations_sync = 1;

-- layout says which columns the row's writer knew. A row of another layout than the views
-- read is as good as none, so the hour is read from the ledger until it is built again.
ALTER TABLE usage_hours
    ADD COLUMN IF NOT EXISTS layout UInt8 DEFAULT 1 AFTER hour,
    ADD COLUMN IF NOT EXISTS `cells.shows` Array(UInt8) CODEC(ZSTD(1)) AFTER `cells.undecided`,
    ADD COLUMN IF NOT EXISTS `cells.hides` Array(UInt8) CODEC(ZSTD(1)) AFTER `cells.shows`;

-- usage_hours_built: through when the row of each hour is complete, 1970 where it is of
-- another layout.
CREATE OR REPLACE VIEW usage_hours_built AS
SELECT hour, argMax(if(layout = 2, built_through, toDateTime64(0, 6, 'UTC')), built_at) AS through
FROM usage_hours
GROUP BY hour;

CREATE OR REPLACE VIEW hours_plan AS
SELECT
    groupArrayIf(hour, right) AS clean,
    if(countIf(NOT right) = 0, {until_ns:Int64}, greatest({since_ns:Int64}, minIf(hour_ns, NOT right))) AS dirty_from_ns
FROM (
    SELECT
        touches.hour AS hour, toInt64(hour) * 3600000000000 AS hour_ns,
        built.through > touches.touched AND {until_ns:Int64} - {since_ns:Int64} > 21600000000000
            AND hour_ns >= {since_ns:Int64} AND hour_ns + 3600000000000 <= {until_ns:Int64} AS right
    FROM (SELECT hour, max(touched_at) AS touched FROM ledger_touched GROUP BY hour) AS touches
    LEFT JOIN usage_hours_built AS built ON touches.hour = built.hour
    WHERE hour_ns + 3600000000000 > {since_ns:Int64} AND hour_ns < {until_ns:Int64}
);

-- usage_rows and usage as before, and: shows and hides have a bit for each layer that the
-- step shows or hides in some run; groupBitOr adds them up.
CREATE OR REPLACE VIEW usage_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    toUInt64(charge = 'transport' AND NOT hidden) AS retries_transport,
    toUInt64(charge = 'call' AND NOT hidden) AS retries_call,
    toUInt64(charge = 'node' AND NOT hidden) AS retries_node,
    toUInt64(charge = 'orchestrator' AND NOT hidden) AS retries_orchestrator,
    toUInt64(charge = 'worker' AND NOT hidden) AS retries_worker,
    toUInt64(charge = 'fallback') AS fallbacks,
    toUInt64(counted AND grain = 'execution') AS executions,
    toUInt64(counted AND grain = 'execution' AND charge NOT IN ('node', 'orchestrator', 'worker')) AS visits,
    toUInt64(counted AND grain = 'call') AS calls,
    toUInt64(counted AND grain = 'call' AND ending = 'failed') AS calls_failed,
    toUInt64(counted AND grain = 'tool') AS tool_calls,
    toUInt64(counted AND grain = 'http') AS http_calls,
    if(counted AND grain = 'call', ifNull(input, 0), 0) AS input_tokens,
    if(counted AND grain = 'call', ifNull(output, 0), 0) AS output_tokens,
    toUInt64(counted AND grain = 'call' AND isNull(input) AND isNull(output)) AS unknown_token_calls,
    if(wasted AND counted AND grain = 'call', ifNull(input, 0), 0) AS wasted_input,
    if(wasted AND counted AND grain = 'call', ifNull(output, 0), 0) AS wasted_output,
    toUInt64(wasted AND counted AND grain = 'call' AND isNull(input) AND isNull(output)) AS wasted_unknown_calls,
    if(wasted AND counted AND grain = 'call', ifNull(cost, 0), 0) AS wasted_cost_usd,
    toUInt64(wasted AND counted AND grain = 'call' AND isNotNull(cost)) AS wasted_cost_calls,
    lost_ms AS wasted_ms,
    waited_ms AS wait_ms,
    toUInt64(0) AS operations,
    toUInt64(0) AS fallback_operations,
    toUInt64(0) AS succeeded_first_try,
    toUInt64(0) AS succeeded_after_retry,
    toUInt64(0) AS succeeded_by_fallback,
    toUInt64(0) AS failed,
    toUInt64(0) AS handled,
    toUInt64(0) AS undecided,
    shows,
    toUInt8(bitXor(shows, 31)) AS hides
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, grain, charge, hidden, shows, ending, counted, wasted, input, output, cost, lost_ms, waited_ms,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.grain` AS grain,
        `attempts.charge` AS charge,
        `attempts.hidden` AS hidden,
        `attempts.shows` AS shows,
        `attempts.ending` AS ending,
        `attempts.counted` AS counted,
        `attempts.wasted` AS wasted,
        `attempts.input_tokens` AS input,
        `attempts.output_tokens` AS output,
        `attempts.cost_usd` AS cost,
        `attempts.wasted_ms` AS lost_ms,
        `attempts.wait_ms` AS waited_ms,
        `attempts.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
UNION ALL
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    toUInt64(0) AS retries_transport,
    toUInt64(0) AS retries_call,
    toUInt64(0) AS retries_node,
    toUInt64(0) AS retries_orchestrator,
    toUInt64(0) AS retries_worker,
    toUInt64(0) AS fallbacks,
    toUInt64(0) AS executions,
    toUInt64(0) AS visits,
    toUInt64(0) AS calls,
    toUInt64(0) AS calls_failed,
    toUInt64(0) AS tool_calls,
    toUInt64(0) AS http_calls,
    toInt64(0) AS input_tokens,
    toInt64(0) AS output_tokens,
    toUInt64(0) AS unknown_token_calls,
    toInt64(0) AS wasted_input,
    toInt64(0) AS wasted_output,
    toUInt64(0) AS wasted_unknown_calls,
    toFloat64(0) AS wasted_cost_usd,
    toUInt64(0) AS wasted_cost_calls,
    toFloat64(0) AS wasted_ms,
    toFloat64(0) AS wait_ms,
    toUInt64(1) AS operations,
    toUInt64(fallback_count > 0) AS fallback_operations,
    toUInt64(outcome = 'succeeded_first_try') AS succeeded_first_try,
    toUInt64(outcome = 'succeeded_after_retry') AS succeeded_after_retry,
    toUInt64(outcome = 'succeeded_by_fallback') AS succeeded_by_fallback,
    toUInt64(outcome IN ('failed_without_retry', 'failed_after_retry')) AS failed,
    toUInt64(outcome = 'handled') AS handled,
    toUInt64(outcome NOT IN ('succeeded_first_try', 'succeeded_after_retry', 'succeeded_by_fallback', 'failed_without_retry', 'failed_after_retry',
        'handled')) AS undecided,
    shows,
    toUInt8(bitXor(shows, 31)) AS hides
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, outcome, fallback_count, counts_in_step, shows,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.provider` AS provider,
        `operations.outcome` AS outcome,
        `operations.fallbacks` AS fallback_count,
        `operations.counts_in_step` AS counts_in_step,
        `operations.shows` AS shows,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counts_in_step AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider, retries_transport, retries_call, retries_node,
        retries_orchestrator, retries_worker, fallbacks, executions, visits, calls, calls_failed, tool_calls, http_calls, input_tokens,
        output_tokens, unknown_token_calls, wasted_input, wasted_output, wasted_unknown_calls, wasted_cost_usd, wasted_cost_calls, wasted_ms,
        wait_ms, operations, fallback_operations, succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided, shows, hides
FROM usage_hours FINAL
ARRAY JOIN
        `cells.service` AS service,
        `cells.environment` AS environment,
        `cells.version` AS version,
        `cells.step` AS step,
        `cells.provider` AS provider,
        `cells.retries_transport` AS retries_transport,
        `cells.retries_call` AS retries_call,
        `cells.retries_node` AS retries_node,
        `cells.retries_orchestrator` AS retries_orchestrator,
        `cells.retries_worker` AS retries_worker,
        `cells.fallbacks` AS fallbacks,
        `cells.executions` AS executions,
        `cells.visits` AS visits,
        `cells.calls` AS calls,
        `cells.calls_failed` AS calls_failed,
        `cells.tool_calls` AS tool_calls,
        `cells.http_calls` AS http_calls,
        `cells.input_tokens` AS input_tokens,
        `cells.output_tokens` AS output_tokens,
        `cells.unknown_token_calls` AS unknown_token_calls,
        `cells.wasted_input` AS wasted_input,
        `cells.wasted_output` AS wasted_output,
        `cells.wasted_unknown_calls` AS wasted_unknown_calls,
        `cells.wasted_cost_usd` AS wasted_cost_usd,
        `cells.wasted_cost_calls` AS wasted_cost_calls,
        `cells.wasted_ms` AS wasted_ms,
        `cells.wait_ms` AS wait_ms,
        `cells.operations` AS operations,
        `cells.fallback_operations` AS fallback_operations,
        `cells.succeeded_first_try` AS succeeded_first_try,
        `cells.succeeded_after_retry` AS succeeded_after_retry,
        `cells.succeeded_by_fallback` AS succeeded_by_fallback,
        `cells.failed` AS failed,
        `cells.handled` AS handled,
        `cells.undecided` AS undecided,
        `cells.shows` AS shows,
        `cells.hides` AS hides
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider, retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker,
        fallbacks, executions, visits, calls, calls_failed, tool_calls, http_calls, input_tokens, output_tokens, unknown_token_calls, wasted_input,
        wasted_output, wasted_unknown_calls, wasted_cost_usd, wasted_cost_calls, wasted_ms, wait_ms, operations, fallback_operations,
        succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided, shows, hides
FROM usage_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;
