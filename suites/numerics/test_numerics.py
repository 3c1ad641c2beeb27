# SPDX-License-Identifier: Apache-2.0
"""Numerics: every output element is right, within what the kernel's declared arithmetic allows.

One item is one subject of the plan: a kernel, a case of the tier and the device that serves it here.
"""

from __future__ import annotations

from humming_conformance.pytest_plugin import Judged


def test_output_keeps_the_contract(judged: Judged) -> None:
    """Every element lies within the contract's bound, exact regimes are bit-equal, and nothing else was written."""
    judged.require_pass()
