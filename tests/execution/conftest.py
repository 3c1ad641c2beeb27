# SPDX-License-Identifier: Apache-2.0
"""Kernel processes that can import ``tasks.py``."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from humming_conformance.execution import KernelProcess, ProcessPool, ProcessSpec

HERE = Path(__file__).parent

#: Seconds after which a wait for an event has failed; no passing test comes near.
PATIENCE = 60.0


@pytest.fixture(scope="session")
def spec():
    """A process with the tasks of these tests."""
    return ProcessSpec("tests", python_path=(str(HERE),))


@pytest.fixture(scope="session")
def pool():
    """Shared by tests that don't care what ran in the process before."""
    with ProcessPool() as pool:
        yield pool


@pytest.fixture
def process(spec):
    """A process of the test's own."""
    with KernelProcess(spec) as process:
        yield process


@pytest.fixture
def wait_gone():
    """Wait until a process, ours or not, has ended."""

    def wait(pid):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            assert select.select([handle], [], [], PATIENCE)[0], f"process {pid} is still there"
        finally:
            os.close(handle)

    return wait
