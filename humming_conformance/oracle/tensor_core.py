# SPDX-License-Identifier: Apache-2.0
"""What a tensor core keeps when it adds up 16-bit products, by architecture.

A step aligns L products and the fp32 accumulator to the largest exponent, truncates each to F fraction bits,
adds exactly and rounds to the accumulator's format. Source of L and F: MMA-Sim, arXiv 2511.10909.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorCoreStep:
    """One step: products added at once (L), fraction bits kept (F), and where that can be read."""

    step_length: int
    fraction_bits: int
    source: str


def tensor_core_step(sm: int) -> TensorCoreStep:
    """The step for fp16 or bf16 inputs and an fp32 accumulator on compute capability `sm` (80, 90…).

    Raises ValueError below 80, where bf16 has no tensor core.
    """
    if sm < 80:
        raise ValueError(f"sm_{sm} has no tensor core step for bf16: sm_80 and newer do")
    source = "MMA-Sim, arXiv 2511.10909"
    # Ampere and Ada add 16 bytes of products at a time, Hopper and Blackwell 32.
    return TensorCoreStep(16, 25, source) if sm >= 90 else TensorCoreStep(8, 24, source)
