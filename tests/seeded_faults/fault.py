# SPDX-License-Identifier: Apache-2.0
"""A one-line fault as data, and the questions about a case that say where it can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming_conformance.problems import Case


@dataclass(frozen=True)
class Fault:
    """One changed line of a library.

    Attributes:
        name: ``[a-z0-9_]+``.
        fault_class: one of the fault classes that a diagnosis names.
        file: path below the library's package.
        text: what is replaced. It stands in the file exactly once; more than the changed line where that alone
            would not be unique.
        replacement: what stands there instead; one line of it differs from ``text``.
        breaks: what comes out wrong, in one sentence.
        shows: whether a case can show it. Only decides which cases are judged first.
    """

    name: str
    fault_class: str
    file: str
    text: str
    replacement: str
    breaks: str
    shows: Callable[[Case], bool]


def dense(case: Case) -> bool:
    """One matrix."""
    return case.problem.kind == "dense"


def indexed(case: Case) -> bool:
    """Rows found through sorted ids."""
    return case.problem.kind == "moe_indexed"


def contiguous(case: Case) -> bool:
    """Rows of an expert behind those of the expert before it."""
    return case.problem.kind == "moe_grouped_contiguous"


def masked(case: Case) -> bool:
    """A fixed number of rows for each expert, a count says how many are its own."""
    return case.problem.kind == "moe_grouped_masked"


def grouped(case: Case) -> bool:
    """Rows stored by expert."""
    return contiguous(case) or masked(case)


def experts(case: Case) -> bool:
    """Any kind of mixture of experts."""
    return not dense(case)


def activation_bits(case: Case) -> int:
    """Bits of an activation."""
    return case.activation.format.bits


def weight_group(case: Case) -> int:
    """Weights along K that share a scale; 0 for channel and tensor scales."""
    return case.weight.granularity.group_size or 0


def block_scales(case: Case) -> bool:
    """A weight scale for a block of N and K."""
    return case.weight.granularity.kind == "block"


def group_scales(case: Case) -> bool:
    """Weight scales for groups along K of one column."""
    return case.weight.granularity.kind == "group"


def channel_scales(case: Case) -> bool:
    """A weight scale for each column."""
    return case.weight.granularity.kind == "channel"


def token_scales(case: Case) -> bool:
    """An activation scale for each token."""
    return case.activation.granularity is not None and case.activation.granularity.kind == "token"


def activation_groups(case: Case) -> bool:
    """Activation scales for groups along K."""
    return case.activation.granularity is not None and case.activation.granularity.kind == "group"


def mxfp4(case: Case) -> bool:
    """fp4 weights with power-of-two scales."""
    return case.weight.element == "fp4_e2m1" and case.weight.scale_format == "ue8m0"


def integer_zero_point(case: Case) -> bool:
    """Zero points stored as weights are."""
    return case.weight.zero_point == "integer"
