# SPDX-License-Identifier: Apache-2.0
"""The commands ``device``, ``route`` and ``routes``: devices that aren't here, and what a library would run there."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from humming_conformance.campaign.plan import PlanError
from humming_conformance.campaign.routes import compare_routes, diff_releases, explain_route, record_routes
from humming_conformance.devices import DeviceProfile
from humming_conformance.devices.profiles import PROFILES
from humming_conformance.devices.record import record_profile
from humming_conformance.execution import ExecutionError, KernelProcess, ProcessSpec, TaskRaised, parse_library_request
from humming_conformance.problems import parse_case
from humming_conformance.store.routes import RoutesError


def add_routes(commands: Any) -> None:
    """Add the commands to ``argparse``'s subparsers."""
    device = commands.add_parser("device", help="record a profile of a GPU that is here")
    actions = device.add_subparsers(dest="action", required=True, metavar="ACTION")
    record = actions.add_parser("record", help="write a new profile; one that is there is never overwritten")
    record.add_argument("profile", metavar="NAME", help="lower case letters, digits and underscores, as in subjects")
    record.add_argument("--index", type=int, default=0, help="of the CUDA device, in the driver's order (default: 0)")
    record.add_argument("--folder", type=Path, default=PROFILES, help="default: that of the shipped profiles")
    record.set_defaults(command=_told(_record_device))

    route = commands.add_parser(
        "route",
        help="which kernel serves a case on a recorded device, and why the others don't",
        description="Which kernel serves a case on a recorded device, why the others don't, and which of ours would "
        "stand in. Exit status: 0 one serves it, 1 none does, 2 bad input.",
    )
    route.add_argument("case", help="case id, docs/case_ids.md")
    route.add_argument("--device", default="h100", help="name of a recorded device (default: h100)")
    route.add_argument("--library", action="append", default=[], help="NAME=VERSION|WHEEL|FOLDER (repeat)")
    route.set_defaults(command=_told(_route))

    routes = commands.add_parser("routes", help="what a library runs: compare releases, record and compare baselines")
    actions = routes.add_subparsers(dest="action", required=True, metavar="ACTION")
    diff = actions.add_parser("diff", help="how two releases differ, layer by layer")
    diff.add_argument("first", metavar="VERSION|WHEEL|FOLDER")
    diff.add_argument("second", metavar="VERSION|WHEEL|FOLDER")
    diff.set_defaults(command=_told(_diff))
    record = actions.add_parser("record", help="accept what a release runs as the baseline")
    record.set_defaults(command=_told(_record))
    compare = actions.add_parser("compare", help="how a release differs from the baseline; status 1 where it does")
    compare.set_defaults(command=_told(_compare))
    for action in (diff, record, compare):
        action.add_argument("--kernel", default="humming", help="whose library (default: humming)")
        action.add_argument("--device", action="append", default=[], help="a recorded device (repeat; default: all)")
    for action in (record, compare):
        action.add_argument("--build", metavar="VERSION|WHEEL|FOLDER", help="default: the installed one")
        action.add_argument("--baselines", type=Path, required=True, metavar="DIR", help="folder of the baselines")


def _told(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command, whose own errors are those that ``humming-conformance`` tells in one line."""

    def run(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except RoutesError as error:
            raise PlanError(str(error)) from error
        except TaskRaised as error:
            raise PlanError(error.message) from error
        except ExecutionError as error:
            raise PlanError(f"a kernel process gave no answer: {error}") from error

    return run


def _record_device(options: argparse.Namespace) -> int:
    with KernelProcess(ProcessSpec("the CUDA driver")) as process:
        reply = process.call("humming_conformance.devices.record:describe", timeout=60, index=options.index)
    print(record_profile(options.profile, DeviceProfile(**reply.value), options.folder))
    return 0


def _route(options: argparse.Namespace) -> int:
    libraries = dict(parse_library_request(text) for text in options.library)
    lines, served = explain_route(parse_case(options.case), options.device, libraries)
    print("\n".join(lines))
    return 0 if served else 1


def _diff(options: argparse.Namespace) -> int:
    print("\n".join(diff_releases(options.kernel, options.first, options.second, options.device)))
    return 0


def _record(options: argparse.Namespace) -> int:
    print("\n".join(record_routes(options.kernel, options.build, options.baselines, options.device)))
    return 0


def _compare(options: argparse.Namespace) -> int:
    lines = compare_routes(options.kernel, options.baselines, options.build, options.device)
    print("\n".join(lines) or "every layer runs as accepted")
    return 1 if lines else 0
