// Package traffic makes rows of the ledger for benchmarks: those of a store that takes
// 10,000 spans/s of a pipeline with an instrumentation of its graph, its model calls
// and their HTTP requests.
package traffic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/schema"
)

const (
	// TracesPerSecond are of about ten spans each: 10,000 spans/s.
	TracesPerSecond = 1000
	// RewrittenPerSecond is how many are accounted for twice: their last spans come when
	// the others are in the ledger already.
	RewrittenPerSecond = 500
	// Batch is how many rows the attributor writes at once.
	Batch = 500
)

// Traffic makes traces, each with an id of its own. It is not safe for concurrent use.
type Traffic struct {
	random *rand.Rand
	made   uint64
	like   map[kind]schema.LedgerRow
}

// kind is what makes traces alike: their names, and what happens in each step.
type kind struct {
	names int
	steps [steps]happening
}

type happening int

const (
	succeeds happening = iota
	retried
	fallsBack
	fails
)

const (
	steps    = 3
	services = 5
	names    = 60 // of the services in 2 versions, 12 steps and 3 providers
	second   = int64(time.Second)
)

// New makes traffic that depends on the seed alone.
func New(seed uint64) *Traffic {
	return &Traffic{random: rand.New(rand.NewPCG(seed, 1)), like: make(map[kind]schema.LedgerRow)} //nolint:gosec // each benchmark is to see the same
}

// Second is the rows of the traces whose last spans ended in the second before an
// instant, in the order of time.
func (t *Traffic) Second(until time.Time) []schema.LedgerRow {
	rows := make([]schema.LedgerRow, TracesPerSecond)
	for i := range rows {
		rows[i] = t.Row(until.UnixNano() - int64(TracesPerSecond-1-i)*second/TracesPerSecond)
	}
	return rows
}

// Row is the row of a trace whose last span ended at endNs: three steps with a model
// call each. Of a hundred steps eight are retried once and one falls back; of one
// service in five, five fail.
func (t *Traffic) Row(endNs int64) schema.LedgerRow {
	t.made++
	k := kind{names: int(t.made % names)}
	for i := range k.steps {
		switch n := t.random.IntN(100); {
		case n < 8:
			k.steps[i] = retried
		case n == 8:
			k.steps[i] = fallsBack
		case n < 14 && k.names%services == 0:
			k.steps[i] = fails
		}
	}
	like, known := t.like[k]
	if !known {
		like = k.row()
		t.like[k] = like
	}
	row := moved(&like, endNs-like.LastEndNs)
	binary.BigEndian.PutUint64(row.TraceID[:], t.random.Uint64())
	binary.BigEndian.PutUint64(row.TraceID[8:], t.made)
	row.InsertTokens = []uint64{t.made / Batch}
	for i := range row.Runs {
		row.Runs[i].RunID, row.Runs[i].TraceIDs = row.TraceID.String(), []schema.TraceID{row.TraceID}
	}
	return row
}

// moved is a row at another time.
func moved(like *schema.LedgerRow, by int64) schema.LedgerRow {
	row := *like
	row.Version.InsertedUs += by / 1000
	row.FirstEndNs, row.LastEndNs, row.LastReceivedNs = row.FirstEndNs+by, row.LastEndNs+by, row.LastReceivedNs+by
	row.Runs, row.Steps = slices.Clone(row.Runs), slices.Clone(row.Steps)
	row.Operations, row.Attempts = slices.Clone(row.Operations), slices.Clone(row.Attempts)
	shift := func(times ...*int64) {
		for _, ns := range times {
			*ns += by
		}
	}
	for i := range row.Runs {
		shift(&row.Runs[i].StartNs, &row.Runs[i].EndNs)
	}
	for i := range row.Steps {
		shift(&row.Steps[i].StartNs, &row.Steps[i].EndNs)
	}
	for i := range row.Operations {
		shift(&row.Operations[i].StartNs, &row.Operations[i].EndNs)
	}
	for i := range row.Attempts {
		shift(&row.Attempts[i].StartNs, &row.Attempts[i].EndNs)
	}
	return row
}

// row attributes the spans of such a trace.
func (k kind) row() schema.LedgerRow {
	spans := k.spans()
	last := &spans[len(spans)-1] // the root
	options := attribution.Defaults()
	options.AtNs = last.EndNs + second/10
	rows, err := ledger.Rows(attribution.Account(spans, options), []schema.LedgerRow{{
		TraceID: last.TraceID, Spans: uint32(len(spans)), FirstEndNs: spans[0].EndNs, LastEndNs: last.EndNs, LastReceivedNs: options.AtNs,
		Version: schema.LedgerVersion{InsertedUs: options.AtNs / 1000, Spans: uint32(len(spans)), JudgedS: uint32(options.AtNs / second)},
	}})
	if err != nil {
		panic(fmt.Sprintf("the traffic of benchmarks cannot be accounted for: %v", err)) // impossible: all spans are of one trace
	}
	return rows[0]
}

// spans are those of such a trace, the root last.
func (k kind) spans() []schema.Span {
	trace := trace{kind: k, at: 1_790_000_000 * second}
	root := trace.span(schema.SpanID{}, "LangGraph", schema.RoleChain)
	root.GraphRoot = true
	for i := range k.steps {
		trace.step(root.SpanID, i)
	}
	trace.end(root)
	return trace.spans
}

type trace struct {
	kind
	at    int64
	spans []schema.Span
	made  byte
}

func (t *trace) span(parent schema.SpanID, name string, role schema.Role) schema.Span {
	t.made++
	t.at += second / 100
	return schema.Span{
		TraceID: schema.TraceID{1}, SpanID: schema.SpanID{t.made}, ParentID: parent, Name: name, Role: role, StartNs: t.at,
		Service: fmt.Sprint("service-", t.names%services), Version: fmt.Sprint("1.", t.names%2), Environment: "production", Dialect: "openinference",
		GraphStep: -1, RetryCount: -1, ResendCount: -1, Fallback: -1, InputTokens: schema.Unknown, OutputTokens: schema.Unknown,
	}
}

func (t *trace) end(s schema.Span) {
	t.at += second / 100
	s.EndNs, s.ReceivedNs = t.at, t.at+second/10
	s.ContentHash = s.Hash()
	t.spans = append(t.spans, s)
}

func (t *trace) step(root schema.SpanID, i int) {
	name := fmt.Sprint("step-", (t.names+5*i)%12)
	node := t.span(root, name, schema.RoleChain)
	node.Node, node.TaskKey, node.GraphStep = name, fmt.Sprint(name, ":", i), int32(i+1)
	providers := []string{"openai", "anthropic", "aws.bedrock"}
	provider := providers[(t.names+i)%len(providers)]
	switch t.steps[i] {
	case succeeds:
		t.call(&node, provider, 200)
	case retried:
		t.call(&node, provider, 429)
		t.at += second / 2
		t.call(&node, provider, 200)
	case fallsBack:
		t.call(&node, provider, 503)
		t.call(&node, providers[(t.names+i+1)%len(providers)], 200)
	case fails:
		t.call(&node, provider, 503)
		node.Failed, node.ErrorClass = true, "InternalServerError"
	}
	t.end(node)
}

// call is a model call and its request.
func (t *trace) call(node *schema.Span, provider string, status int32) {
	call := t.span(node.SpanID, "ChatModel", schema.RoleModel)
	call.Node, call.TaskKey, call.GraphStep = node.Node, node.TaskKey, node.GraphStep
	call.Provider, call.Model, call.InputHash = provider, provider+"-large", uint64(len(node.Node))
	request := t.span(call.SpanID, "POST", schema.RoleHTTP)
	request.ClientKind, request.HTTPStatus = true, status
	t.at += second / 3
	if status == 200 {
		call.InputTokens, call.OutputTokens = 900+7*int64(t.made), 35+int64(t.made)
	} else {
		request.Failed, call.Failed, call.HTTPStatus = true, true, status
		call.ErrorClass = map[int32]string{429: "RateLimitError", 503: "InternalServerError"}[status]
	}
	t.end(request)
	t.end(call)
}
