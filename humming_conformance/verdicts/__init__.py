# SPDX-License-Identifier: Apache-2.0
"""From evidence to verdict, one function per question, usable without pytest."""

from __future__ import annotations

from humming_conformance.verdicts.memory import add_findings
from humming_conformance.verdicts.numerics import NumericsEvidence, judge_numerics

__all__ = ["NumericsEvidence", "add_findings", "judge_numerics"]
