# SPDX-License-Identifier: Apache-2.0
"""What Humming says it supports, as data.

Sources: the support matrix of the README of humming-kernels 0.1.20 (activation formats by architecture,
weight widths), docs/config.md of its repository (scale types and formats, second-level scales, zero points,
padding), the library's own ``is_humming_schema_compatible`` (schema/humming.py: which formats and group sizes
go together), and the asserts of transform.py and kernel/humming.py (multiples of N and K).
"""

from __future__ import annotations

from collections.abc import Callable

from humming_conformance.problems import Case
from humming_conformance.problems.case import PROBLEM_KINDS
from humming_conformance.protocols import Claim
from humming_conformance.support import NEUTRAL_OPERANDS

Rule = tuple[str, Callable[[Case], bool]]

#: Smallest compute capability by activation format: README, "Support Matrix".
MINIMUM_SM = {"fp16": 75, "bf16": 80, "fp8_e4m3": 89, "int8": 75}


def _scale_in_output_format(case: Case) -> bool:
    return case.weight.scale_format not in ("bf16", "fp16") or case.weight.scale_format == case.output


def _whole_groups(case: Case) -> bool:
    sizes = (case.weight.granularity.group_size, case.activation.granularity and case.activation.granularity.group_size)
    return all(case.problem.k % (size or 1) == 0 for size in sizes)


def _whole_blocks(case: Case) -> bool:
    return case.problem.n % (case.weight.granularity.group_size_n or 1) == 0


def _equal_groups(case: Case) -> bool:
    weight, activation = case.weight.granularity.group_size, case.activation.granularity
    group = activation.group_size if activation is not None else None
    return weight is None or group is None or weight == group


def _served_groups(case: Case) -> bool:
    """``is_humming_schema_compatible``: unequal groups for MXFP4 with fp8 in groups of 128 (on sm_90 alone)."""
    activation = case.activation
    wide = activation.granularity is not None and activation.granularity.group_size == 128
    mxfp4 = case.weight.element == "fp4_e2m1" and case.weight.scale_format == "ue8m0"
    return _equal_groups(case) or (mxfp4 and activation.element == "fp8_e4m3" and wide)


def unsupported_on(case: Case, sm: int) -> str:
    """Why the library doesn't serve a claimed case on a GPU of this compute capability; empty where it does."""
    minimum = MINIMUM_SM.get(case.activation.element, 0)
    if sm < minimum:
        return f"{case.activation.element} activations need sm_{minimum}, not sm_{sm}"
    if sm != 90 and not _equal_groups(case):
        return f"activation groups other than the weight's need sm_90, not sm_{sm}"
    return ""


#: K is packed in whole 32-value blocks (``pack_weight``); N's padding is a multiple of 8 (``check_shape``).
_RULES: tuple[Rule, ...] = (
    NEUTRAL_OPERANDS,
    ("16-bit weight scales are in the output format", _scale_in_output_format),
    ("N is a multiple of 8", lambda case: case.problem.n % 8 == 0),
    ("K is a multiple of 32", lambda case: case.problem.k % 32 == 0),
    ("K is a multiple of the groups of weights and activations", _whole_groups),
    ("N is a multiple of the block", _whole_blocks),
    ("an activation group is the weight's, but for MXFP4 with fp8 in groups of 128", _served_groups),
)

#: docs/config.md: ``use_batch_invariant``; a layer's stream-K locks belong to one stream at a time.
CALLS = ("batch_invariant", "graph", "streams")
_SIXTEEN_BIT = ("bf16", "fp16")
#: Groups from 256 / activation bits (``is_humming_schema_compatible``) to all of K; 96 is split into 32s.
_SMALL_GROUPS = ("g32", "g64", "g128")
_GROUPS = (*_SMALL_GROUPS, "g256", "g512", "g1024")
_GROUPS_16_BIT = ("g16", "g96", *_GROUPS)


def _claim(
    weights: tuple[str, ...],
    granularities: tuple[str, ...],
    activations: tuple[str, ...],
    *,
    scale_formats: tuple[str, ...] = _SIXTEEN_BIT,
    activation_groups: tuple[str, ...] = (),
    zero_point: str = "none",
    second_scales: tuple[str, ...] = ("none",),
) -> Claim:
    return Claim(
        kinds=PROBLEM_KINDS,
        weights=weights,
        granularities=granularities,
        scale_formats=scale_formats,
        activations=activations,
        activation_granularities=("none",) if activations == _SIXTEEN_BIT else ("token", *activation_groups),
        zero_points=(zero_point,),
        second_scales=second_scales,
        calls=CALLS,
        rules=_RULES,
    )


_FP8_AND_INT8 = ("fp8_e4m3", "int8")

CLAIMS: tuple[Claim, ...] = (
    # 16-bit activations.
    _claim(("int4", "int8", "fp8_e4m3"), ("channel", *_GROUPS_16_BIT), _SIXTEEN_BIT),
    _claim(("int3",), ("channel", "g128"), _SIXTEEN_BIT),
    _claim(("uint4",), ("channel", *_GROUPS_16_BIT), _SIXTEEN_BIT, zero_point="integer"),
    _claim(("uint8",), ("channel", "g32", "g128"), _SIXTEEN_BIT, zero_point="integer"),
    _claim(("uint4",), ("channel", *_SMALL_GROUPS), _SIXTEEN_BIT, zero_point="float"),
    _claim(("int8", "fp8_e4m3"), ("tensor",), _SIXTEEN_BIT, scale_formats=("fp32",)),
    _claim(("fp8_e4m3",), ("b128x128",), _SIXTEEN_BIT, scale_formats=("fp32",)),
    _claim(("fp4_e2m1", "fp8_e4m3"), ("g32",), _SIXTEEN_BIT, scale_formats=("ue8m0",)),
    _claim(
        ("fp4_e2m1",),
        ("g16",),
        _SIXTEEN_BIT,
        scale_formats=("fp8_e4m3",),
        second_scales=("none", "tensor", "channel"),
    ),
    _claim(("int4",), ("g128",), _SIXTEEN_BIT, second_scales=("tensor", "channel")),
    _claim(("fp8_e4m3",), ("channel",), _SIXTEEN_BIT, second_scales=("tensor",)),
    # 8-bit activations of either kind.
    _claim(("int4",), ("channel", *_GROUPS), _FP8_AND_INT8, activation_groups=_SMALL_GROUPS),
    _claim(("uint4",), ("channel", *_GROUPS), _FP8_AND_INT8, activation_groups=_SMALL_GROUPS, zero_point="integer"),
    _claim(("int4",), ("g128",), _FP8_AND_INT8, second_scales=("tensor", "channel")),
    _claim(("fp4_e2m1",), ("g32",), _FP8_AND_INT8, scale_formats=("ue8m0",), activation_groups=("g32", "g128")),
    # Weights as wide as the activations.
    _claim(("fp8_e4m3",), ("channel", *_SMALL_GROUPS), ("fp8_e4m3",), activation_groups=_SMALL_GROUPS),
    _claim(("int8",), ("channel", *_SMALL_GROUPS), ("int8",), activation_groups=_SMALL_GROUPS),
    _claim(("fp8_e4m3",), ("tensor",), ("fp8_e4m3",), scale_formats=("fp32",)),
    _claim(("int8",), ("tensor",), ("int8",), scale_formats=("fp32",)),
    _claim(("fp8_e4m3",), ("b128x128",), ("fp8_e4m3",), scale_formats=("fp32",), activation_groups=("g128",)),
    _claim(("int8",), ("b128x128",), ("int8",), scale_formats=("fp32",), activation_groups=("g128",)),
    _claim(("fp8_e4m3",), ("g32",), ("fp8_e4m3",), scale_formats=("ue8m0",), activation_groups=("g32",)),
    _claim(
        ("fp4_e2m1",),
        ("g32",),
        ("fp8_e4m3",),
        scale_formats=("fp8_e4m3",),
        activation_groups=("g32",),
        second_scales=("none", "tensor"),
    ),
)
