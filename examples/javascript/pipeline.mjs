// Graphs whose nodes are counted, and runs of them.
import { randomUUID } from "node:crypto";
import { Annotation, END, getConfig, START, StateGraph } from "@langchain/langgraph";
import { Failure, isFailure, sleep } from "./scripted.mjs";
import * as telemetry from "./telemetry.mjs";

const last = () => Annotation({ reducer: (_, value) => value });

export const State = Annotation.Root({
  question: last(), answer: last(), status: last(), item: last(),
  items: Annotation({ reducer: (a, b) => a.concat(b ?? []), default: () => [] }),
});

// The engine's retry policy of a node. maxAttempts includes the first.
export const policy = (maxAttempts) => ({
  maxAttempts, initialInterval: 20, jitter: false, logWarning: false,
  retryOn: (error) => isFailure(error) || error.name === "NodeTimeoutError",
});

// Counts the executions of a node, and writes their spans where nobody else does.
export const step = (counters, name, node) => (state, config) => {
  const attempt = (config?.executionInfo ?? getConfig()?.executionInfo)?.nodeAttempt ?? 1;
  return counters.execution(name, attempt, () => telemetry.step(name, attempt, async () => node(state, config), state?.item));
};

// A node without a model that fails so many times, then works.
export function fails(times) {
  return async () => {
    await sleep(10);
    if (times-- > 0) throw new Failure("the vector store went away");
    return { status: "ok" };
  };
}

// A node that has nothing to tell.
export const passes = async () => ({});

// A graph of nodes one after the other; a node with options is a pair.
export function line(counters, nodes, options) {
  const graph = new StateGraph(State);
  let before = START;
  for (const [name, node] of Object.entries(nodes)) {
    const [work, more] = Array.isArray(node) ? node : [node];
    graph.addNode(name, step(counters, name, work), more);
    graph.addEdge(before, name);
    before = name;
  }
  return graph.addEdge(before, END).compile(options);
}

export const newThread = () => randomUUID();

// Runs a graph; that it fails in the end is part of some stories. One that is given its run id, or
// else its thread, again is resumed.
export async function run(counters, graph, { given = { question: "q1" }, thread = newThread(), runId = thread } = {}) {
  const config = { configurable: { thread_id: thread }, callbacks: telemetry.callbacks };
  try {
    const result = await telemetry.run(runId, () => graph.invoke(given, config));
    counters.run(runId, result.__interrupt__ ? "interrupted" : "unflagged");
  } catch (error) {
    if (!isFailure(error)) throw error;
    counters.run(runId, "failed");
  }
}
