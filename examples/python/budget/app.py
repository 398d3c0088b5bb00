"""A pipeline without a framework, in plain OpenTelemetry, and one retry budget that all its layers share.

Two layers that do not know of each other spend more than either allows: the node retries, and the orchestrator
retries the node. An object that both ask before they repeat keeps the promise.
"""
import time

import tenacity

import telemetry
from counters import Counters
from pipeline import new_thread
from scripted import MODELS, TOKENS, Failure, failure


class RetryBudget:
    """How often a run, and a step of it, may be repeated by anyone."""

    def __init__(self, run_limit: int = 12, step_limit: int = 3):
        self.run_limit, self.step_limit, self.spent = run_limit, step_limit, {}

    def spend(self, step: str) -> bool:
        """Takes one retry, if there is one left."""
        if self.spent.get(step, 0) >= self.step_limit or sum(self.spent.values()) >= self.run_limit:
            return False
        self.spent[step] = self.spent.get(step, 0) + 1
        return True

    @property
    def exhausted(self) -> bool:
        return sum(self.spent.values()) >= self.run_limit or max(self.spent.values(), default=0) >= self.step_limit


class Node:
    """A step with a model, which a policy executes up to three times."""

    def __init__(self, c: Counters, step: str, *codes: int, budget: RetryBudget | None = None):
        self.c, self.step, self.codes, self.budget = c, step, list(codes), budget

    def may_repeat(self, state: tenacity.RetryCallState) -> bool:
        return state.attempt_number < 3 and (self.budget is None or self.budget.spend(self.step))

    def run(self) -> None:
        policy = tenacity.Retrying(stop=lambda state: not self.may_repeat(state), wait=tenacity.wait_fixed(0.01),
                                   retry=tenacity.retry_if_exception_type(Failure), reraise=True)
        for attempt in policy:
            with attempt:
                self.execute(attempt.retry_state.attempt_number)

    def execute(self, attempt: int) -> None:
        with self.c.execution(self.step, attempt), telemetry.step(self.step, attempt, max_attempts=3):
            self.ask()

    def ask(self) -> None:
        with telemetry.Call(MODELS[0], step=self.step) as call:
            time.sleep(0.005)
            if self.codes and (code := self.codes.pop(0)):
                self.c.call(self.step, 0, failed=True)
                raise failure(code)
            self.c.call(self.step, 0, failed=False, tokens=TOKENS)
            call.used(TOKENS)


def orchestrate(c: Counters, nodes: list[Node], rounds: int, budget: RetryBudget | None = None) -> None:
    """Runs the nodes in turn, and one that has given up again, for some rounds."""
    run_id, unfinished = new_thread(), [node.step for node in nodes]
    with telemetry.run(run_id) as root:
        if budget:
            root.set_attributes({"retry.budget.run_limit": budget.run_limit, "retry.budget.step_limit": budget.step_limit})
        for node in nodes:
            for left in reversed(range(rounds)):
                try:
                    node.run()
                    unfinished.remove(node.step)
                    break
                except Failure:
                    if not left or budget and not budget.spend(node.step):
                        break
                    c.retry(node.step, "orchestrator")
        root.set_attribute("run.complete", not unfinished)
        if unfinished:
            root.set_attribute("run.unfinished_steps", unfinished)
        if budget:
            root.set_attribute("retry.budget.exhausted", budget.exhausted)
    c.run(run_id, "incomplete" if unfinished else "complete")


def uncoordinated(c: Counters):
    """The policy allows 3 executions, the orchestrator 3 rounds: it takes 7, and nobody planned that."""
    orchestrate(c, [Node(c, "ingest"), Node(c, "resolve", 429, 429, 503, 429, 429, 503), Node(c, "rank")], rounds=3)


def shared(c: Counters):
    """The same with a budget of 3 that both layers share: 4 executions, and the run says it is incomplete."""
    budget = RetryBudget()
    nodes = [Node(c, "ingest", budget=budget), Node(c, "resolve", *[429] * 9, budget=budget), Node(c, "rank", budget=budget)]
    orchestrate(c, nodes, rounds=3, budget=budget)


def enough(c: Counters):
    """With the budget, and a failure that goes away in time."""
    budget = RetryBudget()
    nodes = [Node(c, "ingest", 503, budget=budget), Node(c, "resolve", 429, 429, budget=budget)]
    orchestrate(c, nodes, rounds=3, budget=budget)


SCENARIOS = (uncoordinated, shared, enough)
