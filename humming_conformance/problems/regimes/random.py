# SPDX-License-Identifier: Apache-2.0
"""The plain fill: nothing overridden."""

from __future__ import annotations

from humming_conformance.problems.regimes.regime import Regime


class Random(Regime):
    """Dense random operands, judged by the bound."""

    name = "random"
    fault = "precision below the contract, and anything large enough to show in a sum of ordinary terms"
