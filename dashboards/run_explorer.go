package dashboards

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// runExplorer lists runs, and shows one of them attempt by attempt.
var runExplorer = page{
	uid: uidRuns, title: "Run explorer",
	says: "Which runs repeated what, which must not be read past, and one run attempt by attempt.",
	from: "now-24h", variables: append(ofSteps[:len(ofSteps):len(ofSteps)], "completion", runVariable, tracingVariable),
	fill: fillRunExplorer,
}

const (
	noRunEnded = "No run ended in this range. Send spans to the collector, http://127.0.0.1:4318 (docs/sending-spans.md), or choose a longer range"
	noSuchRun  = "No run has this id. Click one in the lists above, or write a run's or a trace's whole id into Run"
)

func fillRunExplorer(s *sheet) {
	s.line(runTiles())
	s.line(runTable())
	s.line(quarantine())
	s.heading("One run: the one in the variable Run, else the one with the most retries")
	s.line(oneRun())
	s.line(stepsOfOneRun(), noteworthy())
	s.line(oneLadder())
	s.line(oneTrace())
}

// listedRuns keeps the runs that the variables choose; of steps those that had one of them.
func listedRuns() string {
	return chosen(append(ofRuns[:len(ofRuns):len(ofRuns)], "completion")...) + "\n  AND " + hadStep()
}

// hadStep keeps the runs that had one of the chosen steps.
func hadStep() string {
	return "$__conditionalAll(hasAny(" + namesOf("step") + ", steps), $step)"
}

// mostRetries selects columns of the runs with the most retries, at least so many if there
// are. Those with a retry are kept beside; only where they are too few are the others read.
func mostRetries(columns, conditions string, atLeast int) string {
	return "SELECT " + columns + "\n    FROM " + windowed("retried_runs") + "\n    WHERE " + conditions +
		"\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + windowed("ended_runs") +
		"\n    WHERE retries = 0 AND (SELECT sum(retried) FROM " + windowed("run_counts") + " WHERE " + conditions + ") < " + strconv.Itoa(atLeast) + " AND " + conditions
}

func runTiles() panel {
	return panel{
		title: "Runs that ended", width: 24, height: 4, unit: "short",
		says: "How many runs ended in the range, how many of them say that they are complete, are in quarantine, used up a retry limit, " +
			"wait for a person to check a fallback's output, or were delivered again and again without completing.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: noRunEnded,
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT sum(counts.runs) AS runs, sumIf(counts.runs, completion = 'complete') AS complete, sum(counts.quarantined) AS quarantined,
    sum(counts.over_budget) AS "over budget", sum(counts.needs_review) AS "need review", sum(counts.poison_pills) AS "poison pills"
FROM `+windowed("run_counts")+` AS counts
WHERE `+listedRuns()+`
HAVING runs > 0`)},
		overrides: []override{
			column("runs", coloured(colourPlain)),
			column("complete", coloured(colourFirstTry)),
			column("quarantined", colouredBy(thresholds(colourFirstTry, from(1, colourWarning)))[:2]...),
			column("over budget", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
			column("need review", colouredBy(thresholds(colourFirstTry, from(1, colourWarning)))[:2]...),
			column("poison pills", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
		},
	}
}

// traceAddress is the address of a trace in the reader's tracing backend; without one,
// that of the page that says how to name it.
func traceAddress(traceID string) string {
	return "if(" + textOf(tracingVariable) + " = '', '" + docs + "asking.md#open-a-trace-in-your-tracing-backend', replaceAll(" + textOf(tracingVariable) + ", '{trace_id}', " + traceID + "))"
}

// toTrace shows an address as a word that leads there.
func toTrace() []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{
		with("mappings", []map[string]any{{"type": "regex", "options": map[string]any{"pattern": ".+", "result": map[string]any{"text": "open ↗", "index": 0}}}}),
		with("links", []map[string]any{{"title": "Open the trace in your tracing backend", "url": "${__value.raw}", "targetBlank": true}}),
		wide(75),
	}
}

// hereToRun links a run's id to this page, which keeps what else was chosen.
func hereToRun() dashboard.DynamicConfigValue {
	return linked("Look at this run", to(uidRuns, "service", "service", runVariable, "run_id")+
		"&${step:queryparam}&${completion:queryparam}&${"+tracingVariable+":queryparam}")
}

// colouredCompletion colours a completion's name.
func colouredCompletion() []dashboard.DynamicConfigValue {
	colours := make(map[string]any, len(completions))
	for i, c := range completions {
		colours[c.name] = map[string]any{"color": c.colour, "index": i}
	}
	return []dashboard.DynamicConfigValue{
		with("mappings", []map[string]any{{"type": "value", "options": colours}}),
		with("custom.cellOptions", map[string]any{"type": "color-text"}),
	}
}

// knownTokens are a run's wasted tokens, NULL where no lost call states any.
const knownTokens = "if(wasted_tokens = 0 AND wasted_unknown_calls > 0, NULL, wasted_tokens)"

func runTable() panel {
	return panel{
		title: "Runs, the most retries first", width: 24, height: 10, unit: "short",
		says: "Every run that ended in the range, with its retries against its limit and what lost attempts cost: tokens (a ? where no lost call states them), " +
			"and the time of lost attempts and waits. Click a run to see it below, or open its trace in your tracing backend. At most 200.",
		grain: grainRun, definition: "accounting.md#budget", empty: noRunEnded,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT time, run_id, `+stated("service")+` AS service, completion, outcome, retries, run_limit,
    arrayStringConcat(steps_over_budget, ', ') AS over, `+knownTokens+` AS wasted, (wasted_ms + wait_ms) / 1000 AS wasted_s,
    lasted_ms, `+traceAddress("trace_id")+` AS trace
FROM (
    `+mostRetries("time, run_id, service, completion, outcome, retries, run_limit, steps_over_budget, wasted_tokens, wasted_unknown_calls, wasted_ms, wait_ms, lasted_ms, "+
			"end_bounded_ns, trace_key, trace_id", listedRuns(), 200)+`
)
ORDER BY retries DESC, end_bounded_ns DESC, trace_key DESC, run_id DESC LIMIT 200`)},
		overrides: []override{
			column("time", named("ended"), atSeconds(), wide(160)),
			column("run_id", named("run"), hereToRun(), wide(295)),
			column("service", wide(180)),
			column("completion", append(colouredCompletion(), wide(105))...),
			column("outcome", wide(140)),
			column("retries", wide(75)),
			column("run_limit", named("limit"), wide(65)),
			column("over", named("steps over budget"), with("noValue", "")),
			column("wasted", named("wasted tokens"), with("noValue", "?"), wide(120)),
			column("wasted_s", named("wasted time"), inUnit("s"), wide(110)),
			column("lasted_ms", named("took"), inUnit("ms"), wide(85)),
			column("trace", toTrace()...),
		},
	}
}

func quarantine() panel {
	return panel{
		title: "Quarantine", width: 24, height: 7, unit: "short",
		says: "Runs that are incomplete, failed, cancelled or orphaned: whoever sums up results must not read past them by accident. " +
			"The steps that did not finish, how often the run was delivered, and whether that makes it a poison pill. The last to end first, at most 200.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: "No run is in quarantine in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT time, run_id, `+stated("service")+` AS service, completion, outcome, arrayStringConcat(unfinished_steps, ', ') AS unfinished,
    concat(toString(deliveries), if(poison_pill, ' · poison pill', '')) AS delivered, orphan_spans, retries
FROM `+windowed("noted_runs")+`
WHERE quarantined AND `+listedRuns()+`
ORDER BY end_bounded_ns DESC, trace_key DESC, run_id DESC LIMIT 200`)},
		overrides: []override{
			column("time", named("ended"), atSeconds(), wide(160)),
			column("run_id", named("run"), hereToRun(), wide(295)),
			column("service", wide(180)),
			column("completion", append(colouredCompletion(), wide(105))...),
			column("outcome", wide(140)),
			column("unfinished", named("steps that did not finish"), with("noValue", "")),
			column("delivered", append(words(".* poison", colourBreach), named("deliveries"), wide(135))...),
			column("orphan_spans", named("spans without parent"), wide(165)),
			column("retries", wide(75)),
		},
	}
}

func oneRun() panel {
	return panel{
		title: "The run", width: 24, height: 4, unit: "short",
		says: "The run in the variable Run, else the one with the most retries in the range. " +
			"Of several runs with one id it is the last to end, within the range if one did; choose a service to see another's.",
		grain: grainRun, definition: "accounting.md#which-spans-make-a-run", empty: noSuchRun,
		draws: list(),
		queries: []query{newQuery("A", asTable, `WITH `+theRun()+` AS the_run
SELECT run_id, `+stated("service")+` AS service, `+stated("version")+` AS version, `+stated("environment")+` AS environment, completion, outcome, retries, run_limit,
    fromUnixTimestamp64Milli(intDiv(start_ns, 1000000)) AS started, lasted_ms, `+knownTokens+` AS wasted, (wasted_ms + wait_ms) / 1000 AS wasted_s,
    `+traceAddress("trace_id")+` AS trace
FROM run_accounts
WHERE `+anchorOfTheRun)},
		overrides: []override{
			column("run_id", named("run"), wide(295)),
			column("service", wide(160)),
			column("completion", append(colouredCompletion(), wide(105))...),
			column("outcome", wide(140)),
			column("retries", wide(75)),
			column("run_limit", named("limit"), wide(65)),
			column("version", wide(80)),
			column("environment", wide(105)),
			column("started", atSeconds(), wide(160)),
			column("lasted_ms", named("took"), inUnit("ms"), wide(85)),
			column("wasted", named("wasted tokens"), with("noValue", "?"), wide(110)),
			column("wasted_s", named("wasted time"), inUnit("s"), wide(110)),
			column("trace", toTrace()...),
		},
	}
}

// The traces of theRun, and the one in which the run's own numbers stand. An id that
// ends in zeros is only found as long as the column is.
const (
	tracesOfTheRun = "trace_key IN (SELECT toFixedString(unhex(arrayJoin(the_run.1)), 16)) AND run_id = the_run.2"
	anchorOfTheRun = "trace_key IN (SELECT toFixedString(unhex(arrayJoin(arraySlice(the_run.1, 1, 1))), 16)) AND run_id = the_run.2"
)

// The words of the command line for attempts: "retryledger run".
const (
	attemptName = `multiIf(grain = 'execution' AND step != '', toString(step), concat(if(name = '', toString(step), toString(name)), multiIf(grain = 'tool', ' (tool)', grain = 'http', ' (send)', '')))`
	repeatName  = `multiIf(charge = '', '', charge = 'fallback', concat('fallback', if(fallback_from = '', '', concat(' from ', fallback_from))),
        concat(charge, ' retry', if(ordinal > 1, concat(', attempt ', toString(ordinal)), '')))`
	endingName = `multiIf(ending = 'succeeded', 'ok', ending = 'unknown', 'never ended', ending != 'failed', toString(ending),
        concat('failed', if(handled, ', handled', ''), if(evidence = 'output' AND charge = '', ' (its output says so)', ''),
            multiIf(error_class = '' AND http_status = 0, '', http_status = 0, concat(': ', error_class),
                error_class = '', concat(': HTTP ', toString(http_status)), concat(': ', error_class, ' ', toString(http_status)))))`
	spentName = `multiIf(grain != 'call', '', isNull(input_tokens) AND isNull(output_tokens), '?',
        concat(ifNull(toString(input_tokens), '?'), '→', ifNull(toString(output_tokens), '?')))`
)

// words colours cells by how they begin.
func words(pairs ...string) []dashboard.DynamicConfigValue {
	var mappings []map[string]any
	for i := 0; i+1 < len(pairs); i += 2 {
		mappings = append(mappings, map[string]any{"type": "regex", "options": map[string]any{
			"pattern": "^(" + pairs[i] + ".*)$", "result": map[string]any{"text": "$1", "color": pairs[i+1], "index": i / 2},
		}})
	}
	return []dashboard.DynamicConfigValue{with("mappings", mappings), with("custom.cellOptions", map[string]any{"type": "color-text"})}
}

// layerWords colours the names of layers.
func layerWords() []dashboard.DynamicConfigValue {
	pairs := []string{"fallback", colourFallback}
	for _, l := range layers {
		pairs = append(pairs, l.name, l.colour)
	}
	return words(pairs...)
}

// indent is a blank that browsers keep.
const indent = "\u2003"

func oneLadder() panel {
	return panel{
		title: "Ladder", width: 24, height: 13, unit: "short",
		says: "Who repeated what: every attempt of the run below the one that encloses it, in the order of start, as `retryledger run` prints it. " +
			"A repeat names the layer that decided to repeat and which try it is. Lost: the time of an attempt that contributed to no success. The first 2,000 attempts.",
		grain: grainAttempt, definition: "accounting.md#layers", empty: noSuchRun,
		draws: list(),
		queries: []query{newQuery("A", asTable, `WITH `+theRun()+` AS the_run
SELECT concat(repeat('`+indent+`', depth), `+attemptName+`) AS attempt, toString(step) AS step,
    `+repeatName+` AS repeat_of,
    `+endingName+` AS ended,
    greatest(start_ns - min(start_ns) OVER (), 0) / 1000000 AS at_ms, greatest(end_ns - start_ns, 0) / 1000000 AS took_ms,
    if(wait_ms > 0, wait_ms, NULL) AS waited_ms, if(wasted_ms > 0, wasted_ms, NULL) AS lost_ms,
    `+spentName+` AS tokens, toString(model) AS model, if(charge = '', '', toString(evidence)) AS known_by
FROM ladder(trace_ids = the_run.1, run_id = the_run.2)
ORDER BY place LIMIT 2000`)},
		overrides: []override{
			column("attempt", wide(280)),
			column("step", linked("Look at this step", to(uidStep, "step", "step")), wide(120)),
			column("repeat_of", append(layerWords(), named("repeat"), with("noValue", ""), wide(200))...),
			column("ended", append(words("ok", colourFirstTry, "failed", colourFailed, "never ended", colourOrphaned), wide(280))...),
			column("at_ms", named("at"), inUnit("ms"), with("decimals", 1), wide(90)),
			column("took_ms", named("took"), inUnit("ms"), with("decimals", 1), wide(90)),
			column("waited_ms", named("waited"), inUnit("ms"), with("noValue", ""), with("decimals", 1), wide(90)),
			column("lost_ms", named("lost"), inUnit("ms"), with("noValue", ""), with("decimals", 1), wide(90)),
			column("tokens", with("noValue", ""), wide(85)),
			column("model", with("noValue", ""), wide(130)),
			column("known_by", named("known by"), with("noValue", ""), wide(95)),
		},
	}
}

func oneTrace() panel {
	return panel{
		title: "Trace", width: 24, height: 13, unit: "short",
		says: "The same attempts over time. Spans that are no attempt are not here: your tracing backend has them. " +
			"An attempt without a span of its own, known by an event or a counter, has an id that no span has.",
		grain: grainAttempt, definition: "accounting.md#evidence", empty: noSuchRun,
		draws: dashboard.NewPanelBuilder().Type("traces"),
		queries: []query{newQuery("A", asTraces, `WITH `+theRun()+` AS the_run
SELECT the_run.1[1] AS traceID, span AS spanID, outer_span AS parentSpanID, concat(label, if(repeated = '', '', concat(' · ', repeated))) AS operationName,
    `+stated("service")+` AS serviceName, [map('key', 'service.version', 'value', toString(version))] AS serviceTags,
    start_ns / 1000000 AS startTime, greatest(end_ns - start_ns, 0) / 1000000 AS duration, if(ending = 'failed', 2, 0) AS statusCode,
    arrayMap(tag -> map('key', tag.1, 'value', tag.2), arrayFilter(tag -> tag.2 != '', [
        ('error', if(ending = 'failed', 'true', '')), ('step', toString(step)), ('ended', ended), ('repeat', repeated), ('known by', toString(evidence)),
        ('model', toString(model)), ('provider', toString(provider)), ('tokens', tokens), ('trace', trace_id), ('span', span_id)])) AS tags
FROM (
    SELECT *, `+attemptName+` AS label,
        `+repeatName+` AS repeated,
        `+endingName+` AS ended,
        `+spentName+` AS tokens
    FROM ladder(trace_ids = the_run.1, run_id = the_run.2)
)
ORDER BY place LIMIT 2000`)},
	}
}

func stepsOfOneRun() panel {
	return panel{
		title: "Steps of the run", width: 16, height: 8, unit: "short",
		says: "What each step of the run consumed: its repeats by layer against its limit, and how the layers multiplied. " +
			"A dash is a layer that the instrumentation hides, which is not zero.",
		grain: grainStep, definition: "accounting.md#layers", empty: noSuchRun,
		draws: list(),
		queries: []query{newQuery("A", asTable, `WITH `+theRun()+` AS the_run
SELECT toString(step) AS step, executions, retries_transport AS transport, retries_call AS call, retries_node AS node,
    retries_orchestrator AS orchestrator, retries_worker AS worker, retries_total AS retries, step_limit, if(over_budget, 'over', '') AS budget,
    toString(factorisation) AS multiplied, toString(outcome) AS outcome
FROM steps
WHERE `+anchorOfTheRun+`
ORDER BY ifNull(retries_total, 0) DESC, start_ns, step`)},
		overrides: append(hiddenLayers(),
			column("step", linked("Look at this step", to(uidStep, "step", "step")), wide(125)),
			column("executions", wide(95)),
			column("retries", nothing(), wide(70)),
			column("step_limit", named("limit"), wide(60)),
			column("budget", append(colouredBy(thresholds(colourBreach)), with("noValue", ""), wide(60))...),
			column("multiplied", with("noValue", ""), wide(80)),
			column("outcome", wide(175)),
		),
	}
}

func noteworthy() panel {
	return panel{
		title: "Contract violations and warnings of the run", width: 8, height: 8, unit: "short",
		says: "What else there is to know about the run: keys of a contract that a node missed, steps that did not finish, " +
			"spans whose parent never came, and warnings about what no number tells.",
		grain: grainRun, definition: "accounting.md#contract-violation", empty: "No contract violation, warning or unfinished step in this run",
		draws: list(),
		queries: []query{newQuery("A", asTable, `WITH `+theRun()+` AS the_run
SELECT kind, what, times
FROM (
    SELECT 'contract' AS kind, concat(node, ' misses ', direction, ' "', key, '"') AS what, toInt64(count) AS times, 0 AS part, toInt64(index) AS number
    FROM violations
    WHERE `+tracesOfTheRun+`
    UNION ALL
    SELECT note.1, note.2, note.3, note.4, number
    FROM (
        SELECT arrayConcat(
            arrayMap(step -> ('unfinished', toString(step), toInt64(1), 1), unfinished_steps),
            arrayMap(warning -> ('warning', warning, toInt64(1), 2), warnings),
            if(orphan_spans > 0, [('orphans', 'spans whose parent never came', orphan_spans, 3)], []),
            if(needs_review, [('review', 'a fallback''s output waits for a person', toInt64(1), 4)], []),
            if(poison_pill, [('poison pill', 'delivered again and again without completing', deliveries, 5)], [])) AS notes
        FROM run_accounts
        WHERE `+anchorOfTheRun+`
    )
    ARRAY JOIN notes AS note, arrayEnumerate(notes) AS number
)
ORDER BY part, number`)},
		overrides: []override{
			column("kind", append(words("contract", colourFailed, "unfinished", colourWarning, "warning", colourWarning, "orphans", colourOrphaned, "poison", colourFailed), wide(95))...),
			column("times", wide(65)),
		},
	}
}
