package dialect

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/retryledger/retryledger/schema"
)

// Vercel's AI SDK. Versions 5 and 6, and 7 with its legacy integration, write a span
// per attempt; the wrapper carries usage too. Version 7 hides all attempts of a
// request in one span.
var (
	aiSDK = instrumentation{
		name:   "ai-sdk",
		scopes: []string{"ai"},
		marks:  []string{"ai.operationId"},
		read:   (*reading).readAISDK,
	}
	aiSDK7 = instrumentation{name: "ai-sdk-7", scopes: []string{"gen_ai"}, read: (*reading).readAgentName}
)

func (r *reading) readAISDK() {
	row, a := r.row, r.attrs
	switch op := a.text("ai.operationId"); {
	case strings.HasSuffix(op, ".doGenerate"), strings.HasSuffix(op, ".doStream"), strings.HasSuffix(op, ".doEmbed"):
		row.Role = schema.RoleModel
		row.Model = orElse(clip(a.text("ai.model.id"), schema.MaxName), row.Model)
		row.Provider = orElse(row.Provider, clip(a.text("ai.model.provider"), schema.MaxName))
		r.tokens("ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens")(&row.InputTokens)
		r.tokens("ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.usage.output_tokens")(&row.OutputTokens)
		row.FinishReason = clip(a.text("ai.response.finishReason"), maxText)
		if row.FinishReason == "error" {
			row.Failed = true // a stream that broke: both spans look well
		}
		if input := a.text("ai.prompt.messages"); input != "" {
			row.InputHash = xxhash.Sum64String(input) | 1
		}
	case op == "ai.toolCall":
		row.Role = schema.RoleTool
	case op != "":
		row.Role, row.Model = schema.RoleChain, ""
		row.InputTokens, row.OutputTokens = schema.Unknown, schema.Unknown
	}
	if n, ok := a.count("ai.settings.maxRetries"); ok && row.AttemptLimit == 0 {
		row.AttemptLimit = n + 1 // stored as attempts, the first included
	}
	row.Node = clip(a.text("ai.telemetry.functionId"), schema.MaxName)
	row.ThreadID = orElse(row.ThreadID, clip(a.text("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.threadId"), schema.MaxName))
}

// readAgentName takes an agent's name as the name of the call site.
func (r *reading) readAgentName() {
	if name := r.attrs.text("gen_ai.agent.name"); name != "" && r.row.Node == "" {
		r.row.Node = clip(name, schema.MaxName)
	}
}
