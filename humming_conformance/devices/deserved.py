# SPDX-License-Identifier: Apache-2.0
"""Which tensor-core instructions a quantization scheme deserves on an architecture, with the reason for each.

``mma`` are the warp's own instructions (``mma.sync``), which every architecture has; ``wgmma`` (sm_90) and ``umma``
(``tcgen05.mma``) are those of warpgroups and of tensor memory; ``mxmma`` are the warp's with scales of blocks
(``mma.sync…block_scale``). Sources: the PTX ISA 9.0, sections on ``mma``, ``wgmma.mma_async`` and ``tcgen05.mma``
(formats and targets); NVIDIA's CUTLASS for what is known to be possible with scales of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming_conformance.problems import Case

#: Rows of an expert (all rows of a dense problem) up to which reading the weights takes longer than multiplying, with
#: any instruction: 64 rows are 256 operations a byte of int4, what ``mma.sync`` does while an H100 reads one.
MEMORY_BOUND_ROWS = 64


@dataclass(frozen=True)
class Deserved:
    """Instruction classes that are no slower than the architecture allows, and why."""

    classes: tuple[str, ...]
    reason: str


_MMA_ALONE = "it has no other tensor-core instructions"


def deserved_mma(case: Case, sm: int) -> Deserved:
    """The classes that a scheme deserves where arithmetic decides, above :data:`MEMORY_BOUND_ROWS`.

    ``sm`` is a compute capability as two digits; one without an entry has ``mma`` alone.
    """
    for architectures, holds, deserved in _TABLE:
        if sm in architectures and holds(case):
            return deserved
    return Deserved(("mma",), _MMA_ALONE)


def rows_of_expert(case: Case) -> float:
    """Rows that meet one weight matrix, on average over the experts."""
    return case.problem.rows / max(case.problem.experts, 1)


def _sixteen_bit(case: Case) -> bool:
    return case.activation.granularity is None


def _scaled_once(case: Case) -> bool:
    """Whether no scale changes along K, so that sums stay where they are until the end."""
    activation = case.activation.granularity
    along_k = activation is not None and activation.kind == "group"
    return case.weight.granularity.kind in ("channel", "tensor") and not along_k


def _mx(case: Case) -> bool:
    """Whether the tensor core itself takes the scales: ue8m0 for each 32 fp8 or fp4 values."""
    weight, activation = case.weight, case.activation
    size = activation.granularity.group_size if activation.granularity else None
    scales = weight.scale_format == "ue8m0" and weight.granularity.group_size == 32 and size in (None, 32)
    return scales and activation.element.startswith("fp8") and weight.element.startswith(("fp8", "fp4"))


def _fp8(case: Case) -> bool:
    return case.activation.element.startswith("fp8")


def _int8(case: Case) -> bool:
    return case.activation.element == "int8"


def _wide_groups(case: Case) -> bool:
    """Whether each scale covers at least 128 of K: several instructions, as in CUTLASS's block scaled GEMMs."""
    granularities = (case.weight.granularity, case.activation.granularity)
    return all(found is None or found.group_size is None or found.group_size >= 128 for found in granularities)


_BLACKWELL = (100, 103, 110)
_TABLE: tuple[tuple[tuple[int, ...], Callable[[Case], bool], Deserved], ...] = (
    (
        (90,),
        lambda _case: True,
        Deserved(("wgmma",), "mma.sync reaches 63 % of an H100's peak (arXiv:2402.13499), wgmma all of it"),
    ),
    (
        _BLACKWELL,
        _sixteen_bit,
        Deserved(("umma",), "mma.sync on sm_100 is what sm_80 had; tcgen05.mma takes weights from 16-bit tiles"),
    ),
    (
        _BLACKWELL,
        lambda case: _fp8(case) and (_scaled_once(case) or _mx(case)),
        Deserved(("umma",), "tcgen05.mma takes fp8 and its ue8m0 scales as they are"),
    ),
    (
        _BLACKWELL,
        lambda case: _fp8(case) and _wide_groups(case),
        Deserved(("umma",), "sums of 128 of K leave tensor memory and are scaled, as in CUTLASS's blockwise GEMM"),
    ),
    (
        (100, 110),
        lambda case: _int8(case) and _scaled_once(case),
        Deserved(("umma",), "tcgen05.mma has kind::i8 on sm_100a and sm_110a, and not on sm_103a"),
    ),
    (
        _BLACKWELL,
        lambda _case: True,
        Deserved(("umma", "mma"), "scales of short groups, or of int8, are no operands of tcgen05.mma"),
    ),
    (
        (120, 121),
        _mx,
        Deserved(
            ("mxmma",),
            "mma.sync…block_scale takes fp8 and fp4 with their ue8m0 scales, which others apply to every sum",
        ),
    ),
    (
        (120, 121),
        lambda case: _fp8(case) and _scaled_once(case),
        Deserved(("mxmma", "mma"), "both take fp8; which of them is faster is not documented"),
    ),
)
