package dialect

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// Agent libraries that build on the GenAI conventions or on OpenInference. Most
// re-prompt inside one run and leave no mark but one more call.
var (
	pydanticAI   = instrumentation{name: "pydantic-ai", scopes: []string{"pydantic-ai"}, read: (*reading).readPydanticAI}
	logfire      = instrumentation{name: "logfire", scopes: []string{"logfire"}, read: (*reading).readLogfire}
	googleADK    = instrumentation{name: "google-adk", scopes: []string{"gcp.vertex.agent"}, read: (*reading).readGoogleADK}
	strands      = instrumentation{name: "strands", scopes: []string{"strands.telemetry"}, read: (*reading).readAgentName}
	openAIAgents = instrumentation{name: "openai-agents", scopes: []string{"openinference.instrumentation.openai_agents", "opentelemetry.instrumentation.genai.openai_agents",
		"opentelemetry.instrumentation.openai_agents", "logfire.openai_agents"}, read: (*reading).readOpenAIAgents}
	crewAI       = instrumentation{name: "crewai", scopes: []string{"openinference.instrumentation.crewai"}, read: (*reading).readAgentSpan}
	instructor   = instrumentation{name: "instructor", scopes: []string{"openinference.instrumentation.instructor"}, read: (*reading).readAgentSpan}
	liteLLM      = instrumentation{name: "litellm", scopes: []string{"openinference.instrumentation.litellm", "litellm"}, marks: []string{"litellm.call_id", "litellm.provider.model"}, read: (*reading).readLiteLLM}
	openLIT      = instrumentation{name: "openlit", scopes: []string{"openlit.instrumentation.langgraph", "openlit.instrumentation.langchain"}, read: (*reading).readOpenLIT}
	autogen      = instrumentation{name: "autogen", scopes: []string{"autogen-core"}, read: (*reading).readAgentName}
	openLITCalls = instrumentation{name: "openlit-client", scopes: []string{"openlit.instrumentation."}, read: (*reading).readOpenLITClient}
	genAILang    = instrumentation{name: "otel-genai-langchain", scopes: []string{"opentelemetry.instrumentation.genai.langchain"}, read: (*reading).readAgentName}
	openAIv2     = instrumentation{name: "otel-openai-v2", scopes: []string{"opentelemetry.instrumentation.openai_v2"}, read: (*reading).readAgentName}
	traceloopAI  = instrumentation{name: "openllmetry-openai", scopes: []string{"opentelemetry.instrumentation.openai"}, read: (*reading).readTraceloopOpenAI}
)

// readAgentSpan reads a span that is OpenInference's where it says so.
func (r *reading) readAgentSpan() {
	if r.attrs.has("openinference.span.kind") {
		name := r.row.Name
		r.readOpenInference()
		r.row.Name = name
		if agent := r.attrs.text("agent.name"); agent != "" && r.row.Node == "" {
			r.row.Node = clip(agent, schema.MaxName)
		}
	}
	r.readAgentName()
}

// readOpenAIAgents: four instrumentations show the library's own spans, each in its own words.
func (r *reading) readOpenAIAgents() {
	if strings.HasPrefix(r.row.Scope, "opentelemetry.instrumentation.openai_agents") {
		r.readOpenLLMetry()
	}
	r.readAgentSpan()
	switch {
	case r.row.Role != schema.RoleOther:
	case strings.HasPrefix(r.row.Name, "Function: "): // Logfire's
		r.row.Role = schema.RoleTool
	default:
		r.row.Role = schema.RoleChain // the trace, the task and the turns around the calls
	}
	r.readLogfire()
}

// readLiteLLM: without a span of its own for the request, LiteLLM's callback writes the
// request's attributes onto whatever span is active, and each failed request's
// exception and status, though the step may go on and succeed. Such a span stays what
// the application made it; what the provider answered is a span below it.
func (r *reading) readLiteLLM() {
	row, a := r.row, r.attrs
	if scope := row.Scope; scope != "litellm" && !strings.HasPrefix(scope, "openinference.") {
		row.Role, row.Model, row.ResponseModel, row.Provider, row.HTTPStatus = schema.RoleOther, "", "", "", 0
		row.InputTokens, row.OutputTokens, row.FinishReason = schema.Unknown, schema.Unknown, ""
		if strings.HasPrefix(r.span.Status().Message(), "litellm.") { // an error that left the span would have put its class before this
			row.Failed, row.ErrorClass = false, ""
		}
		return
	}
	r.readAgentSpan()
	if row.Name == "raw_gen_ai_request" {
		r.readRawAnswer(a)
	}
}

// readRawAnswer reads what a provider answered, in the provider's own words.
func (r *reading) readRawAnswer(a attributes) {
	row := r.row
	for key, v := range a.m.All() {
		if !strings.HasPrefix(key, "llm.") {
			continue
		}
		switch {
		case strings.HasSuffix(key, ".model"):
			row.Role, row.ResponseModel = schema.RoleModel, clip(v.AsString(), schema.MaxName)
		case strings.HasSuffix(key, ".usage"):
			usage := gjson.Parse(strings.ReplaceAll(strings.ReplaceAll(v.AsString(), "None", "null"), "'", `"`)) // Python's repr
			r.usage(usage, "prompt_tokens", "completion_tokens")
			r.usage(usage, "input_tokens", "output_tokens")
		}
	}
}

// readPydanticAI: a tool or an output function that is asked again carries the number
// of that repeat; a failed candidate of a fallback is a span below the request.
func (r *reading) readPydanticAI() {
	row, a := r.row, r.attrs
	if row.Name == "agent run" || row.Name == "running tool" { // the names of version 1
		row.Role = map[string]schema.Role{"agent run": schema.RoleChain, "running tool": schema.RoleTool}[row.Name]
	}
	for _, kind := range []string{"pydantic_ai.tool.retry.", "pydantic_ai.output.retry."} {
		if _, ok := a.count(kind + "attempt"); ok {
			row.RetryLayer, row.RetryCount = "call", 1
			if limit, ok := a.count(kind + "max_retries"); ok {
				row.AttemptLimit = limit + 1
			}
		}
	}
	if n, ok := a.count("pydantic_ai.model_request.attempt"); ok {
		row.Role, row.Fallback = schema.RoleModel, n // candidates are numbered from 0
	}
	if a.has("pydantic_ai.tool.deferral.name") { // waits for a person or another process
		row.Failed, row.Flow = false, schema.FlowInterrupt
	}
	if name := a.text("gen_ai.agent.name", "agent_name"); name != "" {
		row.Node = clip(name, schema.MaxName)
	}
	if row.Role == schema.RoleChain {
		row.Model = "" // an agent's model is its fallback's list of candidates
	}
	r.readLogfire()
}

// readLogfire: a pending span repeats the start of one that is to come; only of a
// process that was killed it is all there is.
func (r *reading) readLogfire() {
	if r.attrs.text("logfire.span_type") == "pending_span" {
		r.row.Hidden, r.row.Role, r.row.Step = true, schema.RoleAuxiliary, ""
	}
	// How a stream went is a log of its own, after the span of the request.
	if r.attrs.text("logfire.span_type") == "log" && r.row.Role == schema.RoleModel {
		r.row.Role, r.row.Dialect = schema.RoleAuxiliary, "logfire-stream-end"
	}
}

// readGoogleADK: the siblings of one node are an engine's repeats; the name is the only mark.
func (r *reading) readGoogleADK() {
	row := r.row
	if name, ok := strings.CutPrefix(row.Name, "invoke_node "); ok {
		row.Role, row.Step, row.RetryLayer = schema.RoleChain, orElse(row.Step, clip(name, schema.MaxName)), "node"
	}
	if row.Name == "adk_handle_model_error" || r.attrs.text("gen_ai.tool.name") == "adk_handle_model_error" {
		row.Role = schema.RoleAuxiliary // a pseudo tool that reports a model's error
	}
	r.readAgentName()
}

// readOpenLIT: nodes are agents; there are no task ids and no wrappers.
func (r *reading) readOpenLIT() {
	row, a := r.row, r.attrs
	if strings.HasPrefix(row.Scope, "openlit.instrumentation.langgraph") && a.text("gen_ai.operation.name") == "invoke_agent" {
		row.Step = orElse(row.Step, clip(a.text("gen_ai.agent.name"), schema.MaxName))
		row.Role, row.Model = schema.RoleChain, ""
	}
	if a.text("gen_ai.operation.name") == "create_agent" {
		row.Role, row.Hidden, row.Model = schema.RoleAuxiliary, true, "" // a graph is compiled: no step, no run
	}
	if row.Provider == "langchain" || row.Provider == "langgraph" {
		row.Provider = ""
	}
}

// readOpenLITClient: a client's call that failed has its name (`chat gpt-4o`) and no attributes.
func (r *reading) readOpenLITClient() {
	row := r.row
	op, model, _ := strings.Cut(row.Name, " ")
	if role := genAIRoles[op]; row.Role == schema.RoleOther && row.ClientKind && role == schema.RoleModel {
		row.Role, row.Model = role, orElse(row.Model, model)
	}
}

// readTraceloopOpenAI: a stream that broke ends well, so that repeats of streams show no failure.
func (r *reading) readTraceloopOpenAI() {
	if on, ok := r.attrs.boolean("gen_ai.is_streaming"); ok && on {
		r.row.Dialect = "openllmetry-stream"
	} else if on, ok := r.attrs.boolean("llm.is_streaming"); ok && on {
		r.row.Dialect = "openllmetry-stream"
	}
}
