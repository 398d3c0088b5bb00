// Models that say what a script says: no network, no keys, the same each time.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, AIMessageChunk } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { currentStep } from "./counters.mjs";
import * as telemetry from "./telemetry.mjs";

export const MODELS = ["gpt-mock-a", "claude-mock-b", "gemini-mock-c"];
export const TOKENS = [120, 35];
export const HANGS = "hangs"; // the word of a model that does not answer
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What a retry policy repeats.
export class Failure extends Error {
  name = "Failure";
}
export class RateLimitError extends Failure {
  name = "RateLimitError";
  status = 429;
  constructor() { super("429 Rate limit reached"); }
}
export class InternalServerError extends Failure {
  name = "InternalServerError";
  status = 503;
  constructor() { super("503 The server is overloaded"); }
}

// Frameworks may wrap what they pass on.
export const isFailure = (error) => error instanceof Failure || (error?.cause !== undefined && isFailure(error.cause));

// The next word of a script, whose last one is said for ever.
export const next = (script) => script.length > 1 ? script.shift() : script[0];
export const failure = (code) => code === 429 ? new RateLimitError() : new InternalServerError();

// Answers, in turn, what the script holds: a text, the arguments of a tool call, or the status
// of a failure. A script by question is an object. The first questions, as many as together says,
// are answered when all are asked, however busy the machine is.
class ScriptedChatModel extends BaseChatModel {
  constructor(counters, script, candidate, together) {
    super({ maxRetries: 0 });
    Object.assign(this, { counters, script, candidate, together, asked: 0, model: MODELS[candidate] });
  }
  _llmType() { return "scripted"; }
  bindTools() { return this; }
  getLsParams() { return { ls_model_name: this.model, ls_provider: "scripted", ls_model_type: "chat" }; }
  invocationParams() { return { model: this.model }; }

  word(messages) {
    return next(Array.isArray(this.script) ? this.script : this.script[messages.at(-1).content]);
  }

  answer(messages, word, used, Message) {
    const question = JSON.stringify(messages.map((m) => m.content));
    if (typeof word === "number") {
      this.counters.call(question, this.candidate);
      throw failure(word);
    }
    this.counters.call(question, this.candidate, TOKENS);
    used(TOKENS);
    const usage_metadata = { input_tokens: TOKENS[0], output_tokens: TOKENS[1], total_tokens: TOKENS[0] + TOKENS[1] };
    const tool_calls = [{ id: `call-${messages.length}`, type: "tool_call", name: "look_up", args: word }];
    return typeof word === "object" ? new Message({ content: "", tool_calls, usage_metadata }) : new Message({ content: word, usage_metadata });
  }

  async _generate(messages, { signal }) {
    return telemetry.chat(this.model, this.candidate, currentStep(), async (used) => {
      this.asked++;
      while (this.asked < this.together) await sleep(5);
      await sleep(10);
      const word = this.word(messages);
      if (word === HANGS) {
        const cancelled = new Promise((resolve) => signal.addEventListener("abort", resolve));
        await Promise.race([cancelled, sleep(60_000)]);
        this.counters.call(JSON.stringify(messages.map((m) => m.content)), this.candidate, undefined, signal.reason.name === "TimeoutError");
        throw signal.reason;
      }
      const message = this.answer(messages, word, used, AIMessage);
      return { generations: [{ text: message.content, message }], llmOutput: { model_name: this.model } };
    });
  }
}

// Streams its answers. The status 599 breaks the stream after its first part.
class StreamingChatModel extends ScriptedChatModel {
  async *_streamResponseChunks(messages, _options, manager) {
    const parts = [];
    let broken;
    // The request ends before its parts are handed on, so that its span need not live in two places.
    await telemetry.chat(this.model, this.candidate, currentStep(), async (used) => {
      await sleep(10);
      const word = this.word(messages);
      if (word === 599) parts.push(new AIMessageChunk({ content: "the answer is " }));
      parts.push(this.answer(messages, word, used, AIMessageChunk));
    }).catch((error) => { broken = error; });
    for (const message of parts) {
      yield new ChatGenerationChunk({ text: message.content, message });
      await manager?.handleLLMNewToken(message.content);
    }
    if (broken) throw broken;
  }
}

export const model = (counters, script, candidate = 0, together = 0) => new ScriptedChatModel(counters, script, candidate, together);
export const streaming = (counters, script, candidate = 0) => new StreamingChatModel(counters, script, candidate);
