// What an application says by itself: contract violations, and whether a run is complete.
import { SpanStatusCode } from "@opentelemetry/api";
import { fails, line, newThread, passes, policy, run } from "../pipeline.mjs";
import { Failure } from "../scripted.mjs";
import * as telemetry from "../telemetry.mjs";

// Checks what a node reads and writes. A missing key is written as a span with an error, and the run goes
// on: the error is the node's that missed it, not of the one that stumbles over it later.
function contract(c, node, { reads = [], writes = [] }, work) {
  const violated = async (direction, key) => {
    await telemetry.span("contract violation", { "contract.node": node, [`contract.missing_${direction}`]: key }, (span) =>
      span.setStatus({ code: SpanStatusCode.ERROR, message: `missing ${direction}: ${key}` }));
    c.violation(node, key, direction);
  };
  return async (state, config) => {
    for (const key of reads) if (state[key] === undefined) await violated("input", key);
    const result = await work(state, config);
    for (const key of writes) if (result[key] === undefined) await violated("output", key);
    return result;
  };
}

// Runs a graph below a root span that says in the end whether the run is complete.
async function flagged(c, graph, unfinished = []) {
  const thread = newThread();
  await telemetry.span("job", { "run.id": thread }, async (root) => {
    await run(c, graph, { thread });
    root.setAttribute("run.complete", !unfinished.length);
    if (unfinished.length) root.setAttribute("run.unfinished_steps", unfinished);
  });
  c.run(thread, unfinished.length ? "incomplete" : "complete");
}

export const scenarios = {
  // A run that says it is complete; the policy repeated a node on the way.
  complete: (c) => flagged(c, line(c, { ingest: passes, resolve: [fails(1), { retryPolicy: policy(2) }], rank: passes })),

  // A run that ends without an error, and says which step did not finish.
  incomplete: (c) => flagged(c, line(c, { ingest: passes, resolve: () => ({ answer: "" }) }), ["rank"]),

  // resolve forgets to write the answer, rank misses it, and the run goes on to its end.
  violations: (c) => flagged(c, line(c, {
    ingest: passes,
    resolve: contract(c, "resolve", { reads: ["question"], writes: ["answer"] }, () => ({ status: "ok" })),
    rank: contract(c, "rank", { reads: ["answer"] }, passes),
  })),

  // The same key is missed in each of two executions of a node.
  violation_and_retries: (c) => {
    const words = ["x", "y"];
    const resolve = contract(c, "resolve", { reads: ["deduplicated"] }, () => {
      if (words.shift() === "x") throw new Failure("nothing to resolve");
      return { status: "ok" };
    });
    return flagged(c, line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(2) }], rank: passes }));
  },
};
