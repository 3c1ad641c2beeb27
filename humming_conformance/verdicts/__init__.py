# SPDX-License-Identifier: Apache-2.0
"""From evidence to verdict, one function per question, usable without pytest."""

from __future__ import annotations

from humming_conformance.verdicts.numerics import NumericsEvidence, judge_numerics

__all__ = ["NumericsEvidence", "judge_numerics"]
