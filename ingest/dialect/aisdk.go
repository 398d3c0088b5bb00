package dialect

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/retryledger/retryledger/schema"
)

const aiSDK7Name = "ai-sdk-7"

// Vercel's AI SDK. Versions 5 and 6 write a span per attempt; the wrapper carries usage
// too. Version 7 hides all attempts of a request in one span, with its legacy
// integration too, whose spans look like those of version 6.
var (
	aiSDK = instrumentation{
		name:   "ai-sdk",
		scopes: []string{"ai"},
		marks:  []string{"ai.operationId"},
		read:   (*reading).readAISDK,
	}
	aiSDK7 = instrumentation{name: aiSDK7Name, scopes: []string{"gen_ai"}, read: (*reading).readAISDK7}
)

func (r *reading) readAISDK() {
	row, a := r.row, r.attrs
	row.FinishReason = orElse(clip(a.text("ai.response.finishReason"), maxText), row.FinishReason)
	switch op := a.text("ai.operationId"); {
	case strings.HasSuffix(op, ".doGenerate"), strings.HasSuffix(op, ".doStream"), strings.HasSuffix(op, ".doEmbed"):
		row.Role = schema.RoleModel
		row.Model = orElse(clip(a.text("ai.model.id"), schema.MaxName), row.Model)
		row.Provider = orElse(row.Provider, clip(a.text("ai.model.provider"), schema.MaxName))
		// ai.usage.tokens is what an embedding read.
		r.tokens("ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens", "ai.usage.tokens")(&row.InputTokens)
		r.tokens("ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.usage.output_tokens")(&row.OutputTokens)
		if row.FinishReason == "error" {
			row.Failed = true // a stream that broke: both spans look well
		}
		r.hasInput(a.text("ai.prompt.messages"))
	case op == "ai.toolCall":
		row.Role = schema.RoleTool
		row.InputHash = a.hash("ai.toolCall.args", "ai.toolCall.input")
	case op != "":
		row.Role, row.Model = schema.RoleChain, ""
		row.InputTokens, row.OutputTokens = schema.Unknown, schema.Unknown
	}
	r.clearSpreadError()
	if r.writtenByAISDK7() {
		row.Dialect = aiSDK7Name
	}
	if n, ok := a.count("ai.settings.maxRetries"); ok && row.AttemptLimit == 0 {
		row.AttemptLimit = n + 1 // stored as attempts, the first included
	}
	row.Node = clip(a.text("ai.telemetry.functionId"), schema.MaxName)
	row.ThreadID = orElse(row.ThreadID, clip(a.text("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.threadId"), schema.MaxName))
}

// The SDK puts itself last, after agents and applications.
var aiSDKMajor = regexp.MustCompile(`(?:^|\s)ai/(\d{1,4})\.`)

// writtenByAISDK7 tells the legacy integration of version 7 from the versions before it:
// by the user agent of the request, which streams do not show; by the attributes of a
// stream's last event; or by a choice of tools stated where there are none.
func (r *reading) writtenByAISDK7() bool {
	if m := aiSDKMajor.FindStringSubmatch(r.attrs.text("ai.request.headers.user-agent")); m != nil {
		major, err := strconv.Atoi(m[1])
		return err == nil && major >= 7
	}
	if !strings.HasSuffix(r.attrs.text("ai.operationId"), ".doStream") {
		return false
	}
	for _, event := range r.span.Events().All() {
		if event.Name() == "ai.stream.finish" {
			return event.Attributes().Len() > 0
		}
	}
	return r.attrs.has("ai.prompt.toolChoice") && !r.attrs.has("ai.prompt.tools")
}

func (r *reading) readAISDK7() {
	r.readAgentName()
	r.clearSpreadError()
}

// clearSpreadError: OpenInference's processor for the SDK gives the first error of a
// trace to every span that ends well after it. The SDK records an exception with each
// error of its own, and a finish reason with each answer.
func (r *reading) clearSpreadError() {
	row := r.row
	if !row.Failed || !r.attrs.has("openinference.span.kind") || row.FinishReason == "" || row.FinishReason == "error" {
		return
	}
	for _, event := range r.span.Events().All() {
		if event.Name() == "exception" {
			return
		}
	}
	row.Failed, row.ErrorClass, row.HTTPStatus = false, "", 0
	row.StatedAttempts, row.StatedExhausted = 0, false
}

// readAgentName takes an agent's name as the name of the call site.
func (r *reading) readAgentName() {
	if name := r.attrs.text("gen_ai.agent.name"); name != "" && r.row.Node == "" {
		r.row.Node = clip(name, schema.MaxName)
	}
}
