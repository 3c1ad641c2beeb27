# SPDX-License-Identifier: Apache-2.0
"""A GEMM kernel in NumPy that really executes a contract: steps, promotion, splits, reduction, rounding.

Products and the alignment of terms are exact in float64; each rounding the contract names is done where it
says. Tensor-core steps follow Fasi et al., PeerJ CS 7:e330 (2021) and MMA-Sim, arXiv 2511.10909: align to the
largest exponent, truncate to F fraction bits, add exactly, truncate to the accumulator.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Factor, activation_factor, weight_factor
from humming_conformance.problems import Case, Operands

Array = NDArray[np.float64]


def accumulate(case: Case, operands: Operands, contract: Contract) -> Array:
    """Sums (L, rows, N) before bias and output rounding."""
    rows, columns = case.problem.rows, np.arange(case.problem.n)
    launch, row = (index.ravel() for index in np.indices((operands.launches, rows)))
    token, slot = np.divmod(row, case.problem.top_k)
    expert = np.zeros_like(launch) if operands.expert is None else operands.expert[launch, token, slot]
    result = np.zeros((len(launch), len(columns)))
    with np.errstate(invalid="ignore", over="ignore"):
        for number in np.unique(expert):
            mine = np.flatnonzero(expert == number)
            weight = weight_factor(case, operands, contract, int(number), columns)
            activation = activation_factor(case, operands, contract, launch[mine], token[mine])
            result[mine] = _sum(activation, weight, contract)
    return result.reshape(operands.launches, rows, case.problem.n)


def finish(case: Case, operands: Operands, contract: Contract, sums: Array, *, truncate: bool = False) -> NDArray:
    """Output codes (L, rows, N): bias where the contract adds it, rounded (or, wrongly, truncated)."""
    output = element_format(case.output)
    bias = _bias(case, operands)
    if any(contract.applies("output", case.weight.second_scale)):
        return output.encode(sums if bias is None else sums + bias, overflow="native")
    if contract.bias_application == "after_rounding" and bias is not None:
        return output.encode(output.round(sums) + bias, overflow="native")
    if bias is not None:
        sums = _round(sums + bias, "fp32")
    if not truncate:
        return output.encode(sums, overflow="native")
    magnitude = output.encode(np.abs(sums), overflow="native", rounding="down")
    return magnitude | (np.signbit(sums).astype(magnitude.dtype) << (output.bits - 1))


def run(case: Case, operands: Operands, contract: Contract) -> NDArray:
    """Output codes (L, rows, N) of the whole kernel."""
    return finish(case, operands, contract, accumulate(case, operands, contract))


def _bias(case: Case, operands: Operands) -> Array | None:
    if operands.bias is None:
        return None
    values = element_format(case.output).decode(operands.bias)
    if operands.expert is None:
        return values[0]
    return values[operands.expert.reshape(operands.launches, case.problem.rows)]


def _sum(activation: Factor, weight: Factor, contract: Contract) -> Array:
    """All K of one expert's rows: slices, each scaled, then reduced in the contract's format."""
    k = activation.multiplier.shape[1]
    tile = contract.k_tile or 1
    tiles = -(-k // tile)
    slices = min(contract.split_k, tiles)
    cuts = [min(k, tile * (tiles * part // slices)) for part in range(slices + 1)]
    total: Array | None = None
    for start, end in pairwise(cuts):
        partial = _slice(activation, weight, contract, start, end)
        if activation.row_scale is not None:
            partial = _round(partial * activation.row_scale[:, None], "fp32")
        if weight.row_scale is not None:
            at_output = 1.0 if weight.output_scale is None else weight.output_scale
            partial = _round(partial * (weight.row_scale / at_output), "fp32")
        if weight.output_scale is not None:
            # The scaled sum is rounded by the reduction, or together with the bias.
            partial = _round(partial, contract.output_format) * weight.output_scale
        if slices == 1:
            return partial
        partial = _round(partial, contract.reduction_format)
        total = partial if total is None else _round(total + partial, contract.reduction_format)
    assert total is not None
    return total


def _slice(activation: Factor, weight: Factor, contract: Contract, start: int, end: int) -> Array:
    """One split-K slice: chains of steps, promoted to fp32 at each interval or end of a group of scales."""
    borders = {start, end}
    if contract.promotion_interval is not None:
        borders |= set(range(start, end, contract.promotion_interval))
    for factor in (activation, weight):
        if factor.group_scale is not None:
            changes = np.flatnonzero((np.diff(factor.group_scale, axis=1) != 0).any(axis=0)) + 1
            borders |= {int(change) for change in changes if start < change < end}
    ordered = sorted(borders)
    total: Array | None = None
    for first, last in pairwise(ordered):
        partial = _chain(activation.multiplier[:, first:last], weight.multiplier[:, first:last], contract)
        for factor in (activation, weight):
            if factor.group_scale is not None:
                scale = factor.group_scale[:, first]
                partial = _round(partial * (scale[:, None] if factor is activation else scale), "fp32")
        total = partial if total is None else _round(total + partial, "fp32")
    assert total is not None
    return total


def _chain(a: Array, w: Array, contract: Contract) -> Array:
    """Steps of L products, one after the other, in one accumulator."""
    accumulator = np.zeros((len(a), len(w)))
    for first in range(0, a.shape[1], contract.step_length):
        a_step, w_step = (
            a[:, first : first + contract.step_length],
            w[:, first : first + contract.step_length],
        )
        # A row of zeros adds nothing; one-hot rows are zero in all steps but one. Non-finite weights spoil
        # zeros.
        rows = slice(None) if not np.isfinite(w_step).all() else np.flatnonzero((a_step != 0).any(axis=1))
        products = a_step[rows][:, None, :] * w_step[None]
        accumulator[rows] = _step(accumulator[rows], products, contract)
    return accumulator


def _step(accumulator: Array, products: Array, contract: Contract) -> Array:
    plain = products.sum(axis=-1) + accumulator
    if contract.accumulator_format == "int32":
        return plain
    if contract.step_length == 1:
        rounded = _round_bits(plain, contract.accumulator_bits)
    else:
        largest = np.maximum(np.abs(products).max(axis=-1), np.abs(accumulator))
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1 - contract.fraction_bits)
        aligned = np.trunc(products / unit[..., None]).sum(axis=-1) + np.trunc(accumulator / unit)
        rounded = _truncate_bits(aligned * unit, contract.accumulator_bits)
    if contract.accumulator_format == "fp16":
        rounded = _round(rounded, "fp16")
    return np.where(np.isfinite(plain), rounded, plain)


def _round(values: Array, name: str) -> Array:
    if name == "fp32":
        return values.astype(np.float32).astype(np.float64)
    return element_format(name).round(values)


def _round_bits(values: Array, fraction_bits: int) -> Array:
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fraction, fraction_bits + 1)), exponent - fraction_bits - 1)


def _truncate_bits(values: Array, fraction_bits: int) -> Array:
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.trunc(np.ldexp(fraction, fraction_bits + 1)), exponent - fraction_bits - 1)
