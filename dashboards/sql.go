package dashboards

import (
	"fmt"
	"strings"
)

// The SQL that all panels share. Panels read the views of package schema; what a view
// does not say is a view that is missing.

const (
	// since and until are the dashboard's range in nanoseconds, as views take it:
	// since <= end < until. The data source fills the macros in, in milliseconds.
	// A range of more than six hours begins with its first hour, as views keep those by
	// the hour.
	since = "if(" + isLong + ", intDiv(" + fromMs + ", 3600000) * 3600000, " + fromMs + ") * 1000000"
	until = toMs + " * 1000000"

	fromMs = "toUnixTimestamp64Milli($__fromTime_ms)"
	toMs   = "toUnixTimestamp64Milli($__toTime_ms)"
	isLong = toMs + " - " + fromMs + " > 21600000"
)

// windowed is a view with a window, over the dashboard's range.
func windowed(view string) string {
	return view + "(since_ns = " + since + ", until_ns = " + until + ")"
}

// before is a view over the period of the same length just before the range, of whole
// hours where the range is long.
func before(view string) string {
	const length = "if(" + isLong + ", intDiv(" + toMs + " - " + fromMs + " + 3599999, 3600000) * 3600000, " + toMs + " - " + fromMs + ") * 1000000"
	return view + "(since_ns = " + since + " - " + length + ", until_ns = " + since + ")"
}

// bucket is the time of a point: the beginning of its interval. Long ranges are
// drawn by whole hours, for views keep them so.
const bucket = `toDateTime(intDiv(toUnixTimestamp(time), point_s) * point_s, 'UTC')`

// withBucket names point_s, the seconds of one point, for bucket.
const withBucket = "WITH toUInt32(if(" + isLong + ", intDiv($__interval_s + 3599, 3600) * 3600, $__interval_s)) AS point_s\n"

// notStated stands for an empty name, which Grafana cannot offer to choose.
const notStated = "(not stated)"

// stated shows an empty name as notStated.
func stated(column string) string {
	return "if(" + column + " = '', '" + notStated + "', toString(" + column + "))"
}

// chosen keeps the rows that the variables of the same names choose. All keeps
// every row and costs nothing. Names go as JSON into a literal without escapes, for
// none of Grafana's formats for SQL lets both quotes and backslashes through.
func chosen(columns ...string) string {
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = fmt.Sprintf("$__conditionalAll(has(%s, %s), $%s)", namesOf(column), column, column)
	}
	return strings.Join(conditions, "\n  AND ")
}

// namesOf are the names that a variable chooses, as an array. The blanks around the
// JSON keep apart two dollars, which the data source would make one.
func namesOf(variable string) string {
	return "arrayMap(x -> if(x = '" + notStated + "', '', x), JSONExtract($retryledger_names$ ${" + variable +
		":json} $retryledger_names$, 'Array(String)'))"
}

// textOf is what the reader wrote into a variable. It goes encoded as in an address, for
// no other format of Grafana's for one text lets quotes and backslashes through.
func textOf(variable string) string {
	return "decodeURLComponent(trimBoth($retryledger_names$ ${" + variable + ":percentencode} $retryledger_names$))"
}

// theRun is the traces and the id of the run that the reader chose, or of that with the
// most retries where none is chosen; both empty where there is none.
func theRun() string {
	return "(\n    SELECT argMax((trace_ids, run_id), preference)\n    FROM (\n    SELECT trace_ids, run_id, preference\n    FROM run_named(run = " + textOf(runVariable) +
		",\n        since_ns = " + since + ", until_ns = " + until + ")\n    WHERE " + chosen(ofRuns...) +
		"\n    UNION ALL\n    SELECT trace_ids, run_id, (retries, end_bounded_ns, trace_key, run_id)\n    FROM " + windowed("most_retried_runs") +
		"\n    WHERE " + textOf(runVariable) + " = '' AND " + chosen(ofRuns...) + "\n    )\n)"
}

// ofRuns are the variables that filter everything about runs, ofSteps also steps.
var (
	ofRuns  = []string{"service", "environment", "version"}
	ofSteps = append(ofRuns[:len(ofRuns):len(ofRuns)], "step")
	ofCalls = append(ofSteps[:len(ofSteps):len(ofSteps)], "provider")
)

// layerSums are the sums of the layers' columns, as the layers stand.
func layerSums() []string {
	sums := make([]string, len(layers))
	for i, l := range layers {
		sums[i] = "sum(" + l.column + ")"
	}
	return sums
}

// shownSums are columns named by their layers. One is NULL where no step shows its layer,
// for what an instrumentation hides is not zero.
func shownSums() string {
	sums := layerSums()
	for i, l := range layers {
		sums[i] = fmt.Sprintf("if(bitTest(groupBitOr(shows), %d), %s, NULL) AS %q", i, sums[i], l.name)
	}
	return strings.Join(sums, ",\n    ")
}

// allRetries sums the retries of all layers that are shown, NULL where none is.
func allRetries() string {
	return "if(groupBitOr(shows) = 0, NULL, " + strings.Join(layerSums(), " + ") + ")"
}

// partlyHidden are the names of the layers that some runs show and some hide: their sums
// are lower bounds.
func partlyHidden() string {
	return "arrayStringConcat(arrayFilter((layer, place) -> bitTest(bitAnd(groupBitOr(shows), groupBitOr(hides)), place), [" + layerNames() + "], range(5)), ', ')"
}

// ratio is NULL where there is nothing to divide by, for no data is not zero.
func ratio(numerator, denominator string) string {
	return "if(" + denominator + " = 0, NULL, (" + numerator + ") / (" + denominator + "))"
}
