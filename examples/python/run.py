"""Runs examples, and prints what really happened, counted inside the application.

    ./run.sh graphs seven --instrumentation langfuse
    ./run.sh graphs                                   all scenarios of graphs
    ./run.sh                                          all of all
"""
import argparse
import importlib
import json
import os
import socket
import sys
import time
import urllib.parse

import telemetry
from counters import LAYERS, Counters

APPLICATIONS = ("calls", "graphs", "agents", "resume", "contracts", "budget")


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("application", nargs="?", choices=APPLICATIONS)
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--instrumentation", choices=telemetry.INSTRUMENTATIONS, default="openinference",
                        help="default: openinference; budget is always plain")
    parser.add_argument("--json", action="store_true", help="print the counters as JSON")
    parser.add_argument("--crash", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.application == "budget":
        arguments.instrumentation = "plain"  # it has no framework that could be instrumented
    applications = {name: importlib.import_module(name + ".app") for name in
                    ([arguments.application] if arguments.application else APPLICATIONS)
                    if name != "budget" or arguments.instrumentation == "plain"}
    known = {scenario.__name__ for app in applications.values() for scenario in app.SCENARIOS}
    if unknown := set(arguments.scenario) - known:
        parser.error(f"{arguments.application} has no scenario {', '.join(sorted(unknown))}; "
                     f"it has {', '.join(sorted(known))}")
    telemetry.start(arguments.instrumentation)
    if arguments.crash:
        importlib.import_module("resume.app").crash(arguments.crash)
        return
    require_collector(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
    told = []
    for application, app in applications.items():
        for scenario in app.SCENARIOS:
            if arguments.scenario and scenario.__name__ not in arguments.scenario:
                continue
            counters, since = Counters(), time.time()
            telemetry.trace_ids.clear()
            scenario(counters)
            telemetry.flush()
            told.append({"application": application, "scenario": scenario.__name__, "description": scenario.__doc__,
                         "since": since, "until": time.time(), **counters.totals()})
            if not arguments.json:
                show(told[-1])
            time.sleep(0.03)  # so that the instants tell the scenarios apart
    if arguments.json:
        print(json.dumps(told, indent=1))


def require_collector(endpoint: str) -> None:
    url = urllib.parse.urlsplit(endpoint)
    try:
        socket.create_connection((url.hostname, url.port or 80), timeout=5).close()
    except OSError as error:
        sys.exit(f"No collector listens at {endpoint} ({error}): start one with \"go run ./cmd/collector\".")


def show(told: dict) -> None:
    """Prints what one scenario counted, and which runs of the ledger should say the same."""
    print(f"{told['application']} {told['scenario']}: {' '.join(told['description'].split())}")
    columns = ("executions", *(f"{layer} retries" for layer in LAYERS), "fallbacks", "calls", "failed", "tool calls")
    print("  ", "step".ljust(10), *columns, sep="  ")
    for step, n in told["steps"].items():
        numbers = (n["executions"], *n["retries"].values(), n["fallbacks"], n["calls"], n["calls_failed"], n["tool_calls"])
        print("  ", step.ljust(10), *(str(number).rjust(len(c)) for number, c in zip(numbers, columns)), sep="  ")
    for violation in told["contract_violations"]:
        print(f"    contract violation: {violation['node']} misses {violation['direction']} {violation['key']}")
    print(f"    completion: {', '.join(told['runs'])}")
    for trace_id in telemetry.trace_ids:
        print(f"    go run ./cmd/retryledger run {trace_id[:12]}")
    if not telemetry.trace_ids:  # other processes sent them
        print(f"    go run ./cmd/retryledger runs --service {os.environ['OTEL_SERVICE_NAME']}")
    print(flush=True)


if __name__ == "__main__":
    main()
