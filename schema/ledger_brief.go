package schema

import (
	"fmt"
	"strings"
)

// A brief row holds what the signals of alerts look at, in two arrays instead of
// forty: decoding arrays one by one costs more than anything else in a second's
// evaluation.

// briefRow is a brief row as it is read.
type briefRow struct {
	row     LedgerRow
	numbers []int64
	texts   []string
}

// briefColumns are the columns of brief rows. Of the fields of LedgerRow they give the
// trace, the version and the last receipt; of runs service, environment, version,
// completion, anchor, exhausted and end; of operations run, step, provider, grain,
// outcome, end, whether a fallback ran, counts in step and settled; of attempts run,
// step, provider, grain, ending, charge, end, status, counted, wasted, request, midway
// and violated, the class of error where there is no status, and all tokens as input;
// of violations run, node, count and time.
var briefColumns = []column[briefRow]{
	id("trace_id", func(r *briefRow) []byte { return r.row.TraceID[:] }, func(r *briefRow) any { return &r.row.TraceID }),
	{read: "reinterpretAsFixedString(version)", dest: func(r *briefRow) any { return &r.row.Version }},
	{read: "last_received_ns", dest: func(r *briefRow) any { return &r.row.LastReceivedNs }},
	{read: briefNumbers, dest: func(r *briefRow) any { return &r.numbers }},
	{read: briefTexts, dest: func(r *briefRow) any { return &r.texts }},
}

// The words of docs/accounting.md that brief rows give as their place in these lists,
// from 1; 0 is none of them.
var (
	briefCompletions = []string{"complete", "incomplete", "failed", "interrupted", "cancelled", "running", "orphaned", "unflagged"}
	briefOutcomes    = []string{"succeeded_first_try", "succeeded_after_retry", "succeeded_by_fallback", "failed_after_retry", "failed_without_retry", "handled", "interrupted", "cancelled", "unknown"}
	briefGrains      = []string{"execution", "call", "tool", "http", "work"}
	briefEndings     = []string{"succeeded", "failed", "interrupted", "cancelled", "unknown"}
	briefCharges     = []string{"transport", "call", "node", "orchestrator", "worker", "fallback"}
)

func place(list []string, expression string) string {
	return "toInt64(indexOf(['" + strings.Join(list, "', '") + "'], " + expression + "))"
}

func shifted(expression string, bits int) string {
	return fmt.Sprintf("bitShiftLeft(toInt64(%s), %d)", expression, bits)
}

var briefNumbers = "arrayConcat(" + strings.Join([]string{
	"[toInt64(length(`runs.run_id`)), toInt64(length(`operations.run`)), toInt64(length(`attempts.run`))]",
	"arrayMap((c, a, e) -> " + place(briefCompletions, "c") + " + " + shifted("a", 4) + " + " + shifted("e", 5) +
		", `runs.completion`, `runs.anchor`, `runs.exhausted`)",
	"`runs.end_ns`",
	"arrayMap((o, g, f, c, s, r) -> " + place(briefOutcomes, "o") + " + " + shifted(place(briefGrains, "g"), 4) + " + " + shifted("f > 0", 7) + " + " +
		shifted("c", 8) + " + " + shifted("s", 9) + " + " + shifted("r", 10) +
		", `operations.outcome`, `operations.grain`, `operations.fallbacks`, `operations.counts_in_step`, `operations.settled`, `operations.run`)",
	"`operations.end_ns`",
	"arrayMap((g, e, c, n, w, q, m, v, h, r) -> " + place(briefGrains, "g") + " + " + shifted(place(briefEndings, "e"), 3) + " + " + shifted(place(briefCharges, "c"), 6) + " + " +
		shifted("n", 9) + " + " + shifted("w", 10) + " + " + shifted("q", 11) + " + " + shifted("m", 12) + " + " + shifted("v", 13) + " + " +
		shifted("least(greatest(h, 0), 16383)", 14) + " + " + shifted("r", 28) +
		", `attempts.grain`, `attempts.ending`, `attempts.charge`, `attempts.counted`, `attempts.wasted`, `attempts.request`, `attempts.midway`, `attempts.violated`, `attempts.http_status`, `attempts.run`)",
	"`attempts.end_ns`",
	"arrayMap((i, o) -> greatest(ifNull(i, 0), 0) + greatest(ifNull(o, 0), 0), `attempts.input_tokens`, `attempts.output_tokens`)",
	"`violations.run`", "`violations.count`", "`violations.time_ns`",
}, ", ") + ")"

// The text that people choose freely comes last, so that it may hold the separator.
const briefTexts = "arrayConcat(" +
	"arrayMap((e, v, s) -> concat(e, '\\0', v, '\\0', s), `runs.environment`, `runs.version`, `runs.service`), " +
	"arrayMap((p, s) -> concat(p, '\\0', s), `operations.provider`, `operations.step`), " +
	"arrayMap((p, c, h, s) -> concat(p, '\\0', if(h = 0, c, ''), '\\0', s), `attempts.provider`, `attempts.error_class`, `attempts.http_status`, `attempts.step`), " +
	"arrayMap(n -> toString(n), `violations.node`))"

// unpack makes the row of what was read.
func (b *briefRow) unpack() (*LedgerRow, error) {
	row := &b.row
	if len(b.numbers) < 3 {
		return nil, fmt.Errorf("the brief row of trace %s has %d numbers", row.TraceID, len(b.numbers))
	}
	runs, operations, attempts := int(b.numbers[0]), int(b.numbers[1]), int(b.numbers[2])
	rest := b.numbers[3:]
	violations := (len(rest) - 2*runs - 2*operations - 3*attempts) / 3
	if len(rest) != 2*runs+2*operations+3*attempts+3*violations || len(b.texts) != runs+operations+attempts+violations {
		return nil, fmt.Errorf("the brief row of trace %s has %d numbers and %d texts", row.TraceID, len(b.numbers), len(b.texts))
	}
	numbers := func(n int) (list []int64) {
		list, rest = rest[:n], rest[n:]
		return list
	}
	texts := func(n int) (list []string) {
		list, b.texts = b.texts[:n], b.texts[n:]
		return list
	}
	row.Runs = make([]RunRow, runs)
	unpackRuns(row.Runs, numbers(runs), numbers(runs), texts(runs))
	row.Operations = make([]OperationRow, operations)
	unpackOperations(row.Operations, numbers(operations), numbers(operations), texts(operations))
	row.Attempts = make([]AttemptRow, attempts)
	unpackAttempts(row.Attempts, numbers(attempts), numbers(attempts), numbers(attempts), texts(attempts))
	row.Violations = make([]ViolationRow, violations)
	of, counts, times, nodes := numbers(violations), numbers(violations), numbers(violations), texts(violations)
	for i := range row.Violations {
		row.Violations[i] = ViolationRow{Run: of[i], Node: nodes[i], Count: counts[i], TimeNs: times[i]}
	}
	return row, nil
}

func unpackRuns(rows []RunRow, codes, ends []int64, texts []string) {
	for i := range rows {
		r, code := &rows[i], codes[i]
		r.Completion, r.Anchor, r.Exhausted, r.EndNs = at(briefCompletions, code&15), code&(1<<4) != 0, code&(1<<5) != 0, ends[i]
		var rest string
		r.Environment, rest, _ = strings.Cut(texts[i], "\x00")
		r.Version, r.Service, _ = strings.Cut(rest, "\x00")
	}
}

func unpackOperations(rows []OperationRow, codes, ends []int64, texts []string) {
	for i := range rows {
		o, code := &rows[i], codes[i]
		o.Outcome, o.Grain, o.Fallbacks = at(briefOutcomes, code&15), at(briefGrains, code>>4&7), code>>7&1
		o.CountsInStep, o.Settled, o.Run, o.EndNs = code&(1<<8) != 0, code&(1<<9) != 0, uint32(code>>10), ends[i]
		o.Provider, o.Step, _ = strings.Cut(texts[i], "\x00")
	}
}

func unpackAttempts(rows []AttemptRow, codes, ends, tokens []int64, texts []string) {
	for i := range rows {
		a, code := &rows[i], codes[i]
		a.Grain, a.Ending, a.Charge = at(briefGrains, code&7), at(briefEndings, code>>3&7), at(briefCharges, code>>6&7)
		a.Counted, a.Wasted, a.Request = code&(1<<9) != 0, code&(1<<10) != 0, code&(1<<11) != 0
		a.Midway, a.Violated = code&(1<<12) != 0, code&(1<<13) != 0
		a.HTTPStatus, a.Run, a.EndNs = code>>14&(1<<14-1), uint32(code>>28), ends[i]
		if tokens[i] > 0 {
			a.InputTokens = &tokens[i]
		}
		var rest string
		a.Provider, rest, _ = strings.Cut(texts[i], "\x00")
		a.ErrorClass, a.Step, _ = strings.Cut(rest, "\x00")
	}
}

// at is the word at a place of a list, from 1.
func at(list []string, place int64) string {
	if place < 1 || int(place) > len(list) {
		return ""
	}
	return list[place-1]
}
