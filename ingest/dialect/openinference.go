package dialect

import (
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// OpenInference, in Python and JavaScript: kinds in openinference.span.kind, the
// framework's metadata as one JSON text, no run tags at all. Retries and fallbacks
// are seen by shape only.
var openInference = instrumentation{
	name:   "openinference",
	scopes: []string{"@arizeai/openinference-instrumentation-", "openinference.instrumentation."},
	marks:  []string{"openinference.span.kind"},
	read:   (*reading).readOpenInference,
}

// OpenInference's instrumentation of the OpenAI client for JavaScript: a call that fails
// leaves no span.
var openInferenceOpenAI = instrumentation{
	name:   "client-js",
	scopes: []string{"@arizeai/openinference-instrumentation-openai"},
	read:   (*reading).readOpenInference,
}

// turnOfAgent is what smolagents calls an agent's turns.
var turnOfAgent = regexp.MustCompile(`^Step \d+$`)

var openInferenceRoles = map[string]schema.Role{
	"LLM": schema.RoleModel, "EMBEDDING": schema.RoleModel, "RERANKER": schema.RoleModel,
	"TOOL": schema.RoleTool, "CHAIN": schema.RoleChain, "AGENT": schema.RoleChain, "RETRIEVER": schema.RoleChain,
	"GUARDRAIL": schema.RoleChain, "EVALUATOR": schema.RoleChain, "PROMPT": schema.RoleAuxiliary,
}

func (r *reading) readOpenInference() {
	row, a := r.row, r.attrs
	if role, ok := openInferenceRoles[a.text("openinference.span.kind")]; ok {
		row.Role = role
	}
	switch {
	case strings.HasSuffix(row.Scope, ".llama_index") && strings.Contains(row.Name, "._"):
		row.Role = schema.RoleAuxiliary // a helper of the client, which it marks like the call
	case strings.HasSuffix(row.Scope, ".smolagents"):
		if row.Failed {
			row.Dialect = "smolagents" // what the agent does about it has no mark
		}
		if turnOfAgent.MatchString(row.Name) {
			row.Role = schema.RoleAuxiliary // an agent's turn: the next is no repeat of one that failed
		}
	}
	row.FallbackWrapper = row.Role == schema.RoleChain && row.Name == "RunnableWithFallbacks"
	if row.Role == schema.RoleModel {
		requested := gjson.Get(a.text("llm.invocation_parameters"), "model").String()
		if requested == "" {
			requested = gjson.Get(a.text("llm.invocation_parameters"), "model_name").String()
		}
		stated := clip(a.text("llm.model_name"), schema.MaxName)
		row.ResponseModel = orElse(clip(a.text("llm.response.model_name"), schema.MaxName), stated)
		// Clients put the response's dated name on good calls and the requested one on failed calls.
		row.Model = orElse(clip(orElse(a.text("llm.request.model_name"), requested), schema.MaxName), stated)
		row.Provider = orElse(clip(a.text("llm.provider", "llm.system"), schema.MaxName), row.Provider)
		r.tokens("llm.token_count.prompt")(&row.InputTokens)
		r.tokens("llm.token_count.completion")(&row.OutputTokens)
		if cost, ok := a.number("llm.cost.total"); ok && cost >= 0 {
			row.CostUSD = cost
		}
		row.FinishReason = clip(a.text("llm.finish_reason"), maxText)
	}
	r.hasInput(a.text("input.value"))
	if row.Role == schema.RoleChain {
		r.readOutput(a.text("output.value"), a.text("input.value"))
	}
	r.readLangGraph(r.jsonMetadata("metadata"))
}
