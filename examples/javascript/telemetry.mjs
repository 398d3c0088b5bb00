// Sends spans by the instrumentation that was chosen, to where OTEL_EXPORTER_OTLP_ENDPOINT says.
// Each of the functions in instrumentations is all that an application needs for that one.
import { AsyncLocalStorage } from "node:async_hooks";
import { SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { detectResources, envDetector } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const tracer = trace.getTracer("example");
export const callbacks = []; // that each call of a framework is given
export let byHand = false; // the application writes the spans of its steps and calls itself
export let instrumentation = ""; // the one that was started
export const traceIds = new Set(); // of the spans so far, under which the ledger has them
let provider;

// Unless the environment says otherwise, all is sent to this machine.
process.env.OTEL_SERVICE_NAME ??= "javascript-examples";
process.env.OTEL_EXPORTER_OTLP_ENDPOINT ??= "http://127.0.0.1:4318";
process.env.LANGFUSE_BASE_URL ??= "http://127.0.0.1:4321";

function plain(processor = new BatchSpanProcessor(new OTLPTraceExporter())) {
  const remember = { onStart: (span) => traceIds.add(span.spanContext().traceId), onEnd() {}, async forceFlush() {}, async shutdown() {} };
  provider = new NodeTracerProvider({ resource: detectResources({ detectors: [envDetector] }), spanProcessors: [processor, remember] });
  provider.register();
  return provider;
}

async function openinference() {
  const { LangChainInstrumentation } = await import("@arizeai/openinference-instrumentation-langchain");
  const instrumentation = new LangChainInstrumentation({ tracerProvider: plain() });
  instrumentation.manuallyInstrument(await import("@langchain/core/callbacks/manager"));
}

// Langfuse's callback handler and its own exporter; LANGFUSE_BASE_URL says where to.
// It leaves out the application's own spans, unless told to export everything.
async function langfuse(more = {}) {
  const { CallbackHandler } = await import("@langfuse/langchain");
  const { LangfuseSpanProcessor } = await import("@langfuse/otel");
  plain(new LangfuseSpanProcessor({ publicKey: "pk-example", secretKey: "sk-example", ...more }));
  callbacks.push(new CallbackHandler());
}

export const instrumentations = {
  openinference,
  langfuse,
  "langfuse-everything": () => langfuse({ shouldExportSpan: () => true }),
  plain: () => { byHand = true; plain(); },
};

// Starts one of the instrumentations.
export async function start(name) {
  instrumentation = name;
  await instrumentations[name]();
}

export const flush = () => provider.forceFlush();

// A span of the application's own around some work.
export function span(name, attributes, work, kind = SpanKind.INTERNAL) {
  return tracer.startActiveSpan(name, { attributes, kind }, async (span) => {
    try {
      return await work(span);
    } catch (error) {
      span.recordException(error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: `${error.name}: ${error.message}` });
      throw error;
    } finally {
      span.end();
    }
  });
}

const runs = new AsyncLocalStorage();

// The root of a run, where the application writes its own spans. A run that is resumed in
// another trace keeps its run id.
export function run(runId, work) {
  return runs.run(runId, () => byHand ? span("pipeline", { "run.id": runId }, work) : work());
}

// One execution of a step, the policy's attempt-th. A step that fails without an error says so,
// since nobody reads its output from a span written by hand. The item that a branch of a fan-out
// works on tells its repeats from the other branches.
export function step(name, attempt, work, item) {
  if (!byHand) return work();
  return span(name, { step: name, "retry.attempt": attempt, "run.id": runs.getStore(), item }, async (span) => {
    const result = await work();
    if (result?.status === "error") span.setAttributes({ "step.failed": true, "step.error": "status: error" });
    return result;
  });
}

// One request to a model in the GenAI conventions. work tells what was used.
export function chat(model, candidate, step, work) {
  if (!byHand) return work(() => {});
  const attributes = {
    "gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": model,
    step, "run.id": runs.getStore(), ...(candidate ? { fallback: candidate } : {}),
  };
  const used = (span) => ([input, output]) =>
    span.setAttributes({ "gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": output });
  return span(`chat ${model}`, attributes, (span) => work(used(span)), SpanKind.CLIENT);
}

// One call of a tool.
export function tool(name, work) {
  if (!byHand) return work();
  return span(`execute_tool ${name}`, { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name }, work);
}
