package dialect

import (
	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// MLflow: its own keys hold JSON, quotes included; the framework's metadata is one JSON text.
var mlflow = instrumentation{
	name:   "mlflow",
	scopes: []string{"mlflow"},
	marks:  []string{"mlflow.spanType"},
	read:   (*reading).readMLflow,
}

var mlflowRoles = map[string]schema.Role{
	"CHAT_MODEL": schema.RoleModel, "LLM": schema.RoleModel, "EMBEDDING": schema.RoleModel, "TOOL": schema.RoleTool, "CHAIN": schema.RoleChain,
	"AGENT": schema.RoleChain, "RETRIEVER": schema.RoleChain, "WORKFLOW": schema.RoleChain, "TASK": schema.RoleChain, "PARSER": schema.RoleAuxiliary,
}

func (r *reading) readMLflow() {
	row, a := r.row, r.attrs
	if role, ok := mlflowRoles[unquoted(a.text("mlflow.spanType"))]; ok {
		row.Role = role
	}
	row.FallbackWrapper = row.Role == schema.RoleChain && row.Name == "RunnableWithFallbacks"
	if row.Role == schema.RoleModel {
		row.Model = clip(orElse(unquoted(a.text("mlflow.llm.model")), row.Model), schema.MaxName)
		row.Provider = clip(orElse(unquoted(a.text("mlflow.llm.provider")), row.Provider), schema.MaxName)
		r.usage(gjson.Parse(a.text("mlflow.chat.tokenUsage")), "input_tokens", "output_tokens")
		if cost := gjson.Get(a.text("mlflow.llm.cost"), "total_cost"); cost.Type == gjson.Number && cost.Float() >= 0 {
			row.CostUSD = cost.Float()
		}
	}
	r.hasInput(a.text("mlflow.spanInputs"))
	if row.Role == schema.RoleChain {
		r.readOutput(a.text("mlflow.spanOutputs"), a.text("mlflow.spanInputs"))
	}
	if session := unquoted(a.text("mlflow.trace.session")); session != "" && row.ThreadID == "" {
		row.ThreadID = clip(session, schema.MaxName)
	}
	r.readLangGraph(r.jsonMetadata("metadata"))
}
