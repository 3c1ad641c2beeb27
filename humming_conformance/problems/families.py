# SPDX-License-Identifier: Apache-2.0
"""Kinds of case that are alike in time: what binds them, and so what they are best compared with."""

from __future__ import annotations

from humming_conformance.problems.case import Case

#: Up to so many rows a kernel is bound by its weights' bytes.
DECODE_ROWS = 64


def timing_family(case: Case) -> str:
    """``dense decode``, ``dense prefill``, ``MoE decode`` or ``MoE prefill``."""
    layer = "dense" if case.problem.kind == "dense" else "MoE"
    return f"{layer} {'decode' if case.problem.rows <= DECODE_ROWS else 'prefill'}"
