# SPDX-License-Identifier: Apache-2.0
"""What a tensor core keeps when it adds up floating-point products, by instruction class and architecture.

A step aligns L products and the accumulator to the largest exponent, truncates each to F fraction bits, adds exactly
and keeps P fraction bits. Source of L, F and P: MMA-Sim, arXiv 2511.10909.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "truncated fused dot-add of MMA-Sim, arXiv 2511.10909"


@dataclass(frozen=True)
class TensorCoreStep:
    """One step: products added at once (L), fraction bits on alignment (F), fraction bits of the accumulator (P)."""

    step_length: int
    fraction_bits: int
    accumulator_bits: int = 23


def tensor_core_step(
    sm: int, input_bits: int = 16, mma_class: str = "mma", instruction_k: int | None = None
) -> TensorCoreStep:
    """The step for inputs of 16 or 8 bits and an fp32 accumulator.

    Args:
        sm: compute capability of the GPU that executes, which may be newer than the one a kernel was written for.
        input_bits: 16 (fp16, bf16) or 8 (fp8).
        mma_class: ``mma`` or ``wgmma``. With fp8 inputs mma.sync is native on sm_89 and from sm_120 on; sm_90 runs it
            on its fp16 cores.
        instruction_k: K of the instruction where that is less than what the core adds at once (mma.m16n8k8 on sm_80
            and later); a step never spans two instructions.
    """
    # Turing adds 8 bytes of products at a time, Ampere and Ada 16, Hopper and Blackwell 32.
    step_bytes = 32 if sm >= 90 else 16 if sm >= 80 else 8
    step_length = 8 * step_bytes // input_bits
    if instruction_k is not None:
        step_length = min(step_length, instruction_k)
    if input_bits == 8 and (sm == 89 or (sm == 90 and mma_class == "wgmma")):
        return TensorCoreStep(step_length, 13, 13)
    if input_bits == 8 and sm == 90:
        return TensorCoreStep(step_length // 2, 25)
    return TensorCoreStep(step_length, 25 if sm >= 90 else 24)
