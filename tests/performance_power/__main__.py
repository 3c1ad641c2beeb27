# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.performance_power collect | analyse``: how far performance verdicts can be believed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from humming_conformance.store import BaselineError
from humming_conformance.store.rounds import read_timings
from tests.performance_power.analyse import report
from tests.performance_power.collect import DELAYED, collect


def main() -> int:
    """Run the command; 0, 1 where something was lost, or 2 where a file can't be used."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance_power", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    collecting = commands.add_parser("collect", help="time the fixed cases in fresh processes")
    collecting.add_argument("--output", type=Path, required=True, metavar="DIR", help="timings are added to it")
    collecting.add_argument("--processes", type=int, default=15, help="fresh processes (default: 15)")
    collecting.add_argument("--budget", type=float, default=500.0, metavar="S", help="begin none after that time")
    collecting.add_argument("--delay", type=float, action="append", default=[], choices=sorted(DELAYED))
    analysing = commands.add_parser("analyse", help="tables from the timings of several machines")
    analysing.add_argument("timings", type=Path, nargs="+", metavar="FILE", help="timings.jsonl of a machine")
    options = parser.parse_args()
    if options.name == "collect":
        return int(collect(options.output, options.processes, options.budget, delays=options.delay) > 0)
    try:
        timings = [timing for path in options.timings for timing in read_timings(path)]
    except BaselineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    slower = {delay: f"humming_slower_by_{round(1000 * delay)}" for delay in DELAYED}
    sys.stdout.write("\n".join(report(timings, slower)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
