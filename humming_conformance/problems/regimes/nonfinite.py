# SPDX-License-Identifier: Apache-2.0
"""NaN and infinity in a few activation rows: they must come out in those rows and in no other."""

from __future__ import annotations

import numpy as np

from humming_conformance.problems.case import Case
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array


class Nonfinite(Regime):
    """Random operands; of each four rows one has a NaN, one +inf, one -inf, at a drawn column."""

    name = "nonfinite"
    fault = "non-finite values swallowed, clamped, or leaked into rows that have none"

    @classmethod
    def refuses(cls, case: Case) -> str:
        if not case.activation.format.has_nan:
            return f"{case.activation.element} activations have no NaN or infinity to propagate"
        return ""

    def activation(self) -> Array:
        codes = super().activation()
        launches, m, k = self.activation_shape
        element = self.activation_format
        special = [np.nan, np.inf, -np.inf] if element.has_inf else [np.nan, np.nan, np.nan]
        table = self.arrays.constant(element.encode(np.array([*special, 0.0]), overflow="native"))
        token = self.arrays.arange(0, m).reshape(1, -1, 1)
        column = (self.draw.words("special_column", (1, m, 1)) % k).reshape(1, m, 1)
        here = (self.arrays.arange(0, k).reshape(1, 1, -1) == column) & (token % 4 < 3)
        shape = (launches, m, k)
        value = self.arrays.broadcast(table[token % 4], shape)
        return self.arrays.where(self.arrays.broadcast(here, shape), value, codes)
