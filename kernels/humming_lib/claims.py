# SPDX-License-Identifier: Apache-2.0
"""What Humming says it supports, as data.

Sources: the support matrix of the README of humming-kernels 0.1.20 (activation formats by architecture,
weight widths), docs/config.md of its repository (zero points, scale formats, padding), and the asserts of
transform.py and kernel/humming.py (multiples of N and K).
"""

from __future__ import annotations

from collections.abc import Callable

from humming_conformance.problems import Case
from humming_conformance.problems.case import PROBLEM_KINDS
from humming_conformance.protocols import Claim
from humming_conformance.support import PLAIN_CALL

Rule = tuple[str, Callable[[Case], bool]]

#: Smallest compute capability by activation format: README, "Support Matrix".
MINIMUM_SM = {"fp16": 75, "bf16": 80, "fp8_e4m3": 89, "int8": 75}


def _scale_in_output_format(case: Case) -> bool:
    return case.weight.scale_format in (case.output, "ue8m0")


def _whole_groups(case: Case) -> bool:
    return case.problem.k % (case.weight.granularity.group_size or 1) == 0


#: K is packed in whole 32-value blocks (``pack_weight``); N's padding is a multiple of 8 (``check_shape``).
_COMMON: tuple[Rule, ...] = (
    PLAIN_CALL,
    ("16-bit weight scales are in the output format", _scale_in_output_format),
    ("N is a multiple of 8", lambda case: case.problem.n % 8 == 0),
    ("K is a multiple of 32", lambda case: case.problem.k % 32 == 0),
    ("K is a multiple of the weight group", _whole_groups),
)

_GROUPS = ("g32", "g64", "g128", "channel")
_SIXTEEN_BIT = ("bf16", "fp16")


def _claim(
    weights: tuple[str, ...],
    granularities: tuple[str, ...],
    activations: tuple[str, ...],
    *,
    scale_formats: tuple[str, ...] = _SIXTEEN_BIT,
    zero_point: str = "none",
) -> Claim:
    return Claim(
        kinds=PROBLEM_KINDS,
        weights=weights,
        granularities=granularities,
        scale_formats=scale_formats,
        activations=activations,
        activation_granularities=("none",) if activations == _SIXTEEN_BIT else ("token",),
        zero_points=(zero_point,),
        rules=_COMMON,
    )


CLAIMS: tuple[Claim, ...] = (
    _claim(("int4",), _GROUPS, _SIXTEEN_BIT),
    _claim(("uint4",), _GROUPS, _SIXTEEN_BIT, zero_point="integer"),
    _claim(("fp4_e2m1",), ("g32",), _SIXTEEN_BIT, scale_formats=("ue8m0",)),
    _claim(("int8", "fp8_e4m3"), ("channel",), _SIXTEEN_BIT),
    _claim(("int4",), _GROUPS, ("fp8_e4m3", "int8")),
    _claim(("uint4",), _GROUPS, ("fp8_e4m3", "int8"), zero_point="integer"),
    _claim(("fp4_e2m1",), ("g32",), ("fp8_e4m3", "int8"), scale_formats=("ue8m0",)),
    _claim(("fp8_e4m3",), ("channel",), ("fp8_e4m3",)),
    _claim(("int8",), ("channel",), ("int8",)),
)
