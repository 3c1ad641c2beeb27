# SPDX-License-Identifier: Apache-2.0
"""What tests of the real library share."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def library_environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that asks the real library, with a cache folder of its own."""
    if importlib.util.find_spec("humming") is None:
        pytest.skip("humming-kernels isn't installed: pip install humming-conformance[humming]")
    environment = os.environ | {
        "HUMMING_CACHE_DIR": str(tmp_path),
        "HUMMING_COMPILER": "nvcc",
        "HUMMING_DISABLE_PARALLEL_BUILD": "1",
        "HUMMING_TEST_TUNING_SOURCE": "none",
    }
    environment.pop("PYTEST_CURRENT_TEST", None)
    return environment


@pytest.fixture
def build_environment(library_environment: dict[str, str]) -> dict[str, str]:
    """The same of a process that compiles."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc isn't installed")
    return library_environment
