# SPDX-License-Identifier: Apache-2.0
"""The weight matrix read back through scales that are hard to carry: of many binades, on activations too."""

from __future__ import annotations

from humming_conformance.formats import element_format
from humming_conformance.problems import fill
from humming_conformance.problems.case import Case
from humming_conformance.problems.regimes.readout import Readout
from humming_conformance.problems.words import Array

#: Binades of the weight scales, and where they begin: below fp16's normal numbers.
_BINADES = 10
_LOWEST = -20


class ReadoutWide(Readout):
    """As ``readout``, with weight scales of 2^-20 to 2^-10 and activation scales of five significant bits.

    Products of both scales and a weight stay exact in fp32. Formats that begin higher have ten binades from there.
    """

    name = "readout_wide"
    fault = "scales clamped, flattened or shifted to a narrower range, or rounded when they are multiplied"

    #: Its cases are chosen by hand, one for each path that scales can take: what it shows doesn't depend on the load.
    drawn = False

    @classmethod
    def refuses(cls, case: Case) -> str:
        """A bias would need more bits than fp32 has beside the smallest weights."""
        if case.problem.bias:
            return f"{cls.name} reads weights too small beside a bias; leave out the word bias"
        return super().refuses(case)

    def weight_scale(self) -> Array:
        lowest = max(_LOWEST, fill.min_exponent(self.scale_format))
        words = self.draw.words("weight_scale", self.scale_shape)
        return fill.float_code(words, self.scale_format, lowest, lowest + _BINADES, signed=False, mantissa_bits=7)

    def activation_scale(self) -> Array:
        words = self.draw.words("activation_scale", self.activation_scale_shape)
        scale_format = element_format(self.case.activation.scale_format)
        return fill.float_code(words, scale_format, -1, 2, signed=False, mantissa_bits=4)
