"""Sends spans by the instrumentation that was chosen, to where OTEL_EXPORTER_OTLP_ENDPOINT says.

Each of the functions below is all that an application needs for that instrumentation.
"""
import contextlib
import contextvars
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

tracer = trace.get_tracer("example")
callbacks: list = []  # that each call of a framework is given
by_hand = False  # the application writes the spans of its steps and calls itself
instrumentation = ""
flush = lambda: None
trace_ids: list[str] = []  # of the spans so far
_run_id = contextvars.ContextVar("run_id", default="")


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
    """LangSmith's client sends its runs as spans, and nothing to LangSmith. With more than one thread, which it
    starts when its queue grows, it meets the end of some runs before their beginning, and loses them."""
    os.environ["LANGSMITH_TRACING"] = "true"
    provider = plain()
    from langsmith.run_trees import get_cached_client
    one_thread = {"size_limit": 100, "scale_up_nthreads_limit": 0, "scale_up_qsize_trigger": 200,
                  "scale_down_nempty_trigger": 4, "use_multipart_endpoint": True, "size_limit_bytes": None}
    get_cached_client(tracing_mode="otel", info={"batch_ingest_config": one_thread})
    return provider


def langfuse(everything: bool = False):
    """Langfuse's callback handler and its own exporter; LANGFUSE_BASE_URL says where to.
    It leaves out the application's own spans, unless told to export everything."""
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler
    client = Langfuse(public_key="pk-example", secret_key="sk-example",
                      **({"should_export_span": lambda span: True} if everything else {}))
    callbacks.append(CallbackHandler(public_key="pk-example"))
    return client


class TraceIDs(SpanProcessor):
    """Remembers under which ids the ledger has what the application did."""

    def on_start(self, span, parent_context=None):
        trace_id = format(span.context.trace_id, "032x")
        if trace_id not in trace_ids:
            trace_ids.append(trace_id)


INSTRUMENTATIONS = {
    "openinference": openinference, "openllmetry": openllmetry, "langsmith": langsmith,
    "langfuse": langfuse, "langfuse-everything": lambda: langfuse(everything=True), "plain": plain,
}


DEFAULTS = {
    "OTEL_SERVICE_NAME": "python-examples",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
    "LANGFUSE_BASE_URL": "http://127.0.0.1:4321",
}


def start(name: str) -> None:
    """Starts one of the INSTRUMENTATIONS. Unless the environment says otherwise it sends to this machine."""
    for variable, value in DEFAULTS.items():
        os.environ.setdefault(variable, value)
    global flush, by_hand, instrumentation
    instrumentation = name
    by_hand = name == "plain"
    started = INSTRUMENTATIONS[name]()
    trace.get_tracer_provider().add_span_processor(TraceIDs())
    if name == "langsmith":
        from langchain_core.tracers.langchain import wait_for_all_tracers
        flush = lambda: (wait_for_all_tracers(), started.force_flush())
    else:
        flush = getattr(started, "force_flush", None) or started.flush


def span(name: str, attributes: dict, kind: SpanKind = SpanKind.INTERNAL):
    """A span of the application's own."""
    return tracer.start_as_current_span(name, attributes=attributes, kind=kind)


@contextlib.contextmanager
def run(run_id: str):
    """The root of a run, where the application writes its own spans. A run that is resumed in
    another trace, or another process, keeps its run id."""
    token = _run_id.set(run_id)
    try:
        with span("pipeline", {"run.id": run_id}) if by_hand else contextlib.nullcontext() as root:
            yield root
    finally:
        _run_id.reset(token)


@contextlib.contextmanager
def step(name: str, attempt: int = 1, max_attempts: int = 0, item: int | None = None):
    """One execution of a step, the policy's attempt-th. What it returns is said by step_returned. The item that
    a branch of a fan-out works on tells its repeats from the other branches."""
    if not by_hand:
        yield
        return
    attributes = {"step": name, "retry.attempt": attempt, "run.id": _run_id.get()}
    if max_attempts:
        attributes["retry.max_attempts"] = max_attempts
    if item is not None:
        attributes["item"] = item
    with span(name, attributes):
        yield


def step_returned(result) -> None:
    """A step that fails without an error says so, since nobody reads its output from a span written by hand."""
    if by_hand and isinstance(result, dict) and result.get("status") == "error":
        trace.get_current_span().set_attributes({"step.failed": True, "step.error": "status: error"})


class Call:
    """One request to a model in the GenAI conventions, where the application writes its own spans. It names its
    step and run, so that it is known where it belongs when the process dies before the step's span has ended."""

    def __init__(self, model: str, candidate: int = 0, step: str = ""):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted",
                      "gen_ai.request.model": model, "step": step, "run.id": _run_id.get()}
        if candidate:  # not the primary
            attributes["fallback"] = candidate
        self.span = tracer.start_span(f"chat {model}", kind=SpanKind.CLIENT, attributes=attributes) if by_hand else None

    def __enter__(self):
        return self

    def used(self, tokens: tuple[int, int]) -> None:
        if self.span:
            self.span.set_attributes({"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]})

    def __exit__(self, kind, error, traceback) -> None:
        if self.span:
            if error:
                self.span.record_exception(error)
                self.span.set_status(StatusCode.ERROR, f"{kind.__name__}: {error}")
            self.span.end()


def tool(name: str):
    """One call of a tool."""
    if not by_hand:
        return contextlib.nullcontext()
    return span(f"execute_tool {name}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name})
