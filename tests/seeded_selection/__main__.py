# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.seeded_selection``: seeds faults into Humming's selection code and says which rules report them.

No GPU and no compiler: only choices are judged. A fault counts as reported by a rule where the rule fails on a subject
that the unchanged library passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from humming_conformance.campaign.kernels import find_kernels
from humming_conformance.campaign.run import INPUT_ERRORS
from humming_conformance.execution import parse_library_request, resolve_library
from humming_conformance.problems.tiers import TIERS
from tests.seeded_faults.seeding import NotApplicableError, library_folder, seed
from tests.seeded_selection.faults import FAULTS, SelectionFault
from tests.seeded_selection.judging import Breach, Judged, breaches

KERNEL = "humming"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if every fault was reported, 1 if not, 2 where an option can't be used."""
    options = _parser().parse_args(arguments)
    faults = [fault for fault in FAULTS if not options.fault or fault.name in options.fault]
    try:
        table, missed = _run(options, faults)
    except (*INPUT_ERRORS, NotApplicableError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("\n".join(table) + "\n")
    return 1 if missed else 0


def _run(options: argparse.Namespace, faults: Sequence[SelectionFault]) -> tuple[list[str], int]:
    library = find_kernels((KERNEL,))[0].kernel.library
    if library is None:
        raise NotApplicableError(f"{KERNEL} has no library to seed")
    module, request = parse_library_request(options.library) if options.library else (library.module, None)
    build = resolve_library(module, library.distribution, library.module, request)
    folder = library_folder(build, library)
    judged = Judged(KERNEL, module, options.tier, options.workers)
    unchanged: dict[tuple[str, ...], set[Breach]] = {}
    table = ["| fault | what is wrong | devices | reported by |", "|---|---|---|---|"]
    missed = 0
    for fault in faults:
        if fault.devices not in unchanged:
            unchanged[fault.devices] = breaches(judged, folder, fault.devices)
        with tempfile.TemporaryDirectory(prefix="seeded-") as temporary:
            target = Path(temporary, fault.name)
            seed(fault, folder, target, library, build.version)
            new = breaches(judged, target, fault.devices) - unchanged[fault.devices]
        rules = Counter(rule for _, rule in new)
        missed += not rules
        told = ", ".join(f"`{rule}` ({count})" for rule, count in rules.most_common()) or "**nothing**"
        table.append(f"| `{fault.name}` | {fault.breaks} | {', '.join(fault.devices)} | {told} |")
        sys.stderr.write(f"{fault.name}: {told}\n")
    return table, missed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_selection", description=__doc__)
    add = parser.add_argument
    add("--library", metavar="NAME=VERSION|WHEEL|FOLDER", help="the build to seed (default: the installed one)")
    add("--tier", choices=TIERS, default="gate", help="whose cases are judged (default: gate)")
    add("--fault", action="append", choices=[fault.name for fault in FAULTS], metavar="NAME", help="repeatable")
    add("--workers", type=int, default=2, help="processes that are asked (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
