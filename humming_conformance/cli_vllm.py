# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance vllm build``: environments in which vLLM's selection is asked."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from humming_conformance.campaign.questions.vllm import environments_folder
from humming_conformance.kernels._vllm_route.environments import (
    EnvironmentMissingError,
    build_environment,
    default_versions,
    supported_versions,
)


def add_vllm(commands: Any) -> None:
    """Add the command to an ``argparse`` subparsers object."""
    vllm = commands.add_parser("vllm", help="environments in which vLLM's selection is asked (docs/vllm_routing.md)")
    actions = vllm.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser("build", help="build them: 40 s and 1.3 GB each")
    build.add_argument("version", nargs="*", help=f"of {', '.join(supported_versions())}; default: first and last")
    build.set_defaults(command=_build)


def _build(options: argparse.Namespace) -> int:
    for version in options.version or default_versions():
        try:
            environment = build_environment(version, environments_folder())
        except EnvironmentMissingError as error:
            print(f"humming-conformance vllm: {error}; {error.mend}", file=sys.stderr)
            return 2
        print(f"vLLM {version}: {environment.python.parents[1]}")
    return 0
