package dialect

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// Langfuse, in Python and JavaScript: everything under langfuse.observation.*, the
// framework's metadata flattened. Version 5 for Python writes texts as JSON, quotes
// included; the JavaScript SDK leaves every status unset, so the level tells failure.
var langfuse = instrumentation{
	name:   "langfuse",
	scopes: []string{"langfuse-sdk"},
	marks:  []string{"langfuse.observation.type"},
	read:   (*reading).readLangfuse,
}

var langfuseRoles = map[string]schema.Role{
	"generation": schema.RoleModel, "embedding": schema.RoleModel, "tool": schema.RoleTool, "span": schema.RoleChain, "chain": schema.RoleChain,
	"agent": schema.RoleChain, "retriever": schema.RoleChain, "evaluator": schema.RoleChain, "guardrail": schema.RoleChain,
}

func (r *reading) readLangfuse() {
	row, a := r.row, r.attrs
	const prefix = "langfuse.observation."
	get := r.flattened(prefix + "metadata.")
	framework := get("ls_integration").Exists() || get("langgraph_node").Exists() || get("is_langchain_root").Exists()
	if role, ok := langfuseRoles[unquoted(a.text(prefix+"type"))]; ok && (role != schema.RoleChain || framework || row.Role == schema.RoleOther) {
		row.Role = role
	}
	row.FallbackWrapper = row.Role == schema.RoleChain && row.Name == "RunnableWithFallbacks"
	r.readTags(a.list(prefix + "metadata.tags"))
	r.readLevel(a.text(prefix+"level"), a.text(prefix+"status_message"))
	if env := a.text("langfuse.environment"); env != "" && env != "default" {
		row.Environment = clip(env, schema.MaxName)
	}
	row.Version = orElse(clip(a.text("langfuse.version"), schema.MaxName), row.Version)
	if row.Role == schema.RoleModel {
		row.Model = orElse(clip(unquoted(a.text(prefix+"model.name")), schema.MaxName), row.Model)
		usage := gjson.Parse(a.text(prefix + "usage_details"))
		r.usage(usage, "input", "output")
		if !framework {
			r.readLangfuseClient(usage)
		}
		// A cost of nothing is written on errors: unknown, not zero.
		if cost := gjson.Get(a.text(prefix+"cost_details"), "total"); cost.Type == gjson.Number && cost.Float() > 0 {
			row.CostUSD = cost.Float()
		}
	}
	r.hasInput(a.text(prefix + "input"))
	if row.Role == schema.RoleChain {
		r.readOutput(a.text(prefix+"output"), a.text(prefix+"input"))
	}
	r.readLangGraph(get)
	if row.ThreadID == "" {
		row.ThreadID = clip(unquoted(a.text("langfuse.trace.metadata.thread_id")), schema.MaxName)
	}
}

// readLangfuseClient reads a generation of Langfuse's wrapper around a provider's
// client: usage in the provider's own words, the response's model where there was one,
// and a stream that broke ends well, with nothing but its first chunk to tell.
func (r *reading) readLangfuseClient(usage gjson.Result) {
	row := r.row
	r.usage(usage, "prompt_tokens", "completion_tokens")
	r.usage(usage, "input_tokens", "output_tokens")
	row.ResponseModel = orElse(row.ResponseModel, row.Model)
	// The wrapper for JavaScript leaves no span at all of a stream that broke, so that of
	// streams which did not, the ones before are not observable.
	streamed := row.Name == "OpenAI.chat" && gjson.Get(r.attrs.text("langfuse.observation.model.parameters"), "stream").Bool()
	if streamed || r.attrs.has("langfuse.observation.completion_start_time") && !usage.Exists() && !row.Failed {
		row.Dialect = "langfuse-stream"
	}
}

// readLevel: the level tells failure, whatever the status.
func (r *reading) readLevel(level, message string) {
	row := r.row
	switch unquoted(level) {
	case "ERROR":
		message = unquoted(message)
		if row.ErrorClass == "" {
			row.ErrorClass = classOfText(message)
		}
		if row.HTTPStatus == 0 {
			row.HTTPStatus = statusOfText(message)
		}
		row.Failed = true
		switch flow := flowOf(row.ErrorClass, message); {
		case flow != schema.FlowNone:
			row.Flow = flow
		case message == "" && r.span.Status().Message() == "":
			row.Flow = schema.FlowAbandoned // an abandoned or cancelled call is an error without a text
		}
		if row.Flow != schema.FlowNone {
			row.Failed = false
		}
	case "DEBUG":
		row.Hidden = true
	case "DEFAULT", "":
		// The Python handler reports a graph's control flow at the default level.
		if message != "" && !row.Failed && row.Flow == schema.FlowNone {
			row.Flow = schema.FlowCommand
			if strings.Contains(message, "Interrupt(") {
				row.Flow = schema.FlowInterrupt
			}
		}
	}
}

// flattened is metadata whose keys are attributes of their own.
func (r *reading) flattened(prefix string) metadata {
	return func(key string) gjson.Result {
		v, ok := r.attrs.m.Get(prefix + key)
		if !ok {
			return gjson.Result{}
		}
		return gjson.Result{Type: gjson.String, Str: unquoted(v.AsString())}
	}
}

// unquoted takes the quotes from a text that was encoded as JSON.
func unquoted(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' && gjson.Valid(text) {
		return gjson.Parse(text).String()
	}
	return text
}

// usage reads token counts out of a JSON object.
func (r *reading) usage(object gjson.Result, input, output string) {
	if v := object.Get(input); v.Type == gjson.Number && v.Int() >= 0 {
		r.row.InputTokens = v.Int()
	}
	if v := object.Get(output); v.Type == gjson.Number && v.Int() >= 0 {
		r.row.OutputTokens = v.Int()
	}
}
