# SPDX-License-Identifier: Apache-2.0
"""Oracles of other test suites: one number for a whole output, or one tolerance for every element.

Each takes an output and the exact result, in float64, and says whether it accepts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Oracle = Callable[[Array, Array], bool]


def calc_diff(limit: float) -> Oracle:
    """DeepGEMM's ``1 - 2 <x, y> / (<x, x> + <y, y>)``, below ``limit``."""
    return lambda got, exact: bool(1 - 2 * (got * exact).sum() / (got**2 + exact**2).sum() < limit)


def cosine(limit: float) -> Oracle:
    """Cosine similarity above ``limit``."""
    norms = np.linalg.norm
    return lambda got, exact: bool((got * exact).sum() / (norms(got) * norms(exact)) > limit)


def mean_ratio(got: Array, exact: Array) -> bool:
    """VLLM's Marlin tests: mean |error| over mean |exact| below 0.04."""
    return bool(np.abs(got - exact).mean() / np.abs(exact).mean() < 0.04)


def most_elements(got: Array, exact: Array) -> bool:
    """FlashInfer's MoE tests: 97 % of elements within 0.1 + 0.85 |exact|."""
    return bool((np.abs(got - exact) <= 0.1 + 0.85 * np.abs(exact)).mean() >= 0.97)


def of_largest(got: Array, exact: Array) -> bool:
    """Every error within 0.02 of the largest |exact|."""
    return bool(np.abs(got - exact).max() <= 0.02 * np.abs(exact).max())


def all_close(rtol: float, atol: float) -> Oracle:
    """``allclose``: every error within ``atol + rtol |exact|``."""
    return lambda got, exact: bool(np.allclose(got, exact, rtol=rtol, atol=atol))


def triton_kernels(got: Array, exact: Array) -> bool:
    """triton_kernels: errors over max(rms, |exact|) are at most 2e-2 and their rms at most 4e-3."""
    relative = np.abs(got - exact) / np.maximum(np.sqrt((exact**2).mean()), np.abs(exact))
    return bool(relative.max() <= 2e-2 and np.sqrt((relative**2).mean()) <= 4e-3)


FLAT_ORACLES: dict[str, Oracle] = {
    "calc_diff 1e-3": calc_diff(1e-3),
    "calc_diff 1e-2": calc_diff(1e-2),
    "cosine .99": cosine(0.99),
    "cosine .97": cosine(0.97),
    "mean ratio .04": mean_ratio,
    "97 % within .1 + .85": most_elements,
    "max .02": of_largest,
    "rtol .05 atol .1": all_close(0.05, 0.1),
    "rtol .01 atol .01": all_close(0.01, 0.01),
    "triton_kernels": triton_kernels,
}
