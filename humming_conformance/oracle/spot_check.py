# SPDX-License-Identifier: Apache-2.0
"""A check of the reference by other means: single elements, index arithmetic, correctly rounded sums."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import Granularity, element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Array, round_input
from humming_conformance.oracle.reference import Reference
from humming_conformance.problems import Case, Operands


def spot_check(case: Case, operands: Operands, contract: Contract, checked: Reference, elements: int = 64) -> float:
    """Recompute up to ``elements`` products one by one; return the largest |difference| / allowed difference.

    Each is summed by ``math.fsum``, which rounds once, from scales looked up by index, so that neither the
    matrix product nor the expansion of scales is shared with the reference. Above 1, the reference is wrong.
    Elements are spread evenly over the judged region; those with a non-finite reference are left out.
    """
    total = checked.product.size
    chosen = np.unique(np.linspace(0, total - 1, min(elements, total)).astype(np.int64))
    worst = 0.0
    for launch, i, j in zip(*np.unravel_index(chosen, checked.product.shape), strict=True):
        expected = float(checked.product[launch, i, j])
        if not math.isfinite(expected):
            continue
        token, slot = divmod(int(checked.region.rows[i]), case.problem.top_k)
        expert = 0 if operands.expert is None else int(operands.expert[launch, token, slot])
        weight = _weight_row(case, operands, contract, expert, int(checked.region.columns[j]))
        terms = _activation_row(case, operands, contract, int(launch), token) * weight
        # Each term carries a few roundings of its own, as do those of the reference.
        own_error = 8 * 2.0**-53 * math.fsum(np.abs(terms))
        allowed = float(checked.error[launch, i, j]) + own_error
        difference = abs(math.fsum(terms) - expected)
        if math.isnan(difference):
            return math.inf
        if difference:
            worst = max(worst, difference / allowed if allowed else math.inf)
    return worst


def _weight_row(case: Case, operands: Operands, contract: Contract, expert: int, column: int) -> Array:
    """The weights of one output column, (K,)."""
    scheme = case.weight
    output = element_format(case.output)
    row, group = _grid_index(scheme.granularity, column, case.problem.n, case.problem.k)
    values = scheme.format.decode(operands.weight[expert, column])
    if operands.zero_point is not None:
        codes = operands.zero_point[expert, column, group]
        values = values - (output.decode(codes) if scheme.zero_point == "float" else codes.astype(np.float64))
    scale = element_format(scheme.scale_format).decode(operands.weight_scale[expert, row, group])
    second: Array = np.ones(1)
    if operands.weight_scale_2 is not None:
        codes = operands.weight_scale_2[expert]
        tensor = scheme.second_scale == "tensor"
        second = element_format("fp32").decode(codes[0]) if tensor else output.decode(codes[column])
    before = contract.applies("multiplier_input", scheme.second_scale)
    entering = values * (scale if before[0] else 1.0) * (second if before[1] else 1.0)
    return round_input(entering, contract.weight_input) * (1.0 if before[0] else scale) * (1.0 if before[1] else second)


def _activation_row(case: Case, operands: Operands, contract: Contract, launch: int, token: int) -> Array:
    """The activations of one token, (K,)."""
    scheme = case.activation
    values = scheme.format.decode(operands.activation[launch, token])
    if scheme.granularity is not None and operands.activation_scale is not None:
        row, group = _grid_index(scheme.granularity, token, case.problem.m, case.problem.k)
        codes = operands.activation_scale[launch, row, group]
        values = values * element_format(scheme.scale_format).decode(codes)
    return round_input(values, contract.activation_input)


def _grid_index(granularity: Granularity, row: int, rows: int, k: int) -> tuple[int, NDArray[np.int64]]:
    """The row of the scale grid that matrix row ``row`` uses, and the column of each of its elements."""
    block_rows, block_columns = granularity.block_shape(rows, k)
    return row // block_rows, np.arange(k) // block_columns
