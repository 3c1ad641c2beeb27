# SPDX-License-Identifier: Apache-2.0
"""One-hot activations read the whole weight matrix back, exactly."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.problems import fill
from humming_conformance.problems.case import Case
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array


class Readout(Regime):
    """Each row has a single 1, so each output is one dequantized weight, rounded once.

    Launch l of a dense problem reads columns l*M … l*M+M-1. With experts, the routing of launch l is that of
    launch 0 with every expert number raised by l (mod E): after E launches each token has met every expert
    with the same column, so every expert's every column is read at the case's own M and counts.
    """

    name = "readout"
    fault = "wrong code, scale, zero point, packing order, permutation or padding of any single weight"
    exact_bits: ClassVar[int | None] = 1

    @classmethod
    def refuses(cls, case: Case) -> str:
        """An activation format must have a 1."""
        if case.activation.format.maximum < 1:
            return f"{case.activation.element} activations have no 1 to read a weight with"
        return ""

    @property
    def launches(self) -> int:
        problem = self.case.problem
        return self.experts * -(-problem.k // problem.m)

    def activation(self) -> Array:
        launch = self.arrays.arange(0, self.launches).reshape(-1, 1, 1)
        token = self.arrays.arange(0, self.case.problem.m).reshape(1, -1, 1)
        k = self.arrays.arange(0, self.case.problem.k).reshape(1, 1, -1)
        column = (launch // self.experts * self.case.problem.m + token) % self.case.problem.k
        one = int(self.activation_format.encode(1.0))
        return (k == column) * one

    def activation_scale(self) -> Array:
        """Powers of two, so that they leave the weight's bits alone."""
        words = self.draw.words("activation_scale", self.activation_scale_shape)
        return fill.power_of_two(words % 4 - 2, element_format(self.case.activation.scale_format))

    def weight_scale(self) -> Array:
        """Three binades around 1 with all of the first seven mantissa bits: neighbours differ."""
        words = self.draw.words("weight_scale", self.scale_shape)
        return fill.float_code(words, self.scale_format, -1, 1, signed=False, mantissa_bits=7)

    def weight_scale_2(self) -> Array:
        """Powers of two."""
        if self.case.weight.second_scale == "tensor":
            words = self.draw.words("weight_scale_2", (self.experts, 1))
            return fill.power_of_two(words % 3 - 2, element_format("fp32"))
        words = self.draw.words("weight_scale_2", (self.experts, self.case.problem.n))
        return fill.power_of_two(words % 3 - 2, self.output_format)

    def expert(self) -> NDArray[np.int32]:
        first = super().expert()[:1]
        launch = np.arange(self.launches, dtype=np.int32).reshape(-1, 1, 1)
        return ((first + launch) % self.experts).astype(np.int32)

    def bias(self) -> Array:
        """±1, ±2: sums with a weight of few bits stay exact in fp32."""
        words = self.draw.words("bias", (self.experts, self.case.problem.n))
        return fill.float_code(words, self.output_format, 0, 1, signed=True, mantissa_bits=0)
