-- What dashboards about providers sum. The views take a window as usage does, and read
-- only the arrays that they need, of the traces that reach into the window: ends of a
-- trace only grow when its row is replaced, so a row that is too early has no newer one
-- that is not, and may be left out before FINAL.

-- request_usage: one row for each request to a provider that ended within the window, as
-- the signals server_error_ratio and throttled_ratio count them; sent is 1, and so is
-- one of the five columns after it.
CREATE OR REPLACE VIEW request_usage AS
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
        PREWHERE last_end_ns >= {since_ns:Int64} AND first_end_ns < {until_ns:Int64} + 604800000000000
        WHERE request AND ending IN ('succeeded', 'failed', 'unknown')
    )
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

-- response_usage: one row for each attempt of a model call that ended within the window
-- and succeeded or failed, as stream_midway_failure_ratio counts them; one of the three
-- columns is 1. Where spans do not show that a response had begun, a break counts as
-- failed before it.
CREATE OR REPLACE VIEW response_usage AS
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
    PREWHERE last_end_ns >= {since_ns:Int64} AND first_end_ns < {until_ns:Int64} + 604800000000000
    WHERE grain = 'call' AND counted AND (midway OR ending IN ('succeeded', 'failed'))
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

-- fallback_usage: one row for each attempt that was a fallback candidate's and ended
-- within the window: from which candidate to which, after which error, and whether it
-- helped. A candidate is its model, where none is stated its provider, else its name.
CREATE OR REPLACE VIEW fallback_usage AS
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
        PREWHERE last_end_ns >= {since_ns:Int64} AND first_end_ns < {until_ns:Int64} + 604800000000000
        WHERE has(`attempts.charge`, 'fallback')
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
