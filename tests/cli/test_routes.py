# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance device`` and ``routes`` where what they need isn't there."""

from __future__ import annotations

import argparse
import ctypes

import pytest

from humming_conformance.campaign.plan import PlanError
from humming_conformance.cli_routes import add_routes
from humming_conformance.store.routes import read_routes


def test_no_driver_is_one_error(tmp_path):
    """The text says what is missing and where to record; nothing is written."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a CUDA driver")
    parser = argparse.ArgumentParser()
    add_routes(parser.add_subparsers())
    options = parser.parse_args(["device", "record", "here", "--folder", str(tmp_path)])
    with pytest.raises(PlanError, match=r"no CUDA driver here .*; record where the device is"):
        options.command(options)
    assert list(tmp_path.iterdir()) == []


def test_nothing_recorded_is_one_error(tmp_path, monkeypatch):
    """Routes are compared with what was recorded; where that is nothing, the text says how to record."""
    monkeypatch.setattr("humming_conformance.cli_routes.compare_routes", lambda *_: read_routes(tmp_path / "h100.txt"))
    parser = argparse.ArgumentParser()
    add_routes(parser.add_subparsers())
    options = parser.parse_args(["routes", "compare", "--baselines", str(tmp_path)])
    with pytest.raises(PlanError, match="no routes are recorded there; humming-conformance routes record does it"):
        options.command(options)
