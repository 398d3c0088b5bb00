"""Runs the examples, and prints what really happened, counted inside the application, as JSON.

    run.py graphs seven --instrumentation langfuse
    run.py graphs                                   all scenarios of graphs
    run.py                                          all of all
"""
import argparse
import importlib
import json
import time

import telemetry
from counters import Counters

APPLICATIONS = ("calls", "graphs", "agents", "resume", "contracts", "budget")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("application", nargs="?", choices=APPLICATIONS)
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--instrumentation", choices=telemetry.INSTRUMENTATIONS, default="openinference")
    parser.add_argument("--crash", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    telemetry.start(arguments.instrumentation)
    if arguments.crash:
        importlib.import_module("resume.app").crash(arguments.crash)
        return
    told = []
    for application in [arguments.application] if arguments.application else APPLICATIONS:
        if application == "budget" and arguments.instrumentation != "plain":
            continue  # it has no framework that could be instrumented
        for scenario in importlib.import_module(application + ".app").SCENARIOS:
            if arguments.scenario and scenario.__name__ not in arguments.scenario:
                continue
            counters, since = Counters(), time.time()
            scenario(counters)
            telemetry.flush()
            told.append({"application": application, "scenario": scenario.__name__, "description": scenario.__doc__,
                         "since": since, "until": time.time(), **counters.totals()})
            time.sleep(0.03)  # so that the instants tell the scenarios apart
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
