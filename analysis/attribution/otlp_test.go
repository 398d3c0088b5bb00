package attribution_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/schema"
)

// attrs are the attributes of a span or an event.
type attrs map[string]any

// written is a span as an instrumentation writes it: times in milliseconds since
// epoch, parent -1 for a root.
type sent struct {
	trace, id, parent int
	name              string
	from, to          int64
	scope             string // of the call to spansOf where empty
	client            bool
	failed            bool // status ERROR
	ok                bool // status OK
	message           string
	attrs             attrs
	events            []happened
}

type happened struct {
	name  string
	at    int64
	attrs attrs
}

func raised(class, message string) happened {
	return happened{name: "exception", attrs: attrs{"exception.type": class, "exception.message": message}}
}

// rowsOf reads spans through the dialects, as ingest does.
func rowsOf(t *testing.T, scope string, spans ...sent) []schema.Span {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "app")
	for _, s := range spans {
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName(scope)
		if s.scope != "" {
			ss.Scope().SetName(s.scope)
		}
		out := ss.Spans().AppendEmpty()
		out.SetTraceID(pcommon.TraceID(traceID(s.trace)))
		out.SetSpanID(pcommon.SpanID(spanID(s.id)))
		if s.parent >= 0 {
			out.SetParentSpanID(pcommon.SpanID(spanID(s.parent)))
		}
		out.SetName(s.name)
		out.SetStartTimestamp(pcommon.Timestamp(epoch + s.from*ms))
		out.SetEndTimestamp(pcommon.Timestamp(epoch + s.to*ms))
		out.SetKind(ptrace.SpanKindInternal)
		if s.client {
			out.SetKind(ptrace.SpanKindClient)
		}
		out.Status().SetMessage(s.message)
		if s.failed {
			out.Status().SetCode(ptrace.StatusCodeError)
		} else if s.ok {
			out.Status().SetCode(ptrace.StatusCodeOk)
		}
		require.NoError(t, out.Attributes().FromRaw(s.attrs))
		for _, e := range s.events {
			event := out.Events().AppendEmpty()
			event.SetName(e.name)
			event.SetTimestamp(pcommon.Timestamp(epoch + e.at*ms))
			require.NoError(t, event.Attributes().FromRaw(e.attrs))
		}
	}
	rows, refused := dialect.Normalise(td, epoch)
	require.Zero(t, refused)
	return rows
}

func ledgerOf(t *testing.T, scope string, spans ...sent) attribution.Ledger {
	t.Helper()
	return account(rowsOf(t, scope, spans...)...)
}

func runOf(t *testing.T, scope string, spans ...sent) attribution.Run {
	t.Helper()
	return theRun(t, ledgerOf(t, scope, spans...))
}

// Scopes of instrumentations.
const (
	scopeOI       = "openinference.instrumentation.langchain"
	scopeOIjs     = "@arizeai/openinference-instrumentation-langchain"
	scopeLangfuse = "langfuse-sdk"
	scopeSmith    = "langsmith"
	scopeLLMetry  = "opentelemetry.instrumentation.langchain"
	scopeMLflow   = "mlflow.tracing.provider"
	scopeApp      = "app"
)

// oi is what OpenInference writes on a span of a graph: kind and metadata.
func oi(kind, node, task string, step int, more ...attrs) attrs {
	metadata := map[string]any{"ls_integration": "langgraph"}
	if node != "" {
		metadata["langgraph_node"], metadata["langgraph_checkpoint_ns"], metadata["langgraph_step"] = node, task, step
	}
	out := attrs{"openinference.span.kind": kind}
	for _, m := range more {
		for k, v := range m {
			if k == "model" {
				metadata["ls_model_name"] = v
				continue
			}
			if k == "thread" {
				metadata["thread_id"] = v
				continue
			}
			out[k] = v
		}
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		panic(err)
	}
	out["metadata"] = string(text)
	return out
}

// lf is the same of Langfuse for JavaScript: everything flat, everything a text.
func lf(kind, node, task, tags string, more ...attrs) attrs {
	out := attrs{"langfuse.observation.type": kind, "langfuse.observation.metadata.ls_integration": "langgraph"}
	if node != "" {
		out["langfuse.observation.metadata.langgraph_node"], out["langfuse.observation.metadata.langgraph_checkpoint_ns"] = node, task
		out["langfuse.observation.metadata.langgraph_step"] = "1"
	}
	if tags != "" {
		out["langfuse.observation.metadata.tags"] = tags
	}
	for _, m := range more {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
