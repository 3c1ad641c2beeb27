# SPDX-License-Identifier: Apache-2.0
"""How many workers ``-n auto`` starts for our suites."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from humming_conformance import devices, pytest_plugin
from humming_conformance.devices import Device

CPU = Device("cpu", "cpu")
GPU = Device("h200", "cuda", sm=90, memory=140 << 30)
SMALL_GPU = Device("t4", "cuda", sm=75, memory=15 << 30)


@pytest.mark.parametrize(
    ("found", "cores", "gigabytes", "expected"),
    [
        ([CPU], 8, 64, 8),
        ([CPU], 64, 16, 8),  # 2 GiB each
        ([CPU], 4, 1, 1),
        ([GPU, CPU], 16, 128, 16),
        ([GPU, CPU], 32, 128, 16),
        ([GPU, CPU], 4, 128, 4),
        ([GPU, CPU], 16, 8, 4),
        ([SMALL_GPU, CPU], 32, 128, 7),  # 2 GiB of its memory each
        ([GPU] * 8 + [CPU], 256, 560, 128),
    ],
)
def test_auto_workers(monkeypatch, found, cores, gigabytes, expected):
    """Cores and memory decide, and with GPUs their memory, up to 16 workers each."""
    assert workers(monkeypatch, found, cores, gigabytes) == expected


def test_auto_workers_under_a_memory_checker(monkeypatch):
    """Each worker needs 8 GiB of either memory."""
    assert workers(monkeypatch, [GPU, CPU], 16, 64, tool="memcheck") == 8
    assert workers(monkeypatch, [SMALL_GPU, CPU], 16, 64, tool="memcheck") == 1


def workers(monkeypatch, found, cores, gigabytes, tool=""):
    """What -n auto means on a machine with these devices, cores and GiB of memory."""
    config = SimpleNamespace(
        args=["humming_conformance.suites"],
        invocation_params=SimpleNamespace(dir="/"),
        option=SimpleNamespace(conformance_sanitize=tool),
    )
    monkeypatch.setattr(devices, "detect_devices", lambda: found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(cores))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gigabytes << 18}.__getitem__)
    return pytest_plugin.pytest_xdist_auto_num_workers(config)


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("{suites}", True),
        ("{suites}/numerics/test_numerics.py::test_output_keeps_the_contract", True),
        ("humming_conformance.suites.numerics", True),
        ("{suites}/../tests", False),
        ("{suites}/..", False),
        ("suites", False),  # of somebody else, below the current folder
    ],
)
def test_where_the_plugin_takes_part(suites, argument, named):
    """Our suites are named by a path to or below them, or by their dotted name, and by nothing else."""
    config = SimpleNamespace(
        args=[argument.format(suites=suites.suites.parent)], invocation_params=SimpleNamespace(dir=suites.folder)
    )
    assert pytest_plugin._names_our_suites(config) is named
