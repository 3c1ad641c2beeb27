# SPDX-License-Identifier: Apache-2.0
"""How many workers ``-n auto`` starts for our suites."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from humming_conformance import devices, pytest_plugin
from humming_conformance.devices import Device

CPU = Device("cpu", "cpu")
GPU = Device("h200", "cuda", sm=90)


@pytest.mark.parametrize(
    ("found", "cores", "gigabytes", "expected"),
    [
        ([CPU], 8, 64, 8),
        ([CPU], 64, 16, 8),  # 2 GiB each
        ([CPU], 4, 1, 1),
        ([GPU, CPU], 16, 128, 8),
        ([GPU, CPU], 4, 128, 2),  # each beside its kernel process
        ([GPU, CPU], 16, 8, 2),
        ([GPU, CPU], 1, 2, 1),
        ([GPU] * 8 + [CPU], 128, 560, 64),
    ],
)
def test_auto_workers(monkeypatch, found, cores, gigabytes, expected):
    """Without a GPU, cores and memory decide; with GPUs, both carry twice as many processes as workers."""
    config = SimpleNamespace(args=["humming_conformance.suites"], invocation_params=SimpleNamespace(dir="/"))
    monkeypatch.setattr(devices, "detect_devices", lambda: found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(cores))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gigabytes << 18}.__getitem__)
    assert pytest_plugin.pytest_xdist_auto_num_workers(config) == expected


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
        args=[argument.format(suites=suites.suites)], invocation_params=SimpleNamespace(dir=suites.folder)
    )
    assert pytest_plugin._names_our_suites(config) is named
