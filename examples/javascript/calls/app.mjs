// Repeats and fallbacks of model calls inside a node: withRetry and withFallbacks.
import { StringOutputParser } from "@langchain/core/output_parsers";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { RunnableLambda } from "@langchain/core/runnables";
import { line, passes, run } from "../pipeline.mjs";
import { Failure, HANGS, model, streaming } from "../scripted.mjs";

export const THREE = { stopAfterAttempt: 3 };
const TWO = { stopAfterAttempt: 2 };

// The work is done by the middle one of three nodes.
const threeSteps = (c, resolve) => run(c, line(c, { ingest: passes, resolve, rank: passes }));

// A node that asks, one question after the other.
export const asks = (runnable, ...questions) => async () => {
  let answer;
  for (const question of questions.length ? questions : ["q1"]) answer = await runnable.invoke(question);
  return { answer: answer.content ?? answer };
};

const prompt = ChatPromptTemplate.fromMessages([["user", "{q}"]]);
const byQuestion = () => ({ q1: ["a"], q2: [429, "a"], q3: [429, 503, "a"] });

export const scenarios = {
  // withRetry: 429, 503, then an answer.
  client_retries: (c) => threeSteps(c, asks(model(c, [429, 503, "a"]).withRetry(THREE))),

  // withRetry gives up after three calls, and the run fails.
  client_retries_exhausted: (c) => threeSteps(c, asks(model(c, [429]).withRetry(THREE))),

  // Three questions at the same time, which take 1, 2 and 3 calls.
  client_retries_parallel: (c) => threeSteps(c, async () => {
    const asked = model(c, byQuestion(), 0, 3).withRetry(THREE);
    await Promise.all(["q1", "q2", "q3"].map((q) => asked.invoke(q)));
  }),

  // A batch of three questions, which take 1, 2 and 3 rounds.
  client_retries_batch: (c) => threeSteps(c, async () => {
    await model(c, byQuestion(), 0, 3).withRetry(THREE).batch(["q1", "q2", "q3"]);
  }),

  // prompt | model | parser with a retry around it: the parser rejects two answers, which are paid for.
  rejected_answers: (c) => {
    const words = ["bad", "bad", "good"];
    const parse = RunnableLambda.from((message) => {
      if (words.shift() === "bad") throw new Failure("could not parse the answer");
      return message.content;
    });
    const chain = prompt.pipe(model(c, ["a"])).pipe(parse).withRetry(THREE);
    return threeSteps(c, async () => ({ answer: await chain.invoke({ q: "q1" }) }));
  },

  // A loop in the node's own code: 429, 503, then an answer.
  by_hand: (c) => {
    const asked = model(c, [429, 503, "a"]);
    return threeSteps(c, async () => {
      for (let i = 0; i < 3; i++) {
        try { return { answer: (await asked.invoke("q1")).content }; } catch { /* again */ }
      }
    });
  },

  // The first model fails, the second answers; for the next question the first one answers again.
  fallback: (c) => threeSteps(c, asks(model(c, [429, "a"]).withFallbacks([model(c, ["b"], 1)]), "q1", "q2")),

  // The first model answers.
  fallback_not_needed: (c) => threeSteps(c, asks(model(c, ["a"]).withFallbacks([model(c, ["b"], 1)]))),

  // Three models, which all fail: two moves, and the run fails.
  fallbacks_exhausted: (c) => threeSteps(c, asks(model(c, [429]).withFallbacks([model(c, [503], 1), model(c, [503], 2)]))),

  // A fallback around prompt | model | parser.
  fallback_of_chains: (c) => {
    const chain = (m) => prompt.pipe(m).pipe(new StringOutputParser());
    const asked = chain(model(c, [429])).withFallbacks([chain(model(c, ["b"], 1))]);
    return threeSteps(c, async () => ({ answer: await asked.invoke({ q: "q1" }) }));
  },

  // A batch of three questions, of which one needs the second model: JavaScript asks it all three.
  fallback_batch: (c) => threeSteps(c, async () => {
    await model(c, { q1: ["a"], q2: [429], q3: ["a"] }, 0, 3).withFallbacks([model(c, ["b"], 1)]).batch(["q1", "q2", "q3"]);
  }),

  // The first model fails before its first word, so the second one streams.
  fallback_stream: (c) => threeSteps(c, async () => {
    let answer = "";
    for await (const part of await streaming(c, [429]).withFallbacks([streaming(c, ["b"], 1)]).stream("q1")) answer += part.content;
    return { answer };
  }),

  // The first model fails in the middle of its answer: too late for a fallback.
  broken_stream: (c) => threeSteps(c, async () => {
    let answer = "";
    for await (const part of await streaming(c, [599]).withFallbacks([streaming(c, ["b"], 1)]).stream("q1")) answer += part.content;
    return { answer };
  }),

  // A model does not answer in time, which is a failure, and the node asks again.
  timed_out_call: (c) => {
    const asked = model(c, [HANGS, "a"]);
    return threeSteps(c, async () => {
      const given = { signal: AbortSignal.timeout(300) };
      return { answer: (await asked.invoke("q1", given).catch(() => asked.invoke("q1"))).content };
    });
  },

  // A model is asked twice at the same time, and what does not answer is cancelled: that is no repeat.
  hedged_call: (c) => threeSteps(c, async () => {
    const late = new AbortController();
    const slow = model(c, [HANGS]).invoke("q1", { signal: late.signal }).catch(() => {});
    const { content } = await model(c, ["b"]).invoke("q1 again");
    late.abort();
    await slow;
    return { answer: content };
  }),

  // Each candidate has retries of its own: a twice, b twice.
  retries_then_fallback: (c) =>
    threeSteps(c, asks(model(c, [429]).withRetry(TWO).withFallbacks([model(c, [503, "b"], 1).withRetry(TWO)]))),

  // The retry is around the fallbacks: a and b fail in two rounds, a answers in the third.
  retries_around_fallbacks: (c) =>
    threeSteps(c, asks(model(c, [429, 503, "a"]).withFallbacks([model(c, [503], 1)]).withRetry(THREE))),
};
