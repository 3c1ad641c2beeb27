# SPDX-License-Identifier: Apache-2.0
"""Neighbouring scales far apart: a scale taken from next door is off by binades."""

from __future__ import annotations

from humming_conformance.problems import fill
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array


class ScaleSpread(Regime):
    """Scales alternate between two binades, six apart, along N and K: neighbours differ by more than 2^5.

    Formats that can't go that low (fp8_e4m3 ends at 2^-6) have both binades higher.
    """

    name = "scale_spread"
    fault = "a scale taken from a neighbouring row or group, or scales flattened to a common range"

    def weight_scale(self) -> Array:
        lowest = fill.min_exponent(self.scale_format)
        top = max(-fill.typical_exponent(self.weight_format) - 1, lowest + 6)
        words = self.draw.words("weight_scale", self.scale_shape)
        high = fill.float_code(words, self.scale_format, top, top, signed=False)
        low = fill.float_code(words, self.scale_format, top - 6, top - 6, signed=False)
        row = self.arrays.arange(0, self.scale_shape[1]).reshape(-1, 1)
        column = self.arrays.arange(0, self.scale_shape[2]).reshape(1, -1)
        return self.arrays.where(self.arrays.broadcast((row + column) % 2 == 0, self.scale_shape), high, low)
