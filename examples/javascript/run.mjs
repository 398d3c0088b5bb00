// Runs examples, and prints what really happened, counted inside the application.
//
//     ./run.sh graphs seven --instrumentation langfuse
//     ./run.sh graphs                                   all scenarios of graphs
//     ./run.sh                                          all of all
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Counters } from "./counters.mjs";
import * as telemetry from "./telemetry.mjs";

const { values: { instrumentation, json, crash, help }, positionals: [only, ...scenarios] } = parseArgs({
  allowPositionals: true,
  options: {
    instrumentation: { type: "string", default: "openinference" }, json: { type: "boolean" },
    crash: { type: "string" }, help: { type: "boolean" },
  },
});
const names = ["calls", "graphs", "agents", "resume", "contracts", "ai-sdk"];
if (help || !(instrumentation in telemetry.instrumentations) || (only && !names.includes(only))) {
  end(help ? 0 : 2, `usage: run.sh [${names.join(" | ")} [SCENARIO...]] ` +
    `[--instrumentation ${Object.keys(telemetry.instrumentations).join(" | ")}] [--json]`);
}
if (only === "ai-sdk" && instrumentation === "openinference") {
  end(2, "OpenInference has nothing to say about the AI SDK, which has telemetry of its own: add --instrumentation plain");
}
await telemetry.start(instrumentation);
const applications = {};
for (const name of only ? [only] : names) {
  if (name !== "ai-sdk" || instrumentation !== "openinference") applications[name] = await import(`./${name}/app.mjs`);
}
const known = Object.values(applications).flatMap((app) => Object.keys(app.scenarios));
const unknown = scenarios.filter((name) => !known.includes(name));
if (unknown.length) end(2, `${only} has no scenario ${unknown.join(", ")}; it has ${known.join(", ")}`);
if (crash) {
  await applications.resume.crash(crash);
  process.exit(0);
}
const endpoint = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
await fetch(endpoint).catch((error) =>
  end(1, `No collector listens at ${endpoint} (${error.cause?.code ?? error}): start one with "go run ./cmd/collector".`));

const told = [];
for (const [application, { scenarios: all }] of Object.entries(applications)) {
  for (const [scenario, run] of Object.entries(all)) {
    if (scenarios.length && !scenarios.includes(scenario)) continue;
    const counters = new Counters(), since = Date.now() / 1000;
    telemetry.traceIds.clear();
    await run(counters);
    await telemetry.flush();
    told.push({ application, scenario, since, until: Date.now() / 1000, ...counters.totals() });
    if (!json) show(told.at(-1));
    await sleep(30); // so that the instants tell the scenarios apart
  }
}
if (json) console.log(JSON.stringify(told, null, 1));
process.exit(0); // timers of requests that were abandoned would keep it

function end(code, text) {
  console.error(text);
  process.exit(code);
}

// Prints what one scenario counted, and which runs of the ledger should say the same.
function show({ application, scenario, steps, runs, contract_violations }) {
  console.log(`${application} ${scenario}`);
  console.table(Object.fromEntries(Object.entries(steps).map(([step, { retries, tokens, ...rest }]) =>
    [step, { ...rest, ...Object.fromEntries(Object.entries(retries).map(([layer, n]) => [`${layer} retries`, n])) }])));
  for (const { node, key, direction } of contract_violations) console.log(`contract violation: ${node} misses ${direction} ${key}`);
  console.log("completion:", runs.join(", "));
  for (const id of telemetry.traceIds) console.log("go run ./cmd/retryledger run", id.slice(0, 12));
  if (!telemetry.traceIds.size) { // other processes sent them
    console.log("go run ./cmd/retryledger runs --service", process.env.OTEL_SERVICE_NAME);
  }
  console.log();
}
