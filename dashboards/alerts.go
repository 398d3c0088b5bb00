package dashboards

import (
	"fmt"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/retryledger/retryledger/alerts/rules"
)

// alertsAndCanary is about what alerts fire, why, and whether a new version may go on.
var alertsAndCanary = page{
	uid: uidAlerts, title: "Alerts and canary",
	says: "What fires and why, the ratios that were judged against their thresholds, and how versions compare.",
	from: "now-6h", variables: ofCalls,
	fill: fillAlerts,
}

func fillAlerts(s *sheet) {
	s.line(alertTiles(), firingNow())
	s.line(
		judged("Failed visits of steps", "step_errors", "step"),
		judged("Failed visits by version", "canary_errors", "version"),
		judged("Server errors (5xx) of providers", "provider_server_errors", "provider"),
	)
	s.line(alertStates())
	s.line(alertHistory())
	s.line(versionsSideBySide())
}

// ofAlerts keeps alerts that are about what the variables choose. One that is about no
// step, or no service at all, is about every one.
func ofAlerts() string {
	var conditions []string
	for _, name := range ofCalls {
		conditions = append(conditions, "("+name+" = '' OR "+chosen(name)+")")
	}
	return strings.Join(conditions, "\n      AND ")
}

// about names what an alert is about.
const about = "arrayStringConcat(arrayFilter(x -> x != '', [toString(service), toString(environment), toString(version), toString(step), toString(provider)]), ' · ')"

const noAlerts = "No alert changed yet. Rules are evaluated each second from the collector's start (docs/alerts.md)"

// lastStates are the alerts as they stood at the end of the range.
func lastStates(columns string) string {
	return `SELECT argMax(to, (at, written_at)) AS state, argMax(labels['severity'], (at, written_at)) AS severity, ` + columns + `
    FROM alert_transitions FINAL
    WHERE at < $__toTime_ms
      AND ` + ofAlerts() + `
    GROUP BY rule, service, environment, version, step, provider`
}

func alertTiles() panel {
	return panel{
		title: "At the end of the range", width: 7, height: 6, unit: "short",
		says:  "How many alerts fire, how many of them want a person now, how many are about to; and how often one began to fire in the range.",
		grain: grainAlert, definition: "alert-rules.md#when-an-alert-fires-and-when-it-ends", empty: noAlerts,
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT countIf(state = 'firing') AS firing, countIf(state = 'firing' AND severity = 'page') AS pages,
    countIf(state = 'pending') AS pending, sum(begun) AS "fired in range"
FROM (
    `+lastStates("countIf(to = 'firing' AND at >= $__fromTime_ms) AS begun")+`
)
HAVING count() > 0`)},
		overrides: []override{
			column("firing", colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2]...),
			column("pages", append(colouredBy(thresholds(colourFirstTry, from(1, colourBreach)))[:2], named("of them pages"))...),
			column("pending", colouredBy(thresholds(colourFirstTry, from(1, colourWarning)))[:2]...),
			column("fired in range", coloured(colourPlain)),
		},
	}
}

func firingNow() panel {
	return panel{
		title: "Fires, or is about to", width: 17, height: 6, unit: "short",
		says:  "The alerts that fire or are pending at the end of the range, with the numbers of the change that made them so. `retryledger alerts why FINGERPRINT` shows one with example runs.",
		grain: grainAlert, definition: "alerts.md#see-them", empty: "Nothing fires",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT state, began, rule, subject, severity, judged, ratio, threshold, error
FROM (
    `+lastStates(`max(at) AS began, rule, `+about+` AS subject, argMax(concat(toString(numerator), ' of ', toString(denominator)), (at, written_at)) AS judged,
        argMax(if(denominator = 0, NULL, numerator / denominator), (at, written_at)) AS ratio, argMax(alert_transitions.threshold, (at, written_at)) AS threshold,
        argMax(top_error, (at, written_at)) AS error`)+`
)
WHERE state IN ('firing', 'pending')
ORDER BY state, severity, began DESC, rule, subject LIMIT 100`)},
		overrides: []override{
			column("state", append(stateText(), wide(64))...),
			column("began", named("since"), wide(157)),
			column("rule", wide(150)),
			column("subject", named("about"), nothing()),
			column("severity", wide(70), nothing()),
			column("judged", named("failed of total"), wide(105)),
			column("ratio", inUnit("percentunit"), with("decimals", 1), wide(65), nothing()),
			column("threshold", named("above"), inUnit("percentunit"), wide(60)),
			column("error", named("most frequent error"), nothing()),
		},
	}
}

// alertStateNumbers are the states of an alert as the timeline draws them; resolved is
// inactive there.
var alertStateNumbers = []state{{"inactive", "inactive", colourFirstTry}, {"pending", "pending", colourWarning}, {"firing", "firing", colourBreach}}

// stateText colours a state's name in a table.
func stateText() []dashboard.DynamicConfigValue {
	options := map[string]any{}
	for i, s := range append(alertStateNumbers, state{"resolved", "resolved", colourFirstTry}) {
		options[s.word] = map[string]any{"text": s.name, "color": s.colour, "index": i}
	}
	return []dashboard.DynamicConfigValue{
		with("mappings", []map[string]any{{"type": "value", "options": options}}), with("custom.cellOptions", map[string]any{"type": "color-text"}),
	}
}

// short writes a duration of whole minutes or seconds in words.
func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// judged draws what a rule judged. What has too small a sample is not judged.
func judged(title, rule, groupedBy string) panel {
	for _, r := range rules.Default().Rules() {
		if r.Name == rule {
			grain, anchor := grainVisit, "operation_error_ratio"
			if groupedBy == "provider" {
				grain, anchor = grainRequest, "server_error_ratio"
			}
			return panel{
				title: fmt.Sprintf("%s, %s over %s", title, r.Threshold, short(r.Window)), width: 8, height: 8, unit: "percentunit",
				says: fmt.Sprintf("What the rule `%s` saw at each evaluation, the largest of each interval: the six groups with the highest. The dashed line is the threshold that it had then, "+
					"by default %s over %s, of %d or more.", rule, r.Threshold, short(r.Window), r.MinSamples),
				grain: grain, definition: "signals.md#" + anchor, empty: "The rule judged nothing in this range: too few samples, or it is switched off",
				draws: lines().DisplayName("${__field.labels.subject}").ColorScheme(classic()).AxisSoftMax(2 * r.Threshold.Ratio()),
				queries: []query{
					newQuery("A", asTimeSeries, `SELECT time, subject, ratio
FROM (
    SELECT time, if(subject = '', '`+notStated+`', subject) AS subject, ratio, dense_rank() OVER (ORDER BY peak DESC, subject) AS place
    FROM (
        SELECT time, `+about+` AS subject, max(of_group) AS ratio, max(ratio) OVER (PARTITION BY subject) AS peak
        FROM (
            SELECT `+sampleTime+` AS time, service, environment, version, step, provider, max(value) AS of_group
            `+samplesOf(rule)+`
            GROUP BY time, service, environment, version, step, provider
        )
        GROUP BY time, subject
    )
)
WHERE place <= 6
ORDER BY time, subject`),
					newQuery("B", asTimeSeries, `SELECT `+sampleTime+` AS time, max(alert_samples.threshold) AS threshold
`+samplesOf(rule)+`
GROUP BY time
ORDER BY time`),
				},
				overrides: []override{column("threshold", named("threshold"), coloured(colourBreach), with("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{8, 6}}),
					with("custom.fillOpacity", 0), with("custom.lineWidth", 1), with("custom.showPoints", "never"))},
			}
		}
	}
	panic("the default pack has no rule " + rule) // a test builds the dashboards
}

const sampleTime = "toDateTime(intDiv(toUnixTimestamp(instant), $__interval_s) * $__interval_s, 'UTC')"

func samplesOf(rule string) string {
	return `FROM alert_samples
    WHERE rule = '` + rule + `' AND instant >= $__fromTime_ms AND instant < $__toTime_ms AND denominator > 0 AND denominator >= min_samples
      AND ` + ofAlerts()
}

func alertStates() panel {
	return panel{
		title: "Alerts over time", width: 24, height: 9, unit: "none",
		says:  "Every alert that was pending or fired in the range, the latest changes first; at most forty. An alert goes on firing for its rule's hold after the last breach.",
		grain: grainAlert, definition: "alert-rules.md#when-an-alert-fires-and-when-it-ends", empty: "No alert was pending or fired in this range",
		draws: timeline(alertStateNumbers).DisplayName("${__field.labels.alert}"),
		queries: []query{newQuery("A", asTimeSeries, `WITH $__fromTime_ms AS range_from
SELECT point.1 AS time, alert, `+numbered("point.2", alertStateNumbers)+` AS state
FROM (
    SELECT alert, arrayJoin(arrayConcat([(range_from, first)], within, [(least($__toTime_ms, now64(3)), last)])) AS point
    FROM (
        SELECT concat(rule, if(`+about+` = '', '', ' · '), `+about+`) AS alert,
            arraySort(groupArray((at, if(to = 'resolved', 'inactive', toString(to)), if(from = 'resolved', 'inactive', toString(from))))) AS changes,
            arrayMap(c -> (c.1, c.2), arrayFilter(c -> c.1 >= range_from, changes)) AS within,
            arrayFilter(c -> c.1 < range_from, changes) AS earlier,
            if(empty(earlier), changes[1].3, earlier[-1].2) AS first, changes[-1].2 AS last
        FROM alert_transitions FINAL
        WHERE at < $__toTime_ms
          AND `+ofAlerts()+`
        GROUP BY rule, service, environment, version, step, provider
        HAVING notEmpty(within) OR first != 'inactive'
        ORDER BY changes[-1].1 DESC, alert LIMIT 40
    )
)
ORDER BY time, alert, state`)},
	}
}

func alertHistory() panel {
	return panel{
		title: "History", width: 24, height: 10, unit: "short",
		says:  "Each change of an alert's state with its reason and the numbers that were judged, the latest first: what `retryledger alerts history` prints.",
		grain: grainAlert, definition: "alerts.md#see-them", empty: "No alert changed in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT at, rule, state, service, step, release, provider, reason, judged, ratio, threshold, error, run
FROM (
    SELECT at, rule, to AS state, service, step, arrayStringConcat(arrayFilter(x -> x != '', [toString(version), toString(environment)]), ' · ') AS release, provider, reason,
        concat(toString(numerator), ' of ', toString(denominator)) AS judged, if(denominator = 0, NULL, numerator / denominator) AS ratio, threshold,
        if(top_error = '', '', concat(top_error, ' ×', toString(top_error_count))) AS error, if(empty(runs), '', runs[1]) AS run
    FROM alert_transitions FINAL
    WHERE at >= $__fromTime_ms AND at < $__toTime_ms
      AND `+ofAlerts()+`
)
ORDER BY at DESC, rule, service, step, release, provider LIMIT 500`)},
		overrides: []override{
			column("at", wide(157)),
			column("rule", wide(165)),
			column("state", append(stateText(), wide(74))...),
			column("service", nothing()),
			column("step", toStep(), wide(105), with("noValue", " ")),
			column("release", named("version"), wide(68), nothing()),
			column("provider", wide(75), nothing()),
			column("reason", wide(95)),
			column("judged", named("failed of total"), wide(105)),
			column("ratio", inUnit("percentunit"), with("decimals", 1), wide(65), nothing()),
			column("threshold", inUnit("percentunit"), wide(80)),
			column("error", named("most frequent error"), nothing()),
			column("run", named("example run"), wide(110), nothing()),
		},
	}
}

// versionsSideBySide compares versions by what gates look at.
func versionsSideBySide() panel {
	shares := []outcome{
		{"first_try", "first try", colourFirstTry}, {"after_retry", "after retry", colourAfterRetry},
		{"by_fallback", "by fallback", colourFallback}, {"lost", "failed", colourFailed},
	}
	var columns []string
	var overrides []override
	for _, o := range shares {
		columns = append(columns, "sum("+o.column+`) / sum(ended) AS "`+o.name+`"`)
		overrides = append(overrides, column(o.name, coloured(o.colour), inUnit("percentunit"), with("decimals", 2)))
	}
	limit := 0.0
	for _, r := range rules.Default().Rules() {
		if r.Name == "canary_errors" {
			limit = r.Threshold.Ratio()
		}
	}
	overrides[3].properties = append(colouredBy(thresholds(colourFirstTry, from(limit, colourBreach))), inUnit("percentunit"), with("decimals", 2))
	return panel{
		title: "Versions side by side", width: 24, height: 8, unit: "short",
		says: "How the visits of steps ended, for each version of a service. What both versions suffer from is not the release's doing: " +
			"`retryledger gate --service S --version NEW --baseline OLD` says whether the difference is more than chance. A visit has no provider: that variable does not narrow it.",
		grain: grainVisit, definition: "gates.md#gate-a-release", empty: "No visit of a step ended in this range. Spans must state service.name and service.version",
		draws: list(),
		queries: []query{newQuery("A", asTable, "SELECT "+stated("of_service")+" AS service, "+stated("of_version")+` AS version, visits, * EXCEPT (of_service, of_version, visits)
FROM (
    SELECT service AS of_service, version AS of_version, sum(ended) AS visits, sum(lost) AS "failed visits", `+strings.Join(columns, ", ")+`,
        min(time) AS "first seen", max(time) AS "last seen"
    FROM `+windowed("visit_usage")+`
    WHERE `+chosen(ofSteps...)+`
    GROUP BY of_service, of_version
)
ORDER BY service, "first seen" DESC, version LIMIT 100`)},
		overrides: append(overrides, column("service", wide(200)), column("failed visits", wide(95)), column("first seen", atSeconds(), wide(185)), column("last seen", atSeconds(), wide(185))),
	}
}
