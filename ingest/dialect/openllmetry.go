package dialect

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// OpenLLMetry (Traceloop). In Python the tree is whole: metadata as association
// properties, run tags inside the JSON of a task's input. In JavaScript there is no
// hierarchy and no node's name of a framework: what it hides is not observable. Of a
// client there, a call that fails leaves no span.
var openLLMetry = instrumentation{
	name:   "openllmetry",
	scopes: []string{"opentelemetry.instrumentation.langchain", "@traceloop/instrumentation-"},
	marks:  []string{"traceloop.span.kind", "traceloop.association.properties.ls_integration"},
	read:   (*reading).readOpenLLMetry,
}

// traceloop reads the functions of an application that Traceloop's decorators wrap:
// @workflow, @task, @agent and @tool. A task is a step of its workflow.
var traceloop = instrumentation{name: "traceloop", scopes: []string{"traceloop.tracer", "@traceloop/node-server-sdk"}, read: (*reading).readTraceloop}

func (r *reading) readTraceloop() {
	row, a := r.row, r.attrs
	r.readOpenLLMetry()
	if a.text("traceloop.span.kind") != "task" {
		return
	}
	row.Node = clip(a.text("traceloop.entity.name"), schema.MaxName)
	input := a.text("traceloop.entity.input")
	r.hasInput(input)
	r.readOutput(a.text("traceloop.entity.output"), input)
}

var openLLMetryRoles = map[string]schema.Role{
	"task": schema.RoleChain, "workflow": schema.RoleChain, "agent": schema.RoleChain, "tool": schema.RoleTool,
}

func (r *reading) readOpenLLMetry() {
	row, a := r.row, r.attrs
	if client, ok := strings.CutPrefix(row.Scope, "@traceloop/instrumentation-"); ok {
		row.Dialect = "openllmetry-js"
		if client != "langchain" && client != "llamaindex" {
			row.Dialect = "client-js" // a client's calls lie in the application's own spans
		}
	}
	if role, ok := openLLMetryRoles[a.text("traceloop.span.kind")]; ok && row.Role != schema.RoleModel {
		row.Role = role
	}
	entity := a.text("traceloop.entity.name")
	row.Name = clip(orElse(entity, plainName(row.Name)), schema.MaxName)
	row.FallbackWrapper = row.Role == schema.RoleChain && row.Name == "RunnableWithFallbacks"
	input := a.text("traceloop.entity.input", "gen_ai.task.input")
	if tags := gjson.Get(input, "tags"); tags.IsArray() {
		r.readTags(splitList(tags.Raw))
	}
	if given := gjson.Get(input, "inputs"); given.Exists() {
		r.hasInput(given.Raw)
	} else {
		r.hasInput(a.text("gen_ai.input.messages"))
	}
	get := r.flattened("traceloop.association.properties.")
	if row.Role == schema.RoleModel {
		if row.Model == "unknown" {
			row.Model = ""
		}
		if row.Provider == "langchain" {
			row.Provider = ""
		}
	} else {
		row.InputTokens, row.OutputTokens = schema.Unknown, schema.Unknown
	}
	if row.Role == schema.RoleChain {
		output := gjson.Get(a.text("traceloop.entity.output", "gen_ai.task.output"), "outputs")
		if output.Type == gjson.String {
			r.readOutput(output.String(), gjson.Get(input, "inputs").Raw)
		} else {
			r.readOutput(output.Raw, gjson.Get(input, "inputs").Raw)
		}
	}
	r.readLangGraph(get)
	if a.text("gen_ai.operation.name") == "invoke_agent" && row.TaskKey != "" {
		row.Role = schema.RoleAuxiliary // beside the span of a graph that a node invokes, a second one of it
	}
	if r.forceEnded() {
		row.Flow = schema.FlowCancelled
	}
	// The span of a node's run is named after its task; what lies in it is named otherwise.
	if row.Node != "" && row.Role == schema.RoleChain {
		row.NodeRun = flagOf(row.Name == row.Node)
	}
}

// forceEnded: a parent that ends closes its open children, with nothing to say.
func (r *reading) forceEnded() bool {
	row, a := r.row, r.attrs
	if row.Failed || row.Flow != schema.FlowNone || !strings.HasPrefix(row.Scope, "opentelemetry.instrumentation.langchain") {
		return false
	}
	if row.Role == schema.RoleModel {
		return row.InputTokens == schema.Unknown && row.OutputTokens == schema.Unknown && row.FinishReason == "" && !a.has("gen_ai.output.messages")
	}
	return a.has("gen_ai.task.id") && !a.has("gen_ai.task.status")
}

// plainName takes what OpenLLMetry adds to the name of a run.
func plainName(name string) string {
	name = strings.TrimPrefix(name, "execute_task ")
	for _, suffix := range []string{".chat", ".completion", ".workflow", ".task", ".tool", ".agent"} {
		if rest, ok := strings.CutSuffix(name, suffix); ok {
			return rest
		}
	}
	return name
}
