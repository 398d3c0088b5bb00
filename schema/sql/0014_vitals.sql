-- What collectors measure of themselves, for who has no Prometheus: one row for each
-- thing that one collector measured in some ten seconds. Counts are the sum of the row,
-- lengths of time and fills its largest.
CREATE TABLE IF NOT EXISTS collector_vitals
(
    at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') COMMENT 'when it was written, by the store''s clock' CODEC(Delta, ZSTD(1)),
    writer LowCardinality(String) COMMENT 'which collector',
    name LowCardinality(String) COMMENT 'what was measured, with its unit where it is no count',
    times UInt64 COMMENT 'how often' CODEC(ZSTD(1)),
    total Float64 CODEC(ZSTD(1)),
    largest Float64 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(at, 'UTC')
ORDER BY (name, at)
TTL toDateTime(at) + toIntervalDay(30)
SETTINGS ttl_only_drop_parts = 1;

-- step_accounts: one row for each step of each run that ended within the window, with the
-- instrumentations that told of the run, and which layers they hide.
CREATE OR REPLACE VIEW step_accounts AS
SELECT
    toDateTime(intDiv(run_end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[run_index + 1] AS service,
    `runs.environment`[run_index + 1] AS environment,
    `runs.version`[run_index + 1] AS version,
    arrayStringConcat(arraySort(`runs.dialects`[run_index + 1]), ' + ') AS instrumentation,
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
    PREWHERE last_end_ns >= {since_ns:Int64} - 604800000000000
)
WHERE run_end_bounded_ns >= {since_ns:Int64} AND run_end_bounded_ns < {until_ns:Int64};
