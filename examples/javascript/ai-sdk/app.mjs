// The AI SDK with its own telemetry, in steps that the application names.
//
// The SDK writes a span for each of its calls and knows nothing of steps; one span of the application's around each
// execution of a step, with its name and the number of the attempt, is all that the ledger needs beside them.
import { APICallError } from "@ai-sdk/provider";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { z } from "zod";
import { newThread } from "../pipeline.mjs";
import { MODELS, next, sleep, TOKENS } from "../scripted.mjs";
import * as telemetry from "../telemetry.mjs";

// The SDK waits as long as the server asks it to.
const failure = (statusCode) => new APICallError({
  message: statusCode === 429 ? "Rate limit reached" : "The server is overloaded", statusCode,
  url: "https://models.example/v1", requestBodyValues: {}, responseHeaders: { "retry-after-ms": "20" },
});

const usage = {
  inputTokens: { total: TOKENS[0], noCache: TOKENS[0], cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: TOKENS[1], text: TOKENS[1], reasoning: 0 },
};

// Answers, in turn, what the script holds: a text, the arguments of a tool call, or the status of a failure.
function model(c, script, candidate = 0) {
  const answer = async (prompt) => {
    await sleep(5);
    const word = next(script), question = JSON.stringify(prompt);
    if (typeof word === "number") {
      c.call(question, candidate);
      throw failure(word);
    }
    c.call(question, candidate, TOKENS);
    return word;
  };
  return new MockLanguageModelV3({
    provider: "scripted",
    modelId: MODELS[candidate],
    doGenerate: async ({ prompt }) => {
      const word = await answer(prompt), calls = typeof word === "object";
      const content = calls
        ? { type: "tool-call", toolCallId: `call-${prompt.length}`, toolName: "look_up", input: JSON.stringify(word) }
        : { type: "text", text: word };
      return { content: [content], finishReason: { unified: calls ? "tool-calls" : "stop" }, usage, warnings: [] };
    },
    doStream: async ({ prompt }) => {
      const text = await answer(prompt);
      const chunks = [
        { type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: text }, { type: "text-end", id: "1" },
        { type: "finish", finishReason: { unified: "stop" }, usage },
      ];
      return { stream: simulateReadableStream({ chunks }) };
    },
  });
}

// The name of the call site stands for the step where the spans of steps do not arrive.
const experimental_telemetry = { isEnabled: true, functionId: "resolve" };
const ask = (asked, more = {}) => generateText({ model: asked, prompt: "q1", maxRetries: 2, experimental_telemetry, ...more });

// One execution of a step.
const execute = (c, name, attempt, work) => c.execution(name, attempt, () =>
  telemetry.span(name, { step: name, ...(attempt ? { "retry.attempt": attempt } : {}) }, work));

// A policy around a step.
async function repeat(c, name, maxAttempts, work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await execute(c, name, attempt, work);
    } catch (error) {
      if (attempt === maxAttempts) throw error;
    }
  }
}

// Runs the pipeline below a root span that says whether it is complete.
async function pipeline(c, work) {
  const id = newThread();
  let complete = true;
  await telemetry.span("job", { "run.id": id }, async (root) => {
    await execute(c, "ingest", 0, async () => {});
    await work().catch(() => { complete = false; });
    root.setAttribute("run.complete", complete);
    if (!complete) root.setAttribute("run.unfinished_steps", ["resolve"]);
  });
  c.run(id, complete ? "complete" : "incomplete");
}

export const scenarios = {
  // maxRetries: 429, 503, then an answer.
  client_retries: (c) => pipeline(c, () => execute(c, "resolve", 0, () => ask(model(c, [429, 503, "a"])))),

  // The SDK gives up after three calls.
  client_retries_exhausted: (c) => pipeline(c, () => execute(c, "resolve", 0, () => ask(model(c, [429])))),

  // A failure that is not worth another try ends the retries.
  not_repeated: (c) => pipeline(c, () => execute(c, "resolve", 0, () => ask(model(c, [429, 400])))),

  // Another model when the SDK has given up on the first.
  fallback: (c) => pipeline(c, () => execute(c, "resolve", 0, () => ask(model(c, [429])).catch(() => ask(model(c, ["b"], 1))))),

  // streamText: the first two requests fail before their first word.
  stream: (c) => pipeline(c, () => execute(c, "resolve", 0, () =>
    streamText({ model: model(c, [429, 503, "a"]), prompt: "q1", maxRetries: 2, experimental_telemetry }).text)),

  // An agent's loop of three answers with two tool calls, of which the second answer takes two calls of the model.
  tool_loop: (c) => pipeline(c, () => execute(c, "resolve", 0, () => {
    const look_up = tool({ description: "Looks something up.", inputSchema: z.object({ q: z.string() }), execute: async ({ q }) => {
      c.tool(q);
      return "found";
    } });
    return ask(model(c, [{ q: "1" }, 429, { q: "2" }, "done"]), { tools: { look_up }, stopWhen: stepCountIs(5) });
  })),

  // Retries of the SDK inside retries of the step: 3 × 3 calls.
  nested: (c) => pipeline(c, () => {
    const asked = model(c, [...Array(8).fill(429), "a"]);
    return repeat(c, "resolve", 3, () => ask(asked));
  }),

  // The story of seven: the policy allows 3 executions, the orchestrator 3 rounds, and it takes 7.
  seven: (c) => pipeline(c, async () => {
    const asked = model(c, [...Array(6).fill(429), "a"]);
    for (let round = 1; ; round++) {
      try {
        return await repeat(c, "resolve", 3, () => ask(asked, { maxRetries: 0 }));
      } catch (error) {
        if (round === 3) throw error;
        c.retry("resolve", "orchestrator");
      }
    }
  }),
};
