# SPDX-License-Identifier: Apache-2.0
"""Dequantized weights of a kernel that looks up a code, scale, zero point or expert wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.dequantize import Array, Index
from humming_conformance.problems import Case, Operands

Decode = Callable[[NDArray[np.unsignedinteger]], Array]
MisreadClass = Literal["layout", "scale index", "zero point", "wrong expert"]


class Weights:
    """Parts of dequantized weights at index arrays that broadcast; NaN outside the matrix."""

    def __init__(self, case: Case, operands: Operands) -> None:
        self.case = case
        self.operands = operands
        self.experts = operands.weight.shape[0]
        self.block_n, self.group = case.weight.granularity.block_shape(case.problem.n, case.problem.k)
        self.groups = operands.weight_scale.shape[2]

    def element(self, expert: Index, channel: Index, k: Index) -> Array:
        """Decoded codes, zero points not subtracted."""
        return _at(self.case.weight.format.decode, self.operands.weight, expert, channel, k)

    def zero(self, expert: Index, channel: Index, group: Index) -> Array:
        """Zero points; 0 where the scheme has none."""
        if self.operands.zero_point is None:
            return np.zeros(np.broadcast_shapes(expert.shape, channel.shape, group.shape))
        decode: Decode = element_format(self.case.output).decode
        if self.case.weight.zero_point == "integer":
            decode = _as_numbers
        return _at(decode, self.operands.zero_point, expert, channel, group)

    def scale(self, expert: Index, channel: Index, group: Index) -> Array:
        """Scales without the second level."""
        decode = element_format(self.case.weight.scale_format).decode
        return _at(decode, self.operands.weight_scale, expert, channel // self.block_n, group)

    def second(self, expert: Index, channel: Index) -> Array:
        """Second-level scales; 1 where the scheme has none."""
        codes = self.operands.weight_scale_2
        if codes is None:
            return np.ones(np.broadcast_shapes(expert.shape, channel.shape))
        per_expert = self.case.weight.second_scale == "tensor"
        decode = element_format("fp32" if per_expert else self.case.output).decode
        return _at(
            decode,
            codes[:, None, :],
            expert,
            np.zeros_like(channel),
            np.zeros_like(channel) if per_expert else channel,
        )

    def value(self, expert: Index, channel: Index, k: Index) -> Array:
        """Whole dequantized weights."""
        group = k // self.group
        centred = self.element(expert, channel, k) - self.zero(expert, channel, group)
        return centred * self.scale(expert, channel, group) * self.second(expert, channel)


def offset_words(step: int) -> str:
    """``1 after`` or ``1 before``."""
    return f"{abs(step)} {'after' if step > 0 else 'before'}"


def misread_weights(
    weights: Weights, expert: Index, channel: Index, k: Index
) -> Iterator[tuple[MisreadClass, str, Array]]:
    """Weights (n, J) of experts (n, 1), columns (n, 1) and positions (n, J), misread in one way each.

    Yields fault class, sentence and values; NaN where a misreading would leave the matrix.
    """
    yield from _misread_places(weights, expert, channel, k)
    yield from _misread_scales(weights, expert, channel, k)
    if weights.case.weight.format.is_integer:
        yield from _misread_zero_points(weights, expert, channel, k)


def _misread_places(
    weights: Weights, expert: Index, channel: Index, k: Index
) -> Iterator[tuple[MisreadClass, str, Array]]:
    group = k // weights.group
    scale = weights.scale(expert, channel, group) * weights.second(expert, channel)
    swapped = weights.element(expert, channel, k ^ 1) - weights.zero(expert, channel, group)
    yield "layout", "codes of neighbouring positions of K are exchanged", swapped * scale
    for step in (1, -1, 2, -2, 4, -4, 8, -8):
        sentence = f"weights are those of the column {offset_words(step)}"
        yield "layout", sentence, weights.value(expert, channel + step, k)
    if weights.experts == 1:
        return
    for step in (1, -1):
        other = (expert + step) % weights.experts
        yield (
            "wrong expert",
            f"weights are those of the expert {offset_words(step)}",
            weights.value(other, channel, k),
        )
    for number in range(weights.experts):
        other = np.full_like(expert, number)
        yield "wrong expert", f"weights are those of expert {number}", weights.value(other, channel, k)


def _misread_scales(
    weights: Weights, expert: Index, channel: Index, k: Index
) -> Iterator[tuple[MisreadClass, str, Array]]:
    group = k // weights.group
    second = weights.second(expert, channel)
    centred = weights.element(expert, channel, k) - weights.zero(expert, channel, group)
    own = weights.scale(expert, channel, group)
    right = centred * own * second
    for step in (1, -1, 2, -2, 4, -4, 8, -8):
        if abs(step) < weights.groups:
            other = centred * weights.scale(expert, channel, group + step) * second
            sentence = f"scales are those of the group {offset_words(step)} in K"
            yield "scale index", sentence, np.where(np.isnan(other), right, other)
        sentence = f"scales are those of the column {offset_words(step * weights.block_n)}"
        yield (
            "scale index",
            sentence,
            centred * weights.scale(expert, channel + step * weights.block_n, group) * second,
        )
    for step in (1, -1):
        for one in _inner_groups(weights, step):
            other = centred * weights.scale(expert, channel, np.full_like(group, one + step)) * second
            sentence = f"group {one} of K has the scales of group {one + step}"
            yield "scale index", sentence, np.where(group == one, other, right)
    if weights.case.weight.second_scale != "none":
        for number in range(weights.experts):
            other = weights.second(np.full_like(expert, number), channel)
            yield "scale index", f"second-level scales are those of expert {number}", centred * own * other


def _misread_zero_points(
    weights: Weights, expert: Index, channel: Index, k: Index
) -> Iterator[tuple[MisreadClass, str, Array]]:
    group = k // weights.group
    element, zero = weights.element(expert, channel, k), weights.zero(expert, channel, group)
    scale = weights.scale(expert, channel, group) * weights.second(expert, channel)
    codes = 1 << weights.case.weight.format.bits
    for delta in (1, -1):
        yield "zero point", f"zero points are off by {delta:+d}", (element - zero - delta) * scale
        if weights.case.weight.zero_point == "integer":
            sentence = f"zero points are off by {delta:+d}, modulo {codes}"
            yield "zero point", sentence, (element - (zero + delta) % codes) * scale
    for delta in (codes // 2, -codes // 2):
        yield "zero point", f"weights are off by {-delta:+d} before scaling", (element - zero - delta) * scale
    if weights.case.weight.zero_point == "none":
        return
    yield "zero point", "zero points were not subtracted", element * scale
    for step in (1, -1):
        other = weights.zero(expert, channel, group + step)
        sentence = f"zero points are those of the group {offset_words(step)} in K"
        yield "zero point", sentence, (element - np.where(np.isnan(other), zero, other)) * scale
        sentence = f"zero points are those of the column {offset_words(step)}"
        yield "zero point", sentence, (element - weights.zero(expert, channel + step, group)) * scale
        for one in _inner_groups(weights, step):
            other = weights.zero(expert, channel, np.full_like(group, one + step))
            sentence = f"group {one} of K has the zero points of group {one + step}"
            yield "zero point", sentence, (element - np.where(group == one, other, zero)) * scale


def _inner_groups(weights: Weights, step: int) -> range:
    """Groups of K with a neighbour in direction ``step``; none where there are too many to try each."""
    return range(max(0, -step), min(weights.groups, weights.groups - step)) if weights.groups <= 64 else range(0)


def _at(decode: Decode, codes: NDArray[np.unsignedinteger], expert: Index, row: Index, column: Index) -> Array:
    """Decoded codes (E, rows, columns) at broadcast indices; NaN where row or column is outside."""
    expert, row, column = np.broadcast_arrays(expert, row, column)
    inside = (row >= 0) & (row < codes.shape[1]) & (column >= 0) & (column < codes.shape[2])
    values = decode(codes[expert, np.where(inside, row, 0), np.where(inside, column, 0)])
    return np.where(inside, values, np.nan)


def _as_numbers(codes: NDArray[np.unsignedinteger]) -> Array:
    return codes.astype(np.float64)
