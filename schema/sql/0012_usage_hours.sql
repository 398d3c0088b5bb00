-- Sums of whole hours, from which long ranges are answered: a row an hour, with all that
-- the views below say of it. A row is right as long as nothing was written since it was
-- built that touches its hour; after that the hour is read from the ledger until it is
-- built again. So the views give the same numbers with these rows and without.

-- The hours since the epoch that a row of the ledger says something about, and the latest
-- of all ends in it (of a run it may lie in another trace), bounded by the time of receipt.
-- A row reaches at least as far as the one that it replaces: so a read with FINAL of what
-- reaches a window finds with an old row the new one too, and may skip what the index says.
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS hours Array(UInt32) MATERIALIZED arrayDistinct(arrayMap(
        ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns), 3600000000000))),
        arrayConcat(`attempts.end_ns`, `operations.end_ns`, `runs.end_ns`, `violations.time_ns`))) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS reached_ns Int64 COMMENT 'reach_ns of the row that this one replaced' CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS reach_ns Int64 MATERIALIZED arrayMax(arrayConcat([last_end_ns, reached_ns], arrayMap(
        ns -> if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns),
        arrayConcat(`attempts.end_ns`, `operations.end_ns`, `runs.end_ns`, `violations.time_ns`)))) CODEC(Delta, ZSTD(1)),
    ADD INDEX IF NOT EXISTS reach_range reach_ns TYPE minmax GRANULARITY 1;

ALTER TABLE ledger MATERIALIZE COLUMN `attempts.hidden`, MATERIALIZE COLUMN hours, MATERIALIZE COLUMN reach_ns,
    MATERIALIZE INDEX reach_range SETTINGS mutations_sync = 1;

-- When each hour was written to last, by the store's clock. A row that takes an hour out
-- of a trace does not say so itself: who replaces a row touches the hours of the old one.
CREATE TABLE IF NOT EXISTS ledger_touched
(
    hour UInt32 COMMENT 'since the epoch',
    touched_at SimpleAggregateFunction(max, DateTime64(6, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY hour
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS ledger_touches TO ledger_touched AS
SELECT arrayJoin(hours) AS hour, max(written_at) AS touched_at FROM ledger GROUP BY hour;

INSERT INTO ledger_touched SELECT arrayJoin(hours) AS hour, max(written_at) AS touched_at FROM ledger GROUP BY hour;

CREATE TABLE IF NOT EXISTS usage_hours
(
    hour UInt32 COMMENT 'since the epoch',
    built_through DateTime64(6, 'UTC') COMMENT 'all that was written before is in it',
    built_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    `cells.service` Array(LowCardinality(String)),
    `cells.environment` Array(LowCardinality(String)),
    `cells.version` Array(LowCardinality(String)),
    `cells.step` Array(LowCardinality(String)),
    `cells.provider` Array(LowCardinality(String)),
    `cells.retries_transport` Array(UInt64) CODEC(ZSTD(1)),
    `cells.retries_call` Array(UInt64) CODEC(ZSTD(1)),
    `cells.retries_node` Array(UInt64) CODEC(ZSTD(1)),
    `cells.retries_orchestrator` Array(UInt64) CODEC(ZSTD(1)),
    `cells.retries_worker` Array(UInt64) CODEC(ZSTD(1)),
    `cells.fallbacks` Array(UInt64) CODEC(ZSTD(1)),
    `cells.executions` Array(UInt64) CODEC(ZSTD(1)),
    `cells.visits` Array(UInt64) CODEC(ZSTD(1)),
    `cells.calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.calls_failed` Array(UInt64) CODEC(ZSTD(1)),
    `cells.tool_calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.http_calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.input_tokens` Array(Int64) CODEC(ZSTD(1)),
    `cells.output_tokens` Array(Int64) CODEC(ZSTD(1)),
    `cells.unknown_token_calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.wasted_input` Array(Int64) CODEC(ZSTD(1)),
    `cells.wasted_output` Array(Int64) CODEC(ZSTD(1)),
    `cells.wasted_unknown_calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.wasted_cost_usd` Array(Float64) CODEC(ZSTD(1)),
    `cells.wasted_cost_calls` Array(UInt64) CODEC(ZSTD(1)),
    `cells.wasted_ms` Array(Float64) CODEC(ZSTD(1)),
    `cells.wait_ms` Array(Float64) CODEC(ZSTD(1)),
    `cells.operations` Array(UInt64) CODEC(ZSTD(1)),
    `cells.fallback_operations` Array(UInt64) CODEC(ZSTD(1)),
    `cells.succeeded_first_try` Array(UInt64) CODEC(ZSTD(1)),
    `cells.succeeded_after_retry` Array(UInt64) CODEC(ZSTD(1)),
    `cells.succeeded_by_fallback` Array(UInt64) CODEC(ZSTD(1)),
    `cells.failed` Array(UInt64) CODEC(ZSTD(1)),
    `cells.handled` Array(UInt64) CODEC(ZSTD(1)),
    `cells.undecided` Array(UInt64) CODEC(ZSTD(1)),
    `runs.service` Array(LowCardinality(String)),
    `runs.environment` Array(LowCardinality(String)),
    `runs.version` Array(LowCardinality(String)),
    `runs.completion` Array(LowCardinality(String)),
    `runs.outcome` Array(LowCardinality(String)),
    `runs.runs` Array(UInt64) CODEC(ZSTD(1)),
    `runs.over_budget` Array(UInt64) CODEC(ZSTD(1)),
    `runs.exhausted` Array(UInt64) CODEC(ZSTD(1)),
    `runs.quarantined` Array(UInt64) CODEC(ZSTD(1)),
    `runs.resumed` Array(UInt64) CODEC(ZSTD(1)),
    `runs.poison_pills` Array(UInt64) CODEC(ZSTD(1)),
    `runs.needs_review` Array(UInt64) CODEC(ZSTD(1)),
    `runs.orphan_spans` Array(Int64) CODEC(ZSTD(1)),
    `runs.retries` Array(Int64) CODEC(ZSTD(1)),
    `steps.service` Array(LowCardinality(String)),
    `steps.environment` Array(LowCardinality(String)),
    `steps.version` Array(LowCardinality(String)),
    `steps.step` Array(LowCardinality(String)),
    `steps.executions` Array(Int64) CODEC(ZSTD(1)),
    `steps.runs` Array(UInt64) CODEC(ZSTD(1)),
    `steps.over_budget` Array(UInt64) CODEC(ZSTD(1)),
    `steps.step_limit` Array(Int64) CODEC(ZSTD(1)),
    `steps.most` Array(Int64) CODEC(ZSTD(1)),
    `steps.multiplied` Array(LowCardinality(String)),
    `steps.most_run` Array(String) CODEC(ZSTD(1)),
    `steps.worst_case` Array(Int64) CODEC(ZSTD(1)),
    `tries.service` Array(LowCardinality(String)),
    `tries.environment` Array(LowCardinality(String)),
    `tries.version` Array(LowCardinality(String)),
    `tries.step` Array(LowCardinality(String)),
    `tries.provider` Array(LowCardinality(String)),
    `tries.model` Array(LowCardinality(String)),
    `tries.grain` Array(LowCardinality(String)),
    `tries.charge` Array(LowCardinality(String)),
    `tries.ending` Array(LowCardinality(String)),
    `tries.error_class` Array(LowCardinality(String)),
    `tries.http_status` Array(Int64) CODEC(ZSTD(1)),
    `tries.ordinal` Array(Int64) CODEC(ZSTD(1)),
    `tries.took_to_ms` Array(UInt64) CODEC(ZSTD(1)),
    `tries.attempts` Array(UInt64) CODEC(ZSTD(1)),
    `tries.took_ms` Array(Float64) CODEC(ZSTD(1)),
    `tries.wait_ms` Array(Float64) CODEC(ZSTD(1)),
    `tries.waits` Array(UInt64) CODEC(ZSTD(1)),
    `wanted.service` Array(LowCardinality(String)),
    `wanted.environment` Array(LowCardinality(String)),
    `wanted.version` Array(LowCardinality(String)),
    `wanted.step` Array(LowCardinality(String)),
    `wanted.provider` Array(LowCardinality(String)),
    `wanted.outcome` Array(LowCardinality(String)),
    `wanted.first_error` Array(LowCardinality(String)),
    `wanted.last_error` Array(LowCardinality(String)),
    `wanted.futile` Array(Bool) CODEC(ZSTD(1)),
    `wanted.attempts` Array(Int64) CODEC(ZSTD(1)),
    `wanted.attempts_limit` Array(Int64) CODEC(ZSTD(1)),
    `wanted.operations` Array(UInt64) CODEC(ZSTD(1)),
    `over.service` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `over.environment` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `over.version` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `over.run_id` Array(String) CODEC(ZSTD(1)),
    `over.trace_id` Array(String) CODEC(ZSTD(1)),
    `over.completion` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `over.outcome` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `over.retries` Array(Int64) CODEC(ZSTD(1)),
    `over.run_limit` Array(Int64) CODEC(ZSTD(1)),
    `over.steps_over_budget` Array(Array(String)) CODEC(ZSTD(1)),
    `over.lasted_ms` Array(UInt64) CODEC(ZSTD(1)),
    `over.end_bounded_ns` Array(Int64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(built_at)
ORDER BY hour
TTL toDateTime(hour * 3600, 'UTC') + toIntervalDay({ledger_days})
SETTINGS index_granularity = 64;

-- hours_plan says for a window which hours are answered from their rows: the whole ones of
-- a window of more than six hours, where the row is right; and from when on the ledger is
-- read for others, the window's end where there are none.
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
    LEFT JOIN (SELECT hour, max(built_through) AS through FROM usage_hours GROUP BY hour) AS built ON touches.hour = built.hour
    WHERE hour_ns + 3600000000000 > {since_ns:Int64} AND hour_ns < {until_ns:Int64}
);

-- From the ledger alone. usage_rows has a row for each attempt and operation, with the
-- columns of usage; run_usage one for each run, step_usage one for each step of a run,
-- as before.
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
    toUInt64(0) AS undecided
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, grain, charge, hidden, ending, counted, wasted, input, output, cost, lost_ms, waited_ms,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.grain` AS grain,
        `attempts.charge` AS charge,
        `attempts.hidden` AS hidden,
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
        'handled')) AS undecided
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, outcome, fallback_count, counts_in_step,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.provider` AS provider,
        `operations.outcome` AS outcome,
        `operations.fallbacks` AS fallback_count,
        `operations.counts_in_step` AS counts_in_step,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counts_in_step AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW attempt_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    model,
    grain,
    charge,
    ending,
    error_class,
    http_status,
    ordinal,
    greatest(0, (span_end_ns - start_ns) / 1000000) AS took_ms,
    toUInt64(exp2(ceil(log2(greatest(1, took_ms))))) AS took_to_ms,
    waited_ms AS wait_ms
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, model, grain, charge, ending, error_class, http_status, ordinal, counted, waited_ms, start_ns, end_ns AS span_end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.model` AS model,
        `attempts.grain` AS grain,
        `attempts.charge` AS charge,
        `attempts.ending` AS ending,
        `attempts.error_class` AS error_class,
        `attempts.http_status` AS http_status,
        `attempts.ordinal` AS ordinal,
        `attempts.counted` AS counted,
        `attempts.wait_ms` AS waited_ms,
        `attempts.start_ns` AS start_ns,
        `attempts.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counted AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW operation_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    outcome,
    first_error,
    last_error,
    futile,
    attempts,
    attempts_limit
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, outcome, first_error, last_error, futile, attempts, attempts_limit, counts_in_step,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.provider` AS provider,
        `operations.outcome` AS outcome,
        `operations.first_error` AS first_error,
        `operations.last_error` AS last_error,
        `operations.futile` AS futile,
        `operations.attempts` AS attempts,
        `operations.limit` AS attempts_limit,
        `operations.counts_in_step` AS counts_in_step,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counts_in_step AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW run_usage AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, run_id,
    lower(hex(trace_key)) AS trace_id,
    completion, quarantined, outcome, retries, run_limit, exhausted, deliveries, poison_pill, needs_review, orphan_spans, spans,
    arraySort(arrayMap(name -> toString(name), arrayFilter((name, run, over) -> over AND run = place - 1, step_names, step_runs,
        step_over))) AS steps_over_budget,
    exhausted OR notEmpty(steps_over_budget) AS over_budget,
    toUInt64(greatest(intDiv(end_ns - start_ns, 1000000), 0)) AS lasted_ms,
    end_bounded_ns
FROM (
    SELECT
        ledger.trace_id AS trace_key, `steps.step` AS step_names, `steps.run` AS step_runs, `steps.over_budget` AS step_over,
        place, anchor, run_id, service, environment, version, completion, quarantined, outcome, retries, run_limit, exhausted, deliveries,
        poison_pill, needs_review, orphan_spans, spans, start_ns, end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        arrayEnumerate(`runs.run_id`) AS place,
        `runs.anchor` AS anchor,
        `runs.run_id` AS run_id,
        `runs.service` AS service,
        `runs.environment` AS environment,
        `runs.version` AS version,
        `runs.completion` AS completion,
        `runs.quarantined` AS quarantined,
        `runs.outcome` AS outcome,
        `runs.retries` AS retries,
        `runs.run_limit` AS run_limit,
        `runs.exhausted` AS exhausted,
        `runs.deliveries` AS deliveries,
        `runs.poison_pill` AS poison_pill,
        `runs.needs_review` AS needs_review,
        `runs.orphan_spans` AS orphan_spans,
        `runs.spans` AS spans,
        `runs.start_ns` AS start_ns,
        `runs.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE anchor AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW step_usage AS
SELECT
    toDateTime(intDiv(run_end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, run_id,
    lower(hex(trace_key)) AS trace_id,
    completion, executions, visits, calls, calls_failed, retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker,
        retries_total, step_limit, over_budget, worst_case, factorisation, outcome
FROM (
    SELECT
        ledger.trace_id AS trace_key,
        `runs.service`[run_index + 1] AS service,
        `runs.environment`[run_index + 1] AS environment,
        `runs.version`[run_index + 1] AS version,
        `runs.run_id`[run_index + 1] AS run_id,
        `runs.completion`[run_index + 1] AS completion,
        `runs.end_ns`[run_index + 1] AS end_ns,
        step, executions, visits, calls, calls_failed, retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker,
            retries_total, step_limit, over_budget, worst_case, factorisation, outcome,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS run_end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `steps.run` AS run_index,
        `steps.step` AS step,
        `steps.executions` AS executions,
        `steps.visits` AS visits,
        `steps.calls` AS calls,
        `steps.calls_failed` AS calls_failed,
        `steps.retries_transport` AS retries_transport,
        `steps.retries_call` AS retries_call,
        `steps.retries_node` AS retries_node,
        `steps.retries_orchestrator` AS retries_orchestrator,
        `steps.retries_worker` AS retries_worker,
        `steps.retries_total` AS retries_total,
        `steps.step_limit` AS step_limit,
        `steps.over_budget` AS over_budget,
        `steps.worst_case` AS worst_case,
        `steps.factorisation` AS factorisation,
        `steps.outcome` AS outcome
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE run_end_bounded_ns >= {since_ns:Int64} AND run_end_bounded_ns < {until_ns:Int64};

-- From hours and the ledger. In windows of more than six hours, time is the hour of what
-- ended in a whole hour.
CREATE OR REPLACE VIEW usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider, retries_transport, retries_call, retries_node,
        retries_orchestrator, retries_worker, fallbacks, executions, visits, calls, calls_failed, tool_calls, http_calls, input_tokens,
        output_tokens, unknown_token_calls, wasted_input, wasted_output, wasted_unknown_calls, wasted_cost_usd, wasted_cost_calls, wasted_ms,
        wait_ms, operations, fallback_operations, succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided
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
        `cells.undecided` AS undecided
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider, retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker,
        fallbacks, executions, visits, calls, calls_failed, tool_calls, http_calls, input_tokens, output_tokens, unknown_token_calls, wasted_input,
        wasted_output, wasted_unknown_calls, wasted_cost_usd, wasted_cost_calls, wasted_ms, wait_ms, operations, fallback_operations,
        succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided
FROM usage_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- run_counts: runs that ended within the window, counted by what became of them.
CREATE OR REPLACE VIEW run_counts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, completion, outcome, runs, over_budget, exhausted, quarantined, resumed,
        poison_pills, needs_review, orphan_spans, retries
FROM usage_hours FINAL
ARRAY JOIN
        `runs.service` AS service,
        `runs.environment` AS environment,
        `runs.version` AS version,
        `runs.completion` AS completion,
        `runs.outcome` AS outcome,
        `runs.runs` AS runs,
        `runs.over_budget` AS over_budget,
        `runs.exhausted` AS exhausted,
        `runs.quarantined` AS quarantined,
        `runs.resumed` AS resumed,
        `runs.poison_pills` AS poison_pills,
        `runs.needs_review` AS needs_review,
        `runs.orphan_spans` AS orphan_spans,
        `runs.retries` AS retries
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, completion, outcome, toUInt64(1), toUInt64(over_budget), toUInt64(exhausted), toUInt64(quarantined),
        toUInt64(deliveries > 1), toUInt64(poison_pill),
    toUInt64(needs_review), orphan_spans, retries
FROM run_usage(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- over_budget_runs: one row for each run that went over a budget of retries.
CREATE OR REPLACE VIEW over_budget_runs AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, run_id, trace_id, completion, outcome, retries,
        run_limit, steps_over_budget, lasted_ms, end_bounded_ns
FROM usage_hours FINAL
ARRAY JOIN
        `over.service` AS service,
        `over.environment` AS environment,
        `over.version` AS version,
        `over.run_id` AS run_id,
        `over.trace_id` AS trace_id,
        `over.completion` AS completion,
        `over.outcome` AS outcome,
        `over.retries` AS retries,
        `over.run_limit` AS run_limit,
        `over.steps_over_budget` AS steps_over_budget,
        `over.lasted_ms` AS lasted_ms,
        `over.end_bounded_ns` AS end_bounded_ns
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, run_id, trace_id, completion, outcome, retries, run_limit, steps_over_budget, lasted_ms, end_bounded_ns
FROM run_usage(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1 AND over_budget;

-- step_counts: what each step consumed in the runs that ended within the window: how many
-- runs by their number of executions, those over the step's budget, its largest limit; and the most retries in one run,
-- how the layers multiplied in it, and its id; the largest worst case of stated limits.
CREATE OR REPLACE VIEW step_counts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, executions, runs, over_budget, step_limit, most, multiplied,
        most_run, worst_case
FROM usage_hours FINAL
ARRAY JOIN
        `steps.service` AS service,
        `steps.environment` AS environment,
        `steps.version` AS version,
        `steps.step` AS step,
        `steps.executions` AS executions,
        `steps.runs` AS runs,
        `steps.over_budget` AS over_budget,
        `steps.step_limit` AS step_limit,
        `steps.most` AS most,
        `steps.multiplied` AS multiplied,
        `steps.most_run` AS most_run,
        `steps.worst_case` AS worst_case
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, executions, toUInt64(1), toUInt64(over_budget), step_limit, ifNull(retries_total, 0), factorisation,
        run_id, worst_case
FROM step_usage(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- attempt_counts: the counted attempts that ended within the window, by what they were and
-- how they ended; took_to_ms is the power of two that they took at most, in milliseconds.
CREATE OR REPLACE VIEW attempt_counts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider, model, grain, charge, ending, error_class, http_status,
        ordinal, took_to_ms, attempts, took_ms, wait_ms, waits
FROM usage_hours FINAL
ARRAY JOIN
        `tries.service` AS service,
        `tries.environment` AS environment,
        `tries.version` AS version,
        `tries.step` AS step,
        `tries.provider` AS provider,
        `tries.model` AS model,
        `tries.grain` AS grain,
        `tries.charge` AS charge,
        `tries.ending` AS ending,
        `tries.error_class` AS error_class,
        `tries.http_status` AS http_status,
        `tries.ordinal` AS ordinal,
        `tries.took_to_ms` AS took_to_ms,
        `tries.attempts` AS attempts,
        `tries.took_ms` AS took_ms,
        `tries.wait_ms` AS wait_ms,
        `tries.waits` AS waits
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider, model, grain, charge, ending, error_class, http_status, ordinal, took_to_ms, toUInt64(1),
        took_ms, wait_ms, toUInt64(wait_ms > 0)
FROM attempt_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- operation_counts: the operations that count in their step and ended within the window,
-- by outcome and number of attempts; attempts_limit 0 is a limit that no span states.
CREATE OR REPLACE VIEW operation_counts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider, outcome, first_error, last_error, futile, attempts,
        attempts_limit, operations
FROM usage_hours FINAL
ARRAY JOIN
        `wanted.service` AS service,
        `wanted.environment` AS environment,
        `wanted.version` AS version,
        `wanted.step` AS step,
        `wanted.provider` AS provider,
        `wanted.outcome` AS outcome,
        `wanted.first_error` AS first_error,
        `wanted.last_error` AS last_error,
        `wanted.futile` AS futile,
        `wanted.attempts` AS attempts,
        `wanted.attempts_limit` AS attempts_limit,
        `wanted.operations` AS operations
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider, outcome, first_error, last_error, futile, attempts, attempts_limit, toUInt64(1)
FROM operation_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;
