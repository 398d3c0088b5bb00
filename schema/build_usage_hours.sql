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
    `wanted.attempts`, `wanted.attempts_limit`, `wanted.operations`,
    `runs.steps`, `runs.deliveries`, `runs.warned`, `runs.retried`, `sends.service`, `sends.environment`, `sends.version`, `sends.step`,
    `sends.provider`, `sends.http_status`, `sends.error_class`, `sends.sent`, `sends.served`, `sends.server_errors`, `sends.throttled`,
    `sends.failed_otherwise`, `sends.ended_unknown`, `replies.service`, `replies.environment`, `replies.version`, `replies.step`, `replies.provider`,
    `replies.completed`, `replies.broke_off`, `replies.failed_before`, `switches.service`, `switches.environment`, `switches.version`,
    `switches.step`, `switches.provider`, `switches.from`, `switches.to`, `switches.after`, `switches.switches`, `switches.succeeded`,
    `switches.lost`, `visits.service`, `visits.environment`, `visits.version`, `visits.step`, `visits.ended`, `visits.first_try`,
    `visits.after_retry`, `visits.by_fallback`, `visits.lost`, `hidden.service`, `hidden.environment`, `hidden.version`, `hidden.instrumentation`,
    `hidden.steps`, `hidden.hides_transport`, `hidden.hides_call`, `hidden.hides_node`, `hidden.hides_orchestrator`, `hidden.hides_worker`,
    `missed.service`, `missed.environment`, `missed.version`, `missed.run_id`, `missed.node`, `missed.key`, `missed.direction`, `missed.count`,
    `missed.end_bounded_ns`, `retried.service`, `retried.environment`, `retried.version`, `retried.run_id`, `retried.trace_ids`,
    `retried.completion`, `retried.outcome`, `retried.retries`, `retried.run_limit`, `retried.steps`, `retried.steps_over_budget`,
    `retried.wasted_tokens`, `retried.wasted_unknown_calls`, `retried.wasted_ms`, `retried.wait_ms`, `retried.lasted_ms`, `retried.end_bounded_ns`,
    `noted.service`, `noted.environment`, `noted.version`, `noted.run_id`, `noted.trace_ids`, `noted.completion`, `noted.quarantined`,
    `noted.unfinished_steps`, `noted.outcome`, `noted.retries`, `noted.run_limit`, `noted.over_budget`, `noted.deliveries`, `noted.poison_pill`,
    `noted.orphan_spans`, `noted.spans`, `noted.warnings`, `noted.steps`, `noted.steps_over_budget`, `noted.lasted_ms`, `noted.end_bounded_ns`,
    `most.service`, `most.environment`, `most.version`, `most.run_id`, `most.trace_ids`, `most.retries`, `most.end_bounded_ns`)
SELECT hour, 3, fromUnixTimestamp64Micro({through:Int64}, 'UTC'), cells_service, cells_environment, cells_version, cells_step, cells_provider,
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
    wanted_outcome, wanted_first_error, wanted_last_error, wanted_futile, wanted_attempts, wanted_attempts_limit, wanted_operations,
    runs_steps, runs_deliveries, runs_warned, runs_retried, sends_service, sends_environment, sends_version, sends_step, sends_provider,
    sends_http_status, sends_error_class, sends_sent, sends_served, sends_server_errors, sends_throttled, sends_failed_otherwise,
    sends_ended_unknown, replies_service, replies_environment, replies_version, replies_step, replies_provider, replies_completed, replies_broke_off,
    replies_failed_before, switches_service, switches_environment, switches_version, switches_step, switches_provider, switches_from, switches_to,
    switches_after, switches_switches, switches_succeeded, switches_lost, visits_service, visits_environment, visits_version, visits_step,
    visits_ended, visits_first_try, visits_after_retry, visits_by_fallback, visits_lost, hidden_service, hidden_environment, hidden_version,
    hidden_instrumentation, hidden_steps, hidden_hides_transport, hidden_hides_call, hidden_hides_node, hidden_hides_orchestrator,
    hidden_hides_worker, missed_service, missed_environment, missed_version, missed_run_id, missed_node, missed_key, missed_direction, missed_count,
    missed_end_bounded_ns, retried_service, retried_environment, retried_version, retried_run_id, retried_trace_ids, retried_completion,
    retried_outcome, retried_retries, retried_run_limit, retried_steps, retried_steps_over_budget, retried_wasted_tokens,
    retried_wasted_unknown_calls, retried_wasted_ms, retried_wait_ms, retried_lasted_ms, retried_end_bounded_ns, noted_service, noted_environment,
    noted_version, noted_run_id, noted_trace_ids, noted_completion, noted_quarantined, noted_unfinished_steps, noted_outcome, noted_retries,
    noted_run_limit, noted_over_budget, noted_deliveries, noted_poison_pill, noted_orphan_spans, noted_spans, noted_warnings, noted_steps,
    noted_steps_over_budget, noted_lasted_ms, noted_end_bounded_ns, most_service, most_environment, most_version, most_run_id, most_trace_ids,
    most_retries, most_end_bounded_ns
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
    SELECT hour,
        groupArray(service) AS runs_service, groupArray(environment) AS runs_environment, groupArray(version) AS runs_version,
        groupArray(completion) AS runs_completion, groupArray(outcome) AS runs_outcome, groupArray(names) AS runs_steps,
        groupArray(deliveries) AS runs_deliveries, groupArray(total_runs) AS runs_runs, groupArray(total_over_budget) AS runs_over_budget,
        groupArray(total_exhausted) AS runs_exhausted, groupArray(total_quarantined) AS runs_quarantined, groupArray(total_resumed) AS runs_resumed,
        groupArray(total_poison_pills) AS runs_poison_pills, groupArray(total_needs_review) AS runs_needs_review,
        groupArray(total_orphan_spans) AS runs_orphan_spans, groupArray(total_retries) AS runs_retries, groupArray(total_warned) AS runs_warned,
        groupArray(total_retried) AS runs_retried
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour, arraySort(arrayMap(name -> toString(name), steps)) AS names,
            service, environment, version, completion, outcome, deliveries, count() AS total_runs, countIf(over_budget) AS total_over_budget,
            countIf(exhausted) AS total_exhausted, countIf(quarantined) AS total_quarantined, countIf(deliveries > 1) AS total_resumed,
            countIf(poison_pill) AS total_poison_pills, countIf(needs_review) AS total_needs_review, sum(orphan_spans) AS total_orphan_spans,
            sum(retries) AS total_retries, countIf(notEmpty(warnings)) AS total_warned, countIf(retries > 0) AS total_retried
        FROM ended_runs(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, names, service, environment, version, completion, outcome, deliveries
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
    SELECT hour,
        groupArray(service) AS sends_service, groupArray(environment) AS sends_environment, groupArray(version) AS sends_version,
        groupArray(step) AS sends_step, groupArray(provider) AS sends_provider, groupArray(http_status) AS sends_http_status,
        groupArray(error_class) AS sends_error_class, groupArray(total_sent) AS sends_sent, groupArray(total_served) AS sends_served,
        groupArray(total_server_errors) AS sends_server_errors, groupArray(total_throttled) AS sends_throttled,
        groupArray(total_failed_otherwise) AS sends_failed_otherwise, groupArray(total_ended_unknown) AS sends_ended_unknown
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
            service, environment, version, step, provider, http_status, error_class, sum(sent) AS total_sent, sum(served) AS total_served,
            sum(server_errors) AS total_server_errors, sum(throttled) AS total_throttled, sum(failed_otherwise) AS total_failed_otherwise,
            sum(ended_unknown) AS total_ended_unknown
        FROM request_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider, http_status, error_class
    )
    GROUP BY hour
) AS sends USING (hour)
LEFT JOIN (
    SELECT hour,
        groupArray(service) AS replies_service, groupArray(environment) AS replies_environment, groupArray(version) AS replies_version,
        groupArray(step) AS replies_step, groupArray(provider) AS replies_provider, groupArray(total_completed) AS replies_completed,
        groupArray(total_broke_off) AS replies_broke_off, groupArray(total_failed_before) AS replies_failed_before
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
            service, environment, version, step, provider, sum(completed) AS total_completed, sum(broke_off) AS total_broke_off,
            sum(failed_before) AS total_failed_before
        FROM response_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider
    )
    GROUP BY hour
) AS replies USING (hour)
LEFT JOIN (
    SELECT hour,
        groupArray(service) AS switches_service, groupArray(environment) AS switches_environment, groupArray(version) AS switches_version,
        groupArray(step) AS switches_step, groupArray(provider) AS switches_provider, groupArray(`from`) AS switches_from,
        groupArray(`to`) AS switches_to, groupArray(`after`) AS switches_after, groupArray(total_switches) AS switches_switches,
        groupArray(total_succeeded) AS switches_succeeded, groupArray(total_lost) AS switches_lost
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
            service, environment, version, step, provider, `from`, `to`, `after`, sum(switches) AS total_switches, sum(succeeded) AS total_succeeded,
            sum(lost) AS total_lost
        FROM fallback_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step, provider, `from`, `to`, `after`
    )
    GROUP BY hour
) AS switches USING (hour)
LEFT JOIN (
    SELECT hour,
        groupArray(service) AS visits_service, groupArray(environment) AS visits_environment, groupArray(version) AS visits_version,
        groupArray(step) AS visits_step, groupArray(total_ended) AS visits_ended, groupArray(total_first_try) AS visits_first_try,
        groupArray(total_after_retry) AS visits_after_retry, groupArray(total_by_fallback) AS visits_by_fallback,
        groupArray(total_lost) AS visits_lost
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
            service, environment, version, step, sum(ended) AS total_ended, sum(first_try) AS total_first_try, sum(after_retry) AS total_after_retry,
            sum(by_fallback) AS total_by_fallback, sum(lost) AS total_lost
        FROM visit_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64} + 10000000000)
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, step
    )
    GROUP BY hour
) AS visits USING (hour)
LEFT JOIN (
    SELECT hour,
        groupArray(service) AS hidden_service, groupArray(environment) AS hidden_environment, groupArray(version) AS hidden_version,
        groupArray(instrumentation) AS hidden_instrumentation, groupArray(total_steps) AS hidden_steps,
        groupArray(total_hides_transport) AS hidden_hides_transport, groupArray(total_hides_call) AS hidden_hides_call,
        groupArray(total_hides_node) AS hidden_hides_node, groupArray(total_hides_orchestrator) AS hidden_hides_orchestrator,
        groupArray(total_hides_worker) AS hidden_hides_worker
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
            service, environment, version, instrumentation, sum(steps) AS total_steps, sum(hides_transport) AS total_hides_transport,
            sum(hides_call) AS total_hides_call, sum(hides_node) AS total_hides_node, sum(hides_orchestrator) AS total_hides_orchestrator,
            sum(hides_worker) AS total_hides_worker
        FROM step_account_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        WHERE hour IN {hours:Array(UInt32)}
        GROUP BY hour, service, environment, version, instrumentation
    )
    GROUP BY hour
) AS hidden USING (hour)
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
        groupArray(service) AS missed_service, groupArray(environment) AS missed_environment, groupArray(version) AS missed_version,
        groupArray(run_id) AS missed_run_id, groupArray(node) AS missed_node, groupArray(`key`) AS missed_key,
        groupArray(direction) AS missed_direction, groupArray(`count`) AS missed_count, groupArray(end_bounded_ns) AS missed_end_bounded_ns
    FROM violation_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
    WHERE hour IN {hours:Array(UInt32)}
    GROUP BY hour
) AS missed USING (hour)
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
        groupArray(service) AS retried_service, groupArray(environment) AS retried_environment, groupArray(version) AS retried_version,
        groupArray(run_id) AS retried_run_id, groupArray(arrayMap(id -> toFixedString(unhex(id), 16), trace_ids)) AS retried_trace_ids,
        groupArray(completion) AS retried_completion, groupArray(outcome) AS retried_outcome, groupArray(retries) AS retried_retries,
        groupArray(run_limit) AS retried_run_limit, groupArray(arrayMap(name -> toString(name), steps)) AS retried_steps,
        groupArray(steps_over_budget) AS retried_steps_over_budget, groupArray(wasted_tokens) AS retried_wasted_tokens,
        groupArray(wasted_unknown_calls) AS retried_wasted_unknown_calls, groupArray(wasted_ms) AS retried_wasted_ms,
        groupArray(wait_ms) AS retried_wait_ms, groupArray(lasted_ms) AS retried_lasted_ms, groupArray(end_bounded_ns) AS retried_end_bounded_ns
    FROM retried_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
    WHERE hour IN {hours:Array(UInt32)}
    GROUP BY hour
) AS retried USING (hour)
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
        groupArray(service) AS noted_service, groupArray(environment) AS noted_environment, groupArray(version) AS noted_version,
        groupArray(run_id) AS noted_run_id, groupArray(arrayMap(id -> toFixedString(unhex(id), 16), trace_ids)) AS noted_trace_ids,
        groupArray(completion) AS noted_completion, groupArray(quarantined) AS noted_quarantined,
        groupArray(arrayMap(name -> toString(name), unfinished_steps)) AS noted_unfinished_steps, groupArray(outcome) AS noted_outcome,
        groupArray(retries) AS noted_retries, groupArray(run_limit) AS noted_run_limit, groupArray(over_budget) AS noted_over_budget,
        groupArray(deliveries) AS noted_deliveries, groupArray(poison_pill) AS noted_poison_pill, groupArray(orphan_spans) AS noted_orphan_spans,
        groupArray(spans) AS noted_spans, groupArray(warnings) AS noted_warnings, groupArray(arrayMap(name -> toString(name), steps)) AS noted_steps,
        groupArray(steps_over_budget) AS noted_steps_over_budget, groupArray(lasted_ms) AS noted_lasted_ms,
        groupArray(end_bounded_ns) AS noted_end_bounded_ns
    FROM noted_rows(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
    WHERE hour IN {hours:Array(UInt32)}
    GROUP BY hour
) AS noted USING (hour)
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(time), 3600)) AS hour,
        groupArray(service) AS most_service, groupArray(environment) AS most_environment, groupArray(version) AS most_version,
        groupArray(run_id) AS most_run_id, groupArray(arrayMap(id -> toFixedString(unhex(id), 16), trace_ids)) AS most_trace_ids,
        groupArray(retries) AS most_retries, groupArray(end_bounded_ns) AS most_end_bounded_ns
    FROM (
        SELECT * FROM ended_runs(since_ns = {from_ns:Int64}, until_ns = {to_ns:Int64})
        ORDER BY retries DESC, end_bounded_ns DESC, trace_key DESC, run_id DESC
        LIMIT 1 BY intDiv(toUnixTimestamp(time), 3600), service, environment, version
    )
    WHERE hour IN {hours:Array(UInt32)}
    GROUP BY hour
) AS most USING (hour)
