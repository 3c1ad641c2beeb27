# SPDX-License-Identifier: Apache-2.0
"""NaN scales in every expert that has no rows: reading what must not be read shows at once."""

from __future__ import annotations

import numpy as np

from humming_conformance.problems.case import Case
from humming_conformance.problems.distributions import DISTRIBUTIONS
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Array


class Poison(Regime):
    """Random operands; experts without rows have NaN scales and NaN biases.

    Memory outside the operands (padding rows, unowned rows, what lies behind the output) is poisoned by the
    execution of every regime; here the operands themselves are.
    """

    name = "poison"
    fault = "reading the weights of an expert that no token chose, or rows that belong to nobody"

    @classmethod
    def refuses(cls, case: Case) -> str:
        problem = case.problem
        counts = DISTRIBUTIONS[problem.distribution](problem.rows, problem.experts) if problem.experts else [1]
        if min(counts):
            return "poison needs an expert without rows; use a MoE problem with a distribution that leaves one"
        return ""

    def _poisoned(self, codes: Array, nan_code: int) -> Array:
        counts = np.bincount(self.expert().reshape(-1), minlength=self.experts)
        unhit = self.arrays.constant(counts == 0) == 1
        mask = self.arrays.broadcast(unhit.reshape(-1, *[1] * (codes.ndim - 1)), tuple(codes.shape))
        return self.arrays.where(mask, codes * 0 + nan_code, codes)

    def weight_scale(self) -> Array:
        return self._poisoned(super().weight_scale(), int(self.scale_format.encode(np.nan)))

    def bias(self) -> Array:
        return self._poisoned(super().bias(), int(self.output_format.encode(np.nan)))
