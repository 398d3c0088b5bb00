package attribution_test

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// Names that the user chose mean nothing: whatever steps, tools, models, graphs, classes,
// roots and services are called, whenever it happened, whatever ids the spans drew and in
// whatever order they came, the ledger is the same but for the names in it.
func TestNamesMeanNothing(t *testing.T) {
	for _, c := range capturetest.All(t) {
		t.Run(c.Cell(), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(len(c.Cell())), uint64(c.Cell()[0])))
			original := rowsIn(t, requestsOf(t, c))
			if len(original) == 0 {
				return
			}
			want := account(original...)
			for _, choose := range []func(*rand.Rand, []string) naming{invented, confusing} {
				requests := requestsOf(t, c)
				names := choose(random, userNames(original, requests))
				disguise(random, requests, names)
				rows := rowsIn(t, requests)
				random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
				assert.JSONEq(t, names.in(withoutIdentity(t, want)), withoutIdentity(t, account(rows...)), "%v", names)
			}
		})
	}
}

func requestsOf(t *testing.T, c capturetest.Capture) []ptrace.Traces {
	t.Helper()
	var out []ptrace.Traces
	for _, name := range c.Files {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = otlpfile.Read(file, 1<<30, func(td ptrace.Traces) error {
			own := ptrace.NewTraces()
			td.CopyTo(own)
			out = append(out, own)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	return out
}

func rowsIn(t *testing.T, requests []ptrace.Traces) []schema.Span {
	t.Helper()
	var rows []schema.Span
	for _, td := range requests {
		more, refused := dialect.Normalise(td, 1)
		require.Zero(t, refused)
		rows = append(rows, more...)
	}
	return rows
}

// naming is old names and new ones. It replaces whole words.
type naming map[string]string

var (
	wordLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]+$`)
	// The frameworks' own words for nodes, which the user did not choose.
	notTheUsers = []string{"model", "model_request", "tools", "agent", "workflow", "start", "handle", "other", "adk_handle_model_error"}
	toolKeys    = []string{"gen_ai.tool.name", "tool.name", "tool_call.function.name", "ai.toolCall.name"}
	modelKeys   = []string{"gen_ai.request.model", "llm.model_name", "ai.model.id", "langfuse.observation.model.name"}
	hookSuffix  = regexp.MustCompile(`\.(?:before|after)_(?:agent|model)$`)
	// What a response adds to the model that was asked for.
	modelVersion = regexp.MustCompile(`-\d{3,8}$`)
	modelClass   = regexp.MustCompile(`^Scripted\w+`)
	// What follows a library's word for a kind of span is the user's.
	afterKind = regexp.MustCompile(`^(?:invoke_agent|invoke_workflow|execute_tool|RunWorkflow:|RunActivity:|StartActivity:|StartWorkflow:) ?(\w+)$`)
)

// userNames are the names in rows that the user chose.
func userNames(rows []schema.Span, requests []ptrace.Traces) []string {
	seen := make(map[string]bool)
	add := func(name string) {
		if wordLike.MatchString(name) && !strings.HasPrefix(name, "__") && !slices.Contains(notTheUsers, name) && !hookSuffix.MatchString(name) {
			seen[name] = true
		}
	}
	for _, r := range rows {
		add(r.Service)
		add(r.Step)
		if r.TaskKey != "" || r.Dialect != "openlit" {
			add(r.Node)
		}
		if r.GraphRoot || r.ParentID.IsZero() && r.Dialect == "plain" && r.Role == schema.RoleOther && !r.Heartbeat && !r.ContractSpan {
			add(r.Name)
		}
	}
	for _, td := range requests {
		eachSpan(td, func(s ptrace.Span) {
			for _, keys := range [][]string{toolKeys, modelKeys} {
				for _, key := range keys {
					if v, ok := s.Attributes().Get(key); ok {
						add(v.AsString())
					}
				}
			}
			if m := afterKind.FindStringSubmatch(s.Name()); m != nil {
				add(m[1])
			}
			if class := modelClass.FindString(s.Name()); class != "" {
				add(class)
			}
		})
	}
	out := make([]string, 0, len(seen))
	for name := range seen {
		if plain := modelVersion.ReplaceAllString(name, ""); plain == name || !seen[plain] { // a version follows its model's name
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Clone(out), func(name string) bool { // a model's dated name keeps its date
		return slices.ContainsFunc(out, func(other string) bool { return strings.HasPrefix(name, other+"-") })
	})
}

// invented draws words of nine letters that nobody uses.
func invented(random *rand.Rand, names []string) naming {
	out := make(naming, len(names))
	for _, name := range names {
		word := make([]byte, 9)
		for i := range word {
			word[i] = byte('a' + random.IntN(26))
		}
		out[name] = string(word)
	}
	return out
}

// confusing draws words that also mean something to a framework or a convention.
func confusing(random *rand.Rand, names []string) naming {
	words := []string{"chat", "retry", "RunnableLambda", "workflow_step", "Attempt", "http_get", "generate", "LangChain", "invoke", "RunnableRetry",
		"error", "failed", "state", "call_tool", "CHAIN", "graph", "fallback", "run", "transport", "output", "task", "LLM", "POST", "span"}
	random.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	out := make(naming, len(names))
	for i, name := range names {
		out[name] = words[i%len(words)]
		if i >= len(words) {
			out[name] += "_too"
		}
	}
	return out
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// in replaces the old names by the new in text.
func (n naming) in(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		from := i
		best := ""
		if i == 0 || !isWordByte(text[i-1]) || i > 1 && text[i-1] == '_' && text[i-2] == '_' {
			for old := range n {
				if end := i + len(old); len(old) > len(best) && strings.HasPrefix(text[i:], old) && (end == len(text) || !isWordByte(text[end])) {
					best = old
				}
			}
		}
		if best != "" {
			b.WriteString(n[best])
			i += len(best)
			continue
		}
		i++
		b.WriteString(text[from:i])
	}
	return b.String()
}

func eachSpan(td ptrace.Traces, visit func(ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				visit(s)
			}
		}
	}
}

// Keys whose values are words of the conventions, not names.
var wordsOfConventions = regexp.MustCompile(`(?:operation\.name|kind|type|status|role|span_type|finish_reasons?|layer|operationId|rpc\.|http\.|url\.|server\.|exception\.|error\.)`)

func (n naming) inMap(m pcommon.Map) {
	for key, v := range m.All() {
		if !wordsOfConventions.MatchString(key) || strings.HasPrefix(key, "exception.message") || strings.HasPrefix(key, "exception.stacktrace") {
			n.inValue(v)
		}
	}
}

func (n naming) inValue(v pcommon.Value) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		v.SetStr(n.in(v.Str()))
	case pcommon.ValueTypeSlice:
		for _, item := range v.Slice().All() {
			n.inValue(item)
		}
	case pcommon.ValueTypeMap:
		n.inMap(v.Map())
	default:
	}
}

// disguise renames, moves in time, and draws other ids.
func disguise(random *rand.Rand, requests []ptrace.Traces, names naming) {
	later := pcommon.Timestamp(random.Int64N(1e15))
	mask := random.Uint64() | 1
	trace := func(id pcommon.TraceID) pcommon.TraceID { id[3] ^= byte(mask); id[9] ^= byte(mask >> 8); return id }
	span := func(id pcommon.SpanID) pcommon.SpanID {
		if !id.IsEmpty() {
			id[0] ^= byte(mask >> 16)
			id[5] ^= byte(mask >> 24)
		}
		return id
	}
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			names.inMap(rs.Resource().Attributes())
		}
		eachSpan(td, func(s ptrace.Span) {
			s.SetTraceID(trace(s.TraceID()))
			s.SetSpanID(span(s.SpanID()))
			s.SetParentSpanID(span(s.ParentSpanID()))
			s.SetName(names.in(s.Name()))
			s.Status().SetMessage(names.in(s.Status().Message()))
			s.SetStartTimestamp(s.StartTimestamp() + later)
			s.SetEndTimestamp(s.EndTimestamp() + later)
			names.inMap(s.Attributes())
			for _, e := range s.Events().All() {
				e.SetTimestamp(e.Timestamp() + later)
				names.inMap(e.Attributes())
			}
		})
	}
}

var identity = regexp.MustCompile(`"[0-9a-f]{32}(?:-[0-9a-f]{16})?"|\d{4}-\d\d-\d\dT[0-9:.]+Z?`)

// withoutIdentity is the ledger without ids and instants, its steps in the order of what they hold.
func withoutIdentity(t *testing.T, ledger attribution.Ledger) string {
	t.Helper()
	for i := range ledger.Runs {
		run := &ledger.Runs[i]
		slices.SortStableFunc(run.Steps, func(a, b attribution.Step) int { return cmp.Compare(a.StartNs, b.StartNs) })
	}
	text, err := json.Marshal(ledger)
	require.NoError(t, err)
	return identity.ReplaceAllString(string(text), `""`)
}
