# SPDX-License-Identifier: Apache-2.0
"""Cases, their ids, their operands and the committed tiers."""

from __future__ import annotations

from humming_conformance.problems.case import (
    ActivationScheme,
    Case,
    CaseError,
    Problem,
    WeightScheme,
)
from humming_conformance.problems.ids import CaseIdError, format_case, parse_case
from humming_conformance.problems.operands import Operands
from humming_conformance.problems.regimes import REGIMES, Regime, build_operands

__all__ = [
    "REGIMES",
    "ActivationScheme",
    "Case",
    "CaseError",
    "CaseIdError",
    "Operands",
    "Problem",
    "Regime",
    "WeightScheme",
    "build_operands",
    "format_case",
    "parse_case",
]
