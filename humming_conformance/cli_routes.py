# SPDX-License-Identifier: Apache-2.0
"""The commands ``route`` and ``routes``: what a library would run on devices that aren't here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from humming_conformance.campaign.routes import compare_routes, diff_releases, explain_route, record_routes
from humming_conformance.execution import parse_library_request
from humming_conformance.problems import parse_case


def add_routes(commands: Any) -> None:
    """Add both commands to ``argparse``'s subparsers."""
    route = commands.add_parser(
        "route",
        help="which kernel serves a case on a recorded device, and why the others don't",
        description="Which kernel serves a case on a recorded device, why the others don't, and which of ours would "
        "stand in. Exit status: 0 one serves it, 1 none does, 2 bad input.",
    )
    route.add_argument("case", help="case id, docs/case_ids.md")
    route.add_argument("--device", default="h100", help="name of a recorded device (default: h100)")
    route.add_argument("--library", action="append", default=[], help="NAME=VERSION|WHEEL|FOLDER (repeat)")
    route.set_defaults(command=_route)

    routes = commands.add_parser("routes", help="what a library runs: compare releases, record and compare baselines")
    actions = routes.add_subparsers(dest="action", required=True, metavar="ACTION")
    diff = actions.add_parser("diff", help="how two releases differ, layer by layer")
    diff.add_argument("first", metavar="VERSION|WHEEL|FOLDER")
    diff.add_argument("second", metavar="VERSION|WHEEL|FOLDER")
    diff.set_defaults(command=_diff)
    record = actions.add_parser("record", help="accept what a release runs as the baseline")
    record.set_defaults(command=_record)
    compare = actions.add_parser("compare", help="how a release differs from the baseline; status 1 where it does")
    compare.set_defaults(command=_compare)
    for action in (diff, record, compare):
        action.add_argument("--kernel", default="humming", help="whose library (default: humming)")
        action.add_argument("--device", action="append", default=[], help="a recorded device (repeat; default: all)")
    for action in (record, compare):
        action.add_argument("--build", metavar="VERSION|WHEEL|FOLDER", help="default: the installed one")
        action.add_argument("--baselines", type=Path, required=True, metavar="DIR", help="folder of the baselines")


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
