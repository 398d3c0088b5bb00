-- What a reader asks of single runs. Of the views over runs only those arrays are read
-- that a query names, for nothing but positions is joined.

-- run_accounts: every run, one row each, whenever it ended. What was wasted is the sum
-- over its steps: tokens, the milliseconds of lost attempts and of waits.
CREATE OR REPLACE VIEW run_accounts AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[place] AS service,
    `runs.environment`[place] AS environment,
    `runs.version`[place] AS version,
    `runs.run_id`[place] AS run_id,
    `runs.thread_id`[place] AS thread_id,
    lower(hex(trace_key)) AS trace_id,
    arrayMap(id -> lower(hex(id)), `runs.trace_ids`[place]) AS trace_ids,
    `runs.completion`[place] AS completion,
    `runs.quarantined`[place] AS quarantined,
    `runs.unfinished_steps`[place] AS unfinished_steps,
    `runs.outcome`[place] AS outcome,
    `runs.retries`[place] AS retries,
    `runs.run_limit`[place] AS run_limit,
    `runs.exhausted`[place] AS exhausted,
    `runs.deliveries`[place] AS deliveries,
    `runs.poison_pill`[place] AS poison_pill,
    `runs.needs_review`[place] AS needs_review,
    `runs.orphan_spans`[place] AS orphan_spans,
    `runs.spans`[place] AS spans,
    `runs.warnings`[place] AS warnings,
    arrayFilter((name, run) -> run = place - 1, `steps.step`, `steps.run`) AS steps,
    arraySort(arrayMap(name -> toString(name), arrayFilter((name, run, over) -> over AND run = place - 1, `steps.step`, `steps.run`, `steps.over_budget`))) AS steps_over_budget,
    exhausted OR notEmpty(steps_over_budget) AS over_budget,
    arraySum((run, input, output) -> if(run = place - 1, input + output, 0), `steps.run`, `steps.wasted_input`, `steps.wasted_output`) AS wasted_tokens,
    arraySum((run, calls) -> if(run = place - 1, calls, 0), `steps.run`, `steps.wasted_unknown_calls`) AS wasted_unknown_calls,
    arraySum((run, ms) -> if(run = place - 1, ms, 0), `steps.run`, `steps.wasted_time_ms`) AS wasted_ms,
    arraySum((run, ms) -> if(run = place - 1, ms, 0), `steps.run`, `steps.wasted_wait_ms`) AS wait_ms,
    `runs.start_ns`[place] AS start_ns,
    `runs.end_ns`[place] AS end_ns,
    toUInt64(greatest(intDiv(end_ns - start_ns, 1000000), 0)) AS lasted_ms,
    end_bounded_ns,
    trace_key,
    reach_ns
FROM (
    SELECT
        *, reach_ns, trace_id AS trace_key,
        arrayJoin(arrayFilter((place, anchor) -> anchor, arrayEnumerate(`runs.anchor`), `runs.anchor`)) AS place,
        if(`runs.end_ns`[place] >= 1577836800000000000 AND `runs.end_ns`[place] <= last_received_ns, `runs.end_ns`[place], last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
);

-- ended_runs: the runs that ended within the window, since_ns <= end < until_ns.
CREATE OR REPLACE VIEW ended_runs AS
SELECT *
FROM run_accounts
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64} AND reach_ns >= {since_ns:Int64};

-- run_named: the runs of a name, one row each, whenever they ended: a run's id, or the id
-- of one of its traces. An empty name fits the runs that ended within the window. The
-- run that is meant is first by preference: of a name's the last to end, within the
-- window if one did; of no name's that with the most retries.
CREATE OR REPLACE VIEW run_named AS
SELECT *, (toInt64(end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}), end_bounded_ns, trace_key, run_id) AS preference
FROM run_accounts
WHERE {run:String} != ''
  AND trace_key IN (
    SELECT trace_id FROM ledger
    WHERE hasAny(`runs.run_id`, (
        SELECT arrayPushBack(groupUniqArrayArray(`runs.run_id`), {run:String}) FROM ledger WHERE trace_id = unhex(if(match({run:String}, '^[0-9a-fA-F]{32}$'), {run:String}, '')))))
  AND (run_id = {run:String} OR has(trace_ids, lower({run:String})))
UNION ALL
SELECT *, (retries, end_bounded_ns, trace_key, run_id) AS preference
FROM run_accounts
WHERE {run:String} = ''
  AND end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64} AND reach_ns >= {since_ns:Int64};

-- ladder: the attempts of one run, one row each; the run is named by its id and all of
-- its traces, as run_named has them. Ordered by place, each stands below the one that
-- encloses it, siblings by their start. span is the id of its span, or the beginning of
-- its trace's id and its number where it has none of its own; outer_span that of what encloses it.
-- The first 2,000 attempts; what lies in a circle is left out.
CREATE OR REPLACE VIEW ladder AS
WITH RECURSIVE
    (
        SELECT groupArray((number, parent, span)) FROM (
            SELECT
                toInt64(`index`) AS number, parent,
                if(span_id = '' OR row_number() OVER (PARTITION BY span_id ORDER BY `index`) > 1, concat(substring(trace_id, 1, 8), leftPad(lower(hex(`index`)), 8, '0')), span_id) AS span
            FROM attempts
            WHERE trace_key IN (SELECT toFixedString(unhex(arrayJoin({trace_ids:Array(String)})), 16)) AND run_id = {run_id:String}
            ORDER BY number LIMIT 2000)
    ) AS known,
    rungs AS (
        SELECT (arrayJoin(known) AS attempt).1 AS number, attempt.3 AS span, '' AS outer_span, toUInt16(0) AS depth, [number] AS place
        WHERE attempt.2 = number OR attempt.2 NOT IN (SELECT arrayJoin(known).1)
        UNION ALL
        SELECT below.1, below.3, span, depth + 1, arrayPushBack(place, below.1)
        FROM rungs JOIN (SELECT arrayJoin(known) AS below) AS others ON below.2 = number
        WHERE below.1 != number
    )
SELECT place, depth, span, outer_span, listed.*
FROM rungs JOIN (
    SELECT * FROM attempts WHERE trace_key IN (SELECT toFixedString(unhex(arrayJoin({trace_ids:Array(String)})), 16)) AND run_id = {run_id:String}
) AS listed ON toInt64(listed.`index`) = rungs.number;

-- violation_usage: the contract violations of the window, one row for each node, key and
-- direction in a run; also those of traces that are no run, whose run_id is empty.
CREATE OR REPLACE VIEW violation_usage AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    service, environment, version, run_id, trace_id, node, `key`, direction, `count`, end_bounded_ns
FROM violations
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64}
  AND trace_end_ns >= {since_ns:Int64} AND trace_first_end_ns < {until_ns:Int64} + 604800000000000;
