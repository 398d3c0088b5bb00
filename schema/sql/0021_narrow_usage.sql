-- Views with some of the columns of usage. Whoever reads usage pays for all of its columns,
-- for the engine unfolds every array that a view names, whether asked for or not; and most
-- panels ask for few. Rows and numbers are those of usage.

-- retry_rows: from the ledger alone, a row for each attempt and operation.
CREATE OR REPLACE VIEW retry_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    toUInt64(charge = 'transport' AND NOT hidden) AS retries_transport,
    toUInt64(charge = 'call' AND NOT hidden) AS retries_call,
    toUInt64(charge = 'node' AND NOT hidden) AS retries_node,
    toUInt64(charge = 'orchestrator' AND NOT hidden) AS retries_orchestrator,
    toUInt64(charge = 'worker' AND NOT hidden) AS retries_worker,
    toUInt64(0) AS operations,
    shows,
    toUInt8(bitXor(shows, 31)) AS hides
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, charge, hidden, shows,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.step` AS step,
        `attempts.provider` AS provider,
        `attempts.charge` AS charge,
        `attempts.hidden` AS hidden,
        `attempts.shows` AS shows,
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
    toUInt64(1) AS operations,
    shows,
    toUInt8(bitXor(shows, 31)) AS hides
FROM (
    SELECT
        `runs.service`[run_index + 1] AS service, `runs.environment`[run_index + 1] AS environment, `runs.version`[run_index + 1] AS version,
        step, provider, counts_in_step, shows,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.provider` AS provider,
        `operations.counts_in_step` AS counts_in_step,
        `operations.shows` AS shows,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counts_in_step AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

-- outcome_rows: from the ledger alone, a row for each operation.
CREATE OR REPLACE VIEW outcome_rows AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time, service, environment, version, step, provider,
    toUInt64(1) AS operations,
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
        step, provider, outcome, counts_in_step,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    ARRAY JOIN
        `operations.run` AS run_index,
        `operations.step` AS step,
        `operations.provider` AS provider,
        `operations.outcome` AS outcome,
        `operations.counts_in_step` AS counts_in_step,
        `operations.end_ns` AS end_ns
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE counts_in_step AND step != '' AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

-- retry_usage: usage, of which its retries, operations and layers shown.
CREATE OR REPLACE VIEW retry_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider,
    retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker, operations, shows, hides
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
        `cells.operations` AS operations,
        `cells.shows` AS shows,
        `cells.hides` AS hides
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider,
    retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker, operations, shows, hides
FROM retry_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;

-- outcome_usage: usage, of which its operations by outcome.
CREATE OR REPLACE VIEW outcome_usage AS
WITH
    (SELECT (clean, dirty_from_ns) FROM hours_plan(since_ns = {since_ns:Int64}, until_ns = {until_ns:Int64})) AS plan
SELECT
    toDateTime(hour * 3600, 'UTC') AS time, service, environment, version, step, provider,
    operations, succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided
FROM usage_hours FINAL
ARRAY JOIN
        `cells.service` AS service,
        `cells.environment` AS environment,
        `cells.version` AS version,
        `cells.step` AS step,
        `cells.provider` AS provider,
        `cells.operations` AS operations,
        `cells.succeeded_first_try` AS succeeded_first_try,
        `cells.succeeded_after_retry` AS succeeded_after_retry,
        `cells.succeeded_by_fallback` AS succeeded_by_fallback,
        `cells.failed` AS failed,
        `cells.handled` AS handled,
        `cells.undecided` AS undecided
WHERE hour IN plan.1
UNION ALL
SELECT
    time, service, environment, version, step, provider,
    operations, succeeded_first_try, succeeded_after_retry, succeeded_by_fallback, failed, handled, undecided
FROM outcome_rows(since_ns = plan.2, until_ns = {until_ns:Int64})
WHERE toUInt32(intDiv(toUnixTimestamp(time), 3600)) NOT IN plan.1;
