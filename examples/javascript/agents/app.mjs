// Agents whose middleware repeats models and tools, and falls back.
import { createAgent, createMiddleware, modelFallbackMiddleware, modelRetryMiddleware, tool, toolRetryMiddleware } from "langchain";
import { z } from "zod";
import { line, passes, policy, run } from "../pipeline.mjs";
import { InternalServerError, model, next } from "../scripted.mjs";
import * as telemetry from "../telemetry.mjs";

const QUICK = { initialDelayMs: 20, backoffFactor: 1, jitter: false };
const QUESTION = { messages: [{ role: "user", content: "q1" }] };
const given = QUESTION;

// Counts the executions of the agent's two nodes. It must be the first middleware.
const counting = (c) => createMiddleware({
  name: "Counting",
  wrapModelCall: (request, handler) =>
    c.execution("model_request", 1, () => telemetry.step("model_request", 1, () => handler(request))),
  wrapToolCall: (request, handler) =>
    c.execution("tools", 1, () => telemetry.step("tools", 1, () => handler(request))),
});

const agent = (c, asked, middleware, tools = []) =>
  createAgent({ model: asked, tools, middleware: [counting(c), ...middleware] });

// A tool that fails at the word x.
const lookUp = (c, words) => tool(({ q }) => telemetry.tool("look_up", async () => {
  c.tool(q);
  const word = next(words);
  if (word === "x") throw new InternalServerError();
  return word;
}), { name: "look_up", description: "Looks something up.", schema: z.object({ q: z.string() }) });

export const scenarios = {
  // modelRetryMiddleware: 429, 503, then an answer.
  model_retry: (c) => run(c, agent(c, model(c, [429, 503, "done"]), [modelRetryMiddleware({ maxRetries: 2, ...QUICK })]), { given }),

  // modelRetryMiddleware gives up and, as it does unless told otherwise, hides that: the run ends well.
  model_retry_gives_up: (c) => run(c, agent(c, model(c, [429]), [modelRetryMiddleware({ maxRetries: 2, ...QUICK })]), { given }),

  // modelFallbackMiddleware: two models fail, the third answers.
  model_fallback: (c) => run(c, agent(c, model(c, [429]), [modelFallbackMiddleware(model(c, [503], 1), model(c, ["done"], 2))]), { given }),

  // The retry is around the fallback: a and b fail in two rounds, a answers in the third.
  retry_around_fallback: (c) => run(c, agent(c, model(c, [429, 429, "done"]),
    [modelRetryMiddleware({ maxRetries: 2, ...QUICK }), modelFallbackMiddleware(model(c, [503], 1))]), { given }),

  // toolRetryMiddleware: the tool fails once.
  tool_retry: (c) => run(c, agent(c, model(c, [{ q: "x" }, "done"]), [toolRetryMiddleware({ maxRetries: 2, ...QUICK })],
    [lookUp(c, ["x", "found"])]), { given }),

  // toolRetryMiddleware gives up and tells the model, which goes on.
  tool_retry_gives_up: (c) => run(c, agent(c, model(c, [{ q: "x" }, "done"]), [toolRetryMiddleware({ maxRetries: 2, ...QUICK })],
    [lookUp(c, ["x"])]), { given }),

  // A loop of four answers and three tool calls, in which the third answer takes three calls of the model.
  // That an agent goes round is no retry.
  loop: (c) => run(c, agent(c, model(c, [{ q: "1" }, { q: "2" }, 429, 503, { q: "3" }, "done"]),
    [modelRetryMiddleware({ maxRetries: 2, ...QUICK })], [lookUp(c, ["found"])]), { given }),

  // An agent inside a node with a policy: 2 calls × 2 executions, charged to the agent's model.
  agent_in_a_node: (c) => {
    const inner = agent(c, model(c, [429, 503, 429, "done"]), [modelRetryMiddleware({ maxRetries: 1, onFailure: "error", ...QUICK })]);
    const resolve = async () => ({ answer: (await inner.invoke(QUESTION)).messages.at(-1).content });
    return run(c, line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(2) }], rank: passes }));
  },
};
