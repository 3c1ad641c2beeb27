# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.seeded_faults --output DIR``: seeds faults into a library and says which cases catch them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from humming_conformance.campaign.kernels import find_kernels
from humming_conformance.campaign.run import INPUT_ERRORS
from humming_conformance.execution.library import parse_library_request
from humming_conformance.problems.tiers import TIERS
from tests.seeded_faults.fault import Fault
from tests.seeded_faults.faults import FAULTS
from tests.seeded_faults.judging import Target
from tests.seeded_faults.report import render, write_page
from tests.seeded_faults.results import Results, ResultsError
from tests.seeded_faults.runner import Campaign, Settings


def main(arguments: Sequence[str] | None = None, faults: Sequence[Fault] = FAULTS) -> int:
    """Run the command; 0, or 2 where an option can't be used.

    Args:
        arguments: of the command line.
        faults: what can be seeded.
    """
    options = _parser(faults).parse_args(arguments)
    try:
        results = Results(options.output) if options.tables_only else _run(options, faults)
        tables = render(results, faults)
        (options.output / "tables.md").write_text(tables, encoding="utf-8")
        if options.page is not None:
            write_page(options.page, tables)
    except (*INPUT_ERRORS, ResultsError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(tables)
    return 0


def _run(options: argparse.Namespace, faults: Sequence[Fault]) -> Results:
    library = find_kernels((options.kernel,))[0].kernel.library
    module, request = parse_library_request(options.library) if options.library else ("", None)
    settings = Settings(options.workers, options.at_once, options.time_limit, options.budget)
    campaign = Campaign(
        Target(options.kernel, module or (library.module if library else ""), request),
        options.tier,
        [fault for fault in faults if not options.fault or fault.name in options.fault],
        options.output,
        settings,
        case_ids=options.case,
        say=lambda line: print(line, flush=True),  # noqa: T201  # a command line says how far it is
    )
    campaign.run()
    return campaign.results


def _parser(faults: Sequence[Fault]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_faults", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="results; a second call goes on from them")
    add("--kernel", default="humming", help="name or reference of the adapter (default: humming)")
    add("--library", metavar="NAME=VERSION|WHEEL|FOLDER", help="the build to seed (default: the installed one)")
    add("--tier", choices=TIERS, default="gate", help="whose cases are judged (default: gate)")
    add("--case", action="append", default=[], metavar="ID", help="this case instead of the tier's; repeatable")
    add("--fault", action="append", choices=[fault.name for fault in faults], metavar="NAME", help="repeatable")
    cores = len(os.sched_getaffinity(0))
    add("--workers", type=int, default=cores, help="processes that judge (default: one a core)")
    add("--at-once", type=int, default=max(1, cores // 4), help="faults side by side (default: a quarter of them)")
    add("--time-limit", type=float, default=60.0, metavar="S", help="seconds a case may take (default: 60)")
    add("--budget", type=float, default=float("inf"), metavar="S", help="begin no case after so many seconds")
    add("--page", type=Path, metavar="FILE", help="write the tables into this page too, behind its marker")
    add("--tables-only", action="store_true", help="judge nothing, write the tables of DIR's results")
    return parser


if __name__ == "__main__":
    sys.exit(main())
