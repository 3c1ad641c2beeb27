# SPDX-License-Identifier: Apache-2.0
"""Kernel processes: where libraries under test run, with time limits, GPU leases and a choice of builds."""

from __future__ import annotations

from humming_conformance.execution.errors import (
    ExecutionError,
    LeaseTimeout,
    ProcessDied,
    ProcessStartFailed,
    TaskRaised,
    TimeLimit,
)
from humming_conformance.execution.lease import gpu_lease, state_folder
from humming_conformance.execution.library import (
    LibraryBuild,
    LibraryError,
    parse_library_request,
    resolve_library,
)
from humming_conformance.execution.pool import ProcessPool
from humming_conformance.execution.process import KernelProcess, ProcessSpec, Reply

__all__ = [
    "ExecutionError",
    "KernelProcess",
    "LeaseTimeout",
    "LibraryBuild",
    "LibraryError",
    "ProcessDied",
    "ProcessPool",
    "ProcessSpec",
    "ProcessStartFailed",
    "Reply",
    "TaskRaised",
    "TimeLimit",
    "gpu_lease",
    "parse_library_request",
    "resolve_library",
    "state_folder",
]
