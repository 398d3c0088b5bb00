"""Graphs whose nodes are counted, and runs of them."""
import functools
import inspect
import operator
import time
import uuid
from typing import Annotated, Any, Callable, TypedDict

from langgraph.errors import GraphInterrupt, NodeTimeoutError
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import RetryPolicy

import telemetry
from counters import Counters
from scripted import Failure


class State(TypedDict, total=False):
    question: str
    answer: str
    status: Annotated[str, lambda old, new: new]
    item: int
    items: Annotated[list[int], operator.add]


def policy(max_attempts: int) -> RetryPolicy:
    """The engine's retry policy of a node. max_attempts includes the first."""
    return RetryPolicy(max_attempts=max_attempts, initial_interval=0.02, jitter=False,
                       retry_on=(Failure, NodeTimeoutError))


def step(counters: Counters, name: str, node: Callable) -> Callable:
    """Counts the executions of a node, and writes their spans where nobody else does."""
    def attempt() -> int:
        return get_runtime().execution_info.node_attempt

    def item(state, *_):  # of a fan-out
        return state.get("item") if isinstance(state, dict) else None

    if inspect.iscoroutinefunction(node):
        @functools.wraps(node)
        async def counted(*args):
            with counters.execution(name, attempt()), telemetry.step(name, attempt(), item=item(*args)):
                result = await node(*args)
                telemetry.step_returned(result)
                return result
    else:
        @functools.wraps(node)
        def counted(*args):
            with counters.execution(name, attempt()), telemetry.step(name, attempt(), item=item(*args)):
                result = node(*args)
                telemetry.step_returned(result)
                return result
    return counted


def fails(times: int) -> Callable:
    """A node without a model that fails so many times, then works."""
    left = [None] * times

    def node(state):
        time.sleep(0.01)
        if left:
            left.pop()
            raise Failure("the vector store went away")
        return {"status": "ok"}
    return node


def passes(state) -> dict:
    """A node that has nothing to tell."""
    return {}


def line(counters: Counters, checkpointer=None, **nodes) -> Any:
    """A graph of nodes one after the other; a node with options is a pair."""
    graph, last = StateGraph(State), START
    for name, node in nodes.items():
        node, options = node if isinstance(node, tuple) else (node, {})
        graph.add_node(name, node if hasattr(node, "invoke") else step(counters, name, node), **options)
        graph.add_edge(last, name)
        last = name
    graph.add_edge(last, END)
    return graph.compile(checkpointer=checkpointer)


def config(thread: str) -> dict:
    return {"configurable": {"thread_id": thread}, "callbacks": list(telemetry.callbacks)}


def new_thread() -> str:
    return uuid.uuid4().hex


def completion(result) -> str:
    """How a run ended that says nothing about itself."""
    if result is None:
        return "failed"
    return "interrupted" if "__interrupt__" in result else "unflagged"


def run(counters: Counters, graph, given={"question": "q1"}, thread: str = "", run_id: str = ""):
    """Runs a graph; that it fails in the end is part of some stories. One that is given its run id, or else its
    thread, again is resumed."""
    thread = thread or new_thread()
    try:
        with telemetry.run(run_id or thread):
            result = graph.invoke(given, config(thread))
    except Failure:
        result = None
    counters.run(run_id or thread, completion(result))


async def arun(counters: Counters, graph) -> None:
    """run, for graphs with asynchronous nodes."""
    thread = new_thread()
    with telemetry.run(thread):
        result = await graph.ainvoke({"question": "q1"}, config(thread))
    counters.run(thread, completion(result))
