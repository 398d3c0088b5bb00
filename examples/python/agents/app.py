"""Agents whose middleware repeats models and tools, and falls back."""
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware, ToolRetryMiddleware
from langchain_core.tools import tool

import telemetry
from counters import Counters
from pipeline import line, passes, policy, run, step
from scripted import InternalServerError, model

QUICK = {"initial_delay": 0.02, "backoff_factor": 1.0, "jitter": False}
QUESTION = {"messages": [("user", "q1")]}


class Counting(AgentMiddleware):
    """Counts the executions of the agent's two nodes. It must be the first middleware."""

    def __init__(self, counters: Counters):
        self.counters = counters

    def wrap_model_call(self, request, handler):
        with self.counters.execution("model"), telemetry.step("model"):
            return handler(request)

    def wrap_tool_call(self, request, handler):
        with self.counters.execution("tools"), telemetry.step("tools"):
            return handler(request)


def agent(c: Counters, asked, *middleware, tools=()):
    return create_agent(asked, tools=list(tools), middleware=[Counting(c), *middleware])


def look_up(c: Counters, *words: str):
    """A tool that fails at the word x."""
    words = list(words)

    @tool("look_up")
    def look_up(q: str) -> str:
        """Looks something up."""
        with telemetry.tool("look_up"):
            c.tool(q)
            word = words.pop(0) if len(words) > 1 else words[0]
            if word == "x":
                raise InternalServerError
            return word
    return look_up


def model_retry(c: Counters):
    """ModelRetryMiddleware: 429, 503, then an answer."""
    run(c, agent(c, model(c, 429, 503, "done"), ModelRetryMiddleware(max_retries=2, **QUICK)), QUESTION)


def model_retry_gives_up(c: Counters):
    """ModelRetryMiddleware gives up and, as it does unless told otherwise, hides that: the run ends well."""
    run(c, agent(c, model(c, 429), ModelRetryMiddleware(max_retries=2, **QUICK)), QUESTION)


def model_fallback(c: Counters):
    """ModelFallbackMiddleware: two models fail, the third answers."""
    others = ModelFallbackMiddleware(model(c, 503, candidate=1), model(c, "done", candidate=2))
    run(c, agent(c, model(c, 429), others), QUESTION)


def retry_around_fallback(c: Counters):
    """The retry is around the fallback: a and b fail in two rounds, a answers in the third."""
    retry, fallback = ModelRetryMiddleware(max_retries=2, **QUICK), ModelFallbackMiddleware(model(c, 503, candidate=1))
    run(c, agent(c, model(c, 429, 429, "done"), retry, fallback), QUESTION)


def tool_retry(c: Counters):
    """ToolRetryMiddleware: the tool fails once."""
    retry = ToolRetryMiddleware(max_retries=2, **QUICK)
    run(c, agent(c, model(c, {"q": "x"}, "done"), retry, tools=[look_up(c, "x", "found")]), QUESTION)


def tool_retry_gives_up(c: Counters):
    """ToolRetryMiddleware gives up and tells the model, which goes on."""
    retry = ToolRetryMiddleware(max_retries=2, **QUICK)
    run(c, agent(c, model(c, {"q": "x"}, "done"), retry, tools=[look_up(c, "x")]), QUESTION)


def loop(c: Counters):
    """A loop of four answers and three tool calls, in which the third answer takes three calls of the model.
    That an agent goes round is no retry."""
    asked = model(c, {"q": "1"}, {"q": "2"}, 429, 503, {"q": "3"}, "done")
    retry = ModelRetryMiddleware(max_retries=2, **QUICK)
    run(c, agent(c, asked, retry, tools=[look_up(c, "found")]), QUESTION)


def agent_in_a_node(c: Counters):
    """An agent inside a node with a policy: 2 calls × 2 executions, charged to the agent's model."""
    inner = agent(c, model(c, 429, 503, 429, "done"), ModelRetryMiddleware(max_retries=1, on_failure="error", **QUICK))

    def resolve(state):
        return {"answer": inner.invoke(QUESTION)["messages"][-1].content}
    run(c, line(c, ingest=passes, resolve=(resolve, {"retry_policy": policy(2)}), rank=passes))


SCENARIOS = (model_retry, model_retry_gives_up, model_fallback, retry_around_fallback, tool_retry, tool_retry_gives_up,
             loop, agent_in_a_node)
