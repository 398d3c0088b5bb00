-- More sums of whole hours, for what dashboards about providers, runs and contracts ask of
-- long ranges; see 0012. Of runs those are kept one by one that lists show: those with a
-- retry, those with anything else to note, and of each version that with the most retries.
ALTER TABLE usage_hours
    ADD COLUMN IF NOT EXISTS `runs.steps` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `runs.deliveries` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `runs.warned` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `runs.retried` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.step` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.provider` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.http_status` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.error_class` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `sends.sent` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.served` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.server_errors` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.throttled` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.failed_otherwise` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `sends.ended_unknown` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `replies.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `replies.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `replies.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `replies.step` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `replies.provider` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `replies.completed` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `replies.broke_off` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `replies.failed_before` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `switches.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.step` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.provider` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.from` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.to` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.after` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `switches.switches` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `switches.succeeded` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `switches.lost` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `visits.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `visits.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `visits.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `visits.step` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `visits.ended` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `visits.first_try` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `visits.after_retry` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `visits.by_fallback` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `visits.lost` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `hidden.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `hidden.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `hidden.instrumentation` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `hidden.steps` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.hides_transport` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.hides_call` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.hides_node` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.hides_orchestrator` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `hidden.hides_worker` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `missed.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.run_id` Array(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `missed.node` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.key` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.direction` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `missed.count` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `missed.end_bounded_ns` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `retried.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `retried.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `retried.run_id` Array(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.trace_ids` Array(Array(FixedString(16))) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.completion` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `retried.outcome` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `retried.retries` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.run_limit` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.steps` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.steps_over_budget` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.wasted_tokens` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.wasted_unknown_calls` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.wasted_ms` Array(Float64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.wait_ms` Array(Float64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.lasted_ms` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `retried.end_bounded_ns` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `noted.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `noted.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `noted.run_id` Array(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.trace_ids` Array(Array(FixedString(16))) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.completion` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `noted.quarantined` Array(Bool) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.unfinished_steps` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.outcome` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `noted.retries` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.run_limit` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.over_budget` Array(Bool) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.deliveries` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.poison_pill` Array(Bool) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.orphan_spans` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.spans` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.warnings` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.steps` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.steps_over_budget` Array(Array(String)) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.lasted_ms` Array(UInt64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `noted.end_bounded_ns` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `most.service` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `most.environment` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `most.version` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `most.run_id` Array(String) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `most.trace_ids` Array(Array(FixedString(16))) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `most.retries` Array(Int64) CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS `most.end_bounded_ns` Array(Int64) CODEC(ZSTD(1)),
    DROP COLUMN IF EXISTS `over.service`,
    DROP COLUMN IF EXISTS `over.environment`,
    DROP COLUMN IF EXISTS `over.version`,
    DROP COLUMN IF EXISTS `over.run_id`,
    DROP COLUMN IF EXISTS `over.trace_id`,
    DROP COLUMN IF EXISTS `over.completion`,
    DROP COLUMN IF EXISTS `over.outcome`,
    DROP COLUMN IF EXISTS `over.retries`,
    DROP COLUMN IF EXISTS `over.run_limit`,
    DROP COLUMN IF EXISTS `over.steps_over_budget`,
    DROP COLUMN IF EXISTS `over.lasted_ms`,
    DROP COLUMN IF EXISTS `over.end_bounded_ns`;

-- The layout of rows that have these.
CREATE OR REPLACE VIEW usage_hours_built AS
SELECT hour, argMax(if(layout = 3, built_through, toDateTime64(0, 6, 'UTC')), built_at) AS through
FROM usage_hours
GROUP BY hour;

-- From the ledger alone, one row each: requests to providers, responses, fallbacks and visits
-- of steps as 0010 and 0011 have them, steps of runs as 0014. They read what reaches the
-- window by its index, as 0012 says.
CREATE OR REPLACE VIEW request_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    step, provider, http_status, error_class,
    toUInt64(1) AS sent,
    toUInt64(kind = 0) AS served,
    toUInt64(kind = 1) AS server_errors,
    toUInt64(kind = 2) AS throttled,
    toUInt64(kind = 3) AS failed_otherwise,
    toUInt64(kind = 4) AS ended_unknown
FROM (
    SELECT *,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns,
        replaceRegexpOne(replaceRegexpOne(replaceAll(lower(error_class), '_', ''), 'error$', ''), 'exception$', '') AS class,
        multiIf(
            if(http_status != 0, http_status BETWEEN 500 AND 599, ending != 'succeeded' AND
                class IN ('badgateway', 'gatewaytimeout', 'internal', 'internalfailure', 'internalserver', 'overloaded', 'server', 'serviceunavailable', 'unavailable')), 1,
            if(http_status != 0, http_status = 429, ending != 'succeeded' AND
                class IN ('ratelimit', 'ratelimited', 'ratelimitexceeded', 'requestlimitexceeded', 'resourceexhausted', 'throttled', 'throttling', 'toomanyrequests')), 2,
            ending = 'succeeded', 0, ending = 'failed', 3, 4) AS kind
    FROM (
        SELECT last_received_ns, last_end_ns, first_end_ns, `runs.service`, `runs.environment`, `runs.version`,
            run_index, step, provider, http_status, error_class, ending, end_ns
        FROM ledger FINAL
        ARRAY JOIN
            `attempts.run` AS run_index,
            `attempts.step` AS step,
            `attempts.provider` AS provider,
            `attempts.http_status` AS http_status,
            `attempts.error_class` AS error_class,
            `attempts.ending` AS ending,
            `attempts.request` AS request,
            `attempts.end_ns` AS end_ns
        WHERE reach_ns >= {since_ns:Int64} AND request AND ending IN ('succeeded', 'failed', 'unknown')
        SETTINGS use_skip_indexes_if_final_exact_mode = 0
    )
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW response_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    step, provider,
    toUInt64(ending = 'succeeded' AND NOT midway) AS completed,
    toUInt64(midway) AS broke_off,
    toUInt64(ending = 'failed' AND NOT midway) AS failed_before
FROM (
    SELECT last_received_ns, last_end_ns, first_end_ns, `runs.service`, `runs.environment`, `runs.version`, run_index, step, provider, ending, midway, end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.grain` AS grain,
        `attempts.ending` AS ending,
        `attempts.counted` AS counted,
        `attempts.midway` AS midway,
        `attempts.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64} AND grain = 'call' AND counted AND (midway OR ending IN ('succeeded', 'failed'))
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW fallback_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    step, provider,
    fallback_from AS from,
    multiIf(model != '', model, provider != '', provider, name) AS to,
    fallback_reason AS after,
    toUInt64(1) AS switches,
    toUInt64(ending = 'succeeded') AS succeeded,
    toUInt64(ending = 'failed') AS lost
FROM (
    SELECT last_received_ns, `runs.service`, `runs.environment`, `runs.version`, run_index, step, provider, model, name, ending, fallback_from, fallback_reason, end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM (
        SELECT last_received_ns, `runs.service`, `runs.environment`, `runs.version`,
            `attempts.run`, `attempts.step`, `attempts.provider`, `attempts.model`, `attempts.name`, `attempts.charge`, `attempts.ending`,
            `attempts.fallback_from`, `attempts.fallback_reason`, `attempts.end_ns`
        FROM ledger FINAL
        WHERE reach_ns >= {since_ns:Int64} AND has(`attempts.charge`, 'fallback')
        SETTINGS use_skip_indexes_if_final_exact_mode = 0
    )
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.model` AS model,
        `attempts.name` AS name,
        `attempts.charge` AS charge,
        `attempts.ending` AS ending,
        `attempts.fallback_from` AS fallback_from,
        `attempts.fallback_reason` AS fallback_reason,
        `attempts.end_ns` AS end_ns
    WHERE charge = 'fallback'
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW visit_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    step,
    toUInt64(1) AS ended,
    toUInt64(outcome = 'succeeded_first_try') AS first_try,
    toUInt64(outcome = 'succeeded_after_retry') AS after_retry,
    toUInt64(outcome = 'succeeded_by_fallback') AS by_fallback,
    toUInt64(failure) AS lost
FROM (
    SELECT last_received_ns, `runs.service`, `runs.environment`, `runs.version`, run_index, step, outcome, settled, end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns,
        outcome IN ('failed_without_retry', 'failed_after_retry', 'handled') AS failure
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.grain` AS grain,
        `operations.outcome` AS outcome,
        `operations.settled` AS settled,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64} AND grain = 'execution' AND outcome IN ('succeeded_first_try', 'succeeded_after_retry', 'succeeded_by_fallback',
        'failed_without_retry', 'failed_after_retry', 'handled')
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
  AND (NOT failure OR settled OR end_bounded_ns <= {until_ns:Int64} - 10000000000);

CREATE OR REPLACE VIEW step_account_rows AS
SELECT
    toDateTime(intDiv(run_end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    arrayStringConcat(arraySort(`runs.dialects`[run_index + 1]), ' + ') AS instrumentation,
    toUInt64(1) AS steps,
    isNull(transport) AS hides_transport,
    isNull(calls) AS hides_call,
    isNull(node) AS hides_node,
    isNull(orchestrator) AS hides_orchestrator,
    isNull(worker) AS hides_worker
FROM (
    SELECT last_received_ns, `runs.service`, `runs.environment`, `runs.version`, `runs.dialects`, run_index, transport, calls, node, orchestrator, worker,
        `runs.end_ns`[run_index + 1] AS run_end_ns,
        if(run_end_ns >= 1577836800000000000 AND run_end_ns <= last_received_ns, run_end_ns, last_received_ns) AS run_end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `steps.run` AS run_index,
        `steps.retries_transport` AS transport,
        `steps.retries_call` AS calls,
        `steps.retries_node` AS node,
        `steps.retries_orchestrator` AS orchestrator,
        `steps.retries_worker` AS worker
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE run_end_bounded_ns >= {since_ns:Int64} AND run_end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW violation_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    `runs.run_id`[run_index + 1] AS run_id,
    node, `key`, direction, `count`, end_bounded_ns
FROM (
    SELECT `runs.service`, `runs.environment`, `runs.version`, `runs.run_id`, run_index, node, `key`, direction, `count`,
        if(time_ns >= 1577836800000000000 AND time_ns <= last_received_ns, time_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `violations.run` AS run_index,
        `violations.node` AS node,
        `violations.key` AS `key`,
        `violations.direction` AS direction,
        `violations.count` AS `count`,
        `violations.time_ns` AS time_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

CREATE OR REPLACE VIEW retried_rows AS
SELECT *
FROM ended_runs(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})
WHERE retries > 0;

CREATE OR REPLACE VIEW noted_rows AS
SELECT *
FROM ended_runs(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})
WHERE quarantined OR over_budget OR poison_pill OR orphan_spans > 0 OR notEmpty(warnings) OR notEmpty(unfinished_steps);

-- From hours and the ledger. In windows of more than six hours, time is the hour of what
-- ended in a whole hour.
-- request_usage: requests to providers, counted by how they ended; sent is the sum of the
-- other five.
CREATE OR REPLACE VIEW request_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, step, provider, http_status, error_class, sent, served, server_errors, throttled, failed_otherwise, ended_unknown
FROM usage_hours FINAL
ARRAY JOIN
        `sends.service` AS service,
        `sends.environment` AS environment,
        `sends.version` AS version,
        `sends.step` AS step,
        `sends.provider` AS provider,
        `sends.http_status` AS http_status,
        `sends.error_class` AS error_class,
        `sends.sent` AS sent,
        `sends.served` AS served,
        `sends.server_errors` AS server_errors,
        `sends.throttled` AS throttled,
        `sends.failed_otherwise` AS failed_otherwise,
        `sends.ended_unknown` AS ended_unknown
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, step, provider, http_status, error_class, sent, served, server_errors, throttled, failed_otherwise, ended_unknown
FROM request_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- response_usage: attempts of model calls, counted by what became of the response.
CREATE OR REPLACE VIEW response_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, step, provider, completed, broke_off, failed_before
FROM usage_hours FINAL
ARRAY JOIN
        `replies.service` AS service,
        `replies.environment` AS environment,
        `replies.version` AS version,
        `replies.step` AS step,
        `replies.provider` AS provider,
        `replies.completed` AS completed,
        `replies.broke_off` AS broke_off,
        `replies.failed_before` AS failed_before
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, step, provider, completed, broke_off, failed_before
FROM response_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- fallback_usage: attempts of fallback candidates, from which to which and after which
-- error, counted by how they ended.
CREATE OR REPLACE VIEW fallback_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, step, provider, `from`, `to`, `after`, switches, succeeded, lost
FROM usage_hours FINAL
ARRAY JOIN
        `switches.service` AS service,
        `switches.environment` AS environment,
        `switches.version` AS version,
        `switches.step` AS step,
        `switches.provider` AS provider,
        `switches.from` AS `from`,
        `switches.to` AS `to`,
        `switches.after` AS `after`,
        `switches.switches` AS switches,
        `switches.succeeded` AS succeeded,
        `switches.lost` AS lost
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, step, provider, `from`, `to`, `after`, switches, succeeded, lost
FROM fallback_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- visit_usage: visits of steps, counted by how they ended. A failure that is not settled
-- counts ten seconds later, so an hour is right when it lies that long before the end.
CREATE OR REPLACE VIEW visit_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64} - 10000000000)) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, step, ended, first_try, after_retry, by_fallback, lost
FROM usage_hours FINAL
ARRAY JOIN
        `visits.service` AS service,
        `visits.environment` AS environment,
        `visits.version` AS version,
        `visits.step` AS step,
        `visits.ended` AS ended,
        `visits.first_try` AS first_try,
        `visits.after_retry` AS after_retry,
        `visits.by_fallback` AS by_fallback,
        `visits.lost` AS lost
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, step, ended, first_try, after_retry, by_fallback, lost
FROM visit_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- step_accounts: steps of the runs that ended, by the instrumentations that told of the run,
-- counted by the layers that these hide.
CREATE OR REPLACE VIEW step_accounts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, instrumentation, steps, hides_transport, hides_call, hides_node, hides_orchestrator, hides_worker
FROM usage_hours FINAL
ARRAY JOIN
        `hidden.service` AS service,
        `hidden.environment` AS environment,
        `hidden.version` AS version,
        `hidden.instrumentation` AS instrumentation,
        `hidden.steps` AS steps,
        `hidden.hides_transport` AS hides_transport,
        `hidden.hides_call` AS hides_call,
        `hidden.hides_node` AS hides_node,
        `hidden.hides_orchestrator` AS hides_orchestrator,
        `hidden.hides_worker` AS hides_worker
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, instrumentation, steps, toUInt64(hides_transport), toUInt64(hides_call), toUInt64(hides_node),
    toUInt64(hides_orchestrator), toUInt64(hides_worker)
FROM step_account_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- run_counts: runs that ended within the window, counted by what became of them, by the
-- steps that they had and by how often they were delivered; warned are those with warnings, retried
-- those with a retry.
CREATE OR REPLACE VIEW run_counts AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time,
    service, environment, version, completion, outcome, steps, deliveries, runs, over_budget, exhausted, quarantined, resumed, poison_pills,
    needs_review, orphan_spans, retries, warned, retried
FROM usage_hours FINAL
ARRAY JOIN
        `runs.service` AS service,
        `runs.environment` AS environment,
        `runs.version` AS version,
        `runs.completion` AS completion,
        `runs.outcome` AS outcome,
        `runs.steps` AS steps,
        `runs.deliveries` AS deliveries,
        `runs.runs` AS runs,
        `runs.over_budget` AS over_budget,
        `runs.exhausted` AS exhausted,
        `runs.quarantined` AS quarantined,
        `runs.resumed` AS resumed,
        `runs.poison_pills` AS poison_pills,
        `runs.needs_review` AS needs_review,
        `runs.orphan_spans` AS orphan_spans,
        `runs.retries` AS retries,
        `runs.warned` AS warned,
        `runs.retried` AS retried
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, completion, outcome, arraySort(arrayMap(name -> toString(name), steps)), deliveries, toUInt64(1),
    toUInt64(over_budget), toUInt64(exhausted), toUInt64(quarantined), toUInt64(deliveries > 1), toUInt64(poison_pill), toUInt64(needs_review),
    orphan_spans, retries, toUInt64(notEmpty(warnings)), toUInt64(retries > 0)
FROM ended_runs(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- violation_usage: the contract violations, as before.
CREATE OR REPLACE VIEW violation_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id, node, `key`, direction, `count`, end_bounded_ns
FROM usage_hours FINAL
ARRAY JOIN
        `missed.service` AS service,
        `missed.environment` AS environment,
        `missed.version` AS version,
        `missed.run_id` AS run_id,
        `missed.node` AS node,
        `missed.key` AS `key`,
        `missed.direction` AS direction,
        `missed.count` AS `count`,
        `missed.end_bounded_ns` AS end_bounded_ns
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, run_id, node, `key`, direction, `count`, end_bounded_ns
FROM violation_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- retried_runs: those of ended_runs with a retry, one row each.
CREATE OR REPLACE VIEW retried_runs AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id, completion, outcome, retries, run_limit, steps, steps_over_budget, wasted_tokens, wasted_unknown_calls,
    wasted_ms, wait_ms, lasted_ms, end_bounded_ns,
    ids[1] AS trace_key, lower(hex(ids[1])) AS trace_id, arrayMap(id -> lower(hex(id)), ids) AS trace_ids
FROM usage_hours FINAL
ARRAY JOIN
        `retried.service` AS service,
        `retried.environment` AS environment,
        `retried.version` AS version,
        `retried.run_id` AS run_id,
        `retried.trace_ids` AS ids,
        `retried.completion` AS completion,
        `retried.outcome` AS outcome,
        `retried.retries` AS retries,
        `retried.run_limit` AS run_limit,
        `retried.steps` AS steps,
        `retried.steps_over_budget` AS steps_over_budget,
        `retried.wasted_tokens` AS wasted_tokens,
        `retried.wasted_unknown_calls` AS wasted_unknown_calls,
        `retried.wasted_ms` AS wasted_ms,
        `retried.wait_ms` AS wait_ms,
        `retried.lasted_ms` AS lasted_ms,
        `retried.end_bounded_ns` AS end_bounded_ns
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, run_id, completion, outcome, retries, run_limit, arrayMap(name -> toString(name), steps), steps_over_budget,
    wasted_tokens, wasted_unknown_calls, wasted_ms, wait_ms, lasted_ms, end_bounded_ns,
    trace_key, trace_id, trace_ids
FROM retried_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- noted_runs: those of ended_runs with anything to note beside retries, one row each: in
-- quarantine, over a budget, with steps that did not finish, spans without parent, warnings.
CREATE OR REPLACE VIEW noted_runs AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id, completion, quarantined, unfinished_steps, outcome, retries, run_limit, over_budget, deliveries,
    poison_pill, orphan_spans, spans, warnings, steps, steps_over_budget, lasted_ms, end_bounded_ns,
    ids[1] AS trace_key, lower(hex(ids[1])) AS trace_id, arrayMap(id -> lower(hex(id)), ids) AS trace_ids
FROM usage_hours FINAL
ARRAY JOIN
        `noted.service` AS service,
        `noted.environment` AS environment,
        `noted.version` AS version,
        `noted.run_id` AS run_id,
        `noted.trace_ids` AS ids,
        `noted.completion` AS completion,
        `noted.quarantined` AS quarantined,
        `noted.unfinished_steps` AS unfinished_steps,
        `noted.outcome` AS outcome,
        `noted.retries` AS retries,
        `noted.run_limit` AS run_limit,
        `noted.over_budget` AS over_budget,
        `noted.deliveries` AS deliveries,
        `noted.poison_pill` AS poison_pill,
        `noted.orphan_spans` AS orphan_spans,
        `noted.spans` AS spans,
        `noted.warnings` AS warnings,
        `noted.steps` AS steps,
        `noted.steps_over_budget` AS steps_over_budget,
        `noted.lasted_ms` AS lasted_ms,
        `noted.end_bounded_ns` AS end_bounded_ns
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, run_id, completion, quarantined, arrayMap(name -> toString(name), unfinished_steps), outcome, retries, run_limit,
    over_budget, deliveries, poison_pill, orphan_spans, spans, warnings, arrayMap(name -> toString(name), steps), steps_over_budget, lasted_ms,
    end_bounded_ns,
    trace_key, trace_id, trace_ids
FROM noted_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- most_retried_runs: of ended_runs at least the one that is first by retries, then by its
-- end, of each service, environment and version.
CREATE OR REPLACE VIEW most_retried_runs AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id, retries, end_bounded_ns,
    ids[1] AS trace_key, lower(hex(ids[1])) AS trace_id, arrayMap(id -> lower(hex(id)), ids) AS trace_ids
FROM usage_hours FINAL
ARRAY JOIN
        `most.service` AS service,
        `most.environment` AS environment,
        `most.version` AS version,
        `most.run_id` AS run_id,
        `most.trace_ids` AS ids,
        `most.retries` AS retries,
        `most.end_bounded_ns` AS end_bounded_ns
WHERE hour IN plan.1
UNION ALL
SELECT
    time,
    service, environment, version, run_id, retries, end_bounded_ns,
    trace_key, trace_id, trace_ids
FROM ended_runs(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- over_budget_runs: one row for each run that went over a budget of retries.
CREATE OR REPLACE VIEW over_budget_runs AS
SELECT time, service, environment, version, run_id, trace_id, completion, outcome, retries, run_limit, steps_over_budget, lasted_ms, end_bounded_ns
FROM noted_runs(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})
WHERE over_budget;

-- run_named: the runs of a name, one row each, whenever they ended: a run's id, or the id
-- of one of its traces. The run that is meant is first by preference: the last to end,
-- within the window if one did. An empty name is no run's.
CREATE OR REPLACE VIEW run_named AS
SELECT *, (toInt64(end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}), end_bounded_ns, trace_key, run_id) AS preference
FROM run_accounts
WHERE {run:String} != ''
  AND trace_key IN (
    SELECT trace_id FROM ledger
    WHERE hasAny(`runs.run_id`, (
        SELECT arrayPushBack(groupUniqArrayArray(`runs.run_id`), {run:String}) FROM ledger WHERE trace_id = unhex(if(match({run:String}, '^[0-9a-fA-F]{32}$'), {run:String}, '')))))
  AND (run_id = {run:String} OR has(trace_ids, lower({run:String})));
