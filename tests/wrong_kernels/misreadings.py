# SPDX-License-Identifier: Apache-2.0
"""Faults in how a kernel reads its operands: each returns the operands as the faulty kernel sees them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from humming_conformance.formats import element_format
from humming_conformance.problems import Case, Operands


def drops_k_tail(case: Case, operands: Operands) -> Operands:
    """Leaves out what lies beyond the last whole multiple of 64 of K."""
    codes = operands.activation.copy()
    codes[..., case.problem.k // 64 * 64 :] = 0
    return replace(operands, activation=codes)


def last_column_from_left(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Computes the last column with the weights of the one before it."""
    codes = operands.weight.copy()
    codes[:, -1] = codes[:, -2]
    return replace(operands, weight=codes)


def neighbours_scale(case: Case, operands: Operands) -> Operands:
    """Scales column N/2 with its right neighbour's scales."""
    scale, column = operands.weight_scale.copy(), case.problem.n // 2
    scale[:, column] = scale[:, column + 1]
    return replace(operands, weight_scale=scale)


def last_group_from_previous(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Scales the last group of K with the scales of the group before it."""
    scale = operands.weight_scale.copy()
    scale[:, :, -1] = scale[:, :, -2]
    return replace(operands, weight_scale=scale)


def one_scale_doubled(case: Case, operands: Operands) -> Operands:
    """Doubles the scale of one group of one column."""
    scale, target = operands.weight_scale.copy(), element_format(case.weight.scale_format)
    place = (0, case.problem.n // 3, scale.shape[2] // 2)
    scale[place] = target.encode(2 * target.decode(scale[place]))
    return replace(operands, weight_scale=scale)


def scales_cut_to_range(case: Case, operands: Operands) -> Operands:
    """Keeps the 3 binades below the largest scale only, as a fused exponent of few bits does."""
    target = element_format(case.weight.scale_format)
    values = target.decode(operands.weight_scale)
    return replace(operands, weight_scale=target.encode(np.maximum(values, np.nanmax(values) / 8)))


def scales_cut_to_eight_binades(case: Case, operands: Operands) -> Operands:
    """Keeps the 8 binades below the largest scale only."""
    target = element_format(case.weight.scale_format)
    values = target.decode(operands.weight_scale)
    return replace(operands, weight_scale=target.encode(np.maximum(values, np.nanmax(values) / 256)))


def second_scale_of_first_expert(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Uses expert 0's second-level scale for every expert."""
    assert operands.weight_scale_2 is not None
    return replace(operands, weight_scale_2=np.broadcast_to(operands.weight_scale_2[:1], operands.weight_scale_2.shape))


def token_scale_of_next(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Scales token 0 with the scale of token 1."""
    assert operands.activation_scale is not None
    scale = operands.activation_scale.copy()
    scale[:, 0] = scale[:, min(1, scale.shape[1] - 1)]
    return replace(operands, activation_scale=scale)


def zero_point_off_by_one(case: Case, operands: Operands) -> Operands:
    """Adds one to every zero point, as GPTQ's first format stores it (modulo the code's width)."""
    assert operands.zero_point is not None
    wrapped = (operands.zero_point + 1) & ((1 << case.weight.format.bits) - 1)
    return replace(operands, zero_point=wrapped.astype(operands.zero_point.dtype))


def zero_point_of_previous_group(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Uses the first group's zero points in the second group too."""
    assert operands.zero_point is not None
    codes = operands.zero_point.copy()
    codes[:, :, 1] = codes[:, :, 0]
    return replace(operands, zero_point=codes)


def order_swapped_in_one_group(case: Case, operands: Operands) -> Operands:
    """Reads the second group in the interleaved order 0 2 4 6 1 3 5 7 of its eights."""
    group = case.weight.granularity.group_size or 8
    codes = operands.weight.copy()
    eights = codes[..., group : 2 * group].reshape(*codes.shape[:2], -1, 8)
    codes[..., group : 2 * group] = eights[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(*codes.shape[:2], -1)
    return replace(operands, weight=codes)


def nibbles_swapped(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Takes the high nibble of every byte first."""
    pairs = operands.weight.reshape(*operands.weight.shape[:2], -1, 2)
    return replace(operands, weight=pairs[..., ::-1].reshape(operands.weight.shape))


def subnormal_is_zero(case: Case, operands: Operands) -> Operands:
    """Decodes the weight format's subnormals as zero."""
    values = np.abs(case.weight.format.decode(operands.weight))
    smallest_normal = 1.0 if case.weight.element == "fp4_e2m1" else 2.0**-6
    return replace(
        operands, weight=np.where(values < smallest_normal, 0, operands.weight).astype(operands.weight.dtype)
    )


def lowest_code_is_highest(case: Case, operands: Operands) -> Operands:
    """Decodes the most negative integer as its magnitude less one, as a sign-magnitude conversion does."""
    bits = case.weight.format.bits
    lowest = 1 << (bits - 1)
    return replace(operands, weight=np.where(operands.weight == lowest, lowest + 1, operands.weight).astype(np.uint8))


def activations_in_fp8(case: Case, operands: Operands) -> Operands:
    """Rounds 16-bit activations to fp8 e4m3."""
    narrow, wide = element_format("fp8_e4m3"), case.activation.format
    codes = operands.activation
    finite = np.isfinite(wide.decode(codes))
    values = narrow.decode(narrow.encode(np.where(finite, wide.decode(codes), 0.0)))
    return replace(operands, activation=np.where(finite, wide.encode(values), codes).astype(codes.dtype))


def bias_twice(case: Case, operands: Operands) -> Operands:
    """Adds the bias twice, as two slices of a split K do that both think they are the first."""
    assert operands.bias is not None
    output = element_format(case.output)
    return replace(operands, bias=output.encode(2 * output.decode(operands.bias)))


def wrong_expert_for_last_rows(case: Case, operands: Operands) -> Operands:
    """Sends the last rows of the last expert to the expert before it, as a tile with a stale id does."""
    assert operands.expert is not None
    experts = operands.expert.copy()
    for launch in experts:
        flat = launch.reshape(-1)
        last = flat.max()
        flat[np.flatnonzero(flat == last)[-4:]] = (last - 1) % case.problem.experts
    return replace(operands, expert=experts)


def tokens_swapped(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    """Computes each of the first two tokens where the other belongs."""
    codes = operands.activation.copy()
    codes[:, :2] = operands.activation[:, :2][:, ::-1]
    return replace(operands, activation=codes)


def nan_read_as_zero(case: Case, operands: Operands) -> Operands:
    """Takes NaN activations for zero."""
    values = case.activation.format.decode(operands.activation)
    return replace(operands, activation=np.where(np.isnan(values), 0, operands.activation).astype(np.uint16))
