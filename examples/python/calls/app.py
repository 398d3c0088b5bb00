"""Repeats and fallbacks of model calls inside a node: with_retry and with_fallbacks."""
import asyncio

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from counters import Counters
from pipeline import arun, line, passes, run
from scripted import HANGS, Failure, model

THREE = {"stop_after_attempt": 3, "wait_exponential_jitter": False,
         "exponential_jitter_params": {"initial": 0.02, "max": 0.05}}
TWO = THREE | {"stop_after_attempt": 2}


def three_steps(counters: Counters, resolve) -> None:
    """The work is done by the middle one of three nodes."""
    run(counters, line(counters, ingest=passes, resolve=resolve, rank=passes))


def asks(runnable, *questions: str):
    """A node that asks, one question after the other."""
    def node(state):
        for question in questions or ("q1",):
            answer = runnable.invoke(question)
        return {"answer": getattr(answer, "content", answer)}
    return node


def client_retries(c: Counters):
    """with_retry: 429, 503, then an answer."""
    three_steps(c, asks(model(c, 429, 503, "a").with_retry(**THREE)))


def client_retries_exhausted(c: Counters):
    """with_retry gives up after three calls, and the run fails."""
    three_steps(c, asks(model(c, 429).with_retry(**THREE)))


def client_retries_async(c: Counters):
    """Three questions at the same time, which take 1, 2 and 3 calls."""
    asked = model(c, together=3, q1=["a"], q2=[429, "a"], q3=[429, 503, "a"]).with_retry(**THREE)

    async def resolve(state):
        await asyncio.gather(*[asked.ainvoke(q) for q in ("q1", "q2", "q3")])
        return {}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def client_retries_batch(c: Counters):
    """A batch of three questions, which take 1, 2 and 3 rounds."""
    asked = model(c, together=3, q1=["a"], q2=[429, "a"], q3=[429, 503, "a"]).with_retry(**THREE)

    def resolve(state):
        asked.batch(["q1", "q2", "q3"])
        return {}
    three_steps(c, resolve)


def rejected_answers(c: Counters):
    """prompt | model | parser with a retry around it: the parser rejects two answers, which are paid for."""
    words = ["bad", "bad", "good"]

    def parse(message):
        if words.pop(0) == "bad":
            raise Failure("could not parse the answer")
        return message.content
    prompt = ChatPromptTemplate.from_messages([("user", "{q}")])
    chain = (prompt | model(c, "a") | RunnableLambda(parse)).with_retry(**THREE)
    three_steps(c, lambda state: {"answer": chain.invoke({"q": "q1"})})


def by_hand(c: Counters):
    """A loop in the node's own code: 429, 503, then an answer."""
    asked = model(c, 429, 503, "a")

    def resolve(state):
        for _ in range(3):
            try:
                return {"answer": asked.invoke("q1").content}
            except Failure:
                pass
    three_steps(c, resolve)


def fallback(c: Counters):
    """The first model fails, the second answers; for the next question the first one answers again."""
    asked = model(c, 429, "a").with_fallbacks([model(c, "b", candidate=1)])
    three_steps(c, asks(asked, "q1", "q2"))


def fallback_not_needed(c: Counters):
    """The first model answers."""
    three_steps(c, asks(model(c, "a").with_fallbacks([model(c, "b", candidate=1)])))


def fallbacks_exhausted(c: Counters):
    """Three models, which all fail: two moves, and the run fails."""
    three_steps(c, asks(model(c, 429).with_fallbacks([model(c, 503, candidate=1), model(c, 503, candidate=2)])))


def fallback_of_chains(c: Counters):
    """A fallback around prompt | model | parser."""
    prompt = ChatPromptTemplate.from_messages([("user", "{q}")])
    first, second = (prompt | m | StrOutputParser() for m in (model(c, 429), model(c, "b", candidate=1)))
    chain = first.with_fallbacks([second])
    three_steps(c, lambda state: {"answer": chain.invoke({"q": "q1"})})


def fallback_async(c: Counters):
    """Three questions at the same time, one of which needs the second model."""
    asked = model(c, together=3, q1=["a"], q2=[429], q3=["a"]).with_fallbacks([model(c, "b", candidate=1)])

    async def resolve(state):
        await asyncio.gather(*[asked.ainvoke(q) for q in ("q1", "q2", "q3")])
        return {}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def fallback_batch(c: Counters):
    """A batch of three questions, two of which need the second model."""
    asked = model(c, together=3, q1=["a"], q2=[429], q3=[503]).with_fallbacks([model(c, "b", candidate=1, together=2)])

    def resolve(state):
        asked.batch(["q1", "q2", "q3"])
        return {}
    three_steps(c, resolve)


def fallback_batch_async(c: Counters):
    """The same, asynchronously."""
    asked = model(c, together=3, q1=["a"], q2=[429], q3=[503]).with_fallbacks([model(c, "b", candidate=1, together=2)])

    async def resolve(state):
        await asked.abatch(["q1", "q2", "q3"])
        return {}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def fallback_stream(c: Counters):
    """The first model fails before its first word, so the second one streams."""
    asked = model(c, 429, streaming=True).with_fallbacks([model(c, "b", candidate=1, streaming=True)])
    three_steps(c, lambda state: {"answer": "".join(part.content for part in asked.stream("q1"))})


def fallback_stream_async(c: Counters):
    """The same, asynchronously."""
    asked = model(c, 429, streaming=True).with_fallbacks([model(c, "b", candidate=1, streaming=True)])

    async def resolve(state):
        return {"answer": "".join([part.content async for part in asked.astream("q1")])}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def broken_stream(c: Counters):
    """The first model fails in the middle of its answer: too late for a fallback."""
    asked = model(c, 599, streaming=True).with_fallbacks([model(c, "b", candidate=1, streaming=True)])
    three_steps(c, lambda state: {"answer": "".join(part.content for part in asked.stream("q1"))})


def retries_then_fallback(c: Counters):
    """Each candidate has retries of its own: a twice, b twice."""
    asked = model(c, 429).with_retry(**TWO).with_fallbacks([model(c, 503, "b", candidate=1).with_retry(**TWO)])
    three_steps(c, asks(asked))


def retries_around_fallbacks(c: Counters):
    """The retry is around the fallbacks: a and b fail in two rounds, a answers in the third."""
    asked = model(c, 429, 503, "a").with_fallbacks([model(c, 503, candidate=1)]).with_retry(**THREE)
    three_steps(c, asks(asked))


def cancelled_call(c: Counters):
    """A model does not answer; the node cancels the call after a while, and asks again."""
    asked = model(c, HANGS, "a")

    async def resolve(state):
        try:
            await asyncio.wait_for(asked.ainvoke("q1"), 0.3)
        except TimeoutError:
            return {"answer": (await asked.ainvoke("q1")).content}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


def hedged_call(c: Counters):
    """A model is asked twice at the same time, and what does not answer is cancelled: that is no repeat."""
    slow, quick = model(c, HANGS), model(c, "b")

    async def resolve(state):
        asked = [asyncio.create_task(m.ainvoke(q)) for m, q in ((slow, "q1"), (quick, "q1 again"))]
        done, late = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.wait(late)
        return {"answer": done.pop().result().content}
    asyncio.run(arun(c, line(c, ingest=passes, resolve=resolve, rank=passes)))


SCENARIOS = (client_retries, client_retries_exhausted, client_retries_async, client_retries_batch, rejected_answers,
             by_hand, fallback, fallback_not_needed, fallbacks_exhausted, fallback_of_chains, fallback_async,
             fallback_batch, fallback_batch_async, fallback_stream, fallback_stream_async, broken_stream,
             retries_then_fallback, retries_around_fallbacks, cancelled_call, hedged_call)
