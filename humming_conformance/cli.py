# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance``: what this machine can judge, what a run would do, one subject again, ledgers, tier lists."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from humming_conformance.campaign.output import output_file
from humming_conformance.campaign.plan import PlanError, RunOptions, make_plan
from humming_conformance.campaign.run import INPUT_ERRORS
from humming_conformance.cli_baseline import add_baseline
from humming_conformance.cli_routes import add_routes
from humming_conformance.cli_vllm import add_vllm
from humming_conformance.execution import parse_library_request
from humming_conformance.ledger import LedgerError, read_ledger
from humming_conformance.protocols import Subject, Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status. Bad input is one line on standard error and status 2."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (*INPUT_ERRORS, OSError) as error:
        print(f"humming-conformance {options.name}: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="humming-conformance", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="what this machine can judge, and why not the rest")
    doctor.set_defaults(command=_doctor)

    plan = commands.add_parser("plan", help="every subject of a run and whether it would be judged here")
    plan.add_argument("--tier", default="gate", help="smoke, gate (default) or full")
    plan.set_defaults(command=_plan)

    repro = commands.add_parser(
        "repro",
        help="judge one subject again and write a script that shows it",
        description="Judge one subject again and write a script that shows it. Exit status: 0 pass, 1 fail or error, "
        "2 bad input, 3 nothing was judged (unsupported or not_run).",
    )
    repro.add_argument("subject", help="kernel:case:device, as reports print it")
    repro.add_argument("--output", metavar="FILE", help="script to write (default: repro_<digest>.py)")
    repro.add_argument("--sanitize", metavar="TOOL", default="", help="judge under memcheck, racecheck or initcheck")
    repro.set_defaults(command=_repro)

    report = commands.add_parser("report", help="one HTML file from a ledger folder")
    report.add_argument("ledger", type=Path, help="ledger folder of a finished run")
    report.add_argument("--output", metavar="FILE", default="conformance.html")
    report.set_defaults(command=_report)

    compare = commands.add_parser(
        "compare",
        help="what two ledgers judge otherwise",
        description="Compare the numerics verdicts of two ledgers. Exit status: 0 the same subjects judged alike, "
        "1 they differ, 2 bad input.",
    )
    compare.add_argument("first", type=Path, help="ledger folder of a run")
    compare.add_argument("second", type=Path, help="another")
    compare.set_defaults(command=_compare)

    margins = commands.add_parser("margins", help="how much of their bounds kernels use, as a Markdown table")
    margins.add_argument("ledger", type=Path, help="ledger folder of a run")
    margins.add_argument("--by-regime", action="store_true", help="a row for each regime")
    margins.set_defaults(command=_margins)

    tiers = commands.add_parser("tiers", help="add the cases that a kernel's tier list lacks (append-only)")
    tiers.add_argument("kernel")
    tiers.add_argument("--tier", default="gate", help="smoke, gate (default) or full")
    tiers.set_defaults(command=_tiers)

    add_baseline(commands)
    add_routes(commands)
    add_vllm(commands)

    for command in (plan, repro):
        command.add_argument("--kernel", action="append", default=[], help="name or package.module:attribute (repeat)")
        command.add_argument("--library", action="append", default=[], help="NAME=VERSION|WHEEL|FOLDER (repeat)")
    return parser


def _doctor(_options: argparse.Namespace) -> int:
    from humming_conformance.campaign.doctor import doctor_lines

    print("\n".join(doctor_lines()))
    return 0


def _plan(options: argparse.Namespace) -> int:
    from humming_conformance.report import plan_lines

    plan = make_plan(RunOptions(options.tier, tuple(options.kernel), libraries=_libraries(options)))
    for task in plan:
        reason = f": {task.support.reason}" if task.support.reason else ""
        print(f"{task.subject} {task.support.answer}{reason}")
    print("\n".join(plan_lines((task.subject.heading, task.support) for task in plan)))
    return 0


def _repro(options: argparse.Namespace) -> int:
    from humming_conformance.campaign.repro import reproduce

    try:
        subject = Subject.parse(options.subject)
    except ValueError as error:
        raise PlanError(str(error)) from error
    output = output_file("--output", options.output) if options.output is not None else None
    return reproduce(subject, options.kernel, _libraries(options), output, sanitize=options.sanitize)


def _report(options: argparse.Namespace) -> int:
    from humming_conformance.report import write_html

    output = output_file("--output", options.output)
    ledger = read_ledger(options.ledger)
    if ledger.head is None:
        raise LedgerError(f"{options.ledger} has no head; it is no ledger of a run")
    write_html(output, ledger.head, ledger.verdicts)
    print(f"{len(ledger.verdicts)} verdicts in {output}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from humming_conformance.report import compare_ledgers

    ledgers = [_numerics_verdicts(folder) for folder in (options.first, options.second)]
    comparison = compare_ledgers(*ledgers)
    print("\n".join(comparison.lines(str(options.first), str(options.second))))
    return 0 if comparison.identical else 1


def _margins(options: argparse.Namespace) -> int:
    from humming_conformance.report import margin_lines

    lines = margin_lines(_numerics_verdicts(options.ledger), by_regime=options.by_regime)
    if not lines:
        raise LedgerError(
            f"{options.ledger}: no case of it was judged; name a ledger of a run on a device it can judge on"
        )
    print("\n".join(lines))
    return 0


def _numerics_verdicts(folder: Path) -> list[Verdict]:
    verdicts = [verdict for verdict in read_ledger(folder).verdicts if verdict.suite == "numerics"]
    if not verdicts:
        raise LedgerError(f"{folder} holds no verdict of the numerics suite; name the ledger of a run of that suite")
    return verdicts


def _tiers(options: argparse.Namespace) -> int:
    from humming_conformance.campaign.arrays import extend_tier

    added = extend_tier(options.kernel, options.tier)
    print("\n".join(added))
    print(f"{len(added)} cases added to {options.tier} of {options.kernel}")
    return 0


def _libraries(options: argparse.Namespace) -> dict[str, str]:
    return dict(parse_library_request(text) for text in options.library)


if __name__ == "__main__":
    sys.exit(main())
