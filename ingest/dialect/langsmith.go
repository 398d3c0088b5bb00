package dialect

import (
	"github.com/retryledger/retryledger/schema"
)

// LangSmith's OpenTelemetry export: kinds and tags under langsmith.span.*, metadata
// flattened, usage on wrappers too, prompts marked as chats. It sets OK when a run
// starts, and OK is final: a failure is an exception event, whatever the status.
var langSmith = instrumentation{
	name:   "langsmith",
	scopes: []string{"langsmith"},
	marks:  []string{"langsmith.span.kind"},
	read:   (*reading).readLangSmith,
}

var langSmithRoles = map[string]schema.Role{
	"llm": schema.RoleModel, "embedding": schema.RoleModel, "tool": schema.RoleTool, "chain": schema.RoleChain, "retriever": schema.RoleChain,
	"prompt": schema.RoleAuxiliary, "parser": schema.RoleAuxiliary,
}

func (r *reading) readLangSmith() {
	row, a := r.row, r.attrs
	if kind := a.text("langsmith.span.kind"); kind != "" {
		row.Role = langSmithRoles[kind]
		if row.Role != schema.RoleModel {
			row.InputTokens, row.OutputTokens, row.Model = schema.Unknown, schema.Unknown, ""
		}
	}
	// In JavaScript a span of the application carries the attributes of another run.
	if name := a.text("langsmith.trace.name"); name != "" && name != r.span.Name() {
		row.Dialect = "langsmith-js"
	}
	row.FallbackWrapper = row.Role == schema.RoleChain && row.Name == "RunnableWithFallbacks"
	r.readTags(a.list("langsmith.span.tags"))
	for _, event := range r.span.Events().All() {
		if event.Name() == "exception" && row.Flow == schema.FlowNone && !row.Failed {
			row.Failed = true
			ev := attributes{event.Attributes()}
			row.ErrorClass = exceptionClass(ev)
			if row.HTTPStatus == 0 {
				row.HTTPStatus = statusOfText(ev.text("exception.message"))
			}
		}
	}
	r.hasInput(a.text("gen_ai.prompt"))
	if row.Role == schema.RoleChain {
		r.readOutput(a.text("gen_ai.completion"), a.text("gen_ai.prompt"))
	}
	if row.Provider == "langchain" {
		row.Provider = ""
	}
	r.readLangGraph(r.flattened("langsmith.metadata."))
}
