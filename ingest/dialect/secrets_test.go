package dialect

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/schema"
)

var update = flag.Bool("update", false, "write the golden files")

// secrets are texts of which nothing with the word canary in it may be kept.
var secrets = []string{
	"sk-proj-canary0123456789abcdefGHIJ",
	"AKIACANARY1234567890",
	"ghp_canary0123456789abcdefghijkl",
	"xoxb-123456789012-canary",
	"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary",
	"Authorization: Bearer canary0123456789",
	"https://canary:canaryPassw0rd@db.example.com/x",
	"https://example.com/x?api_key=canary123&b=c",
	`{"password": "canary123"}`,
	"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/canaryEXAMPLEKEY",
	"-----BEGIN RSA PRIVATE KEY-----\nMIIcanary",
}

func TestSecretsAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"sk-proj-canary0123456789abcdefGHIJ":             "[redacted 8922aebd]",
		"RateLimitError for key sk-abcdef0123456789abcd": "RateLimitError for key [redacted 2366d704]",
		"call AKIAIOSFODNN7EXAMPLE now":                  "call [redacted 3549739c] now",
		"Bearer abc.def-123":                             "Bearer [redacted]",
		"authorization: Bearer abc.def-123":              "authorization: Bearer [redacted]",
		"basic dXNlcjpwYXNzd29yZDE=":                     "basic [redacted]",
		"postgres://me:hunter2@db/x":                     "postgres://[redacted]@db/x",
		"https://h/x?token=abcdef&q=1":                   "https://h/x?token=[redacted]&q=1",
		`{"api_key":"abcdef"}`:                           `{"api_key":"[redacted]"}`,
		"password = hunter2":                             "password = [redacted]",
		"x -----BEGIN PRIVATE KEY-----\nMII":             "x [redacted]",
	} {
		assert.Equal(t, want, withoutSecrets(text))
		assert.Equal(t, want, withoutSecrets(want), "what was replaced stays")
	}
	assert.NotEqual(t, withoutSecrets("sk-abcdef0123456789abcd"), withoutSecrets("sk-abcdef0123456789abce"), "two remain two")
	for _, name := range []string{
		"resolve", "ChatOpenAI", "gpt-4o-mini-2024-07-18", "claude-3-5-sonnet-20241022", "sk-learn", "sk-learn-classifier", "risk-assessment-of-the-request", "ask_for_help",
		"retry:attempt:2", "resolve:1ef2a3b4-0000-6000-8000-000000000000|rank:2", "bearer of bad news", "Basic preprocessing of texts", "basic understanding",
		"step=resolve", "max_tokens=20", "tokenize: fast", "http://127.0.0.1:4318/v1/traces", "https://api.openai.com/v1/chat/completions?model=x", "a@b.com",
		"github_patch", "hf_model", "eyJ", "key", "token", "missing input: token", "RateLimitError", "429", "", "graph:step:3", "xai-grok", "monkey: banana",
	} {
		assert.Equal(t, name, withoutSecrets(name))
	}
}

// The fast test holds for whatever the slow one would change.
func TestNoSecretSlipsPastTheFastTest(t *testing.T) {
	pieces := append([]string{
		"bearer", "Basic", " ", "\n", ":", "=", "://", "@", "token", "secret", `"`, "'", "password", "credential", "abcdefgh1", "sk-", "A", "x", "/", "-", "_", "é", "0123456789abcdef",
	}, secrets...)
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 6).Draw(r, "pieces"), "")
		if !mayHoldSecret(text) && replaceSecrets(text) != text {
			r.Fatalf("%q would become %q", text, replaceSecrets(text))
		}
	})
}

// literals are the texts in the package's own code that may be the key of an attribute,
// the name of an event or of a scope.
func literals(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]bool{}
	like := regexp.MustCompile(`^[A-Za-z_@][\w.@/:-]*$`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "secrets.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if _, imports := n.(*ast.ImportSpec); imports {
				return false
			}
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && like.MatchString(text) {
					found[text] = true
				}
			}
			return true
		})
	}
	require.Greater(t, len(found), 300)
	return slices.Sorted(maps.Keys(found))
}

// places are where a span of an instrumentation, nil for none, may carry a text, each with
// what puts it there.
func places(in *instrumentation, keys []string) map[string]func(ptrace.ResourceSpans, ptrace.ScopeSpans, ptrace.Span, any) {
	all := map[string]func(ptrace.ResourceSpans, ptrace.ScopeSpans, ptrace.Span, any){
		"the span's name": func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) { s.SetName(fmt.Sprint(v)) },
		"the scope's name": func(_ ptrace.ResourceSpans, ss ptrace.ScopeSpans, _ ptrace.Span, v any) {
			ss.Scope().SetName(fmt.Sprint(v))
		},
		"the scope's version": func(_ ptrace.ResourceSpans, ss ptrace.ScopeSpans, _ ptrace.Span, v any) {
			ss.Scope().SetVersion(fmt.Sprint(v))
		},
		"the status's message": func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
			s.Status().SetMessage(fmt.Sprint(v))
		},
		"the trace state": func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
			s.TraceState().FromRaw(fmt.Sprint(v))
		},
		"an event's name": func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
			s.Events().AppendEmpty().SetName(fmt.Sprint(v))
		},
	}
	for _, key := range keys {
		all[key] = func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
			_ = s.Attributes().PutEmpty(key).FromRaw(v)
		}
		if in != nil {
			continue // what follows, dialects have in common
		}
		all["resource "+key] = func(rs ptrace.ResourceSpans, _ ptrace.ScopeSpans, _ ptrace.Span, v any) {
			_ = rs.Resource().Attributes().PutEmpty(key).FromRaw(v)
		}
		all["scope "+key] = func(_ ptrace.ResourceSpans, ss ptrace.ScopeSpans, _ ptrace.Span, v any) {
			_ = ss.Scope().Attributes().PutEmpty(key).FromRaw(v)
		}
		all["link "+key] = func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
			_ = s.Links().AppendEmpty().Attributes().PutEmpty(key).FromRaw(v)
		}
		for _, event := range []string{"exception", "retry", "fallback", "run.heartbeat", "contract violation", "gen_ai.content.prompt"} {
			all["event "+event+" "+key] = func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, s ptrace.Span, v any) {
				e := s.Events().AppendEmpty()
				e.SetName(event)
				_ = e.Attributes().PutEmpty(key).FromRaw(v)
			}
		}
	}
	return all
}

// kinds are what other attributes of a span may say that decides how one is read.
var kinds = []map[string]any{
	nil,
	{"contract.missing_input": "k", "node": "n", "missing": "k"},
	{"openinference.span.kind": "LLM"}, {"openinference.span.kind": "CHAIN"}, {"openinference.span.kind": "TOOL"}, {"openinference.span.kind": "AGENT"},
	{"gen_ai.operation.name": "chat"}, {"gen_ai.operation.name": "execute_tool"}, {"gen_ai.operation.name": "invoke_agent"},
	{"langfuse.observation.type": "generation"}, {"langfuse.observation.type": "tool"},
	{"traceloop.span.kind": "workflow"}, {"traceloop.span.kind": "task"}, {"langsmith.span.kind": "llm"}, {"mlflow.spanType": `"LLM"`},
	{"ai.operationId": "ai.generateText.doGenerate"}, {"ai.operationId": "ai.toolCall"}, {"llm.request.type": "chat"}, {"attempt": 1, "next_model": "b", "retry_with": "fallback"},
}

// rowWith reads a span of an instrumentation that carries one text in one place.
func rowWith(in *instrumentation, kind map[string]any, put func(ptrace.ResourceSpans, ptrace.ScopeSpans, ptrace.Span, any), value any) schema.Span {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ss := rs.ScopeSpans().AppendEmpty()
	span := ss.Spans().AppendEmpty()
	span.SetTraceID([16]byte{1})
	span.SetSpanID([8]byte{1})
	span.SetName("work")
	span.Status().SetCode(ptrace.StatusCodeError)
	if in != nil {
		if len(in.scopes) > 0 {
			ss.Scope().SetName(in.scopes[0])
		} else {
			span.Attributes().PutStr(in.marks[0], "x")
		}
	}
	if kind != nil {
		span.Attributes().PutStr("step", "resolve") // where messages about contracts belong
	}
	for key, says := range kind {
		_ = span.Attributes().PutEmpty(key).FromRaw(says)
	}
	if kind["missing"] != nil {
		span.SetName("contract violation")
	}
	if kind["attempt"] != nil {
		span.SetName("model_retry")
	}
	put(rs, ss, span, value)
	rows, _ := Normalise(td, 7)
	return rows[0]
}

// holding lists the fields of a row whose text holds another.
func holding(row *schema.Span, text string) (fields []string) {
	v := reflect.ValueOf(row).Elem()
	for i := range v.NumField() {
		if strings.Contains(fmt.Sprintf("%+v", v.Field(i).Interface()), text) {
			fields = append(fields, v.Type().Field(i).Name)
		}
	}
	return fields
}

// Of all that a span can carry, testdata/kept.txt lists what is kept as it is stated, and
// in which field: names, and nothing else. -update writes it anew; look at what is added.
func TestWhatIsKeptOfASpan(t *testing.T) {
	const prompt = "Tell me about the canary in the mine"
	keys := literals(t)
	dialects := []*instrumentation{nil}
	for i := range instrumentations {
		dialects = append(dialects, &instrumentations[i])
	}
	kept := map[string]map[string]bool{}
	for _, in := range dialects {
		for place, put := range places(in, keys) {
			note := func(kind map[string]any, value any) {
				row := rowWith(in, kind, put, value)
				for _, field := range holding(&row, "canary") {
					if kept[place] == nil {
						kept[place] = map[string]bool{}
					}
					kept[place][field] = true
				}
			}
			for _, value := range []any{
				[]any{prompt}, `["` + prompt + `"]`, `{"content":"` + prompt + `","status":"` + prompt + `","error":"` + prompt + `"}`, map[string]any{"content": prompt},
			} {
				note(nil, value)
			}
			for _, kind := range kinds {
				note(kind, prompt)
			}
		}
	}
	var text bytes.Buffer
	for _, place := range slices.Sorted(maps.Keys(kept)) {
		fmt.Fprintf(&text, "%s → %s\n", place, strings.Join(slices.Sorted(maps.Keys(kept[place])), ", "))
	}
	golden := filepath.Join("testdata", "kept.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, text.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String())
}

// A secret is not kept, wherever a span carries it.
func TestNoSecretIsKept(t *testing.T) {
	keys := literals(t)
	for _, in := range []*instrumentation{nil, &langfuse, &openInference, &aiSDK, &pydanticAI, &logfire, &openAIv2} {
		for place, put := range places(in, keys) {
			for _, secret := range secrets {
				row := rowWith(in, nil, put, secret)
				require.Empty(t, holding(&row, "canary"), "%s: %q", place, secret)
			}
		}
	}
}
