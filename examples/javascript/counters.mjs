// Counts inside the application what really happens, without a look at any span.
//
// A step is a node of the pipeline. A repeat is counted where it can be known for certain: the
// engine's own attempt number says that its policy repeats a node, a model that hears the same
// question again within one execution knows that its client repeats it, and whoever leads the run
// back to a step says so. The ledger has to find the same numbers in the spans.
import { AsyncLocalStorage } from "node:async_hooks";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

// The execution that the running code belongs to: its step, and the candidate that heard each
// of its questions last.
const executions = new AsyncLocalStorage();

export class Counters {
  steps = {};
  runs = {};
  violations = [];
  #failedIn = {};
  #journal;

  // With a journal, a file, what is counted outlives the process, and goes on from there.
  constructor(journal = "") {
    this.#journal = journal;
    if (journal && existsSync(journal)) Object.assign(this, JSON.parse(readFileSync(journal)));
  }

  #changed() {
    if (this.#journal) writeFileSync(this.#journal, JSON.stringify(this));
  }

  #of(step) {
    return (this.steps[step] ??= {
      executions: 0, retries: { call: 0, node: 0, orchestrator: 0, worker: 0 }, fallbacks: 0,
      calls: 0, calls_failed: 0, tool_calls: 0, tokens: { input: 0, output: 0 },
    });
  }

  // Surrounds one execution of a step, the engine's attempt-th of one task.
  async execution(step, attempt, work) {
    // One decision is charged once: to the innermost step that failed.
    if (attempt > 1) this.retry(this.#failedIn[step] ?? step, "node");
    this.#of(step).executions++;
    this.#changed();
    try {
      return await executions.run({ step, heard: new Map() }, work);
    } catch (error) {
      this.#failedIn[step] = error.failedIn ??= error.cause?.failedIn ?? step;
      throw error;
    }
  }

  // A model was asked; candidate 0 is the primary, the others are its fallbacks.
  call(question, candidate, tokens, failed = !tokens) {
    const { step, heard } = executions.getStore();
    const counted = this.#of(step), before = heard.get(question);
    heard.set(question, candidate);
    counted.calls++;
    if (candidate > before) counted.fallbacks++;
    else if (before !== undefined) counted.retries.call++;
    if (failed) counted.calls_failed++;
    counted.tokens.input += tokens?.[0] ?? 0;
    counted.tokens.output += tokens?.[1] ?? 0;
    this.#changed();
  }

  // A tool was called.
  tool(question) {
    const { step, heard } = executions.getStore();
    this.#of(step).tool_calls++;
    if (heard.has(question)) this.#of(step).retries.call++;
    heard.set(question, 0);
  }

  // Someone decided to execute a step again.
  retry(step, layer) {
    this.#of(step).retries[layer]++;
    this.#changed();
  }

  // A node missed a key on its input or output.
  violation(node, key, direction) {
    this.violations.push({ node, key, direction });
  }

  // A run ended, or one that had ended before ended again.
  run(run, completion) {
    this.runs[run] = completion;
    this.#changed();
  }

  totals() {
    return { runs: Object.values(this.runs).sort(), steps: this.steps, contract_violations: this.violations };
  }
}

// The step that the running code belongs to.
export const currentStep = () => executions.getStore()?.step ?? "";
