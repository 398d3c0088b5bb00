package dashboards

import (
	"strings"
)

// retryBudget is the start page: which step eats the retry budget, in which layer, and
// what it costs.
var retryBudget = page{
	uid: uidRetryBudget, title: "Retry budget",
	says: "Which step eats the retry budget, in which layer, after which limit, and what it costs.",
	tags: []string{"start"}, from: "now-24h", variables: ofCalls,
	fill: fillRetryBudget,
}

// sendSpans is what to do where nothing came in.
const sendSpans = "No attempt ended in this range. Send spans to the collector, http://127.0.0.1:4318 (docs/sending-spans.md), or choose a longer range"

func fillRetryBudget(s *sheet) {
	s.line(outcomeTiles(), largestConsumer(), retryShareNow(), overBudgetNow())
	s.line(consumptionBySteps(), retryShareOverTime())
	s.line(stepTable())
	s.line(wasteTiles())
	s.line(outcomesOverTime(), retriesOverTime())
	s.heading("Configured against actual, and what changed")
	s.line(configuredAgainstActual(), changed())
	s.line(runsOverBudget())
}

// ended are the operations whose outcome is known.
const ended = "sum(operations) - sum(undecided)"

func outcomeTiles() panel {
	var columns []string
	for _, o := range outcomes[:len(outcomes)-1] {
		columns = append(columns, ratio("sum("+o.column+")", ended)+` AS "`+o.name+`"`)
	}
	return panel{
		title: "How operations ended", width: 8, height: 4, unit: "percentunit",
		says: "Of the operations that ended: those that succeeded at the first try, those that succeeded only after a retry, " +
			"by a fallback to another candidate, and those that failed, also where something handled the failure. The first two are never added up.",
		grain: grainOperation, definition: "accounting.md#outcome-of-an-operation", empty: sendSpans,
		draws: tiles().Decimals(1),
		queries: []query{newQuery("A", asTable, "SELECT "+strings.Join(columns, ",\n    ")+"\nFROM "+windowed("outcome_usage")+
			"\nWHERE "+chosen(ofCalls...)+"\nHAVING "+ended+" > 0")},
		overrides: outcomeColumns()[:len(outcomes)-1],
	}
}

func largestConsumer() panel {
	return panel{
		title: "Eats most of the budget", width: 8, height: 4, unit: "percentunit",
		says:  "The step with the most retries over all layers, the layer with most of them, and its part of all retries. It is where to begin.",
		grain: grainAttempt, definition: "accounting.md#layers", empty: "No retries in this range",
		draws: tilesOf("/^(step|layer|of all retries)$/").Decimals(0),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("step")+` AS step, `+stated("service")+` AS service, arrayElement([`+layerNames()+`], indexOf(by_layer, arrayMax(by_layer))) AS layer,
    retries / sum(retries) OVER () AS "of all retries"
FROM (
    SELECT service, step, [`+strings.Join(layerSums(), ", ")+`] AS by_layer, arraySum(by_layer) AS retries
    FROM `+windowed("retry_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY service, step
)
WHERE retries > 0
ORDER BY retries DESC, service, step LIMIT 1`)},
		overrides: []override{
			column("step", coloured(colourBreach), toStep()),
			column("layer", coloured(colourPlain)),
			column("of all retries", coloured(colourPlain)),
		},
	}
}

func layerNames() string {
	names := make([]string, len(layers))
	for i, l := range layers {
		names[i] = "'" + l.name + "'"
	}
	return strings.Join(names, ", ")
}

// sumsByLayer are columns named by their layers.
func sumsByLayer() string {
	sums := layerSums()
	for i, l := range layers {
		sums[i] += ` AS "` + l.name + `"`
	}
	return strings.Join(sums, ",\n    ")
}

func retryShareNow() panel {
	return panel{
		title: "Retries ÷ operations", width: 4, height: 4, unit: "percentunit",
		says: "Retries of all layers for each operation. Up to 10 % is the usual budget of traffic; above 20 % retries are a load of their own. " +
			"Layers that an instrumentation hides are not in it.",
		grain: grainMixed, definition: "accounting.md#budget", empty: sendSpans,
		draws: tiles().Decimals(1).Thresholds(retryShareThresholds()),
		queries: []query{newQuery("A", asTable, "SELECT "+ratio(allRetries(), "sum(operations)")+` AS "retries ÷ operations"`+
			"\nFROM "+windowed("retry_usage")+"\nWHERE "+chosen(ofCalls...)+"\nHAVING sum(operations) > 0")},
	}
}

func overBudgetNow() panel {
	return panel{
		title: "Runs over budget", width: 4, height: 4, unit: "short",
		says:  "Runs that ended in the range and used up the retry limit of a run, or that of a step; and how many runs ended.",
		grain: grainRun, definition: "accounting.md#budget", empty: "No run ended in this range",
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT sum(over_budget) AS "over budget", sum(runs) AS "runs"
FROM `+windowed("run_counts")+`
WHERE `+chosen(ofRuns...)+`
HAVING "runs" > 0`)},
		overrides: []override{
			column("over budget", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
			column("runs", coloured(colourPlain)),
		},
	}
}

func consumptionBySteps() panel {
	return panel{
		title: "Steps by retries, stacked by layer", width: 13, height: 11, unit: "short",
		says: "How often each step was repeated, by the layer that decided to: inside a client (transport), around a call, by the engine's policy (node), " +
			"by the graph itself (orchestrator), by whoever took the run up again (worker). The twelve steps with the most.",
		grain: grainAttempt, definition: "accounting.md#layers", empty: "No retries in this range",
		draws: stackedBars("name"),
		queries: []query{newQuery("A", asTable, `SELECT if(services > 1, concat(step, ' · ', service), step) AS name,
    nullIf(transport, 0) AS transport, nullIf(call, 0) AS call, nullIf(node, 0) AS node, nullIf(orchestrator, 0) AS orchestrator, nullIf(worker, 0) AS worker
FROM (
    SELECT `+stated("service")+` AS service, toString(step) AS step, `+sumsByLayer()+`,
        transport + call + node + orchestrator + worker AS retries, count() OVER (PARTITION BY step) AS services
    FROM `+windowed("retry_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY service, step
    HAVING retries > 0
)
ORDER BY retries DESC, service, step LIMIT 12`)},
		overrides: append(layerColumns(), column("name", inUnit("string"))),
	}
}

func retryShareOverTime() panel {
	return panel{
		title: "Retries ÷ operations over time", width: 11, height: 11, unit: "percentunit",
		says:  "Retries of all layers for each operation that ended in the same interval, against 10 % and 20 %. It exceeds 100 % where operations are retried more than once on average.",
		grain: grainMixed, definition: "accounting.md#budget", empty: sendSpans,
		draws: withLines(lines(), retryShareThresholds()).AxisSoftMax(1.1 * shareTooHigh),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time, "+ratio(allRetries(), "sum(operations)")+
			` AS "retries ÷ operations"`+"\nFROM "+windowed("retry_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nORDER BY time")},
	}
}

func stepTable() panel {
	return panel{
		title: "Steps", width: 24, height: 9, unit: "short",
		says: "Every step with what it repeated and what that cost, the largest consumer first. A dash is a layer that the instrumentation hides, which is not zero; " +
			"a layer that only some runs hide is named at the end, for its number is a lower bound. Waste is what lies below attempts that contributed to no success; " +
			"a ? is tokens that no lost call states.",
		grain: grainMixed, definition: "accounting.md#waste", empty: sendSpans,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(step) AS step, `+stated("service")+` AS service, retries, retries / greatest(1, sum(retries) OVER ()) AS share,
    transport, call, node, orchestrator, worker, fallbacks, operations, `+ratio("retries", "operations")+` AS per_operation,
    failed_calls, wasted_tokens, wasted_s, wasted_usd, at_least
FROM (
    SELECT service, step, `+shownSums()+`,
        `+allRetries()+` AS retries, sum(fallbacks) AS fallbacks, sum(operations) AS operations,
        sum(calls_failed) AS failed_calls, `+wastedStated+` AS wasted_tokens, `+partlyHidden()+` AS at_least,
        (sum(wasted_ms) + sum(wait_ms)) / 1000 AS wasted_s, if(sum(wasted_cost_calls) = 0, NULL, sum(wasted_cost_usd)) AS wasted_usd
    FROM `+windowed("usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY service, step
)
ORDER BY ifNull(retries, 0) DESC, wasted_s DESC, service, step LIMIT 100`)},
		overrides: append(hiddenLayers(),
			column("step", toStep(), wide(130)),
			column("retries", nothing(), wide(66)),
			column("share", inUnit("percentunit"), with("decimals", 0), with("min", 0), with("max", 1), nothing(), gauge(), wide(88)),
			column("fallbacks", wide(77)),
			column("operations", wide(85)),
			column("per_operation", append(colouredBy(retryShareThresholds()), wide(80), nothing(), named("per op."), inUnit("percentunit"), with("decimals", 1))...),
			column("failed_calls", named("failed calls"), wide(84)),
			column("wasted_tokens", named("wasted tokens"), with("noValue", "?"), wide(104)),
			column("wasted_s", named("wasted time"), inUnit("s"), wide(95)),
			column("wasted_usd", named("wasted cost"), inUnit("currencyUSD"), nothing(), wide(92)),
			column("at_least", named("lower bound"), with("noValue", ""), wide(92)),
		),
	}
}

// wastedStated are the wasted tokens that calls state, NULL where no lost call states any.
const wastedStated = "if(sum(wasted_input) + sum(wasted_output) = 0 AND sum(wasted_unknown_calls) > 0, NULL, sum(wasted_input) + sum(wasted_output))"

func wasteTiles() panel {
	return panel{
		title: "Wasted", width: 24, height: 4, unit: "short",
		says: "Tokens and cost of calls that contributed to no success, the time of lost attempts, and the waits between attempts. Cost is known only where spans state it; " +
			"calls that state no tokens are counted beside.",
		grain: grainAttempt, definition: "accounting.md#waste", empty: "not stated by the spans",
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT `+wastedStated+` AS tokens,
    `+ratio(wastedStated, "sum(input_tokens) + sum(output_tokens)")+` AS "of all tokens",
    sum(wasted_unknown_calls) AS "lost calls without tokens",
    sum(wasted_ms) / 1000 AS "time of lost attempts", sum(wait_ms) / 1000 AS "waits",
    if(sum(wasted_cost_calls) = 0, NULL, sum(wasted_cost_usd)) AS "cost"
FROM `+windowed("usage")+`
WHERE `+chosen(ofCalls...)+`
HAVING count() > 0`)},
		overrides: []override{
			column("of all tokens", inUnit("percentunit"), with("decimals", 1)),
			column("time of lost attempts", inUnit("s")),
			column("waits", inUnit("s")),
			column("cost", inUnit("currencyUSD")),
		},
	}
}

func outcomesOverTime() panel {
	others := outcomes[1:] // than the first, which dwarfs them
	columns := make([]string, len(others))
	for i, o := range others {
		columns[i] = "sum(" + o.column + `) AS "` + o.name + `"`
	}
	return panel{
		title: "Operations that did not succeed at the first try, over time", width: 12, height: 8, unit: "short",
		says: "How the operations of each interval ended that the first try did not settle. An operation stands at the end of its last attempt. " +
			"Those that succeeded at the first try are left out, for they are nearly all.",
		grain: grainOperation, definition: "accounting.md#outcome-of-an-operation", empty: sendSpans,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time,\n    "+strings.Join(columns, ",\n    ")+
			"\nFROM "+windowed("outcome_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nHAVING sum(operations) > 0\nORDER BY time")},
		overrides: outcomeColumns()[1:],
	}
}

func retriesOverTime() panel {
	return panel{
		title: "Retries by layer over time", width: 12, height: 8, unit: "short",
		says:  "The repeats of each interval, by the layer that decided to repeat. A repeat stands at its own end. A layer without a number is hidden by the instrumentation.",
		grain: grainAttempt, definition: "accounting.md#layers", empty: sendSpans,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time,\n    "+shownSums()+
			"\nFROM "+windowed("retry_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nORDER BY time")},
		overrides: layerColumns(),
	}
}

func configuredAgainstActual() panel {
	return panel{
		title: "Configured against actual", width: 12, height: 9, unit: "short",
		says: "For each step the most retries in one run, against its limit; how the layers multiplied in that run, and the worst case that the stated limits allow. " +
			"Two layers that do not know of each other show here: the counter says 7, the configuration 3.",
		grain: grainStep, definition: "accounting.md#budget", empty: "No run ended in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(step) AS step, `+stated("service")+` AS service, budget, most, multiplied, worst_case, over, runs
FROM (
    SELECT service, step, max(step_limit) AS budget, max(counts.most) AS most, argMax(toString(counts.multiplied), counts.most) AS multiplied,
        if(max(counts.worst_case) = 0, NULL, max(counts.worst_case)) AS worst_case, sum(over_budget) AS over, sum(counts.runs) AS runs
    FROM `+windowed("step_counts")+` AS counts
    WHERE `+chosen(ofSteps...)+`
    GROUP BY service, step
    HAVING most > 0
)
ORDER BY most - budget DESC, over DESC, service, step LIMIT 50`)},
		overrides: []override{
			column("step", toStep(), wide(110)),
			column("budget", named("limit"), wide(50)),
			column("most", named("most in a run"), wide(106)),
			column("multiplied", nothing(), wide(82)),
			column("worst_case", named("worst case"), nothing(), wide(84)),
			column("over", append(colouredBy(thresholds(colourPlain, from(1, colourBreach))), named("runs over"), wide(78))...),
			column("runs", wide(60)),
		},
	}
}

func changed() panel {
	return panel{
		title: "Where the answer changed", width: 12, height: 9, unit: "short",
		says: "Retries for each operation now, and in the period of the same length just before. Steps without operations in either are new or gone. " +
			"Largest change in retries first. A dash is a period that shows no retries, for there were no operations or the instrumentation hides every layer.",
		grain: grainMixed, definition: "accounting.md#budget", empty: "No retries in this range, nor in the one before",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(step) AS step, `+stated("service")+` AS service,
    `+ratio("retries_before", "operations_before")+` AS before, `+ratio("retries_now", "operations_now")+` AS now,
    if(operations_before > 0 AND isNull(retries_before) OR operations_now > 0 AND isNull(retries_now), NULL, toInt64(ifNull(retries_now, 0)) - toInt64(ifNull(retries_before, 0))) AS change
FROM (
    SELECT service, step, sum(retries_of_now) AS retries_now, sum(operations_of_now) AS operations_now,
        sum(retries_of_before) AS retries_before, sum(operations_of_before) AS operations_before
    FROM (
        SELECT service, step, `+allRetries()+` AS retries_of_now, sum(operations) AS operations_of_now, NULL AS retries_of_before, 0 AS operations_of_before
        FROM `+windowed("retry_usage")+`
        WHERE `+chosen(ofCalls...)+` GROUP BY service, step
        UNION ALL
        SELECT service, step, NULL, 0, `+allRetries()+`, sum(operations)
        FROM `+before("retry_usage")+`
        WHERE `+chosen(ofCalls...)+` GROUP BY service, step
    )
    GROUP BY service, step
)
WHERE ifNull(retries_now, 0) + ifNull(retries_before, 0) > 0
ORDER BY abs(ifNull(change, 0)) DESC, service, step LIMIT 50`)},
		overrides: []override{
			column("step", toStep(), wide(140)),
			column("before", wide(90), inUnit("percentunit"), with("decimals", 1), nothing()),
			column("now", append(colouredBy(retryShareThresholds()), wide(90), inUnit("percentunit"), with("decimals", 1), nothing())...),
			column("change", named("retries more or less"), nothing(), wide(165)),
		},
	}
}

func runsOverBudget() panel {
	return panel{
		title: "Which runs went over their budget", width: 24, height: 8, unit: "short",
		says:  "The runs that used up a retry limit, with the steps that did, the most retries first.",
		grain: grainRun, definition: "accounting.md#budget", empty: "No run went over its budget in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT time, run_id, `+stated("service")+` AS service, `+stated("version")+` AS version, retries, run_limit,
    arrayStringConcat(steps_over_budget, ', ') AS steps, completion, outcome, lasted_ms
FROM `+windowed("over_budget_runs")+`
WHERE `+chosen(ofRuns...)+`
ORDER BY retries DESC, time DESC, run_id LIMIT 100`)},
		overrides: []override{
			column("time", named("ended"), atSeconds(), wide(160)),
			column("run_id", named("run"), toRun("run_id"), wide(295)),
			column("retries", wide(70)),
			column("run_limit", named("limit"), wide(60)),
			column("steps", named("steps over budget"), nothing(), wide(240)),
			column("lasted_ms", named("took"), inUnit("ms"), wide(90)),
		},
	}
}
