"""Runs that stop, wait or die, and are taken up again from their checkpoints."""
import os
import signal
import subprocess
import sys
import tempfile
import time

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

import telemetry
from counters import Counters
from pipeline import fails, line, new_thread, passes, policy, run
from scripted import Failure, model


def interrupted(c: Counters):
    """A node waits for a person, twice. To go on is no retry."""
    def approve(state):
        return {"answer": interrupt("the first?") + interrupt("the second?")}
    graph, thread = line(c, InMemorySaver(), ingest=passes, approve=approve, rank=passes), new_thread()
    run(c, graph, thread=thread)
    run(c, graph, Command(resume="a"), thread)
    run(c, graph, Command(resume="b"), thread)


def waits(c: Counters):
    """A node waits for a person, who has not come yet."""
    graph = line(c, InMemorySaver(), ingest=passes, approve=lambda state: {"answer": interrupt("well?")}, rank=passes)
    run(c, graph)


def interrupted_and_retried(c: Counters):
    """The policy repeats a node before and after it waits for a person."""
    stories = ["fails", "waits", "fails", "waits"]

    def approve(state):
        if stories.pop(0) == "fails":
            raise Failure("the vector store went away")
        return {"answer": interrupt("well?")}
    graph, thread = line(c, InMemorySaver(), ingest=passes, approve=(approve, {"retry_policy": policy(3)}),
                         rank=passes), new_thread()
    run(c, graph, thread=thread)
    run(c, graph, Command(resume="a"), thread)


def failed(c: Counters):
    """The policy gives up, the run fails, and a worker takes it up again: a retry of the worker's, in which
    the policy repeats once more."""
    resolve = (fails(3), {"retry_policy": policy(2)})
    graph, thread = line(c, InMemorySaver(), ingest=passes, resolve=resolve, rank=passes), new_thread()
    run(c, graph, thread=thread)
    c.retry("resolve", "worker")
    run(c, graph, None, thread)


def thread_of_two_runs(c: Counters):
    """Two questions on one thread are two runs, also when the first one failed."""
    graph, thread = line(c, InMemorySaver(), ingest=passes, resolve=fails(1), rank=passes), new_thread()
    run(c, graph, {"question": "q1"}, thread, run_id=thread + "/1")
    run(c, graph, {"question": "q2"}, thread, run_id=thread + "/2")


def worker(delivery: int, thread: str, folder: str) -> subprocess.Popen:
    """A process that takes a run up. The first one fails once, then hangs until it is killed."""
    program = os.path.join(os.path.dirname(os.path.dirname(__file__)), "run.py")
    process = subprocess.Popen([sys.executable, program, "resume", "--instrumentation", telemetry.instrumentation,
                                "--crash", f"{delivery},{thread},{folder}"])
    if delivery == 1:
        while not os.path.exists(os.path.join(folder, "hangs")):
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return process


def killed(c: Counters):
    """The process is killed (kill -9) while a node is at work, and nobody takes the run up."""
    with tempfile.TemporaryDirectory() as folder:
        thread = new_thread()
        worker(1, thread, folder)
        c.read(os.path.join(folder, "journal"))
        c.run(thread, "running")


def crashed(c: Counters):
    """The process is killed while a node is at work, and another one takes the run up from SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        thread = new_thread()
        worker(1, thread, folder)
        c.retry("resolve", "worker")
        assert worker(2, thread, folder).returncode == 0
        c.read(os.path.join(folder, "journal"))


def crash(where: str) -> None:
    """What a worker does."""
    delivery, thread, folder = where.split(",")
    c, stories = Counters(os.path.join(folder, "journal")), ["fails", "hangs"] if delivery == "1" else ["works"]
    asked = model(c, "a")

    def resolve(state):
        story = stories.pop(0)
        asked.invoke("q1")
        if story == "fails":
            raise Failure("the vector store went away")
        if story == "hangs":
            telemetry.flush()  # what the timer of the exporter would have sent by now
            open(os.path.join(folder, "hangs"), "w").close()
            time.sleep(60)
        return {"status": "ok"}
    with SqliteSaver.from_conn_string(os.path.join(folder, "checkpoints")) as checkpointer:
        graph = line(c, checkpointer, ingest=passes, resolve=(resolve, {"retry_policy": policy(3)}), rank=passes)
        run(c, graph, {"question": "q1"} if delivery == "1" else None, thread)
    telemetry.flush()


SCENARIOS = (interrupted, waits, interrupted_and_retried, failed, thread_of_two_runs, killed, crashed)
