"""What an application says by itself: contract violations, and whether a run is complete."""
import functools

from opentelemetry.trace import Status, StatusCode

import telemetry
from counters import Counters
from pipeline import fails, line, new_thread, passes, policy, run
from scripted import Failure


def contract(c: Counters, node: str, reads: tuple = (), writes: tuple = ()):
    """Checks what a node reads and writes. A missing key is written as a span with an error, and the run goes
    on: the error is the node's that missed it, not of the one that stumbles over it later."""
    def violated(direction: str, key: str):
        attributes = {"contract.node": node, f"contract.missing_{direction}": key}
        with telemetry.span("contract violation", attributes) as span:
            span.set_status(Status(StatusCode.ERROR, f"missing {direction}: {key}"))
        c.violation(node, key, direction)

    def decorate(function):
        @functools.wraps(function)
        def checked(state):
            for key in reads:
                if key not in state:
                    violated("input", key)
            result = function(state)
            for key in writes:
                if key not in result:
                    violated("output", key)
            return result
        return checked
    return decorate


def flagged(c: Counters, graph, steps: tuple = ()) -> None:
    """Runs a graph below a root span that says in the end whether the run is complete."""
    thread, unfinished = new_thread(), list(steps)
    with telemetry.span("job", {"run.id": thread}) as root:
        run(c, graph, thread=thread)
        root.set_attribute("run.complete", not unfinished)
        if unfinished:
            root.set_attribute("run.unfinished_steps", unfinished)
    c.run(thread, "incomplete" if unfinished else "complete")


def complete(c: Counters):
    """A run that says it is complete; the policy repeated a node on the way."""
    flagged(c, line(c, ingest=passes, resolve=(fails(1), {"retry_policy": policy(2)}), rank=passes))


def incomplete(c: Counters):
    """A run that ends without an error, and says which step did not finish."""
    flagged(c, line(c, ingest=passes, resolve=lambda state: {"answer": ""}), steps=("rank",))


def violations(c: Counters):
    """resolve forgets to write the answer, rank misses it, and the run goes on to its end."""
    resolve = contract(c, "resolve", reads=("question",), writes=("answer",))(lambda state: {"status": "ok"})
    rank = contract(c, "rank", reads=("answer",))(passes)
    flagged(c, line(c, ingest=passes, resolve=resolve, rank=rank))


def violation_and_retries(c: Counters):
    """The same key is missed in each of two executions of a node."""
    words = ["x", "y"]

    @contract(c, "resolve", reads=("deduplicated",))
    def resolve(state):
        if words.pop(0) == "x":
            raise Failure("nothing to resolve")
        return {"status": "ok"}
    flagged(c, line(c, ingest=passes, resolve=(resolve, {"retry_policy": policy(2)}), rank=passes))


SCENARIOS = (complete, incomplete, violations, violation_and_retries)
