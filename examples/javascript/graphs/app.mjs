// Repeats of nodes: retry policies, recovery edges, error handlers, and what they multiply to.
import { Command, END, entrypoint, Send, START, StateGraph, task } from "@langchain/langgraph";
import { asks, THREE } from "../calls/app.mjs";
import { fails, line, passes, policy, run, State, step } from "../pipeline.mjs";
import { Failure, model, sleep } from "../scripted.mjs";

// A node that fails for each item as often as times says.
function failingItems(times) {
  return async ({ item }) => {
    await sleep(20);
    if (times[item]-- > 0) throw new Failure("the vector store went away");
    return { items: [item] };
  };
}

// split sends four items to branches of score, and join waits for them.
const fan = (c, score, options) => new StateGraph(State)
  .addNode("split", step(c, "split", passes))
  .addNode("score", step(c, "score", score), options)
  .addNode("join", step(c, "join", passes))
  .addEdge(START, "split")
  .addConditionalEdges("split", () => [0, 1, 2, 3].map((item) => new Send("score", { item })), ["score"])
  .addEdge("score", "join")
  .addEdge("join", END)
  .compile();

export const scenarios = {
  // The engine's policy executes a node three times.
  node_retries: (c) => run(c, line(c, { ingest: passes, resolve: [fails(2), { retryPolicy: policy(3) }], rank: passes })),

  // The engine's policy gives up, and the run fails.
  node_retries_exhausted: (c) => run(c, line(c, { ingest: passes, resolve: [fails(9), { retryPolicy: policy(3) }], rank: passes })),

  // Retries of the client inside retries of the node: 3 × 3 calls for one question.
  nested: (c) => {
    const resolve = asks(model(c, [...Array(8).fill(429), "a"]).withRetry(THREE));
    return run(c, line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(3) }], rank: passes }));
  },

  // The story of seven: the configuration says 3, and the node is executed 7 times, because its error
  // handler leads the run back to it each time the policy has given up.
  seven: (c) => {
    const errorHandler = () => {
      c.retry("resolve", "orchestrator");
      return new Command({ update: { status: "again" }, goto: "resolve" });
    };
    return run(c, new StateGraph(State)
      .addNode("ingest", step(c, "ingest", passes))
      .addNode("resolve", step(c, "resolve", fails(6)), { retryPolicy: policy(3), errorHandler })
      .addNode("rank", step(c, "rank", passes))
      .addEdge(START, "ingest").addEdge("ingest", "resolve").addEdge("resolve", "rank").addEdge("rank", END)
      .compile());
  },

  // Seven again, in a subgraph. The dispatcher catches the failure and reports it in the state it returns,
  // so that the edge after it enters the dispatcher again: all that fails is resolve.
  seven_dispatched: (c) => {
    const inner = line(c, { resolve: [fails(6), { retryPolicy: policy(3) }] });
    const dispatch = async (state) => {
      try { return { status: (await inner.invoke(state)).status }; } catch { return { status: "error" }; }
    };
    const recover = (state) => {
      if (state.status !== "error") return "rank";
      c.retry("resolve", "orchestrator");
      return "dispatch";
    };
    return run(c, new StateGraph(State)
      .addNode("ingest", step(c, "ingest", passes))
      .addNode("dispatch", step(c, "dispatch", dispatch))
      .addNode("rank", step(c, "rank", passes))
      .addEdge(START, "ingest").addEdge("ingest", "dispatch")
      .addConditionalEdges("dispatch", recover, ["dispatch", "rank"]).addEdge("rank", END)
      .compile());
  },

  // A node that fails without an error says so in the state it returns, and an edge leads back to it.
  recovery_edge: (c) => {
    const answers = ["error", "error", "ok"];
    const again = (state) => {
      if (state.status !== "error") return END;
      c.retry("resolve", "orchestrator");
      return "resolve";
    };
    return run(c, new StateGraph(State)
      .addNode("resolve", step(c, "resolve", () => ({ status: answers.shift() })))
      .addEdge(START, "resolve").addConditionalEdges("resolve", again, ["resolve", END])
      .compile());
  },

  // Three rounds that all go well are no retries.
  loop: (c) => run(c, new StateGraph(State)
    .addNode("resolve", step(c, "resolve", (state) => ({ items: [state.items.length] })))
    .addEdge(START, "resolve")
    .addConditionalEdges("resolve", (state) => state.items.length === 3 ? END : "resolve", ["resolve", END])
    .compile()),

  // Four branches, two of which the policy repeats, once and twice. A branch is no retry.
  fan_out: (c) => run(c, fan(c, failingItems([0, 1, 0, 2]), { retryPolicy: policy(3) })),

  // Four branches that ask a model with retries: 1, 2, 3 and 1 calls.
  fan_out_of_calls: (c) => {
    const asked = model(c, { q0: ["a"], q1: [429, "a"], q2: [429, 503, "a"], q3: ["a"] }).withRetry(THREE);
    return run(c, fan(c, async ({ item }) => {
      await asked.invoke("q" + item);
      return { items: [item] };
    }));
  },

  // Each branch is a graph, whose own policy repeats a node.
  fan_out_of_subgraphs: (c) => {
    const inner = line(c, { resolve: [failingItems([0, 1, 2, 0]), { retryPolicy: policy(3) }] });
    return run(c, fan(c, async (state) => ({ items: (await inner.invoke(state)).items })));
  },

  // A policy inside and one outside: 2 × 2 executions, charged to the step that failed.
  subgraph: (c) => {
    const inner = line(c, { prepare: passes, resolve: [fails(3), { retryPolicy: policy(2) }] });
    const dispatch = async (state) => ({ status: (await inner.invoke(state)).status });
    return run(c, line(c, { ingest: passes, dispatch: [dispatch, { retryPolicy: policy(2) }], rank: passes }));
  },

  // The policy gives up, and the error handler lets the run go on.
  error_handler: (c) => run(c, new StateGraph(State)
    .addNode("resolve", step(c, "resolve", fails(9)), { retryPolicy: policy(2), errorHandler: () => ({ status: "handled" }) })
    .addNode("rank", step(c, "rank", passes))
    .addEdge(START, "resolve").addEdge("resolve", "rank").addEdge("rank", END)
    .compile()),

  // The node hangs twice; its timeout abandons it, and the policy executes it again. JavaScript cannot stop
  // what was abandoned: it ends later.
  node_timeout: async (c) => {
    const hangs = [1300, 1300, 0];
    const resolve = async () => {
      await sleep(hangs.shift());
      return { status: "ok" };
    };
    await run(c, line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(3), timeout: 1000 }], rank: passes }));
    await sleep(600);
  },

  // The timeout abandons the node while it asks a model, whose answer comes too late and is paid for.
  node_timeout_in_a_call: async (c) => {
    const asked = model(c, ["a"]), hangs = [1300, 0];
    const resolve = async () => {
      await asked.invoke("q1");
      await sleep(hangs.shift());
      return { answer: (await asked.invoke("q2")).content };
    };
    await run(c, line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(3), timeout: 1000 }], rank: passes }));
    await sleep(600);
  },

  // The functional API: a task with a policy.
  functional: (c) => {
    const resolve = task({ name: "resolve", retry: policy(3) }, step(c, "resolve", fails(2)));
    return run(c, entrypoint({ name: "pipeline" }, step(c, "pipeline", (question) => resolve(question))), { given: "q1" });
  },
};
