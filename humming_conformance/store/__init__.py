# SPDX-License-Identifier: Apache-2.0
"""Stored baselines: what was measured, of which it is the record, and how two records differ."""

from __future__ import annotations

from humming_conformance.store.baseline import (
    SCHEMA,
    Baseline,
    BaselineError,
    CaseBaseline,
    Ratio,
    baseline_path,
    read_baseline,
    write_baseline,
)

__all__ = [
    "SCHEMA",
    "Baseline",
    "BaselineError",
    "CaseBaseline",
    "Ratio",
    "baseline_path",
    "read_baseline",
    "write_baseline",
]
