# SPDX-License-Identifier: Apache-2.0
"""The command ``device record``: a profile of a GPU that is here, to be judged where it isn't."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from humming_conformance.campaign.plan import PlanError
from humming_conformance.devices import DeviceProfile
from humming_conformance.devices.profiles import PROFILES
from humming_conformance.devices.record import record_profile
from humming_conformance.execution import ExecutionError, KernelProcess, ProcessSpec, TaskRaised


def add_device(commands: Any) -> None:
    """Add the command to ``argparse``'s subparsers."""
    device = commands.add_parser("device", help="record a profile of a GPU that is here")
    actions = device.add_subparsers(dest="action", required=True, metavar="ACTION")
    record = actions.add_parser("record", help="write a new profile; one that is there is never overwritten")
    record.add_argument("profile", metavar="NAME", help="lower case letters, digits and underscores, as in subjects")
    record.add_argument("--index", type=int, default=0, help="of the CUDA device, in the driver's order (default: 0)")
    record.add_argument("--folder", type=Path, default=PROFILES, help="default: that of the shipped profiles")
    record.set_defaults(command=_record)


def _record(options: argparse.Namespace) -> int:
    try:
        with KernelProcess(ProcessSpec("the CUDA driver")) as process:
            reply = process.call("humming_conformance.devices.record:describe", timeout=60, index=options.index)
    except TaskRaised as error:
        raise PlanError(error.message) from error
    except ExecutionError as error:
        raise PlanError(f"the CUDA driver could not be asked: {error}") from error
    print(record_profile(options.profile, DeviceProfile(**reply.value), options.folder))
    return 0
