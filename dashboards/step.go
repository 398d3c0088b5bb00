package dashboards

import "strings"

// step is about one step: what its attempts yield, where its limit and its timeout
// should be.
var step = page{
	uid: uidStep, title: "Step",
	says: "One step: what its attempts yield, why it fails, how long it waits and takes, and what a version changed. Choose a step above.",
	from: "now-24h", variables: ofCalls,
	fill: fillStep,
}

func fillStep(s *sheet) {
	outcomes, share := outcomeTiles(), retryShareNow()
	outcomes.width, share.width = 14, 10
	s.line(outcomes, share)
	s.line(yieldByAttempt(), executionsPerRun(), errorsOfAttempts())
	s.line(futility(), waitsByAttempt())
	s.line(timeoutTiles())
	s.line(durations(), versionsCompared())
	s.line(outcomesOverTime(), retriesOverTime())
	s.line(runsOfStep())
}

func yieldByAttempt() panel {
	return panel{
		title: "Yield of each attempt", width: 9, height: 9, unit: "percentunit",
		says: "Of the first, second, third … attempts that were made, those that succeeded: of model calls, and of executions of the step. " +
			"Where the yield falls to nothing, the limit should be.",
		grain: grainAttempt, definition: "accounting.md#futility", empty: sendSpans,
		draws: stackedBars("attempt").Orientation("vertical").Stacking("none").ShowValue("never").Max(1).Decimals(0),
		queries: []query{newQuery("A", asTable, `SELECT toString(ordinal) AS attempt,
    `+ratio("sumIf(attempts, grain = 'call' AND ending = 'succeeded')", "sumIf(attempts, grain = 'call')")+` AS "model calls",
    `+ratio("sumIf(attempts, grain = 'execution' AND ending = 'succeeded')", "sumIf(attempts, grain = 'execution')")+` AS "executions"
FROM `+windowed("attempt_counts")+`
WHERE grain IN ('call', 'execution') AND ordinal BETWEEN 1 AND 12
  AND `+chosen(ofCalls...)+`
GROUP BY ordinal
ORDER BY ordinal`)},
		overrides: []override{column("attempt", inUnit("string")), column("model calls", coloured(colourCall)), column("executions", coloured(colourNode))},
	}
}

func executionsPerRun() panel {
	return panel{
		title: "Executions per run", width: 7, height: 9, unit: "short",
		says:  "How many runs executed the step once, twice, and so on: repeats by the engine, by the graph and by whoever took the run up again, and visits of a loop.",
		grain: grainStep, definition: "accounting.md#layers", empty: "No run ended in this range",
		draws: stackedBars("executions").Orientation("vertical"),
		queries: []query{newQuery("A", asTable, `SELECT if(n >= 12, '12+', toString(n)) AS executions, sum(counted) AS "runs"
FROM (
    SELECT least(counts.executions, 12) AS n, counts.runs AS counted
    FROM `+windowed("step_counts")+` AS counts
    WHERE `+chosen(ofSteps...)+`
)
GROUP BY n
ORDER BY n`)},
		overrides: []override{column("executions", inUnit("string")), column("runs", coloured(colourPlain))},
	}
}

func errorsOfAttempts() panel {
	return panel{
		title: "Errors", width: 8, height: 9, unit: "short",
		says:  "Why attempts failed: the class of the error and its HTTP status, of model calls and of executions.",
		grain: grainAttempt, definition: "accounting.md#evidence", empty: "No attempt failed in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("error_class")+` AS error, http_status AS status,
    sumIf(attempts, grain = 'call') AS calls, sumIf(attempts, grain = 'execution') AS executions
FROM `+windowed("attempt_counts")+`
WHERE ending = 'failed' AND grain IN ('call', 'execution')
  AND `+chosen(ofCalls...)+`
GROUP BY error_class, http_status
ORDER BY calls + executions DESC, error, status LIMIT 50`)},
		overrides: []override{
			column("error", wide(240)),
			column("calls", wide(70)),
			column("executions", wide(95)),
			column("status", wide(70), with("mappings", []map[string]any{{"type": "value", "options": map[string]any{"0": map[string]any{"text": "–"}}}})),
		},
	}
}

func futility() panel {
	return panel{
		title: "Futile chains, by error", width: 12, height: 8, unit: "short",
		says: "Operations that failed after a retry, by their last error; futile are those whose attempts all failed with the same error. " +
			"A high share says: mend the input or the call, not the retry policy.",
		grain: grainOperation, definition: "accounting.md#futility", empty: "No operation failed after a retry in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("last_error")+` AS error, sum(counts.operations) AS failed, sumIf(counts.operations, counts.futile) AS futile,
    futile / failed AS share, sum((counts.attempts - 1) * counts.operations) AS further
FROM `+windowed("operation_counts")+` AS counts
WHERE outcome IN ('failed_after_retry', 'handled') AND counts.attempts > 1
  AND `+chosen(ofCalls...)+`
GROUP BY last_error
ORDER BY futile DESC, failed DESC, error LIMIT 50`)},
		overrides: []override{
			column("error", wide(190)),
			column("failed", wide(80)),
			column("futile", wide(80)),
			column("share", named("futile share"), inUnit("percentunit"), with("decimals", 0), with("min", 0), with("max", 1), gauge()),
			column("further", named("attempts after the first"), wide(190)),
		},
	}
}

func waitsByAttempt() panel {
	return panel{
		title: "Wait before the next attempt", width: 12, height: 8, unit: "ms",
		says:  "How long it took on average from the end of the first, second … attempt to the start of the next one. Waits that do not grow are a policy without backoff.",
		grain: grainAttempt, definition: "accounting.md#waste", empty: "Nothing waited in this range",
		draws: stackedBars("attempt").Orientation("vertical"),
		queries: []query{newQuery("A", asTable, `SELECT toString(ordinal) AS attempt, sum(wait_ms) / sum(waits) AS "mean wait"
FROM `+windowed("attempt_counts")+`
WHERE waits > 0 AND ordinal BETWEEN 1 AND 12
  AND `+chosen(ofCalls...)+`
GROUP BY ordinal
ORDER BY ordinal`)},
		overrides: []override{column("attempt", inUnit("string")), column("mean wait", coloured(colourPlain))},
	}
}

// within is the power of two that so much of the attempts of the arrays n took at most.
func within(share string) string {
	return "took[arrayFirstIndex(through -> through >= " + share + " * arraySum(n), arrayCumSum(n))]"
}

func timeoutTiles() panel {
	return panel{
		title: "How long model calls take that succeed", width: 24, height: 4, unit: "ms",
		says: "The power of two, in milliseconds, that half, 95 % and 99 % of the successful calls stayed within. A timeout at the last one cuts off one success in a hundred, " +
			"and spares the wait for calls that would have failed in the end.",
		grain: grainCall, definition: "dashboards.md#the-suggested-timeout", empty: "No model call succeeded in this range",
		draws: tiles().Decimals(0),
		queries: []query{newQuery("A", asTable, `SELECT `+within("0.5")+` AS "half, within", `+within("0.95")+` AS "95 %, within", `+within("0.99")+` AS "suggested timeout: 99 %, within",
    arraySum(n) AS "calls"
FROM (
    SELECT groupArray(took_to_ms) AS took, groupArray(made) AS n
    FROM (
        SELECT took_to_ms, sum(attempts) AS made
        FROM `+windowed("attempt_counts")+`
        WHERE grain = 'call' AND ending = 'succeeded'
          AND `+chosen(ofCalls...)+`
        GROUP BY took_to_ms
        ORDER BY took_to_ms
    )
)
WHERE notEmpty(n)`)},
		overrides: []override{column("calls", inUnit("short"), with("decimals", nil))},
	}
}

func durations() panel {
	return panel{
		title: "How long model calls take", width: 10, height: 9, unit: "short",
		says:  "Calls by the power of two that they took at most, in milliseconds: those that succeeded and those that failed. Failures to the right of all successes would be cut off by a timeout.",
		grain: grainCall, definition: "dashboards.md#the-suggested-timeout", empty: "No model call ended in this range",
		draws: stackedBars("within").Orientation("vertical").ShowValue("never"),
		queries: []query{newQuery("A", asTable, `SELECT concat(toString(took_to_ms), ' ms') AS within, sumIf(attempts, ending = 'succeeded') AS "succeeded", sumIf(attempts, ending = 'failed') AS "failed"
FROM `+windowed("attempt_counts")+`
WHERE grain = 'call' AND ending IN ('succeeded', 'failed')
  AND `+chosen(ofCalls...)+`
GROUP BY took_to_ms
ORDER BY took_to_ms`)},
		overrides: []override{column("within", inUnit("string")), column("succeeded", coloured(colourFirstTry)), column("failed", coloured(colourFailed))},
	}
}

func versionsCompared() panel {
	shares := make([]string, 0, len(outcomes))
	for _, o := range []string{"succeeded_first_try", "succeeded_after_retry", "succeeded_by_fallback"} {
		shares = append(shares, ratio("sum("+o+")", ended)+" AS "+strings.TrimPrefix(o, "succeeded_"))
	}
	return panel{
		title: "Versions", width: 14, height: 9, unit: "percentunit",
		says:  "The same numbers for each version of the service, the latest to begin first: how operations ended, and retries for each.",
		grain: grainMixed, definition: "accounting.md#outcome-of-an-operation", empty: sendSpans,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("version")+` AS version, `+stated("service")+` AS service, min(time) AS since, sum(operations) AS all_operations,
    `+strings.Join(shares, ",\n    ")+`,
    `+ratio("sum(failed) + sum(handled)", ended)+` AS lost, `+ratio(allRetries(), "sum(operations)")+` AS retries
FROM `+windowed("usage")+`
WHERE `+chosen(ofCalls...)+`
GROUP BY version, service
HAVING sum(operations) > 0
ORDER BY since DESC, service, version LIMIT 50`)},
		overrides: []override{
			column("version", wide(65)),
			column("since", named("first in range"), atSeconds(), wide(155)),
			column("all_operations", named("operations"), inUnit("short"), wide(86)),
			column("first_try", named("first try"), with("decimals", 1), nothing(), wide(68)),
			column("after_retry", named("after retry"), with("decimals", 1), nothing(), wide(86)),
			column("by_fallback", named("by fallback"), with("decimals", 1), nothing(), wide(90)),
			column("lost", named("failed"), with("decimals", 1), nothing(), wide(58)),
			column("retries", append(colouredBy(retryShareThresholds()), named("retries/operation"), with("decimals", 1), wide(128))...),
		},
	}
}

func runsOfStep() panel {
	return panel{
		title: "Runs with the step that retried", width: 24, height: 9, unit: "short",
		says: "The runs that had the step and in which anything was retried, the most retries of the whole run first, at most 100. " +
			"Click one to see it attempt by attempt. Runs have no provider: that variable does not narrow them.",
		grain: grainRun, definition: "accounting.md#budget", empty: "No run with a retry ended in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT time, run_id, `+stated("service")+` AS service, `+stated("version")+` AS version, retries, run_limit,
    arrayStringConcat(steps_over_budget, ', ') AS over, completion, outcome, lasted_ms
FROM `+windowed("retried_runs")+`
WHERE `+chosen(ofRuns...)+`
  AND `+hadStep()+`
ORDER BY retries DESC, end_bounded_ns DESC, trace_key DESC, run_id DESC LIMIT 100`)},
		overrides: []override{
			column("time", named("ended"), atSeconds(), wide(160)),
			column("run_id", named("run"), toRun("run_id"), wide(295)),
			column("service", wide(180)),
			column("version", wide(100)),
			column("retries", wide(75)),
			column("run_limit", named("limit"), wide(65)),
			column("over", named("steps over budget"), with("noValue", "")),
			column("completion", append(colouredCompletion(), wide(105))...),
			column("outcome", wide(140)),
			column("lasted_ms", named("took"), inUnit("ms"), wide(85)),
		},
	}
}
