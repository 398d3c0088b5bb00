package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// providers is about who serves the model calls: do they answer, what do breakers do,
// and does falling back help.
var providers = page{
	uid: uidProviders, title: "Providers and fallbacks",
	says: "Which provider fails or throttles, what the circuit breakers did, from which candidate calls fell back to which, and whether it helped.",
	from: "now-6h", variables: ofCalls,
	fill: fillProviders,
}

// The share of server errors above which the breaker of a provider opens.
const serverErrorLimit = 0.15

const sendRequests = "No request to a provider ended in this range. Send spans of model calls to the collector (docs/sending-spans.md), or choose a longer range"

func fillProviders(s *sheet) {
	s.line(requestTiles(), fallbackTiles(), brokenTiles())
	s.line(serverErrorShare(), throttledShare())
	s.line(breakerStates(), breakerChanges())
	s.line(providerTable(), requestErrors())
	s.line(requestsOverTime())
	s.heading("Fallbacks")
	s.line(fallbackMatrix(), fallbacksOverTime())
	s.heading("Responses that broke off")
	s.line(brokenOverTime(), brokenByStep())
}

// serverErrorThresholds is where a breaker opens.
func serverErrorThresholds() *dashboard.ThresholdsConfigBuilder {
	return thresholds(colourPlain, from(serverErrorLimit, colourBreach))
}

// results are how requests end, in the order from good to bad.
var results = []outcome{
	{"served", "served", colourFirstTry},
	{"throttled", "throttled (429)", colourWarning},
	{"failed_otherwise", "failed otherwise", colourHandled},
	{"server_errors", "server error (5xx)", colourFailed},
	{"ended_unknown", "unknown", colourUndecided},
}

func resultColumns() []override {
	list := make([]override, len(results))
	for i, r := range results {
		list[i] = column(r.name, coloured(r.colour))
	}
	return list
}

// resultShares are columns named by the results, as shares of all requests.
func resultShares() string {
	columns := make([]string, len(results))
	for i, r := range results {
		columns[i] = ratio("sum("+r.column+")", "sum(sent)") + ` AS "` + r.name + `"`
	}
	return strings.Join(columns, ",\n    ")
}

func requestTiles() panel {
	overrides := append([]override{column("requests", coloured(colourPlain), inUnit("short"), with("decimals", nil))}, resultColumns()...)
	return panel{
		title: "How requests to providers ended", width: 13, height: 4, unit: "percentunit",
		says: "Requests that really went out, retries among them, each once. A server error is a status 500 to 599, or an error that says so; " +
			"throttled is 429 and stands apart, for waiting helps there; unknown are requests whose end the spans do not show.",
		grain: grainRequest, definition: "signals.md#server_error_ratio", empty: sendRequests,
		draws: tiles().Decimals(1),
		queries: []query{newQuery("A", asTable, "SELECT sum(sent) AS requests,\n    "+resultShares()+"\nFROM "+windowed("request_usage")+
			"\nWHERE "+chosen(ofCalls...)+"\nHAVING requests > 0")},
		overrides: overrides,
	}
}

func fallbackTiles() panel {
	return panel{
		title: "Fallbacks", width: 6, height: 4, unit: "short",
		says:  "Attempts of another candidate after one had failed, and the share of them that succeeded.",
		grain: grainAttempt, definition: "accounting.md#fallback", empty: "No fallback in this range",
		draws: tiles(),
		queries: []query{newQuery("A", asTable, `SELECT sum(switches) AS fallbacks, `+ratio("sum(succeeded)", "sum(succeeded) + sum(lost)")+` AS helped
FROM `+windowed("fallback_usage")+`
WHERE `+chosen(ofCalls...)+`
HAVING fallbacks > 0`)},
		overrides: []override{
			column("fallbacks", coloured(colourFallback)),
			column("helped", coloured(colourFirstTry), inUnit("percentunit"), with("decimals", 1)),
		},
	}
}

func brokenTiles() panel {
	return panel{
		title: "Responses that broke off", width: 5, height: 4, unit: "percentunit",
		says: "Of the responses that began, the share that failed after the first chunk: what was shown or spent by then is lost. " +
			"Many instrumentations do not show that a response had begun; there it is 0.",
		grain: grainCall, definition: "signals.md#stream_midway_failure_ratio", empty: "No response began in this range",
		draws: tiles().Decimals(2),
		queries: []query{newQuery("A", asTable, `SELECT `+ratio("sum(broke_off)", "sum(completed) + sum(broke_off)")+` AS "broke off"
FROM `+windowed("response_usage")+`
WHERE `+chosen(ofCalls...)+`
HAVING sum(completed) + sum(broke_off) > 0`)},
		overrides: []override{column("broke off", colouredBy(thresholds(colourFirstTry, from(0.00001, colourMidway)))[:2]...)},
	}
}

// shareByProvider is a share of requests over time, a series for each provider.
func shareByProvider(column, name string) query {
	return newQuery("A", asTimeSeries, withBucket+"SELECT time, "+stated("name")+` AS provider, "`+name+`"
FROM (
    SELECT `+bucket+` AS time, provider AS name, `+ratio("sum("+column+")", "sum(sent)")+` AS "`+name+`"
    FROM `+windowed("request_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY time, name
)
ORDER BY time, provider`)
}

func serverErrorShare() panel {
	return panel{
		title: "Server errors (5xx) by provider", width: 12, height: 8, unit: "percentunit",
		says: "Of the requests of each interval, those that the provider failed to serve. The line is 15 %: above it, within 30 seconds and of 20 requests at least, a breaker opens. " +
			"Intervals here may be longer than that.",
		grain: grainRequest, definition: "signals.md#server_error_ratio", empty: sendRequests,
		draws:   withLines(lines(), serverErrorThresholds()).ColorScheme(classic()).FillOpacity(0).DisplayName("${__field.labels.provider}").AxisSoftMax(0.2),
		queries: []query{shareByProvider("server_errors", "server errors")},
	}
}

func throttledShare() panel {
	return panel{
		title: "Throttled (429) by provider", width: 12, height: 8, unit: "percentunit",
		says:  "Of the requests of each interval, those that were refused for their rate. Send fewer at a time or ask for a higher limit: falling back at once moves the load elsewhere, retrying at once adds to it.",
		grain: grainRequest, definition: "signals.md#throttled_ratio", empty: sendRequests,
		draws:   lines().ColorScheme(classic()).FillOpacity(0).DisplayName("${__field.labels.provider}").AxisSoftMax(0.2),
		queries: []query{shareByProvider("throttled", "throttled")},
	}
}

// breakerStateNumbers are the states of a breaker as the timeline draws them.
var breakerStateNumbers = []state{{"closed", "closed", colourFirstTry}, {"half_open", "half-open", colourWarning}, {"open", "open", colourBreach}}

const noBreaker = "No breaker has opened: requests may go to every provider"

func breakerStates() panel {
	return panel{
		title: "Circuit breakers", width: 10, height: 8, unit: "none",
		says: "The state of each provider's breaker, over all pipelines together: only the variable provider narrows it. Providers whose breaker never opened are closed and not listed. " +
			"While nothing was evaluated a breaker counts as closed, which this does not show.",
		grain: grainProvider, definition: "breakers.md#what-it-does", empty: noBreaker,
		draws: timeline(breakerStateNumbers).DisplayName("${__field.labels.provider}"),
		queries: []query{newQuery("A", asTimeSeries, `WITH changes AS (
    SELECT provider, at, from, to FROM breaker_transitions FINAL
    WHERE at < $__toTime_ms AND `+chosen("provider")+`
)
SELECT time, `+stated("name")+` AS provider, `+numbered("reached", breakerStateNumbers)+` AS state
FROM (
    SELECT $__fromTime_ms AS time, provider AS name, if(countIf(at < $__fromTime_ms) > 0, argMaxIf(to, at, at < $__fromTime_ms), argMin(from, at)) AS reached
    FROM changes GROUP BY provider
    UNION ALL
    SELECT at, provider, to FROM changes WHERE at >= $__fromTime_ms
    UNION ALL
    SELECT least($__toTime_ms, now64(3)), provider, argMax(to, at) FROM changes GROUP BY provider
)
ORDER BY time, provider`)},
	}
}

func breakerChanges() panel {
	return panel{
		title: "Why breakers changed", width: 14, height: 8, unit: "short",
		says:  "Each change of a breaker with the numbers that decided it, the latest first.",
		grain: grainProvider, definition: "breakers.md#what-it-does", empty: "No breaker changed in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT at, `+stated("name")+` AS provider, concat(from, ' → ', to) AS change, why
FROM (
    SELECT at, provider AS name, from, to, why
    FROM breaker_transitions FINAL
    WHERE at >= $__fromTime_ms AND at < $__toTime_ms AND `+chosen("provider")+`
)
ORDER BY at DESC, provider LIMIT 200`)},
		overrides: []override{
			column("at", wide(155)),
			column("provider", wide(95)),
			column("change", wide(150)),
			column("why", with("custom.cellOptions", map[string]any{"type": "auto", "wrapText": true})),
		},
	}
}

func providerTable() panel {
	overrides := resultColumns()
	for i := range overrides {
		overrides[i].properties = append(overrides[i].properties, inUnit("percentunit"), with("decimals", 1), wide(118))
	}
	overrides[3].properties = append(colouredBy(serverErrorThresholds()), inUnit("percentunit"), with("decimals", 1), wide(135))
	overrides[0].properties, overrides[4].properties = append(overrides[0].properties, wide(75)), append(overrides[4].properties, wide(85))
	overrides = append(overrides, column("requests", wide(85)))
	return panel{
		title: "Providers", width: 13, height: 8, unit: "short",
		says:  "Every provider with how its requests ended; the shares of a row add up to 100 %. Requests around which there is no model call have no provider.",
		grain: grainRequest, definition: "signals.md#server_error_ratio", empty: sendRequests,
		draws: list(),
		queries: []query{newQuery("A", asTable, "SELECT "+stated("name")+" AS provider, * EXCEPT name\nFROM (\n    SELECT provider AS name, sum(sent) AS requests,\n    "+resultShares()+
			"\n    FROM "+windowed("request_usage")+"\n    WHERE "+chosen(ofCalls...)+"\n    GROUP BY name\n)\nORDER BY requests DESC, provider LIMIT 100")},
		overrides: overrides,
	}
}

func requestErrors() panel {
	return panel{
		title: "What providers answered instead", width: 11, height: 8, unit: "short",
		says:  "Requests that were not served, by provider, status and class of error; the share is of all requests to the provider.",
		grain: grainRequest, definition: "signals.md#server_error_ratio", empty: "Every request in this range was served",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("name")+` AS provider, if(http_status = 0, '–', toString(http_status)) AS status, `+stated("error_class")+` AS error, failures AS requests, failures / of_all AS share
FROM (
    SELECT provider AS name, http_status, error_class, sum(sent) - sum(served) AS failures, sum(sum(sent)) OVER (PARTITION BY provider) AS of_all
    FROM `+windowed("request_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY provider, http_status, error_class
)
WHERE failures > 0
ORDER BY failures DESC, provider, status, error LIMIT 100`)},
		overrides: []override{
			column("status", wide(80)),
			column("requests", wide(90)),
			column("share", inUnit("percentunit"), with("decimals", 1), with("min", 0), gauge()),
		},
	}
}

func requestsOverTime() panel {
	columns := make([]string, len(results))
	for i, r := range results {
		columns[i] = "sum(" + r.column + `) AS "` + r.name + `"`
	}
	return panel{
		title: "Requests over time", width: 24, height: 8, unit: "short",
		says:  "The requests of each interval by how they ended, each at its end. A wave of retries after an outage shows as bars that grow while few are served.",
		grain: grainRequest, definition: "signals.md#server_error_ratio", empty: sendRequests,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+" AS time,\n    "+strings.Join(columns, ",\n    ")+
			"\nFROM "+windowed("request_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nORDER BY time")},
		overrides: resultColumns(),
	}
}

func fallbackMatrix() panel {
	return panel{
		title: "From which candidate to which, and after which error", width: 14, height: 9, unit: "short",
		says:  "Each switch to another candidate: the model (or provider, or name) that had failed, the one that was tried, the error that triggered it, and how often the switch helped.",
		grain: grainAttempt, definition: "accounting.md#fallback", empty: "No fallback in this range",
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("left")+` AS from, `+stated("taken")+` AS to, `+stated("cause")+` AS after, fallbacks, helped
FROM (
    SELECT from AS left, to AS taken, after AS cause, sum(switches) AS fallbacks, `+ratio("sum(succeeded)", "sum(succeeded) + sum(lost)")+` AS helped
    FROM `+windowed("fallback_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY from, to, after
)
ORDER BY fallbacks DESC, from, to, after LIMIT 100`)},
		overrides: []override{
			column("after", named("after the error")),
			column("fallbacks", named("times"), with("min", 0), coloured(colourFallback), gauge()),
			column("helped", inUnit("percentunit"), with("decimals", 1), nothing(), wide(85)),
		},
	}
}

func fallbacksOverTime() panel {
	return panel{
		title: "Fallbacks over time", width: 10, height: 9, unit: "short",
		says:  "Attempts of another candidate in each interval, by how they ended.",
		grain: grainAttempt, definition: "accounting.md#fallback", empty: "No fallback in this range",
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+` AS time, sum(succeeded) AS helped, sum(lost) AS failed, sum(switches) - sum(succeeded) - sum(lost) AS undecided
FROM `+windowed("fallback_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nORDER BY time")},
		overrides: []override{
			column("helped", coloured(colourFallback)), column("failed", coloured(colourFailed)), column("undecided", coloured(colourUndecided)),
		},
	}
}

const noBreaks = "No model call failed in this range"

func brokenOverTime() panel {
	return panel{
		title: "Calls that failed before and after the first chunk", width: 14, height: 8, unit: "short",
		says: "Before the first chunk a call can be repeated unseen. After it the reader has seen a part, and its tokens are spent. " +
			"A break counts as after only where the span shows that output had begun: tokens, a status 2xx, or the finish reason error.",
		grain: grainCall, definition: "signals.md#stream_midway_failure_ratio", empty: noBreaks,
		draws: bars(),
		queries: []query{newQuery("A", asTimeSeries, withBucket+"SELECT "+bucket+` AS time, sum(failed_before) AS "before", sum(broke_off) AS "after"
FROM `+windowed("response_usage")+"\nWHERE "+chosen(ofCalls...)+"\nGROUP BY time\nHAVING sum(failed_before) + sum(broke_off) > 0\nORDER BY time")},
		overrides: []override{column("before", coloured(colourPlain)), column("after", coloured(colourMidway))},
	}
}

func brokenByStep() panel {
	return panel{
		title: "Where responses broke off", width: 10, height: 8, unit: "short",
		says:  "Calls that failed before and after the first chunk, by provider and step; broke off is the share of responses that had begun.",
		grain: grainCall, definition: "signals.md#stream_midway_failure_ratio", empty: noBreaks,
		draws: list(),
		queries: []query{newQuery("A", asTable, `SELECT `+stated("name")+` AS provider, `+stated("called")+` AS step, `+stated("caller")+` AS service, before, after, share
FROM (
    SELECT provider AS name, step AS called, service AS caller, sum(failed_before) AS before, sum(broke_off) AS after,
        `+ratio("sum(broke_off)", "sum(completed) + sum(broke_off)")+` AS share
    FROM `+windowed("response_usage")+`
    WHERE `+chosen(ofCalls...)+`
    GROUP BY provider, step, service
    HAVING before + after > 0
)
ORDER BY after DESC, before DESC, provider, service, step LIMIT 100`)},
		overrides: []override{
			column("provider", wide(95)),
			column("step", toStep(), wide(130)),
			column("before", wide(65)),
			column("after", wide(55)),
			column("share", named("broke off"), inUnit("percentunit"), with("decimals", 1), nothing(), wide(85)),
		},
	}
}
