package dialect

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// Mastra: repeats of steps and of model requests hide in one span each, and the spans
// of a failed agent's leaves are OK; the finish reason tells.
var mastra = instrumentation{
	name:   "mastra",
	scopes: []string{"@mastra/"},
	marks:  []string{"mastra.span.type"},
	read:   (*reading).readMastra,
}

func (r *reading) readMastra() {
	row, a := r.row, r.attrs
	switch kind := a.text("mastra.span.type"); kind {
	case "model_inference":
		row.Role = schema.RoleModel
		r.tokens("gen_ai.usage.input_tokens")(&row.InputTokens)
		r.tokens("gen_ai.usage.output_tokens")(&row.OutputTokens)
	case "tool_call", "mcp_tool_call":
		row.Role = schema.RoleTool
	case "workflow_step":
		row.Role, row.Model = schema.RoleChain, ""
		if row.Step == "" {
			row.Step = clip(a.text("mastra.workflow_step.step_id"), schema.MaxName)
		}
		row.Failed = row.Failed || a.text("mastra.workflow_step.status") == "failed"
	case "":
	default:
		row.Role, row.Model = schema.RoleChain, ""
	}
	if row.Role != schema.RoleModel {
		row.InputTokens, row.OutputTokens = schema.Unknown, schema.Unknown
	} else if slices.Contains(a.list("gen_ai.response.finish_reasons"), "error") {
		row.Failed = true
	}
	// After a fallback the request keeps the first candidate's name; the metadata has the real one.
	if id := gjson.Get(a.text("mastra.metadata.modelMetadata"), "modelId").String(); id != "" && row.Role == schema.RoleModel {
		row.ResponseModel = clip(id, schema.MaxName)
	}
	if row.ErrorClass == "WORKFLOW_STEP_INVOKE_FAILED" || row.ErrorClass == "Error" {
		if class := classOfText(a.text("error.message")); class != "" {
			row.ErrorClass = class
		}
	}
	r.readAgentName()
}
