# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance baseline record | compare | accept | show``: stored measurements."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from humming_conformance.campaign.questions import BASELINES
from humming_conformance.campaign.questions.performance import TIMINGS
from humming_conformance.ledger import read_ledger
from humming_conformance.store import Baseline, BaselineError, baseline_path, read_baseline, write_baseline
from humming_conformance.store.record import accepted, differences, record, table
from humming_conformance.store.rounds import Timing, read_timings


def add_baseline(commands: Any) -> None:
    """Add the command and its own commands to an ``argparse`` subparsers object."""
    baseline = commands.add_parser("baseline", help="record, compare, accept and show stored measurements")
    actions = baseline.add_subparsers(dest="action", required=True, metavar="ACTION")

    new = actions.add_parser(
        "record", help="baselines from ledgers of runs of the performance suite, one or several machines"
    )
    new.add_argument("ledger", type=Path, nargs="+", help="ledger folder of a run with performance verdicts")
    new.add_argument(
        "--baselines", type=Path, default=BASELINES, metavar="DIR", help="where to write (default: shipped)"
    )
    new.add_argument("--replace", action="store_true", help="overwrite a baseline that is there")
    new.set_defaults(command=_record)

    compare = actions.add_parser("compare", help="how the ratios of two baselines differ")
    compare.add_argument("first", type=Path, help="baseline file")
    compare.add_argument("second", type=Path, help="another, or the ledger folder of a run")
    compare.set_defaults(command=_compare)

    accept = actions.add_parser("accept", help="take the values of a run for some cases of a baseline")
    accept.add_argument("baseline", type=Path, help="baseline file, which is changed")
    accept.add_argument("ledger", type=Path, nargs="+", help="ledger folder of a run")
    accept.add_argument("--case", action="append", required=True, metavar="ID", help="case id or pattern (repeat)")
    accept.set_defaults(command=_accept)

    show = actions.add_parser("show", help="a baseline as a table")
    show.add_argument("baseline", type=Path, help="baseline file")
    show.set_defaults(command=_show)


def _record(options: argparse.Namespace) -> int:
    baselines = _of_ledgers(options.ledger)
    paths = [baseline_path(options.baselines, each.device, each.kernel, each.library) for each in baselines]
    for path in paths:
        if path.exists() and not options.replace:
            raise BaselineError(
                f"baseline {path} is there; take single cases with `baseline accept`, or give --replace"
            )
    for path, each in zip(paths, baselines, strict=True):
        write_baseline(path, each)
        print(f"{len(each.cases)} cases in {path}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    first = read_baseline(options.first)
    second = _matching(options.second, first) if options.second.is_dir() else read_baseline(options.second)
    print("\n".join(differences(first.cases, second.cases)))
    return 0


def _accept(options: argparse.Namespace) -> int:
    old = read_baseline(options.baseline)
    matching = [each for each in _of_ledgers(options.ledger) if (each.device, each.kernel) == (old.device, old.kernel)]
    if not matching:
        raise BaselineError(f"no ledger given holds timings of {old.kernel} on {old.device}; name one that does")
    new, chosen = accepted(old, matching[0], options.case)
    write_baseline(options.baseline, new)
    print("\n".join(chosen))
    print(f"{len(chosen)} cases accepted in {options.baseline}")
    return 0


def _show(options: argparse.Namespace) -> int:
    print("\n".join(table(read_baseline(options.baseline))))
    return 0


def _matching(folder: Path, first: Baseline) -> Baseline:
    for each in _of_ledgers([folder]):
        if (each.device, each.kernel) == (first.device, first.kernel):
            return each
    raise BaselineError(f"{folder} holds no timings of {first.kernel} on {first.device}; name a ledger that does")


def _of_ledgers(folders: Iterable[Path]) -> list[Baseline]:
    """Baselines of all runs together, which must be of the same library builds."""
    timings: list[Timing] = []
    versions: dict[str, Any] = {}
    environments = []
    for folder in folders:
        ledger = read_ledger(folder)
        path = folder / TIMINGS
        if ledger.head is None or not path.exists():
            raise BaselineError(f"{folder} holds no timings; name the ledger folder of a run of the performance suite")
        environment = ledger.head.environment
        found = environment.get("libraries", {})
        if versions and found != versions:
            raise BaselineError(f"{folder} is of another library build than the ledgers before it; record builds apart")
        versions = dict(found)
        environments.append(
            {"command": list(ledger.head.command), **{key: environment.get(key) for key in _OF_MACHINE}}
        )
        timings += read_timings(path)
    provenance = {
        "recorded": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "libraries": versions,
        "runs": environments,
    }
    return record(timings, provenance)


_OF_MACHINE = ("system", "packages", "gpus", "clocks", "compiler", "conformance")
