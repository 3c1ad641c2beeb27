# SPDX-License-Identifier: Apache-2.0
"""Code generation: what selection names for an architecture compiles to the instructions that it promises."""

from __future__ import annotations

from humming_conformance.pytest_plugin import Judged


def test_machine_code_is_what_the_route_promises(judged: Judged) -> None:
    """It compiles, multiplies with the right instructions, doesn't spill and fits the device."""
    judged.require_pass()
