package dashboards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/retryledger/retryledger/schema"
)

// theLedger is about the collectors and the store themselves.
//
// Grafana asks the store alone, so what only a collector knows (the journal's fill,
// refusals, the time of evaluations) is read from the table self_metrics, into which
// each collector writes a few rows every ten seconds. What the store knows better is read
// where it stands: the delay from the ledger's own times, sizes from ClickHouse.
var theLedger = page{
	uid: uidLedger, title: "The ledger itself",
	says: "Do spans come in, does the ledger keep up, what can it not see, and how large is the store.",
	from: "now-6h", variables: ofRuns,
	fill: fillLedger,
}

func fillLedger(s *sheet) {
	s.line(intakeTiles(), delayTiles(), storeTiles())
	s.line(intakeOverTime(), waitingOverTime())
	s.line(delayOverTime(), evaluationTime())
	s.heading("What cannot be seen")
	s.line(unattributedSpans(), layersHidden())
	s.heading("The store")
	s.line(tables())
}

const (
	noMetrics = "No collector wrote in this range. One writes what it measures every ten seconds: is it running, and can it reach this store? (docs/operating.md#health)"
	// metricsOfRange are what collectors wrote in the range.
	metricsOfRange = "FROM self_metrics\nWHERE at >= $__fromTime_ms AND at < $__toTime_ms"
	metricTime     = "toDateTime(intDiv(toUnixTimestamp(at), $__interval_s) * $__interval_s, 'UTC')"
)

func totalOf(name string) string   { return "sumIf(total, name = '" + name + "')" }
func largestOf(name string) string { return "maxIf(largest, name = '" + name + "')" }

// latestOf is the largest value among the collectors' latest; those that have been silent for
// a minute are left out.
func latestOf(name string) string {
	of := "metric = '" + name + "' AND newest > least($__toTime_ms, now64(3)) - 60"
	return "if(countIf(" + of + ") = 0, NULL, maxIf(value, " + of + "))"
}

func intakeTiles() panel {
	return panel{
		title: "Spans in the range", width: 9, height: 4, unit: "short",
		says: "Accepted: acknowledged, for they are in a journal. Refused: a journal could not take them, and their senders are told to try again. " +
			"Dead letters: what could be read or kept by no means; each stands in a file beside the journal.",
		grain: grainSpan, definition: "operating.md#health", empty: noMetrics,
		draws: tiles(),
		queries: []query{newQuery("A", asTable, "SELECT "+totalOf(schema.MetricSpansAccepted)+" AS accepted, "+totalOf(schema.MetricSpansRefused)+" AS refused,\n    "+
			totalOf(schema.MetricDeadLetters)+` AS "dead letters", `+totalOf(schema.MetricInsertRetries)+` AS "inserts repeated"`+"\n"+metricsOfRange+"\nHAVING count() > 0")},
		overrides: []override{
			column("refused", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
			column("dead letters", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
			column("inserts repeated", colouredBy(thresholds(colourFirstTry, from(1, colourWarning)))[:2]...),
		},
	}
}

func delayTiles() panel {
	return panel{
		title: "How far behind at the end", width: 7, height: 4, unit: "s",
		says: "How much waits in the fullest journal for the store, and how long its oldest row has waited, of collectors that wrote within a minute of the end; " +
			"and the mean time of an evaluation of all alert rules in the range.",
		grain: grainCollector, definition: "operating.md#health", empty: noMetrics,
		draws: tiles().Decimals(1),
		queries: []query{newQuery("A", asTable, "SELECT "+latestOf(schema.MetricJournalWaiting)+" AS waiting, "+latestOf(schema.MetricJournalAge)+` AS "oldest waits",
    `+ratio("sumIf(sums, metric = '"+schema.MetricEvaluationTime+"')", "sumIf(counts, metric = '"+schema.MetricEvaluationTime+"')")+` AS evaluation
FROM (
    SELECT writer, name AS metric, max(at) AS newest, argMax(largest, at) AS value, sum(total) AS sums, sum(times) AS counts
    `+metricsOfRange+`
    GROUP BY writer, name
)
HAVING count() > 0`)},
		overrides: []override{
			column("waiting", inUnit("bytes"), coloured(colourPlain), nothing()),
			column("oldest waits", append(colouredBy(thresholds(colourFirstTry, from(30, colourWarning), from(60, colourBreach)))[:2], nothing())...),
			column("evaluation", append(colouredBy(evaluationThresholds())[:2], with("decimals", 0), nothing())...),
		},
	}
}

func storeTiles() panel {
	return panel{
		title: "In the store, whatever the range", width: 8, height: 4, unit: "short",
		says:  "Traces and spans in the ledger, the share of spans that belong to no run, and the traces that could not be attributed at all: what `/api/v1/status` says.",
		grain: grainSpan, definition: "accounting.md#which-spans-make-a-run", empty: "The ledger is empty. Send spans to the collector (docs/sending-spans.md)",
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT count() AS traces, sum(ledger.spans) AS spans, `+ratio("sum(unattributed_spans)", "sum(ledger.spans)")+` AS unattributed,
    countIf(state NOT IN ('attributed', 'unattributed')) AS failed
FROM ledger FINAL
HAVING traces > 0`)},
		overrides: []override{
			column("unattributed", inUnit("percentunit"), with("decimals", 1)),
			column("failed", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
		},
	}
}

func intakeOverTime() panel {
	perSecond := func(name string) string { return totalOf(name) + " / $__interval_s" }
	return panel{
		title: "Spans per second", width: 12, height: 8, unit: "suffix:spans/s",
		says:  "Spans that collectors accepted, refused or had to put aside, per second of each interval.",
		grain: grainSpan, definition: "operating.md#health", empty: noMetrics,
		draws: bars().Interval("10s"),
		queries: []query{newQuery("A", asTimeSeries, "SELECT "+metricTime+" AS time, "+perSecond(schema.MetricSpansAccepted)+" AS accepted, "+perSecond(schema.MetricSpansRefused)+" AS refused,\n    "+
			perSecond(schema.MetricDeadLetters)+` AS "dead letters"`+"\n"+metricsOfRange+"\nGROUP BY time\nORDER BY time")},
		overrides: []override{
			column("accepted", coloured(colourFirstTry)), column("refused", coloured(colourWarning)), column("dead letters", coloured(colourFailed)),
		},
	}
}

func waitingOverTime() panel {
	return panel{
		title: "Waiting in the journals", width: 12, height: 8, unit: "bytes",
		says:  "The most that waited in one collector's journal for the store in each interval. It grows while the store is away or too slow; when the journal is full, spans are refused.",
		grain: grainCollector, definition: "operating.md#health", empty: noMetrics,
		draws: lines().Interval("10s"),
		queries: []query{newQuery("A", asTimeSeries, "SELECT "+metricTime+" AS time, "+largestOf(schema.MetricJournalWaiting)+" AS waiting\n"+metricsOfRange+
			"\n  AND name = '"+schema.MetricJournalWaiting+"'\nGROUP BY time\nORDER BY time")},
		overrides: []override{column("waiting", coloured(colourPlain))},
	}
}

func delayOverTime() panel {
	return panel{
		title: "From receipt to ledger", width: 12, height: 8, unit: "s",
		says: "From the receipt of a trace's last span to the row of the ledger that knows it, of the rows written in each interval: half of them were faster than the median. " +
			"Alerts see what is in the ledger, so they are late by as much; the line is the minute at which `ingest_stalled` fires. Runs that were given up for silence are left out.",
		grain: grainTrace, definition: "operating.md#health", empty: "No row of the ledger was written in this range",
		draws: withLines(lines(), thresholds(colourPlain, from(60, colourBreach))),
		queries: []query{newQuery("A", asTimeSeries, `SELECT toDateTime(intDiv(toUnixTimestamp(written_at), $__interval_s) * $__interval_s, 'UTC') AS time,
    quantileExact(0.5)(delay) AS median, quantileExact(0.95)(delay) AS "95 % within", max(delay) AS longest
FROM (
    SELECT written_at, greatest(0, toUnixTimestamp64Micro(written_at) - intDiv(last_received_ns, 1000)) / 1000000 AS delay
    FROM ledger
    PREWHERE written_at >= $__fromTime_ms AND written_at < $__toTime_ms
    WHERE NOT has(`+"`runs.completion`"+`, 'orphaned')
)
GROUP BY time
ORDER BY time`)},
		overrides: []override{
			column("median", coloured(colourFirstTry)), column("95 % within", coloured(colourWarning)), column("longest", coloured(colourHandled)),
		},
	}
}

// evaluationThresholds is the second in which an evaluation has to be done.
func evaluationThresholds() *dashboard.ThresholdsConfigBuilder {
	return thresholds(colourFirstTry, from(1, colourBreach))
}

func evaluationTime() panel {
	return panel{
		title: "Evaluation of alert rules", width: 12, height: 8, unit: "s",
		says:  "How long one evaluation of all rules took, the read of what changed in the ledger included. Rules are evaluated each second: above the line they are not.",
		grain: grainCollector, definition: "operating.md#health", empty: noMetrics,
		draws: withLines(lines(), thresholds(colourPlain, from(1, colourBreach))).Interval("10s"),
		queries: []query{newQuery("A", asTimeSeries, "SELECT "+metricTime+" AS time, sum(total) / sum(times) AS mean, max(largest) AS longest\n"+metricsOfRange+
			"\n  AND name = '"+schema.MetricEvaluationTime+"'\nGROUP BY time\nORDER BY time")},
		overrides: []override{column("mean", coloured(colourFirstTry)), column("longest", coloured(colourHandled))},
	}
}

func unattributedSpans() panel {
	return panel{
		title: "Spans of no run, by instrumentation", width: 10, height: 9, unit: "short",
		says: "Spans that ended in the range, by the dialect that read them, and how many of them lie in traces without a run: nothing in such a trace is a step, a model call or a task. " +
			"Other spans of an application that sends all of them are expected here.",
		grain: grainSpan, definition: "accounting.md#which-spans-make-a-run", empty: "No span ended in this range. Send spans to the collector (docs/sending-spans.md)",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT if(dialect = '', 'none of those known', toString(dialect)) AS instrumentation, count() AS spans,
    countIf(alone) AS "of no run", countIf(alone) / count() AS share
FROM (
    SELECT dialect, trace_id IN (
        SELECT trace_id FROM ledger FINAL
        PREWHERE last_end_ns >= `+since+` - 604800000000000 AND first_end_ns < `+until+` + 604800000000000
        WHERE state = 'unattributed'
    ) AS alone
    FROM (
        SELECT trace_id, span_id, dialect, service, environment, service_version AS version, end_bounded_ns
        FROM spans FINAL
        WHERE intDiv(end_ns, 60000000000) >= intDiv(`+since+`, 60000000000)
        ORDER BY spans.version DESC LIMIT 1 BY trace_id, span_id
    )
    WHERE end_bounded_ns >= `+since+` AND end_bounded_ns < `+until+`
      AND `+chosen(ofRuns...)+`
)
GROUP BY instrumentation
ORDER BY spans DESC, instrumentation LIMIT 50`)},
		overrides: []override{
			column("spans", wide(90)),
			column("of no run", wide(90)),
			column("share", inUnit("percentunit"), with("decimals", 1), with("min", 0), with("max", 1), gauge()),
		},
	}
}

func layersHidden() panel {
	columns := make([]string, len(layers))
	overrides := layerColumns()
	for i, l := range layers {
		columns[i] = fmt.Sprintf("sum(hides_%s) / of_steps AS %q", l.name, l.name)
		overrides[i].properties = []dashboard.DynamicConfigValue{inUnit("percentunit"), with("decimals", 0), wide(95)}
	}
	return panel{
		title: "Layers that instrumentations hide", width: 14, height: 9, unit: "short",
		says: "Of the steps of runs that ended in the range, the share whose repeats in a layer cannot be seen: the number there is unknown, and not 0. " +
			"100 % in a column means that this instrumentation never shows the layer; docs/dialects.md says which other one does.",
		grain: grainStep, definition: "accounting.md#evidence", empty: "No run ended in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, "SELECT if(instrumentation = '', 'none of those known', toString(instrumentation)) AS instrumentation, of_steps AS steps, "+quotedNames()+`
FROM (
    SELECT instrumentation, sum(counts.steps) AS of_steps, `+strings.Join(columns, ", ")+`
    FROM `+windowed("step_accounts")+` AS counts
    WHERE `+chosen(ofRuns...)+`
    GROUP BY instrumentation
)
ORDER BY steps DESC, instrumentation LIMIT 50`)},
		overrides: append(overrides, column("steps", wide(80))),
	}
}

// quotedNames are the layers' names as columns.
func quotedNames() string {
	names := make([]string, len(layers))
	for i, l := range layers {
		names[i] = fmt.Sprintf("%q", l.name)
	}
	return strings.Join(names, ", ")
}

// contents says what one row of each table is.
var contents = [][2]string{
	{"spans", "a span"}, {"ledger", "a trace, with all that is known of its runs"}, {"run_keys", "what finds the traces of a run"},
	{"usage_hours", "sums of a whole hour, from which long ranges are answered"}, {"ledger_touched", "when an hour was written to last"},
	{"attribution_progress", "how far attribution has come"},
	{"alert_samples", "the numbers of a rule on one group at one evaluation"}, {"alert_transitions", "a change of an alert"},
	{"breakers", "the circuit breaker of a provider"}, {"breaker_transitions", "a change of a breaker"}, {"self_metrics", "one thing that a collector measured in ten seconds"},
}

func tables() panel {
	names, texts := make([]string, len(contents)), make([]string, len(contents))
	for i, c := range contents {
		names[i], texts[i] = "'"+c[0]+"'", "'"+c[1]+"'"
	}
	return panel{
		title: "Tables by size", width: 24, height: 9, unit: "short",
		says: "What the store takes on disk, compressed, and how many rows that is, replaced ones that are not merged away yet included; as it is now, whatever the range. " +
			"How long rows are kept is the setting retention of the extension retryledger_store.",
		grain: grainTable, definition: "configuration.md#settings-of-the-components", empty: "Nothing is stored yet",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT name, transform(name, [`+strings.Join(names, ", ")+`], [`+strings.Join(texts, ", ")+`], '') AS row, assumeNotNull(total_rows) AS rows,
    assumeNotNull(total_bytes) AS size, size / rows AS each, size / sum(size) OVER () AS share
FROM system.tables
WHERE database = currentDatabase() AND total_rows > 0 AND name != 'schema_migrations'
ORDER BY size DESC, name LIMIT 50`)},
		overrides: []override{
			column("name", named("table"), wide(190)),
			column("row", named("a row is"), nothing()),
			column("rows", wide(110)),
			column("size", inUnit("bytes"), wide(110)),
			column("each", named("of a row"), inUnit("bytes"), with("decimals", 1), wide(100)),
			column("share", inUnit("percentunit"), with("decimals", 1), with("min", 0), with("max", 1), gauge()),
		},
	}
}
