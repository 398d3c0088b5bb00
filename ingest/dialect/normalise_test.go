package dialect

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// read makes one span of attributes and reads it.
func read(t *testing.T, attrs map[string]any, edits ...func(ptrace.Span)) schema.Span {
	t.Helper()
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{1})
	span.SetName("work")
	require.NoError(t, span.Attributes().FromRaw(attrs))
	for _, edit := range edits {
		edit(span)
	}
	rows, refused := Normalise(td, 7)
	require.Zero(t, refused)
	require.Len(t, rows, 1)
	return rows[0]
}

func erred(message string) func(ptrace.Span) {
	return func(s ptrace.Span) {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage(message)
	}
}

func exception(attrs map[string]any) func(ptrace.Span) {
	return func(s ptrace.Span) {
		e := s.Events().AppendEmpty()
		e.SetName("exception")
		_ = e.Attributes().FromRaw(attrs)
	}
}

func TestAttemptsInEverySpelling(t *testing.T) {
	for _, test := range []struct {
		name     string
		attrs    map[string]any
		attempt  int32
		evidence string
	}{
		{"array", map[string]any{"tags": []any{"resolve", "retry:attempt:2"}}, 2, "tag"},
		{"JSON", map[string]any{"tags": `["retry:attempt:2","x"]`}, 2, "tag"},
		{"JSON encoded twice", map[string]any{"tags": `"[\"retry:attempt:2\"]"`}, 2, "tag"},
		{"Python's text of a list", map[string]any{"tags": `['retry:attempt:2', 'x']`}, 2, "tag"},
		{"joined", map[string]any{"tags": "resolve, retry:attempt:3"}, 3, "tag"},
		{"single", map[string]any{"tags": "retry:attempt:10"}, 10, "tag"},
		{"int", map[string]any{"retry.attempt": 2}, 2, "attribute"},
		{"double", map[string]any{"retry.attempt": 2.0}, 2, "attribute"},
		{"text", map[string]any{"retry.attempt": "2"}, 2, "attribute"},
		{"no number", map[string]any{"tags": []any{"retry:attempt:abc"}}, 0, ""},
		{"part of a word", map[string]any{"tags": []any{"my-retry:attempt:2"}}, 0, ""},
		{"empty", map[string]any{"tags": []any{}}, 0, ""},
		{"fraction", map[string]any{"retry.attempt": 1.5}, 0, ""},
		{"not a number", map[string]any{"retry.attempt": math.NaN()}, 0, ""},
		{"negative", map[string]any{"retry.attempt": -1}, 0, ""},
		{"no number that fits", map[string]any{"tags": "retry:attempt:99999999999999"}, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			row := read(t, test.attrs)
			assert.Equal(t, test.attempt, row.Attempt)
			assert.Equal(t, test.evidence, row.AttemptEvidence)
		})
	}
}

func TestFallbackInEverySpelling(t *testing.T) {
	for _, test := range []struct {
		attrs map[string]any
		want  int32
	}{
		{map[string]any{}, -1}, {map[string]any{"fallback": true}, 1}, {map[string]any{"fallback": "true"}, 1}, {map[string]any{"fallback": false}, 0},
		{map[string]any{"fallback": 2}, 2}, {map[string]any{"fallback": 0}, 0}, {map[string]any{"tags": "fallback:3"}, 3}, {map[string]any{"tags": []any{"fallback"}}, 1},
		{map[string]any{"fallback.from": "a"}, 1},
	} {
		assert.Equal(t, test.want, read(t, test.attrs).Fallback, "%v", test.attrs)
	}
	assert.Equal(t, "retries exceeded", read(t, map[string]any{"fallback.reason": "retries exceeded. last result: secret answer"}).FallbackReason)
}

func TestContractViolationsInEverySpelling(t *testing.T) {
	named := func(name string) func(ptrace.Span) { return func(s ptrace.Span) { s.SetName(name) } }
	for _, test := range []struct {
		name  string
		row   schema.Span
		want  []string
		apart bool // the span is no step and no call
	}{
		{"node and missing", read(t, map[string]any{"node": "rank", "missing": "input.sources"}, named("node.contract_violation")), []string{"rank sources input"}, true},
		{"output by default", read(t, map[string]any{"node": "rank", "missing": "ranked"}, named("ContractViolation")), []string{"rank ranked output"}, true},
		{"contract.* list", read(t, map[string]any{"contract.node": "w", "contract.missing_input": []any{"a", "b"}}, named("x")), []string{"w a input", "w b input"}, true},
		{"contract.* text", read(t, map[string]any{"contract.node": "w", "contract.missing_output": `["a"]`}, named("x")), []string{"w a output"}, true},
		{"on the step's own span", read(t, map[string]any{"step": "w", "contract.missing_output": "a"}), []string{"w a output"}, false},
		{"status text", read(t, map[string]any{"step": "w"}, erred("ContractViolation: missing input: outline")), []string{"w outline input"}, false},
		{"status text without a step", read(t, nil, erred("missing input: outline")), nil, false},
		{"event", read(t, nil, func(s ptrace.Span) {
			e := s.Events().AppendEmpty()
			e.SetName("contract violation")
			e.Attributes().PutStr("node", "n")
			e.Attributes().PutStr("missing", "k")
		}), []string{"n k output"}, false},
		{"another span's node and missing", read(t, map[string]any{"node": "rank", "missing": "x"}, named("lookup")), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, v := range test.row.Violations {
				got = append(got, v.Node+" "+v.Key+" "+v.Direction)
			}
			assert.Equal(t, test.want, got)
			if test.name != "event" {
				assert.Equal(t, test.apart, test.row.ContractSpan)
			}
		})
	}
}

func TestErrorClassAndStatusOutOfTexts(t *testing.T) {
	const stack = "429 Rate limit\n\nRateLimitError: 429 Rate limit\n    at call (file:///x.mjs:1:1)"
	for _, test := range []struct {
		name   string
		row    schema.Span
		class  string
		status int32
	}{
		{"JavaScript's stack behind the message", read(t, nil, erred(stack)), "RateLimitError", 429},
		{"Python's repr", read(t, nil, erred(`InternalServerError("Error code: 503 - {'error': 1}")Traceback (most recent call last):`)), "InternalServerError", 503},
		{"error.type first", read(t, map[string]any{"error.type": "openai.RateLimitError"}, erred("Boom: x")), "RateLimitError", 0},
		{"error.type that says nothing", read(t, map[string]any{"error.type": "_OTHER"}, erred("Boom: x")), "", 0},
		{"a code in place of a class", read(t, nil, erred(""), exception(map[string]any{"exception.type": "rate_limit_exceeded", "exception.stacktrace": "RateLimitError: 429 x\n at"})), "RateLimitError", 0},
		{"a Go type", read(t, nil, erred("upstream 503: unavailable"), exception(map[string]any{"exception.type": "*main.UpstreamError"})), "UpstreamError", 503},
		{"a Java type", read(t, nil, erred("upstream answered 500"), exception(map[string]any{"exception.type": "capture.Main$UpstreamException"})), "UpstreamException", 500},
		{"a sentence is no class", read(t, nil, erred("Connection error.")), "", 0},
		{"milliseconds are no status", read(t, nil, erred("timed out after 500 ms")), "", 0},
		{"an attribute beats a text", read(t, map[string]any{"http.response.status_code": 502}, erred("429 x")), "", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.class, test.row.ErrorClass)
			if test.status != 0 || test.name == "milliseconds are no status" {
				assert.Equal(t, test.status, test.row.HTTPStatus)
			}
		})
	}
}

func TestControlFlowIsNoFailure(t *testing.T) {
	for _, test := range []struct {
		name string
		row  schema.Span
		want schema.ControlFlow
	}{
		{"JavaScript's interrupt", read(t, nil, erred("[\n  {}\n]\n\nGraphInterrupt: [\n  {}\n]\n    at x")), schema.FlowInterrupt},
		{"an OK status with the event", read(t, nil, exception(map[string]any{"exception.type": "langgraph.errors.GraphInterrupt"})), schema.FlowInterrupt},
		{"cancelled", read(t, nil, erred("CancelledError()Traceback (most recent call last):")), schema.FlowCancelled},
		{"aborted", read(t, nil, erred("This operation was aborted\n\nAbortError: This operation was aborted\n    at x")), schema.FlowCancelled},
		{"Go's context", read(t, nil, erred("context canceled")), schema.FlowCancelled},
		{"an abandoned stream", read(t, nil, erred("GeneratorExit()Traceback")), schema.FlowAbandoned},
		{"a parent's command", read(t, nil, erred("ParentCommand(Command(goto='x'))")), schema.FlowCommand},
		{"a deadline is a failure", read(t, nil, erred("context deadline exceeded")), schema.FlowNone},
		{"a timeout is a failure", read(t, nil, erred("TimeoutError: x")), schema.FlowNone},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, test.row.Flow)
			assert.Equal(t, test.want == schema.FlowNone, test.row.Failed)
		})
	}
}

func TestFailureToldInTheOutput(t *testing.T) {
	for output, want := range map[string]bool{
		`{"status":"error","x":1}`: true, `{"state":"failed"}`: true, `{"status":"ok"}`: false, `{"error":"boom"}`: true, `{"error":null}`: false,
		`{"error":""}`: false, `{"error":{}}`: false, `{"errors":[]}`: false, `{"errors":["x"]}`: true, `error`: true, `"failure"`: true, `an error`: false,
		`{"nested":{"status":"error"}}`: false, `{"lg_name":"Command","update":{"status":"error"}}`: true, `{"graph":null,"update":{"errors":["x"]},"goto":"a"}`: true,
		`{"update":{"errors":["x"]}}`: false, `{"graph":null,"update":null,"goto":"a","status":"error"}`: false, `[{"update":{"status":"failed"},"goto":[]}]`: true,
		`{"status":"err`: false, ``: false, `{"messages":[{"kwargs":{"status":"error"}}]}`: false,
	} {
		row := read(t, map[string]any{"openinference.span.kind": "CHAIN", "output.value": output})
		assert.Equal(t, want, row.OutputFailed, output)
	}
	row := read(t, map[string]any{"openinference.span.kind": "CHAIN", "output.value": `[{"update":{"messages":[{"content":"Model call failed after 3 attempts with E: x"}]},"goto":[]}]`})
	assert.Equal(t, int32(3), row.StatedAttempts)
	assert.True(t, row.StatedExhausted)
	assert.False(t, read(t, map[string]any{"openinference.span.kind": "LLM", "output.value": `{"status":"error"}`}).OutputFailed, "a model's answer is no step's state")
}

// Which outputs tell a failure can be said for each service and step.
func TestFailureToldInTheOutputOfAStep(t *testing.T) {
	sets := []OutputTests{
		{Service: "checkout", Step: "resolve", Tests: []OutputTest{{Key: "err"}, {Key: "my.outcome", Is: []string{"gave_up", "lost"}}, {Is: []string{"sorry"}}}},
		{Step: "rank"},
		{Service: "billing", Tests: []OutputTest{{Key: "status", Is: []string{"declined"}}}},
	}
	for _, c := range []struct{ service, step, output, reason string }{
		{"checkout", "resolve", `{"err":"error: 500","x":1}`, "err is set"},
		{"checkout", "resolve", `{"err":null}`, ""},
		{"checkout", "resolve", `{"my.outcome":"lost"}`, "my.outcome is lost"},
		{"checkout", "resolve", `{"my.outcome":"done"}`, ""},
		{"checkout", "resolve", `"sorry"`, "output is sorry"},
		{"checkout", "resolve", `{"update":{"err":"x"},"goto":"recover"}`, "err is set"},
		{"checkout", "resolve", `{"status":"error"}`, ""}, // they replace the built-in ones
		{"checkout", "write", `{"status":"error"}`, "status is error"},
		{"checkout", "write", `{"err":"x"}`, ""},
		{"checkout", "rank", `{"status":"error"}`, ""},
		{"billing", "rank", `{"status":"declined"}`, ""}, // the first that fits
		{"billing", "charge", `{"status":"declined"}`, "status is declined"},
		{"shop", "resolve", `{"errors":["x"]}`, "errors is not empty"},
	} {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", c.service)
		scope := rs.ScopeSpans().AppendEmpty()
		scope.Scope().SetName("openinference.instrumentation.langchain")
		span := scope.Spans().AppendEmpty()
		span.SetTraceID([16]byte{1})
		span.SetSpanID([8]byte{1})
		span.SetName(c.step)
		require.NoError(t, span.Attributes().FromRaw(map[string]any{
			"openinference.span.kind": "CHAIN", "output.value": c.output, "metadata": `{"langgraph_node":"` + c.step + `"}`,
		}))
		rows, _ := Reader{Outputs: sets}.Normalise(td, 0)
		require.Len(t, rows, 1)
		assert.Equal(t, c.reason, rows[0].OutputReason, "%v", c)
		assert.Equal(t, c.reason != "", rows[0].OutputFailed, "%v", c)
	}
}

func TestRunFlagsAndBudget(t *testing.T) {
	row := read(t, map[string]any{"run.id": "r", "run.complete": "false", "run.unfinished_steps": `["a","b"]`, "retry.budget.run_limit": "12", "retry.budget.exhausted": true, "session.id": "t"})
	assert.Equal(t, schema.FlagNo, row.Complete)
	assert.Equal(t, []string{"a", "b"}, row.UnfinishedSteps)
	assert.Equal(t, int32(12), row.RunLimit)
	assert.True(t, row.BudgetExhausted)
	assert.Equal(t, "t", row.ThreadID)
	assert.Equal(t, schema.FlagYes, read(t, map[string]any{"complete": true}).Complete)
	assert.Equal(t, schema.FlagUnset, read(t, map[string]any{"complete": "true"}).Complete, "so common a word counts only as a bool")
	assert.Empty(t, read(t, map[string]any{"thread.id": 17, "thread.name": "main"}).ThreadID, "an operating system's thread")
	assert.Empty(t, read(t, map[string]any{"openinference.span.kind": "CHAIN", "metadata": `{"run_id":"mine"}`}).RunID)
	assert.Equal(t, "srv", read(t, map[string]any{"openinference.span.kind": "CHAIN", "metadata": `{"run_id":"srv","graph_id":"g"}`}).RunID)
}

func TestItemsAreToldApartByTheirOwnAttributes(t *testing.T) {
	a, b := read(t, map[string]any{"step": "item", "item.index": 2}), read(t, map[string]any{"step": "item", "item.index": 2, "error.code": 5, "retry.attempt": 2})
	assert.NotZero(t, a.ItemHash)
	assert.Equal(t, a.ItemHash, b.ItemHash, "how it went is not what it was")
	assert.NotEqual(t, a.ItemHash, read(t, map[string]any{"step": "item", "item.index": 3}).ItemHash)
	assert.Zero(t, read(t, map[string]any{"step": "item"}).ItemHash)
}

func TestBadSpansAreRefusedAndHarmNoOther(t *testing.T) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	spans.AppendEmpty()                         // no ids at all
	spans.AppendEmpty().SetTraceID([16]byte{1}) // no span id
	good := spans.AppendEmpty()                 // strange, but a span
	good.SetTraceID([16]byte{1})
	good.SetSpanID([8]byte{2})
	good.SetName(strings.Repeat("é", 1000) + "\xff")
	good.SetStartTimestamp(math.MaxUint64)
	good.SetEndTimestamp(5)
	good.Attributes().PutEmptyBytes("step").Append(1)
	good.Attributes().PutEmptyMap("tags")
	good.Attributes().PutStr("metadata", `{"langgraph_node":`)
	good.Attributes().PutStr("openinference.span.kind", "CHAIN")
	rows, refused := Normalise(td, 1)
	assert.Equal(t, 2, refused)
	require.Len(t, rows, 1)
	assert.LessOrEqual(t, len(rows[0].Name), schema.MaxName)
	assert.True(t, utf8.ValidString(rows[0].Name))
	assert.GreaterOrEqual(t, rows[0].EndNs, rows[0].StartNs, "no negative time")
}

func TestContentHashKnowsEveryFieldButTheReceipt(t *testing.T) {
	a := read(t, map[string]any{"step": "x", "tags": "retry:attempt:2"})
	b := a
	b.ReceivedNs++
	assert.Equal(t, a.Hash(), b.Hash())
	b.Violations = []schema.Violation{{Node: "n"}}
	assert.NotEqual(t, a.Hash(), b.Hash())
}

// No text of a prompt, an answer, a tool's argument or an error's message stays in a row.
func TestNoTextIsKept(t *testing.T) {
	for _, c := range capturetest.All(t) {
		for _, name := range c.Files {
			file, err := os.Open(name)
			require.NoError(t, err)
			_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
				rows, _ := Normalise(td, 1)
				text, err := json.Marshal(withoutNaN(rows))
				require.NoError(t, err)
				for _, secret := range []string{"answer to", "resolve q1", "second question", "Please try again", "Rate limit reached", "org-x"} {
					assert.NotContains(t, string(text), secret, c.Cell())
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
	}
}

func withoutNaN(rows []schema.Span) []schema.Span {
	for i := range rows {
		if math.IsNaN(rows[i].CostUSD) {
			rows[i].CostUSD = 0
		}
	}
	return rows
}

func FuzzNormalise(f *testing.F) {
	marshal := ptrace.ProtoMarshaler{}
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{1})
	span.Attributes().PutStr("metadata", `{"langgraph_node":"a","langgraph_checkpoint_ns":"a:1"}`)
	span.Attributes().PutStr("openinference.span.kind", "CHAIN")
	span.Attributes().PutStr("output.value", `{"status":"error"}`)
	span.Attributes().PutStr("tags", `["retry:attempt:2"]`)
	seed, err := marshal.MarshalTraces(td)
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			return
		}
		count := td.SpanCount()
		rows, refused := Normalise(td, 1)
		if len(rows)+refused != count {
			t.Fatalf("%d rows and %d refused of %d spans", len(rows), refused, count)
		}
		for i := range rows {
			if rows[i].EndNs < rows[i].StartNs || len(rows[i].Name) > schema.MaxName {
				t.Fatalf("a bad row: %+v", rows[i])
			}
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	var batches []ptrace.Traces
	spans := 0
	for _, c := range capturetest.All(b) {
		for _, name := range c.Files {
			file, err := os.Open(name)
			require.NoError(b, err)
			_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
				batches = append(batches, td)
				spans += td.SpanCount()
				return nil
			})
			require.NoError(b, err)
			require.NoError(b, file.Close())
		}
	}
	for b.Loop() {
		for _, td := range batches {
			Normalise(td, 1)
		}
	}
	b.ReportMetric(float64(spans*b.N)/b.Elapsed().Seconds(), "spans/s")
}
