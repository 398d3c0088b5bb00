// Runs that stop, wait or die, and are taken up again from their checkpoints.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import { Command, interrupt, MemorySaver } from "@langchain/langgraph";
import { Counters } from "../counters.mjs";
import { fails, line, newThread, passes, policy, run } from "../pipeline.mjs";
import { Failure, model, sleep } from "../scripted.mjs";
import * as telemetry from "../telemetry.mjs";

const checkpointed = (c, nodes) => line(c, nodes, { checkpointer: new MemorySaver() });

// Keeps its checkpoints in a file.
class FileSaver extends MemorySaver {
  constructor(file) {
    super();
    this.file = file;
    if (existsSync(file)) Object.assign(this, deserialize(readFileSync(file)));
  }
  save(result) {
    writeFileSync(this.file, serialize({ storage: { ...this.storage }, writes: { ...this.writes } }));
    return result;
  }
  async put(...args) { return this.save(await super.put(...args)); }
  async putWrites(...args) { return this.save(await super.putWrites(...args)); }
}

// A process that takes a run up. The first one fails once, then hangs until it is killed.
async function worker(delivery, thread, folder) {
  const program = spawn(process.execPath, [process.argv[1], "resume", "--instrumentation", telemetry.instrumentation,
    "--crash", [delivery, thread, folder].join()], { stdio: "inherit" });
  const ended = once(program, "exit");
  if (delivery === 1) {
    while (!existsSync(join(folder, "hangs")) && program.exitCode === null) await sleep(50);
    program.kill("SIGKILL");
  }
  return (await ended)[0];
}

// What a worker does.
export async function crash(where) {
  const [delivery, thread, folder] = where.split(",");
  const c = new Counters(join(folder, "journal")), stories = delivery === "1" ? ["fails", "hangs"] : ["works"];
  const asked = model(c, ["a"]);
  const resolve = async () => {
    const story = stories.shift();
    await asked.invoke("q1");
    if (story === "fails") throw new Failure("the vector store went away");
    if (story === "hangs") {
      await telemetry.flush(); // what the timer of the exporter would have sent by now
      writeFileSync(join(folder, "hangs"), "");
      await sleep(60_000);
    }
    return { status: "ok" };
  };
  const checkpointer = new FileSaver(join(folder, "checkpoints"));
  const graph = line(c, { ingest: passes, resolve: [resolve, { retryPolicy: policy(3) }], rank: passes }, { checkpointer });
  await run(c, graph, { given: delivery === "1" ? { question: "q1" } : null, thread });
  await telemetry.flush();
}

// Runs a story of workers, and counts what they counted.
async function crashing(c, story) {
  const folder = mkdtempSync(join(tmpdir(), "example-"));
  try {
    await story(newThread(), folder);
    const counted = new Counters(join(folder, "journal"));
    Object.assign(c.steps, counted.steps);
    Object.assign(c.runs, counted.runs);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

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

  // The process is killed (kill -9) while a node is at work, and nobody takes the run up.
  killed: (c) => crashing(c, async (thread, folder) => {
    await worker(1, thread, folder);
    c.run(thread, "running");
  }),

  // The process is killed while a node is at work, and another one takes the run up from its checkpoints.
  crashed: (c) => crashing(c, async (thread, folder) => {
    await worker(1, thread, folder);
    new Counters(join(folder, "journal")).retry("resolve", "worker");
    if (await worker(2, thread, folder)) throw new Error("the second worker failed");
  }),

  // Two questions on one thread are two runs, also when the first one failed.
  thread_of_two_runs: async (c) => {
    const graph = checkpointed(c, { ingest: passes, resolve: fails(1), rank: passes }), thread = newThread();
    await run(c, graph, { thread, runId: thread + "/1" });
    await run(c, graph, { given: { question: "q2" }, thread, runId: thread + "/2" });
  },
};
