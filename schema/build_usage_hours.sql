INSERT INTO usage_hours (hour, layout, built_through, `cells.service`, `cells.environment`, `cells.version`, `cells.step`, `cells.provider`,
    `cells.retries_transport`, `cells.retries_call`, `cells.retries_node`, `cells.retries_orchestrator`, `cells.retries_worker`, `cells.fallbacks`,
    `cells.executions`, `cells.visits`, `cells.calls`, `cells.calls_failed`, `cells.tool_calls`, `cells.http_calls`, `cells.input_tokens`,
    `cells.output_tokens`, `cells.unknown_token_calls`, `cells.wasted_input`, `cells.wasted_output`, `cells.wasted_unknown_calls`,
    `cells.wasted_cost_usd`, `cells.wasted_cost_calls`, `cells.wasted_ms`, `cells.wait_ms`, `cells.operations`, `cells.fallback_operations`,
    `cells.succeeded_first_try`, `cells.succeeded_after_retry`, `cells.succeeded_by_fallback`, `cells.failed`, `cells.handled`, `cells.undecided`,
    `cells.shows`, `cells.hides`,
    `runs.service`, `runs.environment`, `runs.version`, `runs.completion`, `runs.outcome`, `runs.runs`, `runs.over_budget`, `runs.exhausted`,
    `runs.quarantined`, `runs.resumed`, `runs.poison_pills`, `runs.needs_review`, `runs.orphan_spans`, `runs.retries`, `steps.service`,
    `steps.environment`, `steps.version`, `steps.step`, `steps.executions`, `steps.runs`, `steps.over_budget`, `steps.step_limit`, `steps.most`,
    `steps.multiplied`, `steps.most_run`, `steps.worst_case`, `tries.service`, `tries.environment`, `tries.version`, `tries.step`,
    `tries.provider`, `tries.model`, `tries.grain`, `tries.charge`, `tries.ending`, `tries.error_class`, `tries.http_status`, `tries.ordinal`,
    `tries.took_to_ms`, `tries.attempts`, `tries.took_ms`, `tries.wait_ms`, `tries.waits`, `wanted.service`, `wanted.environment`,
    `wanted.version`, `wanted.step`, `wanted.provider`, `wanted.outcome`, `wanted.first_error`, `wanted.last_error`, `wanted.futile`,
    `wanted.attempts`, `wanted.attempts_limit`, `wanted.operations`, `over.service`, `over.environment`, `over.version`, `over.run_id`,
    `over.trace_id`, `over.completion`, `over.outcome`, `over.retries`, `over.run_limit`, `over.steps_over_budget`, `over.lasted_ms`,
    `over.end_bounded_ns`)
SELECT hour, 2, fromUnixTimestamp64Micro({through:Int64}, 'UTC'), cells_service, cells_environment, cells_version, cells_step, cells_provider,
    cells_retries_transport, cells_retries_call, cells_retries_node, cells_retries_orchestrator, cells_retries_worker, cells_fallbacks,
    cells_executions, cells_visits, cells_calls, cells_calls_failed, cells_tool_calls, cells_http_calls, cells_input_tokens, cells_output_tokens,
    cells_unknown_token_calls, cells_wasted_input, cells_wasted_output, cells_wasted_unknown_calls, cells_wasted_cost_usd, cells_wasted_cost_calls,
    cells_wasted_ms, cells_wait_ms, cells_operations, cells_fallback_operations, cells_succeeded_first_try, cells_succeeded_after_retry,
    cells_succeeded_by_fallback, cells_failed, cells_handled, cells_undecided, cells_shows, cells_hides, runs_service, runs_environment, runs_version, runs_completion,
    runs_outcome, runs_runs, runs_over_budget, runs_exhausted, runs_quarantined, runs_resumed, runs_poison_pills, runs_needs_review,
    runs_orphan_spans, runs_retries, steps_service, steps_environment, steps_version, steps_step, steps_executions, steps_runs, steps_over_budget,
    steps_step_limit, steps_most, steps_multiplied, steps_most_run, steps_worst_case, tries_service, tries_environment, tries_version, tries_step,
    tries_provider, tries_model, tries_grain, tries_charge, tries_ending, tries_error_class, tries_http_status, tries_ordinal, tries_took_to_ms,
    tries_attempts, tries_took_ms, tries_wait_ms, tries_waits, wanted_service, wanted_environment, wanted_version, wanted_step, wanted_provider,
    wanted_outcome, wanted_first_error, wanted_last_error, wanted_futile, wanted_attempts, wanted_attempts_limit, wanted_operations, over_service,
    over_environment, over_version, over_run_id, over_trace_id, over_completion, over_outcome, over_retries, over_run_limit,
    over_steps_over_budget, over_lasted_ms, over_end_bounded_ns
FROM (SELECT arrayJoin({hours:Array(UInt32)}) AS hour) AS chosen
LEFT JOIN (
    SELECT hour, groupArray(service) AS cells_service, groupArray(environment) AS cells_environment, groupArray(version) AS cells_version,
        groupArray(step) AS cells_step, groupArray(provider) AS cells_provider, groupArray(total_retries_transport) AS cells_retries_transport,
        groupArray(total_retries_call) AS cells_retries_call, groupArray(total_retries_node) AS cells_retries_node,
        groupArray(total_retries_orchestrator) AS cells_retries_orchestrator, groupArray(total_retries_worker) AS cells_retries_worker,
        groupArray(total_fallbacks) AS cells_fallbacks, groupArray(total_executions) AS cells_executions, groupArray(total_visits) AS cells_visits,
        groupArray(total_calls) AS cells_calls, groupArray(total_calls_failed) AS cells_calls_failed,
        groupArray(total_tool_calls) AS cells_tool_calls, groupArray(total_http_calls) AS cells_http_calls,
        groupArray(total_input_tokens) AS cells_input_tokens, groupArray(total_output_tokens) AS cells_output_tokens,
        groupArray(total_unknown_token_calls) AS cells_unknown_token_calls, groupArray(total_wasted_input) AS cells_wasted_input,
        groupArray(total_wasted_output) AS cells_wasted_output, groupArray(total_wasted_unknown_calls) AS cells_wasted_unknown_calls,
        groupArray(total_wasted_cost_usd) AS cells_wasted_cost_usd, groupArray(total_wasted_cost_calls) AS cells_wasted_cost_calls,
        groupArray(total_wasted_ms) AS cells_wasted_ms, groupArray(total_wait_ms) AS cells_wait_ms,
        groupArray(total_operations) AS cells_operations, groupArray(total_fallback_operations) AS cells_fallback_operations,
        groupArray(total_succeeded_first_try) AS cells_succeeded_first_try, groupArray(total_succeeded_after_retry) AS cells_succeeded_after_retry,
        groupArray(total_succeeded_by_fallback) AS cells_succeeded_by_fallback, groupArray(total_failed) AS cells_failed,
        groupArray(total_handled) AS cells_handled, groupArray(total_undecided) AS cells_undecided,
        groupArray(total_shows) AS cells_shows, groupArray(total_hides) AS cells_hides
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, service, environment, version, step, provider,
            sum(retries_transport) AS total_retries_transport, sum(retries_call) AS total_retries_call, sum(retries_node) AS total_retries_node,
                sum(retries_orchestrator) AS total_retries_orchestrator, sum(retries_worker) AS total_retries_worker,
                sum(fallbacks) AS total_fallbacks, sum(executions) AS total_executions, sum(visits) AS total_visits, sum(calls) AS total_calls,
                sum(calls_failed) AS total_calls_failed, sum(tool_calls) AS total_tool_calls, sum(http_calls) AS total_http_calls,
                sum(input_tokens) AS total_input_tokens, sum(output_tokens) AS total_output_tokens,
                sum(unknown_token_calls) AS total_unknown_token_calls, sum(wasted_input) AS total_wasted_input,
                sum(wasted_output) AS total_wasted_output, sum(wasted_unknown_calls) AS total_wasted_unknown_calls,
                sum(wasted_cost_usd) AS total_wasted_cost_usd, sum(wasted_cost_calls) AS total_wasted_cost_calls,
                sum(wasted_ms) AS total_wasted_ms, sum(wait_ms) AS total_wait_ms, sum(operations) AS total_operations,
                sum(fallback_operations) AS total_fallback_operations, sum(succeeded_first_try) AS total_succeeded_first_try,
                sum(succeeded_after_retry) AS total_succeeded_after_retry, sum(succeeded_by_fallback) AS total_succeeded_by_fallback,
                sum(failed) AS total_failed, sum(handled) AS total_handled, sum(undecided) AS total_undecided,
                groupBitOr(shows) AS total_shows, groupBitOr(hides) AS total_hides
        FROM usage_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider
    )
    GROUP BY hour
) AS cells USING (hour)
LEFT JOIN (
    SELECT hour, groupArray(service) AS runs_service, groupArray(environment) AS runs_environment, groupArray(version) AS runs_version,
        groupArray(completion) AS runs_completion, groupArray(outcome) AS runs_outcome, groupArray(total_runs) AS runs_runs,
        groupArray(total_over_budget) AS runs_over_budget, groupArray(total_exhausted) AS runs_exhausted,
        groupArray(total_quarantined) AS runs_quarantined, groupArray(total_resumed) AS runs_resumed,
        groupArray(total_poison_pills) AS runs_poison_pills, groupArray(total_needs_review) AS runs_needs_review,
        groupArray(total_orphan_spans) AS runs_orphan_spans, groupArray(total_retries) AS runs_retries
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, service, environment, version, completion, outcome,
            count() AS total_runs, countIf(over_budget) AS total_over_budget, countIf(exhausted) AS total_exhausted,
                countIf(quarantined) AS total_quarantined, countIf(deliveries > 1) AS total_resumed, countIf(poison_pill) AS total_poison_pills,
                countIf(needs_review) AS total_needs_review, sum(orphan_spans) AS total_orphan_spans, sum(retries) AS total_retries
        FROM run_usage(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, completion, outcome
    )
    GROUP BY hour
) AS runs USING (hour)
LEFT JOIN (
    SELECT hour, groupArray(service) AS steps_service, groupArray(environment) AS steps_environment, groupArray(version) AS steps_version,
        groupArray(step) AS steps_step, groupArray(executions) AS steps_executions, groupArray(total_runs) AS steps_runs,
        groupArray(total_over_budget) AS steps_over_budget, groupArray(total_step_limit) AS steps_step_limit, groupArray(total_most) AS steps_most,
        groupArray(total_multiplied) AS steps_multiplied, groupArray(total_most_run) AS steps_most_run,
        groupArray(total_worst_case) AS steps_worst_case
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, service, environment, version, step, executions,
            count() AS total_runs, countIf(over_budget) AS total_over_budget, max(step_limit) AS total_step_limit, max(ifNull(retries_total,
                0)) AS total_most, argMax(factorisation, (ifNull(retries_total, 0), toUnixTimestamp(time), trace_id)) AS total_multiplied,
                argMax(run_id, (ifNull(retries_total, 0), toUnixTimestamp(time), trace_id)) AS total_most_run, max(worst_case) AS total_worst_case
        FROM step_usage(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, executions
    )
    GROUP BY hour
) AS steps USING (hour)
LEFT JOIN (
    SELECT hour, groupArray(service) AS tries_service, groupArray(environment) AS tries_environment, groupArray(version) AS tries_version,
        groupArray(step) AS tries_step, groupArray(provider) AS tries_provider, groupArray(model) AS tries_model, groupArray(grain) AS tries_grain,
        groupArray(charge) AS tries_charge, groupArray(ending) AS tries_ending, groupArray(error_class) AS tries_error_class,
        groupArray(http_status) AS tries_http_status, groupArray(ordinal) AS tries_ordinal, groupArray(took_to_ms) AS tries_took_to_ms,
        groupArray(total_attempts) AS tries_attempts, groupArray(total_took_ms) AS tries_took_ms, groupArray(total_wait_ms) AS tries_wait_ms,
        groupArray(total_waits) AS tries_waits
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, service, environment, version, step, provider, model, grain, charge, ending,
            error_class, http_status, ordinal, took_to_ms,
            count() AS total_attempts, sum(took_ms) AS total_took_ms, sum(wait_ms) AS total_wait_ms, countIf(wait_ms > 0) AS total_waits
        FROM attempt_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider, model, grain, charge, ending, error_class, http_status, ordinal, took_to_ms
    )
    GROUP BY hour
) AS tries USING (hour)
LEFT JOIN (
    SELECT hour, groupArray(service) AS wanted_service, groupArray(environment) AS wanted_environment, groupArray(version) AS wanted_version,
        groupArray(step) AS wanted_step, groupArray(provider) AS wanted_provider, groupArray(outcome) AS wanted_outcome,
        groupArray(first_error) AS wanted_first_error, groupArray(last_error) AS wanted_last_error, groupArray(futile) AS wanted_futile,
        groupArray(attempts) AS wanted_attempts, groupArray(attempts_limit) AS wanted_attempts_limit,
        groupArray(total_operations) AS wanted_operations
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, service, environment, version, step, provider, outcome, first_error,
            last_error, futile, attempts, attempts_limit,
            count() AS total_operations
        FROM operation_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider, outcome, first_error, last_error, futile, attempts, attempts_limit
    )
    GROUP BY hour
) AS wanted USING (hour)
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, groupArray(service) AS over_service, groupArray(environment) AS over_environment,
        groupArray(version) AS over_version, groupArray(run_id) AS over_run_id, groupArray(trace_id) AS over_trace_id,
        groupArray(completion) AS over_completion, groupArray(outcome) AS over_outcome, groupArray(retries) AS over_retries,
        groupArray(run_limit) AS over_run_limit, groupArray(steps_over_budget) AS over_steps_over_budget, groupArray(lasted_ms) AS over_lasted_ms,
        groupArray(end_bounded_ns) AS over_end_bounded_ns
    FROM run_usage(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
    WHERE over_budget AND hour IN {hours:Array(UInt32)}
    GROUP BY hour
) AS over USING (hour)
