# SPDX-License-Identifier: Apache-2.0
"""All products positive: biased accumulation can't hide in cancellation."""

from __future__ import annotations

from humming_conformance.formats import ElementFormat
from humming_conformance.problems import fill
from humming_conformance.problems.case import Case
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array


class SameSign(Regime):
    """Weights and activations of one sign; zero points are 0."""

    name = "same_sign"
    fault = "biased or unpromoted accumulation, which random signs average away"

    @classmethod
    def refuses(cls, case: Case) -> str:
        """Both formats must have a positive value."""
        for element in (case.weight.format, case.activation.format):
            if element.maximum <= 0:
                return f"{element.name} has no positive value"
        return ""

    def weight(self) -> Array:
        return self._positive("weight", self.weight_shape, self.weight_format)

    def zero_point(self) -> Array:
        return self.draw.words("zero_point", (self.experts, self.case.problem.n, self.scale_shape[2])) * 0

    def activation(self) -> Array:
        return self._positive("activation", self.activation_shape, self.activation_format)

    def _positive(self, tensor: str, shape: tuple[int, ...], element: ElementFormat) -> Array:
        words = self.draw.words(tensor, shape)
        if not fill.is_wide(element):
            codes = fill.finite_codes(element)
            values = element.decode(codes)
            return fill.take(words, self.arrays, codes[values > 0])
        return fill.float_code(words, element, -2, 1, signed=False)
