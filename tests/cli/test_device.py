# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance device record`` on a machine without a driver."""

from __future__ import annotations

import argparse
import ctypes

import pytest

from humming_conformance.campaign.plan import PlanError
from humming_conformance.cli_device import add_device


def test_no_driver_is_one_error(tmp_path):
    """The text says what is missing and where to record; nothing is written."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a CUDA driver")
    parser = argparse.ArgumentParser()
    add_device(parser.add_subparsers())
    options = parser.parse_args(["device", "record", "here", "--folder", str(tmp_path)])
    with pytest.raises(PlanError, match=r"no CUDA driver here .*; record where the device is"):
        options.command(options)
    assert list(tmp_path.iterdir()) == []
