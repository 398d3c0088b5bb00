// Runs that stop or wait, and are taken up again from their checkpoints.
import { Command, interrupt, MemorySaver } from "@langchain/langgraph";
import { fails, line, newThread, passes, policy, run } from "../pipeline.mjs";
import { Failure } from "../scripted.mjs";

const checkpointed = (c, nodes) => line(c, nodes, { checkpointer: new MemorySaver() });

export const scenarios = {
  // A node waits for a person, twice. To go on is no retry.
  interrupted: async (c) => {
    const approve = () => ({ answer: interrupt("the first?") + interrupt("the second?") });
    const graph = checkpointed(c, { ingest: passes, approve, rank: passes }), thread = newThread();
    await run(c, graph, { thread });
    await run(c, graph, { given: new Command({ resume: "a" }), thread });
    await run(c, graph, { given: new Command({ resume: "b" }), thread });
  },

  // A node waits for a person, who has not come yet.
  waits: (c) => run(c, checkpointed(c, { ingest: passes, approve: () => ({ answer: interrupt("well?") }), rank: passes })),

  // The policy repeats a node before and after it waits for a person.
  interrupted_and_retried: async (c) => {
    const stories = ["fails", "waits", "fails", "waits"];
    const approve = () => {
      if (stories.shift() === "fails") throw new Failure("the vector store went away");
      return { answer: interrupt("well?") };
    };
    const graph = checkpointed(c, { ingest: passes, approve: [approve, { retryPolicy: policy(3) }], rank: passes });
    const thread = newThread();
    await run(c, graph, { thread });
    await run(c, graph, { given: new Command({ resume: "a" }), thread });
  },

  // The policy gives up, the run fails, and a worker takes it up again: a retry of the worker's, in which
  // the policy repeats once more.
  failed: async (c) => {
    const graph = checkpointed(c, { ingest: passes, resolve: [fails(3), { retryPolicy: policy(2) }], rank: passes });
    const thread = newThread();
    await run(c, graph, { thread });
    c.retry("resolve", "worker");
    await run(c, graph, { given: null, thread });
  },

  // Two questions on one thread are two runs, also when the first one failed.
  thread_of_two_runs: async (c) => {
    const graph = checkpointed(c, { ingest: passes, resolve: fails(1), rank: passes }), thread = newThread();
    await run(c, graph, { thread, runId: thread + "/1" });
    await run(c, graph, { given: { question: "q2" }, thread, runId: thread + "/2" });
  },
};
