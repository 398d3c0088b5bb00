"""Models and tools that say what a script says: no network, no keys, the same each time."""
import asyncio
import time
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

import telemetry
from counters import Counters

MODELS = ("gpt-mock-a", "claude-mock-b", "gemini-mock-c")
TOKENS = (120, 35)
HANGS = "hangs"  # the word of a model that does not answer


class Failure(Exception):
    """What a retry policy repeats."""


class RateLimitError(Failure):
    def __init__(self):
        super().__init__("Error code: 429 - {'error': {'message': 'Rate limit reached'}}")


class InternalServerError(Failure):
    def __init__(self):
        super().__init__("Error code: 503 - {'error': {'message': 'The server is overloaded'}}")


def failure(code: int) -> Failure:
    return RateLimitError() if code == 429 else InternalServerError()


class ScriptedChatModel(BaseChatModel):
    """Answers, in turn, what the script holds: a text, a tool call, or the status of a failure.
    The last word of a script is said for ever. A script by question is a dict. The first questions, as many as
    together says, are answered when all are asked, however busy the machine is."""
    counters: Any
    script: Any
    candidate: int = 0
    together: int = 0
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def model(self) -> str:
        return MODELS[self.candidate]

    @property
    def _identifying_params(self) -> dict:
        return {"model": self.model}

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_model_name": self.model, "ls_provider": "scripted", "ls_model_type": "chat"}

    def bind_tools(self, tools, **kwargs):
        return self

    def _word(self, messages):
        script = self.script[messages[-1].content] if isinstance(self.script, dict) else self.script
        with self.counters.lock:
            return script.pop(0) if len(script) > 1 else script[0]

    def _heard(self) -> None:
        with self.counters.lock:
            self.asked += 1

    def _call(self):
        return telemetry.Call(self.model, self.candidate, self.counters.step)

    def _answer(self, call, messages, word, message=AIMessage):
        question = repr([m.content for m in messages])
        if isinstance(word, int):
            self.counters.call(question, self.candidate, failed=True)
            raise failure(word)
        self.counters.call(question, self.candidate, failed=False, tokens=TOKENS)
        call.used(TOKENS)
        usage = {"input_tokens": TOKENS[0], "output_tokens": TOKENS[1], "total_tokens": sum(TOKENS)}
        if isinstance(word, dict):  # the arguments of a tool call
            calls = [{"id": f"call-{len(messages)}", "type": "tool_call", "name": "look_up", "args": word}]
            return message(content="", tool_calls=calls, usage_metadata=usage)
        return message(content=word, usage_metadata=usage)

    def _result(self, call, messages, word):
        answer = ChatGeneration(message=self._answer(call, messages, word))
        return ChatResult(generations=[answer], llm_output={"model_name": self.model})

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        with self._call() as call:
            self._heard()
            while self.asked < self.together:
                time.sleep(0.005)
            time.sleep(0.01)
            return self._result(call, messages, self._word(messages))

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        with self._call() as call:
            self._heard()
            while self.asked < self.together:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.01)
            word = self._word(messages)
            if word == HANGS:
                self.counters.call(repr([m.content for m in messages]), self.candidate, failed=False)
                await asyncio.sleep(60)
            return self._result(call, messages, word)


class StreamingChatModel(ScriptedChatModel):
    """Streams its answers. The status 599 breaks the stream after its first part."""

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        with self._call() as call:
            time.sleep(0.01)
            word = self._word(messages)
            if word == 599:
                yield ChatGenerationChunk(message=AIMessageChunk(content="the answer is "))
            yield ChatGenerationChunk(message=self._answer(call, messages, word, AIMessageChunk))


def model(counters: Counters, *script, candidate: int = 0, streaming: bool = False, together: int = 0,
          **by_question) -> ScriptedChatModel:
    """A scripted model, with one script for all questions or one for each."""
    kind = StreamingChatModel if streaming else ScriptedChatModel
    return kind(counters=counters, script=by_question or list(script), candidate=candidate, together=together)
