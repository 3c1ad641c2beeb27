# SPDX-License-Identifier: Apache-2.0
"""Sparse small integers on one grid: partial sums are exact in any order, split and 16-bit reduction."""

from __future__ import annotations

import numpy as np

from humming_conformance.formats import ElementFormat, element_format
from humming_conformance.problems import fill
from humming_conformance.problems.case import Case
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array

#: Largest weight in grid steps, before the scale's factor 1 or 2.
_LIMIT = 15


def grid_step(element: ElementFormat) -> float:
    """The step of which weights are small multiples: 1, or 1/2 for float formats that end below 8."""
    return 1.0 if element.is_integer or element.maximum >= 8 or element.bits < 4 else 0.5


class ExactGrid(Regime):
    """Few activations of ±1 a row, weights of at most 15 steps, scales 1 and 2; sum of |products| <= 2^8.

    Rows differ by a power of two where activations have scales. Nonzero columns are drawn one from each of
    equal stretches of K, so that every split and every stretch of groups takes part; row 0 has column K-1.
    """

    name = "exact_grid"
    fault = "lost, doubled or misplaced partial sums: splits, reductions, tails, accumulation of several groups"
    exact_bits = 8

    @classmethod
    def refuses(cls, case: Case) -> str:
        if case.activation.format.maximum < 1:
            return f"{case.activation.element} activations have no 1"
        codes = fill.codes_where(case.weight.format, grid_step(case.weight.format), _LIMIT)
        return "" if len(codes) > 1 else f"{case.weight.element} has no small integers for {cls.name}"

    @property
    def nonzeros(self) -> int:
        """Nonzero activations a row, such that products and a bias of 16 steps stay within 2^exact_bits."""
        per_product = _LIMIT * 2 * (2 if self._grouped_activations else 1)
        if self.case.weight.second_scale != "none":
            per_product *= 2
        budget = (1 << (self.exact_bits or 0)) - (16 if self.case.problem.bias else 0)
        return max(1, min(budget // per_product, self.case.problem.k))

    @property
    def _grouped_activations(self) -> bool:
        granularity = self.case.activation.granularity
        return granularity is not None and granularity.kind == "group"

    def weight(self) -> Array:
        words = self.draw.words("weight", self.weight_shape)
        if self.case.weight.zero_point == "integer":
            zero_point = self._expand(self.zero_point())
            code = zero_point + words % (2 * _LIMIT + 1) - _LIMIT
            top = int(self.weight_format.maximum)
            code = self.arrays.where(code < 0, code * 0, code)
            return self.arrays.where(code > top, code * 0 + top, code)
        table = fill.codes_where(self.weight_format, grid_step(self.weight_format), _LIMIT)
        return fill.take(words, self.arrays, table)

    def zero_point(self) -> Array:
        if self.case.weight.zero_point == "integer":
            return super().zero_point()
        words = self.draw.words("zero_point", (self.experts, self.case.problem.n, self.scale_shape[2]))
        table = self.output_format.encode(np.arange(min(self.weight_format.maximum, _LIMIT) + 1))
        return fill.take(words, self.arrays, table)

    def weight_scale(self) -> Array:
        return fill.power_of_two(self.draw.words("weight_scale", self.scale_shape) % 2, self.scale_format)

    def weight_scale_2(self) -> Array:
        if self.case.weight.second_scale == "tensor":
            return fill.power_of_two(self.draw.words("weight_scale_2", (self.experts, 1)) % 2, element_format("fp32"))
        words = self.draw.words("weight_scale_2", (self.experts, self.case.problem.n))
        return fill.power_of_two(words % 2, self.output_format)

    def activation(self) -> Array:
        _, m, k = self.activation_shape
        nonzeros = self.nonzeros
        starts = np.arange(nonzeros) * k // nonzeros
        lengths = np.diff(np.append(starts, k))
        words = self.draw.words("activation_column", (m, nonzeros))
        column = self.arrays.constant(starts) + words % self.arrays.constant(lengths)
        column[0, nonzeros - 1] = k - 1
        stretch = np.searchsorted(starts, np.arange(k), side="right") - 1
        hit = column[:, self.arrays.constant(stretch)] == self.arrays.arange(0, k).reshape(1, -1)
        one = int(self.activation_format.encode(1.0))
        minus_one = int(self.activation_format.encode(-1.0))
        sign = self.draw.words("activation", (m, k)) % 2
        return (hit * (one + sign * (minus_one - one))).reshape(self.activation_shape)

    def activation_scale(self) -> Array:
        _, rows, columns = self.activation_scale_shape
        exponent = self.draw.words("activation_row_scale", (rows, 1)) % 3
        exponent = exponent + self.draw.words("activation_scale", (rows, columns)) % (2 if columns > 1 else 1)
        scale_format = element_format(self.case.activation.scale_format)
        return fill.power_of_two(exponent, scale_format).reshape(self.activation_scale_shape)

    def bias(self) -> Array:
        """±4 steps' multiples up to 16: on the grid of every row (row scales are at most 4)."""
        words = self.draw.words("bias", (self.experts, self.case.problem.n))
        steps = np.array([0, 4, 8, 16, -4, -8, -16]) * grid_step(self.weight_format)
        return fill.take(words, self.arrays, self.output_format.encode(steps))

    def _expand(self, zero_point: Array) -> Array:
        _, group_size = self.case.weight.granularity.block_shape(self.case.problem.n, self.case.problem.k)
        return zero_point[:, :, self.arrays.arange(0, self.case.problem.k) // group_size]


class ExactGridWide(ExactGrid):
    """The same within 2^11 steps: eight times as many terms, for kernels that reduce in fp16 or wider."""

    name = "exact_grid_wide"
    fault = "the same as exact_grid where a long sum is needed to show it; needs reduction in fp16 or wider"
    exact_bits = 11
