"""Sends spans by the instrumentation that was chosen, to where OTEL_EXPORTER_OTLP_ENDPOINT says.

Each of the functions below is all that an application needs for that instrumentation.
"""
import contextlib
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

tracer = trace.get_tracer("example")
callbacks: list = []  # that each call of a framework is given
by_hand = False  # the application writes the spans of its steps and calls itself
instrumentation = ""
flush = lambda: None


def plain() -> TracerProvider:
    """OpenTelemetry alone."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def openinference() -> TracerProvider:
    from openinference.instrumentation.langchain import LangChainInstrumentor
    provider = plain()
    LangChainInstrumentor().instrument(tracer_provider=provider)
    return provider


def openllmetry() -> TracerProvider:
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor
    provider = plain()
    LangchainInstrumentor().instrument(tracer_provider=provider)
    return provider


def langsmith() -> TracerProvider:
    """LangSmith's client sends its runs as spans, and nothing to LangSmith."""
    os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_TRACING_MODE": "otel"}
    return plain()


def langfuse(everything: bool = False):
    """Langfuse's callback handler and its own exporter; LANGFUSE_BASE_URL says where to.
    It leaves out the application's own spans, unless told to export everything."""
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler
    client = Langfuse(public_key="pk-example", secret_key="sk-example",
                      **({"should_export_span": lambda span: True} if everything else {}))
    callbacks.append(CallbackHandler(public_key="pk-example"))
    return client


INSTRUMENTATIONS = {
    "openinference": openinference, "openllmetry": openllmetry, "langsmith": langsmith,
    "langfuse": langfuse, "langfuse-everything": lambda: langfuse(everything=True), "plain": plain,
}


def start(name: str) -> None:
    """Starts one of the INSTRUMENTATIONS."""
    global flush, by_hand, instrumentation
    instrumentation = name
    by_hand = name == "plain"
    started = INSTRUMENTATIONS[name]()
    if name == "langsmith":
        from langchain_core.tracers.langchain import wait_for_all_tracers
        flush = lambda: (wait_for_all_tracers(), started.force_flush())
    else:
        flush = getattr(started, "force_flush", None) or started.flush


def span(name: str, attributes: dict, kind: SpanKind = SpanKind.INTERNAL):
    """A span of the application's own."""
    return tracer.start_as_current_span(name, attributes=attributes, kind=kind)


def run(run_id: str):
    """The root of a run, where the application writes its own spans."""
    return span("pipeline", {"run.id": run_id}) if by_hand else contextlib.nullcontext()


def step(name: str, attempt: int = 1):
    """One execution of a step, the policy's attempt-th."""
    return span(name, {"step": name, "retry.attempt": attempt}) if by_hand else contextlib.nullcontext()


def chat(model: str, candidate: int = 0):
    """One request to a model, in the GenAI conventions; candidates after the first are fallbacks."""
    if not by_hand:
        return contextlib.nullcontext()
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": model}
    if candidate:
        attributes["fallback"] = candidate
    return span(f"chat {model}", attributes, SpanKind.CLIENT)


def usage(tokens: tuple[int, int]) -> None:
    """What the request of the current span used."""
    if by_hand:
        trace.get_current_span().set_attributes(
            {"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]})


def tool(name: str):
    """One call of a tool."""
    if not by_hand:
        return contextlib.nullcontext()
    return span(f"execute_tool {name}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name})
