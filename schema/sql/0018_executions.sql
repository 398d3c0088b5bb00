-- execution_usage: one row for each execution of a step that ended within the window, as
-- contract_violation_ratio counts them: ended is 1, and violating is 1 where it missed a
-- key of its contract. A violation of a node that has no violating execution beside it is
-- a row of its own, in which both are how often it happened.
CREATE OR REPLACE VIEW execution_usage AS
SELECT
    toDateTime(intDiv(end_bounded_ns, 1000000000), 'UTC') AS time,
    `runs.service`[execution.1 + 1] AS service,
    `runs.environment`[execution.1 + 1] AS environment,
    `runs.version`[execution.1 + 1] AS version,
    execution.2 AS step,
    toUInt64(execution.3) AS violating,
    toUInt64(execution.4) AS ended
FROM (
    SELECT `runs.service`, `runs.environment`, `runs.version`,
        arrayJoin(arrayConcat(
            arrayFilter(e -> e.4 > 0, arrayMap((run, step, grain, ending, violated, end) -> (toInt64(run), toString(step), toInt64(violated),
                toInt64(grain = 'execution' AND (violated OR ending != 'unknown')), end),
                `attempts.run`, `attempts.step`, `attempts.grain`, `attempts.ending`, `attempts.violated`, `attempts.end_ns`)),
            arrayFilter(e -> NOT arrayExists((run, step, violated) -> violated AND run = e.1 AND step = e.2, `attempts.run`, `attempts.step`, `attempts.violated`),
                arrayMap((run, node, n, at) -> (run, toString(node), n, n, at), `violations.run`, `violations.node`, `violations.count`, `violations.time_ns`))
        )) AS execution,
        if(execution.5 >= 1577836800000000000 AND execution.5 <= last_received_ns, execution.5, last_received_ns) AS end_bounded_ns
    FROM ledger FINAL
    WHERE reach_ns >= {since_ns:Int64}
    SETTINGS use_skip_indexes_if_final_exact_mode = 0
)
WHERE end_bounded_ns >= {since_ns:Int64} AND end_bounded_ns < {until_ns:Int64};
