# SPDX-License-Identifier: Apache-2.0
"""The table of tensor-core steps."""

from __future__ import annotations

import pytest

from humming_conformance.oracle.tensor_core import TensorCoreStep, tensor_core_step


@pytest.mark.parametrize(
    ("sm", "bits", "mma", "expected"),
    [
        (75, 16, "mma", TensorCoreStep(4, 24)),
        (80, 16, "mma", TensorCoreStep(8, 24)),
        (90, 16, "mma", TensorCoreStep(16, 25)),
        (89, 8, "mma", TensorCoreStep(16, 13, 13)),
        (90, 8, "wgmma", TensorCoreStep(32, 13, 13)),
        (90, 8, "mma", TensorCoreStep(16, 25)),
        (100, 8, "umma", TensorCoreStep(32, 25)),
    ],
)
def test_steps_follow_mma_sim(sm: int, bits: int, mma: str, expected: TensorCoreStep):
    """Ampere and Ada add 16 bytes with 24 bits, from Hopper on 32 with 25; fp8 keeps 13 there."""
    assert tensor_core_step(sm, bits, mma) == expected


@pytest.mark.parametrize(("sm", "length"), [(75, 4), (80, 8), (90, 8)])
def test_a_step_stays_within_an_instruction(sm: int, length: int):
    """An instruction of K = 8 ends a step that would be longer, and leaves a shorter one alone."""
    assert tensor_core_step(sm, instruction_k=8).step_length == length
