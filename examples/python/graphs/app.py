"""Repeats of nodes: retry policies, recovery edges, error handlers, and what they multiply to."""
import asyncio
import time

from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from calls.app import THREE, asks
from counters import Counters
from pipeline import State, arun, fails, line, passes, policy, run, step
from scripted import Failure, model


def node_retries(c: Counters):
    """The engine's policy executes a node three times."""
    run(c, line(c, ingest=passes, resolve=(fails(2), {"retry_policy": policy(3)}), rank=passes))


def node_retries_exhausted(c: Counters):
    """The engine's policy gives up, and the run fails."""
    run(c, line(c, ingest=passes, resolve=(fails(9), {"retry_policy": policy(3)}), rank=passes))


def nested(c: Counters):
    """Retries of the client inside retries of the node: 3 × 3 calls for one question."""
    resolve = asks(model(c, *[429] * 8, "a").with_retry(**THREE))
    run(c, line(c, ingest=passes, resolve=(resolve, {"retry_policy": policy(3)}), rank=passes))


def seven(c: Counters):
    """The story of seven: the configuration says 3, and the node is executed 7 times, because its error
    handler leads the run back to it each time the policy has given up."""
    def recover(state):
        c.retry("resolve", "orchestrator")
        return Command(update={"status": "again"}, goto="resolve")
    graph = StateGraph(State)
    graph.add_node("ingest", step(c, "ingest", passes))
    graph.add_node("resolve", step(c, "resolve", fails(6)), retry_policy=policy(3), error_handler=recover)
    graph.add_node("rank", step(c, "rank", passes))
    graph.add_edge(START, "ingest")
    graph.add_edge("ingest", "resolve")
    graph.add_edge("resolve", "rank")
    graph.add_edge("rank", END)
    run(c, graph.compile())


def seven_dispatched(c: Counters):
    """Seven again, in a subgraph. The dispatcher catches the failure and reports it in the state it returns,
    so that the edge after it enters the dispatcher again: all that fails is resolve."""
    inner = line(c, resolve=(fails(6), {"retry_policy": policy(3)}))

    def dispatch(state):
        try:
            return {"status": inner.invoke(state)["status"]}
        except Failure:
            return {"status": "error"}

    def recover(state):
        if state["status"] == "error":
            c.retry("resolve", "orchestrator")
            return "dispatch"
        return "rank"
    graph = StateGraph(State)
    for name, node in {"ingest": passes, "dispatch": dispatch, "rank": passes}.items():
        graph.add_node(name, step(c, name, node))
    graph.add_edge(START, "ingest")
    graph.add_edge("ingest", "dispatch")
    graph.add_conditional_edges("dispatch", recover, ["dispatch", "rank"])
    graph.add_edge("rank", END)
    run(c, graph.compile())


def recovery_edge(c: Counters):
    """A node that fails without an error says so in the state it returns, and an edge leads back to it."""
    answers = [{"status": "error"}, {"status": "error"}, {"status": "ok"}]

    def again(state):
        if state["status"] == "error":
            c.retry("resolve", "orchestrator")
            return "resolve"
        return END
    graph = StateGraph(State)
    graph.add_node("resolve", step(c, "resolve", lambda state: answers.pop(0)))
    graph.add_edge(START, "resolve")
    graph.add_conditional_edges("resolve", again, ["resolve", END])
    run(c, graph.compile())


def loop(c: Counters):
    """Three rounds that all go well are no retries."""
    def resolve(state):
        return {"items": [len(state.get("items", []))]}
    graph = StateGraph(State)
    graph.add_node("resolve", step(c, "resolve", resolve))
    graph.add_edge(START, "resolve")
    graph.add_conditional_edges("resolve", lambda state: END if len(state["items"]) == 3 else "resolve")
    run(c, graph.compile())


def failing_items(**times: int):
    """A node that fails for an item as often as the item's number is named for."""
    left = {int(item.removeprefix("item")): n for item, n in times.items()}

    def node(state):
        time.sleep(0.02)
        if left.get(state["item"], 0) > 0:
            left[state["item"]] -= 1
            raise Failure("the vector store went away")
        return {"items": [state["item"]]}
    return node


def fan(c: Counters, score, **options) -> StateGraph:
    """split sends four items to branches of score, and join waits for them."""
    graph = StateGraph(State)
    graph.add_node("split", step(c, "split", passes))
    graph.add_node("score", score, **options)
    graph.add_node("join", step(c, "join", passes))
    graph.add_edge(START, "split")
    graph.add_conditional_edges("split", lambda state: [Send("score", {"item": i}) for i in range(4)], ["score"])
    graph.add_edge("score", "join")
    graph.add_edge("join", END)
    return graph.compile()


def fan_out(c: Counters):
    """Four branches, two of which the policy repeats, once and twice. A branch is no retry."""
    run(c, fan(c, step(c, "score", failing_items(item1=1, item3=2)), retry_policy=policy(3)), {})


def fan_out_of_calls(c: Counters):
    """Four branches that ask a model with retries: 1, 2, 3 and 1 calls."""
    asked = model(c, q0=["a"], q1=[429, "a"], q2=[429, 503, "a"], q3=["a"]).with_retry(**THREE)

    def score(state):
        asked.invoke(f"q{state['item']}")
        return {"items": [state["item"]]}
    run(c, fan(c, step(c, "score", score)), {})


def fan_out_of_subgraphs(c: Counters):
    """Each branch is a graph, whose own policy repeats a node."""
    inner = StateGraph(State)
    inner.add_node("resolve", step(c, "resolve", failing_items(item1=1, item2=2)), retry_policy=policy(3))
    inner.add_edge(START, "resolve")
    inner.add_edge("resolve", END)
    inner = inner.compile()
    run(c, fan(c, step(c, "score", lambda state: {"items": inner.invoke(state)["items"]})), {})


def subgraph(c: Counters):
    """A policy inside and one outside: 2 × 2 executions, charged to the step that failed."""
    inner = line(c, prepare=passes, resolve=(fails(3), {"retry_policy": policy(2)}))

    def dispatch(state):
        return {"status": inner.invoke(state)["status"]}
    run(c, line(c, ingest=passes, dispatch=(dispatch, {"retry_policy": policy(2)}), rank=passes))


def error_handler(c: Counters):
    """The policy gives up, and the error handler lets the run go on."""
    graph = StateGraph(State)
    graph.add_node("resolve", step(c, "resolve", fails(9)), retry_policy=policy(2),
                   error_handler=lambda state: {"status": "handled"})
    graph.add_node("rank", step(c, "rank", passes))
    graph.add_edge(START, "resolve")
    graph.add_edge("resolve", "rank")
    graph.add_edge("rank", END)
    run(c, graph.compile())


def node_timeout(c: Counters):
    """The node hangs twice; its timeout cancels it, and the policy executes it again."""
    hangs = [5, 5, 0]

    async def resolve(state):
        await asyncio.sleep(hangs.pop(0))
        return {"status": "ok"}
    resolve = (resolve, {"retry_policy": policy(3), "timeout": 1.0})
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def node_timeout_in_a_call(c: Counters):
    """The timeout cancels the node after one of its two calls, and the policy executes it again."""
    asked, hangs = model(c, "a"), [5, 0]

    async def resolve(state):
        await asked.ainvoke("q1")
        await asyncio.sleep(hangs.pop(0))
        await asked.ainvoke("q2")
        return {"status": "ok"}
    resolve = (resolve, {"retry_policy": policy(3), "timeout": 1.0})
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def functional(c: Counters):
    """The functional API: a task with a policy, called again by the pipeline when it has given up."""
    resolve = task(step(c, "resolve", fails(3)), name="resolve", retry_policy=policy(2))

    @entrypoint()
    def pipeline(question):
        def body(question):
            try:
                resolve(question).result()
            except Failure:
                c.retry("resolve", "orchestrator")
                resolve(question).result()
            return {"status": "ok"}
        return step(c, "pipeline", body)(question)
    run(c, pipeline, "q1")


SCENARIOS = (node_retries, node_retries_exhausted, nested, seven, seven_dispatched, recovery_edge, loop, fan_out,
             fan_out_of_calls, fan_out_of_subgraphs, subgraph, error_handler, node_timeout, node_timeout_in_a_call,
             functional)
