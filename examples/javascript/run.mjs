// Runs the examples, and prints what really happened, counted inside the application, as JSON.
//
//     node run.mjs graphs seven --instrumentation langfuse
//     node run.mjs graphs                                   all scenarios of graphs
//     node run.mjs                                          all of all
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Counters } from "./counters.mjs";
import * as telemetry from "./telemetry.mjs";

const { values: { instrumentation }, positionals: [only, ...scenarios] } = parseArgs({
  allowPositionals: true,
  options: { instrumentation: { type: "string", default: "openinference" } },
});
const applications = ["calls", "graphs", "agents", "resume", "contracts", "ai-sdk"];
if (!(instrumentation in telemetry.instrumentations) || (only && !applications.includes(only))) {
  console.error(`usage: node run.mjs [${applications.join(" | ")} [SCENARIO...]] ` +
    `[--instrumentation ${Object.keys(telemetry.instrumentations).join(" | ")}]`);
  process.exit(2);
}
await telemetry.instrumentations[instrumentation]();

const told = [];
for (const application of only ? [only] : applications) {
  // OpenInference has nothing to say about the AI SDK, which has telemetry of its own.
  if (application === "ai-sdk" && instrumentation === "openinference") continue;
  const { scenarios: known } = await import(`./${application}/app.mjs`);
  for (const [scenario, run] of Object.entries(known)) {
    if (scenarios.length && !scenarios.includes(scenario)) continue;
    const counters = new Counters(), since = Date.now() / 1000;
    await run(counters);
    await telemetry.flush();
    told.push({ application, scenario, since, until: Date.now() / 1000, ...counters.totals() });
    await sleep(30); // so that the instants tell the scenarios apart
  }
}
console.log(JSON.stringify(told, null, 1));
process.exit(0); // timers of requests that were abandoned would keep it
