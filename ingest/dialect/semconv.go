package dialect

import (
	"net/url"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/retryledger/retryledger/schema"
)

// The OpenTelemetry semantic conventions that other dialects build on: GenAI, HTTP
// and RPC, with old and new names.

var genAIRoles = map[string]schema.Role{
	"chat": schema.RoleModel, "text_completion": schema.RoleModel, "generate_content": schema.RoleModel,
	"embeddings": schema.RoleModel, "execute_tool": schema.RoleTool,
	"invoke_agent": schema.RoleChain, "create_agent": schema.RoleChain, "invoke_workflow": schema.RoleChain, "plan": schema.RoleChain,
}

func (r *reading) readSemconv() {
	row, a := r.row, r.attrs
	if op := a.text("gen_ai.operation.name"); op != "" {
		row.Role = genAIRoles[op]
	} else if a.has("gen_ai.request.model") {
		row.Role = schema.RoleModel
	}
	row.Model = clip(a.text("gen_ai.request.model"), schema.MaxName)
	row.ResponseModel = clip(a.text("gen_ai.response.model"), schema.MaxName)
	row.Provider = clip(a.text("gen_ai.provider.name", "gen_ai.system"), schema.MaxName)
	row.ThreadID = clip(a.text("gen_ai.conversation.id"), schema.MaxName)
	if row.Role == schema.RoleModel {
		r.tokens("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")(&row.InputTokens)
		r.tokens("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")(&row.OutputTokens)
	}
	if reasons := a.list("gen_ai.response.finish_reasons"); len(reasons) > 0 {
		row.FinishReason = clip(reasons[0], maxText)
	}

	if row.Role == schema.RoleTool {
		row.InputHash = a.hash("gen_ai.tool.call.arguments", "tool_arguments")
	}

	if status, ok := a.count("http.response.status_code", "http.status_code"); ok && status >= 100 && status <= 599 {
		row.HTTPStatus = status
	}
	if n, ok := a.count("http.request.resend_count"); ok {
		row.ResendCount = n
	}
	// The kind alone is not enough: applications mark their own calls CLIENT too.
	if row.Role == schema.RoleOther && row.ClientKind {
		switch {
		case a.has("http.request.method") || a.has("http.method"):
			row.Role = schema.RoleHTTP
			row.InputHash = r.requestHash()
		case a.has("rpc.system") || a.has("rpc.system.name"):
			row.Role = schema.RoleRPC
		}
	}
}

// requestHash identifies what an HTTP request asked for, by method and path: another
// path is no repeat, another host may be.
func (r *reading) requestHash() uint64 {
	path := r.attrs.text("url.path", "http.target")
	if path == "" {
		if u, err := url.Parse(r.attrs.text("url.full", "http.url")); err == nil {
			path = u.Path
		}
	}
	path, _, _ = strings.Cut(path, "?")
	if path == "" {
		return 0
	}
	return xxhash.Sum64String(r.attrs.text("http.request.method", "http.method")+" "+path) | 1
}

// tokens sets a count of tokens where one of keys states it.
func (r *reading) tokens(keys ...string) func(*int64) {
	return func(n *int64) {
		if v, ok := r.attrs.integer(keys...); ok && v >= 0 {
			*n = v
		}
	}
}
