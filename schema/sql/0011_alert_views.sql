-- What dashboards need of alerts beside their history. A sample says how many its rule
-- wants before it judges: rows from before do not, and count as judged.
ALTER TABLE alert_samples
    ADD COLUMN IF NOT EXISTS min_samples Int64 DEFAULT 0 COMMENT 'with a smaller denominator the rule does not judge' CODEC(ZSTD(1)) AFTER threshold;

-- visit_usage: one row for each visit of a step that ended within the window and counts in
-- operation_error_ratio, a failure only once it is settled at the end of the window; ended
-- is 1, and so is one of the four columns after it.
CREATE OR REPLACE VIEW visit_usage AS
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
    PREWHERE last_end_ns >= {since_ns:Int64} AND first_end_ns < {until_ns:Int64} + 604800000000000
    WHERE grain = 'execution' AND outcome IN ('succeeded_first_try', 'succeeded_after_retry', 'succeeded_by_fallback',
        'failed_without_retry', 'failed_after_retry', 'handled')
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
  AND (NOT failure OR settled OR end_bounded_ns <= {until_ns:Int64} - 10000000000);
