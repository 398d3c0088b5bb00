"""Counts inside the application what really happens, without a look at any span.

A step is a node of the pipeline. A repeat is counted where it can be known for certain: the
engine's own attempt number says that its policy repeats a node, a model that hears the same
question again within one execution knows that its client repeats it, and whoever leads the run
back to a step says so. The ledger has to find the same numbers in the spans.
"""
import contextlib
import contextvars
import json
import threading

LAYERS = ("call", "node", "orchestrator", "worker")

# The execution that the running code belongs to: its step, and the candidate that heard each
# of its questions last.
_execution = contextvars.ContextVar("execution")


class Counters:
    """A list of what happened. With a journal, a file, it outlives the process."""

    def __init__(self, journal: str = ""):
        self.events: list[dict] = []
        self.journal = journal
        self.lock = threading.Lock()
        self.failed_in: dict[str, str] = {}

    def record(self, event: str, **details) -> None:
        with self.lock:
            self.events.append({"event": event, **details})
            if self.journal:
                with open(self.journal, "a", encoding="utf-8") as file:
                    print(json.dumps(self.events[-1]), file=file)

    def read(self, journal: str) -> None:
        """Takes over what another process recorded."""
        with open(journal, encoding="utf-8") as file:
            self.events += [json.loads(line) for line in file]

    @contextlib.contextmanager
    def execution(self, step: str, attempt: int = 1):
        """Surrounds one execution of a step, the engine's attempt-th of one task."""
        if attempt > 1:
            # One decision is charged once: to the innermost step that failed.
            self.retry(self.failed_in.get(step, step), "node")
        self.record("execution", step=step)
        token = _execution.set((step, {}))
        try:
            yield
        except BaseException as error:
            error.failed_in = self.failed_in[step] = getattr(error, "failed_in", step)
            raise
        finally:
            _execution.reset(token)

    @property
    def step(self) -> str:
        """The step that the running code belongs to."""
        return _execution.get()[0]

    def call(self, question: str, candidate: int, failed: bool, tokens: tuple[int, int] = (0, 0)) -> None:
        """A model was asked; candidate 0 is the primary, the others are its fallbacks."""
        step, heard = _execution.get()
        with self.lock:
            before, heard[question] = heard.get(question), candidate
        repeats = before is not None and candidate <= before
        self.record("call", step=step, failed=failed, tokens=tokens, retry=repeats,
                    fallback=before is not None and candidate > before)

    def tool(self, question: str) -> None:
        """A tool was called."""
        step, heard = _execution.get()
        self.record("tool", step=step, retry=question in heard)
        heard[question] = 0

    def retry(self, step: str, layer: str) -> None:
        """Someone decided to execute a step again."""
        self.record("retry", step=step, layer=layer)

    def violation(self, node: str, key: str, direction: str) -> None:
        """A node missed a key on its input or output."""
        self.record("violation", node=node, key=key, direction=direction)

    def run(self, run: str, completion: str) -> None:
        """A run ended, or one that had ended before ended again."""
        self.record("run", run=run, completion=completion)

    def totals(self) -> dict:
        steps, runs, violations = {}, {}, []
        for e in self.events:
            if e["event"] == "run":
                runs[e["run"]] = e["completion"]
                continue
            if e["event"] == "violation":
                violations.append({k: e[k] for k in ("node", "key", "direction")})
                continue
            step = steps.setdefault(e["step"], {
                "executions": 0, "retries": dict.fromkeys(LAYERS, 0), "fallbacks": 0, "calls": 0,
                "calls_failed": 0, "tool_calls": 0, "tokens": {"input": 0, "output": 0}})
            match e["event"]:
                case "execution":
                    step["executions"] += 1
                case "retry":
                    step["retries"][e["layer"]] += 1
                case "tool":
                    step["tool_calls"] += 1
                    step["retries"]["call"] += e["retry"]
                case "call":
                    step["calls"] += 1
                    step["calls_failed"] += e["failed"]
                    step["retries"]["call"] += e["retry"]
                    step["fallbacks"] += e["fallback"]
                    step["tokens"]["input"] += e["tokens"][0]
                    step["tokens"]["output"] += e["tokens"][1]
        return {"runs": sorted(runs.values()), "steps": steps, "contract_violations": violations}
