# SPDX-License-Identifier: Apache-2.0
"""Every code of every tensor: ±0, subnormals and extremes included."""

from __future__ import annotations

import numpy as np

from humming_conformance.formats import ElementFormat, ExponentFormat, element_format
from humming_conformance.problems import fill
from humming_conformance.problems.regimes.readout import Readout
from humming_conformance.problems.words import Array

#: Bytes at the ends of ue8m0, where kernels that shift exponents go wrong.
_UE8M0_EDGES = (0, 1, 127, 128, 254, 255)


def edge_codes(element: ElementFormat) -> np.ndarray:
    """All finite codes of a narrow format; of a 16-bit float ±0, ±1 and the ends of what is safe."""
    if element.bits <= 8:
        return fill.finite_codes(element)
    tiny = element.smallest_subnormal
    normal = tiny * 2.0 ** -np.log2(2 * element.unit_roundoff)
    values = [0.0, tiny, 3 * tiny, normal - tiny, normal, 1.0, 1.0 + 2 * element.unit_roundoff, 15.0]
    return element.encode(np.array([sign * value for value in values for sign in (1.0, -1.0)]))


class AllCodes(Readout):
    """One-hot rows, so that an output is one product and nothing cancels.

    The single value runs through the activation codes, launch by launch; each row of weights runs through all
    codes; every eighth row's ue8m0 scales run through the format's ends.
    """

    name = "all_codes"
    fault = "a code, subnormal, signed zero, extreme or scale byte that is decoded wrongly"
    exact_bits = None
    has_floor = False

    def weight(self) -> Array:
        table = fill.finite_codes(self.weight_format)
        expert = self.arrays.arange(0, self.experts).reshape(-1, 1, 1)
        row = self.arrays.arange(0, self.case.problem.n).reshape(1, -1, 1)
        k = self.arrays.arange(0, self.case.problem.k).reshape(1, 1, -1)
        return self.arrays.constant(table)[(expert * 5 + row * 3 + k + k // len(table)) % len(table)]

    def weight_scale(self) -> Array:
        scale = super().weight_scale()
        if not isinstance(self.scale_format, ExponentFormat):
            return scale
        edges = self.arrays.constant(np.array(_UE8M0_EDGES))
        row = self.arrays.arange(0, self.scale_shape[1]).reshape(1, -1, 1)
        column = self.arrays.arange(0, self.scale_shape[2]).reshape(1, 1, -1)
        edge = self.arrays.broadcast(edges[(row // 8 + column) % len(_UE8M0_EDGES)], self.scale_shape)
        return self.arrays.where(self.arrays.broadcast(row % 8 == 0, self.scale_shape), edge, scale)

    def activation(self) -> Array:
        one = int(self.activation_format.encode(1.0))
        hot = super().activation() == one
        codes = self.arrays.constant(edge_codes(self.activation_format))
        launch = self.arrays.arange(0, self.launches).reshape(-1, 1, 1)
        token = self.arrays.arange(0, self.case.problem.m).reshape(1, -1, 1)
        return hot * codes[(launch * self.case.problem.m + token) % len(codes)]

    def activation_scale(self) -> Array:
        words = self.draw.words("activation_scale", self.activation_scale_shape)
        scale_format = element_format(self.case.activation.scale_format)
        return fill.float_code(words, scale_format, -6, 0, signed=False)
