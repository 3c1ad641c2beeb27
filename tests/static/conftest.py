# SPDX-License-Identifier: Apache-2.0
"""The CUDA tools of this machine, or a skip that says which is missing."""

import pytest

from humming_conformance.static.toolchain import ToolMissingError, find_toolchain


@pytest.fixture(scope="session")
def tools():
    """Nvcc and the readers of machine code."""
    try:
        return find_toolchain()
    except ToolMissingError as error:
        pytest.skip(f"{error} ({error.mend})")
