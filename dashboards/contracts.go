package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// contracts is about runs that did not do what they promised: keys that nodes missed,
// runs that did not complete, or came again.
var contracts = page{
	uid: uidContracts, title: "Contracts and completion",
	says: "Which nodes miss which keys of their contract, which runs did not complete and where they stopped, and which came again and again.",
	from: "now-24h", variables: ofRuns,
	fill: fillContracts,
}

const noViolations = "No contract violation in this range. Spans state them with contract.node and contract.missing_input or contract.missing_output"

func fillContracts(s *sheet) {
	s.line(violationTiles(), completionTiles())
	s.line(completionOverTime(), completionShares())
	s.line(violationTable(), violationsOverTime())
	s.line(unfinishedSteps(), redelivered())
	s.line(orphans())
	s.line(poisonPills(), warned())
}

func violationTiles() panel {
	return panel{
		title: "Contract violations", width: 7, height: 4, unit: "short",
		says:  "How often a node missed a key that its contract promises, counted once for each execution, node, key and direction; and the runs in which that happened.",
		grain: grainViolation, definition: "accounting.md#contract-violation", empty: noViolations,
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT sum(count) AS violations, uniqExactIf((service, environment, run_id), run_id != '') AS "runs with them"
FROM `+windowed("violation_usage")+`
WHERE `+chosen(ofRuns...)+`
HAVING count() > 0`)},
		overrides: []override{
			column("violations", coloured(colourFailed)),
			column("runs with them", coloured(colourPlain)),
		},
	}
}

func completionTiles() panel {
	return panel{
		title: "Runs that did not complete, or came again", width: 17, height: 4, unit: "short",
		says: "Of the runs that ended in the range: those that say that they left steps undone, that ended in an error, that somebody cancelled, that fell silent without an end, " +
			"that were delivered more than once, those of them that never completed, and those with a warning.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: noRunEnded,
		draws: tiles().Text(common.NewVizTextDisplayOptionsBuilder().ValueSize(30)), // of seven, as large as fits, some break
		queries: []query{newQuery("A", asTable, `SELECT sumIf(runs, completion = 'incomplete') AS incomplete, sumIf(runs, completion = 'failed') AS failed, sumIf(runs, completion = 'cancelled') AS cancelled,
    sumIf(runs, completion = 'orphaned') AS orphaned, sum(resumed) AS "delivered again", sum(poison_pills) AS "poison pills", sum(warned) AS "with warnings"
FROM `+windowed("run_counts")+`
WHERE `+chosen(ofRuns...)+`
HAVING count() > 0`)},
		overrides: []override{
			column("incomplete", alarming(colourWarning)...),
			column("failed", alarming(colourFailed)...),
			column("cancelled", alarming(colourCancelled)...),
			column("orphaned", alarming(colourOrphaned)...),
			column("delivered again", alarming(colourWarning)...),
			column("poison pills", alarming(colourBreach)...),
			column("with warnings", alarming(colourWarning)...),
		},
	}
}

// alarming colours a number above zero.
func alarming(colour string) []dashboard.DynamicConfigValue {
	return colouredBy(thresholds(colourFirstTry, from(1, colour)))[:2]
}

func completionColumns() []override {
	list := make([]override, len(completions))
	for i, c := range completions {
		list[i] = column(c.name, coloured(c.colour))
	}
	return list
}

func completionOverTime() panel {
	counts := make([]string, len(completions))
	for i, c := range completions {
		counts[i] = "sumIf(runs, completion = '" + c.name + "') AS " + c.name
	}
	return panel{
		title: "Runs by completion over time", width: 14, height: 9, unit: "short",
		says:  "The runs that ended in each interval, by whether they came to their end. A late flag or end moves a run to its true state.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: noRunEnded,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time,\n    "+strings.Join(counts, ",\n    ")+
			"\nFROM "+windowed("run_counts")+"\nWHERE "+chosen(ofRuns...)+"\nGROUP BY time\nORDER BY time")},
		overrides: completionColumns(),
	}
}

func completionShares() panel {
	return panel{
		title: "Runs by completion", width: 10, height: 9, unit: "short",
		says: "How many runs came to which end. Those marked are in quarantine: whoever sums up results must not read past them by accident. " +
			"Click a state to see its runs.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: noRunEnded,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(completion) AS completion, sum(counts.runs) AS runs, sum(counts.runs) / sum(sum(counts.runs)) OVER () AS share,
    if(sum(counts.quarantined) > 0, 'in quarantine', '') AS quarantine
FROM `+windowed("run_counts")+` AS counts
WHERE `+chosen(ofRuns...)+`
GROUP BY completion
ORDER BY runs DESC, completion`)},
		overrides: []override{
			column("completion", append(colouredCompletion(), linked("Look at these runs", to(uidRuns, "completion", "completion")))...),
			column("runs", wide(90)),
			column("share", inUnit("percentunit"), with("decimals", 1), with("min", 0), with("max", 1), gauge()),
			column("quarantine", append(colouredBy(thresholds(colourWarning)), named(" "), with("noValue", ""), wide(110))...),
		},
	}
}

func violationTable() panel {
	return panel{
		title: "Who misses which key", width: 16, height: 9, unit: "short",
		says: "Contract violations by node, key and direction: a key that was missing in what the node was given (input) or in what it returned (output). " +
			"The error is the node's that missed it, not that of the one that reads the state next. With the last run in which it happened.",
		grain: grainViolation, definition: "accounting.md#contract-violation", empty: noViolations,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(node) AS node, toString(key) AS key, toString(direction) AS direction, `+stated("service")+` AS service, sum(count) AS violations,
    uniqExactIf((environment, run_id), run_id != '') AS runs, max(time) AS last, argMax(run_id, (end_bounded_ns, run_id)) AS last_run
FROM `+windowed("violation_usage")+`
WHERE `+chosen(ofRuns...)+`
GROUP BY node, key, direction, service
ORDER BY violations DESC, node, key, direction, service LIMIT 100`)},
		overrides: []override{
			column("node", linked("Look at this step", to(uidStep, "service", "service", "step", "node")), wide(92)),
			column("key", wide(116)),
			column("direction", wide(75)),
			column("violations", gauge(), coloured(colourFailed), wide(95)),
			column("runs", wide(55)),
			column("last", atSeconds(), wide(155)),
			column("last_run", named("last run"), toRun("last_run"), with("noValue", "of no run"), wide(280)),
		},
	}
}

func violationsOverTime() panel {
	return panel{
		title: "Contract violations over time", width: 8, height: 9, unit: "short",
		says:  "The violations of each interval, by whether the key was missing on input or on output.",
		grain: grainViolation, definition: "accounting.md#contract-violation", empty: noViolations,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time, sumIf(count, direction = 'input') AS input, sumIf(count, direction != 'input') AS output"+
			"\nFROM "+windowed("violation_usage")+"\nWHERE "+chosen(ofRuns...)+"\nGROUP BY time\nORDER BY time")},
		overrides: []override{column("input", coloured(colourPlain)), column("output", coloured(colourFailed))},
	}
}

func unfinishedSteps() panel {
	return panel{
		title: "Steps that did not finish", width: 14, height: 8, unit: "short",
		says:  "The steps at which runs stopped, as the run's flag lists them or as its spans show, with the runs that stopped there and the last of them.",
		grain: grainStep, definition: "accounting.md#completion-of-a-run", empty: "No step was left unfinished in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT toString(step) AS step, `+stated("service")+` AS service, count() AS runs, countIf(quarantined) AS quarantined,
    max(time) AS last, argMax(run_id, (end_bounded_ns, run_id)) AS last_run
FROM (
    SELECT service, quarantined, time, run_id, end_bounded_ns, unfinished_steps
    FROM `+windowed("noted_runs")+`
    WHERE `+chosen(ofRuns...)+`
)
ARRAY JOIN unfinished_steps AS step
GROUP BY step, service
ORDER BY runs DESC, step, service LIMIT 100`)},
		overrides: []override{
			column("step", toStep(), wide(110)),
			column("runs", gauge(), coloured(colourWarning), wide(95)),
			column("quarantined", wide(95)),
			column("last", atSeconds(), wide(155)),
			column("last_run", named("last run"), toRun("last_run"), wide(280)),
		},
	}
}

func redelivered() panel {
	return panel{
		title: "Deliveries", width: 10, height: 8, unit: "short",
		says: "How often runs were delivered: taken up again after an interrupt, a crash or a redelivery. One is a run that came once. " +
			"A run that was delivered often without completing is a poison pill.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: noRunEnded,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT deliveries, sum(counts.runs) AS runs, sumIf(counts.runs, completion = 'complete') AS complete, sum(counts.quarantined) AS quarantined,
    sum(counts.poison_pills) AS poison_pills
FROM `+windowed("run_counts")+` AS counts
WHERE `+chosen(ofRuns...)+`
GROUP BY deliveries
ORDER BY deliveries LIMIT 100`)},
		overrides: []override{
			column("deliveries", wide(100)),
			column("runs", wide(110)),
			column("complete", wide(110)),
			column("quarantined", append(colouredBy(thresholds(colourPlain, from(1, colourWarning))), wide(120))...),
			column("poison_pills", append(colouredBy(thresholds(colourPlain, from(1, colourBreach))), named("poison pills"), wide(120))...),
		},
	}
}

func orphans() panel {
	return panel{
		title: "Orphans", width: 24, height: 8, unit: "short",
		says: "Runs that fell silent without an end, and runs with spans whose parent never came: a process that was killed, or spans that were lost on their way. " +
			"The last to be heard of first, at most 100.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: "No orphaned run and no span without its parent in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT time, run_id, `+stated("service")+` AS service, completion, outcome, orphan_spans, spans, arrayStringConcat(unfinished_steps, ', ') AS unfinished, deliveries
FROM `+windowed("noted_runs")+`
WHERE (completion = 'orphaned' OR orphan_spans > 0) AND `+chosen(ofRuns...)+`
ORDER BY end_bounded_ns DESC, trace_key DESC, run_id DESC LIMIT 100`)},
		overrides: []override{
			column("time", named("last heard of"), atSeconds(), wide(160)),
			column("run_id", named("run"), toRun("run_id"), wide(295)),
			column("completion", append(colouredCompletion(), wide(110))...),
			column("outcome", wide(150)),
			column("spans", wide(75)),
			column("deliveries", wide(100)),
			column("orphan_spans", named("spans without parent"), wide(180)),
			column("unfinished", named("steps that did not finish"), with("noValue", "")),
		},
	}
}

func poisonPills() panel {
	return panel{
		title: "Poison pills", width: 12, height: 8, unit: "short",
		says:  "Runs that were delivered again and again without completing: take them out of the queue. The most deliveries first, at most 100.",
		grain: grainRun, definition: "accounting.md#completion-of-a-run", empty: "No poison pill in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT run_id, `+stated("service")+` AS service, deliveries, completion, arrayStringConcat(unfinished_steps, ', ') AS unfinished
FROM `+windowed("noted_runs")+`
WHERE poison_pill AND `+chosen(ofRuns...)+`
ORDER BY deliveries DESC, end_bounded_ns DESC, trace_key DESC, run_id DESC LIMIT 100`)},
		overrides: []override{
			column("run_id", named("run"), toRun("run_id"), wide(280)),
			column("deliveries", wide(90)),
			column("completion", append(colouredCompletion(), wide(100))...),
			column("unfinished", named("stopped at"), with("noValue", "")),
		},
	}
}

func warned() panel {
	return panel{
		title: "Warnings", width: 12, height: 8, unit: "short",
		says:  "What is suspicious about runs and stands in no number: a loop that gets nowhere, a retry that ended well although its last attempt failed. The most runs first, at most 100.",
		grain: grainRun, definition: "accounting.md#warnings", empty: "No warning in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT warning, `+stated("service")+` AS service, count() AS runs, argMax(run_id, (end_bounded_ns, run_id)) AS last_run
FROM (
    SELECT service, run_id, end_bounded_ns, warnings
    FROM `+windowed("noted_runs")+`
    WHERE `+chosen(ofRuns...)+`
)
ARRAY JOIN warnings AS warning
GROUP BY warning, service
ORDER BY runs DESC, warning, service LIMIT 100`)},
		overrides: []override{
			column("warning", with("custom.cellOptions", map[string]any{"type": "auto", "wrapText": true})),
			column("service", wide(140)),
			column("runs", wide(55)),
			column("last_run", named("last run"), toRun("last_run"), wide(140)),
		},
	}
}
