-- A repeat in a layer that the account of its step calls hidden is in no number of the
-- step. Rows from before say so by the steps in the same row.
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS `attempts.hidden` Array(Bool) DEFAULT arrayMap((run, step, charge) -> charge NOT IN ('', 'fallback') AND arrayExists(
        (of_run, of_step, hides) -> of_run = run AND of_step = step AND has(hides, charge), `steps.run`, `steps.step`,
        arrayMap((t, c, n, o, w) -> arrayFilter((layer, hidden) -> hidden, ['transport', 'call', 'node', 'orchestrator', 'worker'],
            [isNull(t), isNull(c), isNull(n), isNull(o), isNull(w)]),
            `steps.retries_transport`, `steps.retries_call`, `steps.retries_node`, `steps.retries_orchestrator`, `steps.retries_worker`)),
        `attempts.run`, `attempts.step`, `attempts.charge`) COMMENT 'a repeat in a layer that the instrumentation hides: in no number' AFTER `attempts.violated`;

CREATE OR REPLACE VIEW attempts AS
SELECT
    lower(hex(ledger.trace_id)) AS trace_id,
    ledger.trace_id AS trace_key,
    `runs.run_id`[run_index + 1] AS run_id,
    `runs.thread_id`[run_index + 1] AS thread_id,
    `runs.service`[run_index + 1] AS service,
    `runs.version`[run_index + 1] AS version,
    `runs.environment`[run_index + 1] AS environment,
    `runs.completion`[run_index + 1] AS completion,
    `runs.quarantined`[run_index + 1] AS quarantined,
    `index`,
    grain,
    step,
    name,
    if(span = unhex('0000000000000000'), '', lower(hex(span))) AS span_id,
    parent,
    operation,
    ordinal,
    charge,
    evidence,
    ending,
    handled,
    error_class,
    http_status,
    model,
    provider,
    fallback_from,
    fallback_reason,
    start_ns,
    end_ns,
    input_tokens,
    output_tokens,
    cost_usd,
    counted,
    wasted,
    wasted_ms,
    wait_ms,
    view_of,
    request,
    midway,
    violated,
    hidden,
    if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns,
    fromUnixTimestamp64Nano(end_bounded_ns, 'UTC') AS ended_at,
    last_end_ns AS trace_end_ns,
    first_end_ns AS trace_first_end_ns
FROM ledger FINAL
ARRAY JOIN
        `attempts.run` AS run_index,
        `attempts.index` AS `index`,
        `attempts.grain` AS grain,
        `attempts.step` AS step,
        `attempts.name` AS name,
        `attempts.span_id` AS span,
        `attempts.parent` AS parent,
        `attempts.operation` AS operation,
        `attempts.ordinal` AS ordinal,
        `attempts.charge` AS charge,
        `attempts.evidence` AS evidence,
        `attempts.ending` AS ending,
        `attempts.handled` AS handled,
        `attempts.error_class` AS error_class,
        `attempts.http_status` AS http_status,
        `attempts.model` AS model,
        `attempts.provider` AS provider,
        `attempts.fallback_from` AS fallback_from,
        `attempts.fallback_reason` AS fallback_reason,
        `attempts.start_ns` AS start_ns,
        `attempts.end_ns` AS end_ns,
        `attempts.input_tokens` AS input_tokens,
        `attempts.output_tokens` AS output_tokens,
        `attempts.cost_usd` AS cost_usd,
        `attempts.counted` AS counted,
        `attempts.wasted` AS wasted,
        `attempts.wasted_ms` AS wasted_ms,
        `attempts.wait_ms` AS wait_ms,
        `attempts.view_of` AS view_of,
        `attempts.request` AS request,
        `attempts.midway` AS midway,
        `attempts.violated` AS violated,
        `attempts.hidden` AS hidden;

-- What dashboards sum. Two views take a window as parameters, nanoseconds since the
-- epoch, since_ns <= end < until_ns: SELECT … FROM usage(since_ns = …, until_ns = …).

-- usage: sums over the attempts and operations that ended within the window, cut fine
-- enough to be filtered and grouped by any of the first columns. Summed over all rows
-- they are the numbers of the API's /api/v1/top. A column counts at one grain:
--   retries_…, fallbacks           attempts, charged to their layer
--   executions, visits             attempts that execute a step
--   calls, calls_failed, tokens …  attempts of model calls
--   operations … undecided         operations that count in their step
--   wasted_ms, wait_ms             attempts of every kind, milliseconds
CREATE OR REPLACE VIEW usage AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, step, provider,
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
    if(counted AND grain = 'call', ifNull(input_tokens, 0), 0) AS input_tokens,
    if(counted AND grain = 'call', ifNull(output_tokens, 0), 0) AS output_tokens,
    toUInt64(counted AND grain = 'call' AND isNull(input) AND isNull(output)) AS unknown_token_calls,
    if(wasted, input_tokens, 0) AS wasted_input,
    if(wasted, output_tokens, 0) AS wasted_output,
    if(wasted, unknown_token_calls, 0) AS wasted_unknown_calls,
    if(wasted AND counted AND grain = 'call', ifNull(cost_usd, 0), 0) AS wasted_cost_usd,
    toUInt64(wasted AND counted AND grain = 'call' AND isNotNull(cost_usd)) AS wasted_cost_calls,
    wasted_ms,
    wait_ms,
    toUInt64(0) AS operations,
    toUInt64(0) AS fallback_operations,
    toUInt64(0) AS succeeded_first_try,
    toUInt64(0) AS succeeded_after_retry,
    toUInt64(0) AS succeeded_by_fallback,
    toUInt64(0) AS failed,
    toUInt64(0) AS handled,
    toUInt64(0) AS undecided
FROM (SELECT *, input_tokens AS input, output_tokens AS output FROM attempts)
WHERE step != ''
  AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
  AND trace_end_ns >= {since_ns:Int64} AND trace_first_end_ns < {until_ns:Int64} + 604800000000000
UNION ALL
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, step, provider,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1,
    toUInt64(fallbacks > 0),
    toUInt64(outcome = 'succeeded_first_try'),
    toUInt64(outcome = 'succeeded_after_retry'),
    toUInt64(outcome = 'succeeded_by_fallback'),
    toUInt64(outcome IN ('failed_without_retry', 'failed_after_retry')),
    toUInt64(outcome = 'handled'),
    toUInt64(outcome IN ('interrupted', 'cancelled', 'unknown', 'running'))
FROM operations
WHERE counts_in_step AND step != ''
  AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
  AND trace_end_ns >= {since_ns:Int64} AND trace_first_end_ns < {until_ns:Int64} + 604800000000000;

-- run_usage: the runs that ended within the window, one row each, with the names of
-- the steps that went over their budget; the numbers of /api/v1/runs.
CREATE OR REPLACE VIEW run_usage AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id,
    lower(hex(trace_key)) AS trace_id,
    completion, quarantined, outcome, retries, run_limit, exhausted, deliveries, poison_pill, needs_review, orphan_spans, spans,
    arraySort(arrayMap(name -> toString(name), arrayFilter((name, run, over) -> over AND run = place - 1, step_names, step_runs, step_over))) AS steps_over_budget,
    exhausted OR notEmpty(steps_over_budget) AS over_budget,
    toUInt64(greatest(intDiv(end_ns - start_ns, 1000000), 0)) AS lasted_ms,
    end_bounded_ns
FROM (
    SELECT
        trace_id AS trace_key, place, anchor, step_names, step_runs, step_over,
        run_id, service, environment, version, completion, quarantined, outcome, retries, run_limit, exhausted, deliveries, poison_pill,
        needs_review, orphan_spans, spans, start_ns, end_ns,
        if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns
    FROM (SELECT *, `steps.step` AS step_names, `steps.run` AS step_runs, `steps.over_budget` AS step_over FROM ledger FINAL)
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
    WHERE last_end_ns >= {since_ns:Int64} - 604800000000000
)
WHERE anchor AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};

-- step_usage: what each step consumed in each run that ended within the window. A layer
-- that is NULL is hidden by the instrumentation.
CREATE OR REPLACE VIEW step_usage AS
SELECT
    toDateTime(intDiv(run_end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, step, run_id,
    lower(hex(trace_key)) AS trace_id,
    completion, executions, visits, calls, calls_failed,
    retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker, retries_total,
    step_limit, over_budget, worst_case, factorisation, outcome
FROM (
    SELECT
        trace_id AS trace_key,
        `runs.service`[run_index + 1] AS service,
        `runs.environment`[run_index + 1] AS environment,
        `runs.version`[run_index + 1] AS version,
        `runs.run_id`[run_index + 1] AS run_id,
        `runs.completion`[run_index + 1] AS completion,
        `runs.end_ns`[run_index + 1] AS run_end_ns,
        step, executions, visits, calls, calls_failed, retries_transport, retries_call, retries_node, retries_orchestrator, retries_worker,
        retries_total, step_limit, over_budget, worst_case, factorisation, outcome,
        if(run_end_ns >= 1577836800000000000 AND run_end_ns <= last_received_ns, run_end_ns, last_received_ns) AS run_end_bounded_ns
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
    WHERE last_end_ns >= {since_ns:Int64} - 604800000000000
)
WHERE run_end_bounded_ns >= {since_ns:Int64} AND run_end_bounded_ns < {until_ns:Int64};
